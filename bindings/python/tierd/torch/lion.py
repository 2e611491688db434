"""Lion whose state lies in tierd; libtier's kernel updates it in place.

Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", arXiv 2302.06675: a parameter moves by the learning
rate in the direction of the sign of a mean of gradients, and weight decay is decoupled. One moment is all its state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import library
from ..client import Client
from ..errors import Invalid
from .arguments import checked_client
from .arithmetic import HALVES, Arithmetic
from .slice_update import Operands
from .tiered_optimizer import TieredOptimizer


class Lion(TieredOptimizer):
    """Lion with its state, ``exp_avg`` and ``step``, in tierd, for parameters in fp32 and bf16.

    Use a learning rate 3 to 10 times smaller than AdamW's, and a larger ``weight_decay``. ``client``, ``state_dtype``,
    ``rounding``, ``seed``, ``master_weights``, ``slice_bytes`` and ``name`` are those of :class:`tierd.torch.AdamW`. A
    parameter whose gradient is NaN becomes NaN.
    """

    _kinds_of_state = ("exp_avg",)

    def __init__(
        self,
        params: Any,
        lr: float | torch.Tensor = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0,
        *,
        client: Client,
        maximize: bool = False,
        state_dtype: str | torch.dtype | None = None,
        rounding: str = "nearest",
        seed: int = 0,
        **storage: Any,
    ) -> None:
        checked_client(client)
        if not lr >= 0 or not weight_decay >= 0 or not all(0 <= beta < 1 for beta in betas):
            raise Invalid(
                f"lr={lr}, betas={betas}, weight_decay={weight_decay}: none is negative, and betas are below 1"
            )
        options = {"state_dtype": state_dtype, "rounding": rounding, "seed": seed, **storage}
        self._arithmetic = Arithmetic.of(options)
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize})
        self._keep_state_in(client, **storage)

    @staticmethod
    def state_bytes_per_element(dtype: torch.dtype, options: dict[str, Any]) -> int:
        arithmetic = Arithmetic.of(options)
        return (1 + (arithmetic.master_weights and dtype in HALVES)) * arithmetic.state_of(dtype).itemsize

    def _check_parameter(self, parameter: torch.Tensor) -> None:
        super()._check_parameter(parameter)
        exact = torch.float32 if self._arithmetic.has_master(parameter) else parameter.dtype
        if exact not in (torch.float32, torch.bfloat16):
            raise Invalid(f"Lion is for parameters of float32 and bfloat16, and one is {parameter.dtype}")

    def _kinds(self, group: dict[str, Any]) -> list[str]:
        return ["exp_avg"]

    def _kernel_call(self, group: dict[str, Any], operands: Operands) -> Callable[[], object]:
        options = library.OptimizerOptions(
            algorithm=library.LION,
            decoupled_decay=1,
            maximize=group["maximize"],
            learning_rate=float(group["lr"]),
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            weight_decay=group["weight_decay"],
        )
        return self._arithmetic.kernel_call(options, operands, self._numbers)
