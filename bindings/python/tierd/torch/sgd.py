"""SGD whose state lies in tierd. torch's fused kernel updates it in place.

The result is the same, bit for bit, as that of ``torch.optim.SGD(fused=True)`` with the same number of threads.
``state_dict()`` and ``load_state_dict()`` use plain torch's format.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ..client import Client
from .arguments import checked_client
from .arithmetic import HALVES
from .slice_update import Operands
from .tiered_optimizer import TieredOptimizer


class SGD(TieredOptimizer, torch.optim.SGD):
    """``torch.optim.SGD`` with its state in tierd: a ``momentum_buffer`` for each parameter, and nothing where
    ``momentum`` is 0.

    The arguments are torch's, except ``fused``, ``foreach`` and ``differentiable``, which select among its
    implementations; ``client``, ``master_weights``, ``slice_bytes`` and ``name`` are those of
    :class:`tierd.torch.AdamW`. A parameter whose first gradient comes in a later step begins with that, where torch's
    fused kernel fails. Momentum that is 0 in a parameter's first step cannot be turned on later (``Invalid``).
    """

    _kernel: Callable[..., None] = staticmethod(torch._fused_sgd_)
    _kinds_of_state = ("momentum_buffer",)
    _counts_steps = False

    def __init__(
        self,
        params: Any,
        lr: float | torch.Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        client: Client,
        maximize: bool = False,
        fused: None = None,
        foreach: None = None,
        differentiable: bool = False,
        **storage: Any,
    ) -> None:
        checked_client(client)
        if fused is not None or foreach is not None or differentiable:
            raise TypeError("SGD always runs torch's fused kernel: leave out fused, foreach and differentiable")
        super().__init__(
            params, lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov,
            maximize=maximize, fused=True,
        )  # fmt: skip
        self._keep_state_in(client, **storage)

    @staticmethod
    def state_bytes_per_element(dtype: torch.dtype, options: dict[str, Any]) -> int:
        master = bool(options.get("master_weights")) and dtype in HALVES
        return (bool(options.get("momentum")) + master) * (4 if master else dtype.itemsize)

    def _kinds(self, group: dict[str, Any]) -> list[str]:
        return ["momentum_buffer"] if group["momentum"] != 0 else []

    def _kernel_call(self, group: dict[str, Any], operands: Operands) -> Callable[[], object]:
        values, gradients = operands.exact()
        return functools.partial(
            SGD._kernel,
            values,
            gradients,
            operands.of("momentum_buffer") if group["momentum"] != 0 else [],
            weight_decay=float(group["weight_decay"]),
            momentum=float(group["momentum"]),
            lr=float(group["lr"]),
            dampening=float(group["dampening"]),
            nesterov=group["nesterov"],
            maximize=group["maximize"],
            is_first_step=operands.first and group["momentum"] != 0,
            grad_scale=None,
            found_inf=None,
        )
