"""Adam and AdamW whose state lies in tierd. torch's fused kernels update it in place, or libtier's (``arithmetic``).

By torch's kernels, the result has the bits of ``torch.optim.AdamW(fused=True)`` with the same number of threads.
``state_dict()`` and ``load_state_dict()`` use plain torch's format.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from .. import library
from ..client import Client
from .arguments import checked_client
from .arithmetic import HALVES, Arithmetic
from .slice_update import Operands
from .tiered_optimizer import TieredOptimizer


class _TieredAdam(TieredOptimizer, torch.optim.Adam):
    """What Adam and AdamW share. As in torch, a group's ``decoupled_weight_decay`` selects the kernel: each class sets
    its own value, but an ``Adam`` uses the value of a state that it loads."""

    _kernel: Callable[..., None]
    _kinds_of_state = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")

    def __init__(
        self,
        params: Any,
        lr: float | torch.Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        client: Client,
        maximize: bool = False,
        fused: None = None,
        foreach: None = None,
        state_dtype: str | torch.dtype | None = None,
        rounding: str = "nearest",
        seed: int = 0,
        **storage: Any,
    ) -> None:
        checked_client(client)
        if fused is not None or foreach is not None:
            raise TypeError(f"{type(self).__name__} always runs torch's fused kernel: leave out fused and foreach")
        options = {"state_dtype": state_dtype, "rounding": rounding, "seed": seed, **storage}
        self._arithmetic = Arithmetic.of(options)
        super().__init__(
            params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad,
            maximize=maximize, fused=True,
        )  # fmt: skip
        self._keep_state_in(client, **storage)

    @staticmethod
    def state_bytes_per_element(dtype: torch.dtype, options: dict[str, Any]) -> int:
        arithmetic = Arithmetic.of(options)
        master = arithmetic.master_weights and dtype in HALVES
        return (2 + bool(options.get("amsgrad")) + master) * arithmetic.state_of(dtype).itemsize

    def _kinds(self, group: dict[str, Any]) -> list[str]:
        return ["exp_avg", "exp_avg_sq"] + ["max_exp_avg_sq"] * bool(group.get("amsgrad"))

    def _kernel_call(self, group: dict[str, Any], operands: Operands) -> Callable[[], object]:
        if not self._arithmetic.is_torchs(operands):
            return self._arithmetic.kernel_call(_options_of(group), operands, self._numbers)
        return functools.partial(
            (AdamW if group["decoupled_weight_decay"] else Adam)._kernel,
            *operands.exact(),
            operands.of("exp_avg"),
            operands.of("exp_avg_sq"),
            operands.of("max_exp_avg_sq") if group["amsgrad"] else [],
            operands.steps,
            amsgrad=group["amsgrad"],
            lr=group["lr"],
            beta1=float(group["betas"][0]),
            beta2=float(group["betas"][1]),
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=group["maximize"],
            grad_scale=None,
            found_inf=None,
        )


def _options_of(group: dict[str, Any]) -> library.OptimizerOptions:
    return library.OptimizerOptions(
        algorithm=library.ADAM,
        decoupled_decay=group["decoupled_weight_decay"],
        maximize=group["maximize"],
        amsgrad=group["amsgrad"],
        learning_rate=float(group["lr"]),
        beta1=float(group["betas"][0]),
        beta2=float(group["betas"][1]),
        epsilon=group["eps"],
        weight_decay=float(group["weight_decay"]),
    )


class AdamW(_TieredAdam, torch.optim.AdamW):
    """``torch.optim.AdamW`` with its state in tierd.

    The arguments are torch's, except ``fused`` and ``foreach``, which select among its implementations. ``client`` is
    the session that holds the state. ``master_weights`` keeps an fp32 copy of bf16 and fp16 parameters in tierd, and
    updates that copy. ``slice_bytes`` is how much of each kind of state is leased at once: bytes or a quantity, rounded
    down to 2 MiB, and halved where the arena is too small. ``name`` is the prefix of the keys. From its first step or
    load on, one optimizer of the client has the name (else ``AlreadyExists``).

    ``state_dtype`` is ``"float32"`` or ``"bfloat16"``, or torch's dtype, where the state is to have another type than
    the parameter: half the bytes for fp32 parameters, or exact moments for bf16 ones. ``rounding="stochastic"`` is for
    bf16 parameters without a master copy: a new value is one of its two neighbours at random, with the right mean, so
    that small updates are not lost. ``seed`` chooses the random numbers; torch's generators are not used. With either,
    the update is libtier's ``tier_optimizer_update``: the same formula in another order than torch's kernel, so other
    last bits, which depend on no slices, threads or resumes.
    """

    _kernel = staticmethod(torch._fused_adamw_)

    def __init__(
        self,
        params: Any,
        lr: float | torch.Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **options)


class Adam(_TieredAdam):
    """``torch.optim.Adam`` with its state in tierd. The arguments are those of :class:`AdamW`."""

    _kernel = staticmethod(torch._fused_adam_)
