"""What keeps an optimizer from updating a parameter, found before anything has changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from ..errors import Invalid
from . import parameter_state
from .group_options import check_options
from .stored_parameter import stored_of

if TYPE_CHECKING:
    from .tiered_optimizer import TieredOptimizer


def require_steppable(optimizer: TieredOptimizer, parameters: Iterable[torch.Tensor]) -> None:
    """``Invalid`` where one of them cannot be updated by the gradient that it has."""
    chosen = set(parameters)
    for group in optimizer.param_groups:
        found = [parameter for parameter in group["params"] if parameter in chosen]
        if found:
            check_options(group, optimizer.defaults)
        for parameter in found:
            _require_state_and_values(optimizer, parameter, group, parameter.grad)


def require_updatable(
    optimizer: TieredOptimizer, parameter: torch.Tensor, group: dict[str, Any], gradient: torch.Tensor
) -> None:
    """``Invalid`` where no update by the gradient, with the options of the group, can be made."""
    check_options(group, optimizer.defaults)
    _require_state_and_values(optimizer, parameter, group, gradient)


def _require_state_and_values(
    optimizer: TieredOptimizer, parameter: torch.Tensor, group: dict[str, Any], gradient: torch.Tensor
) -> None:
    stored = stored_of(parameter)
    _require_usable(parameter, stored is not None, gradient)
    state = optimizer._tiered.get(parameter)
    if state is not None and (missing := [kind for kind in optimizer._kinds(group) if kind not in state.keys]):
        raise Invalid(f"an option was turned on after the first step: the state has no {missing[0]}")
    if stored is None:
        parameter_state.flat(parameter)
    else:
        stored.require_changeable()


def _require_usable(parameter: torch.Tensor, in_tierd: bool, gradient: torch.Tensor) -> None:
    if gradient.layout is not torch.strided:
        raise Invalid("sparse gradients are not supported, as in torch's fused kernels: make them dense first")
    if parameter.device.type != "cpu":
        raise Invalid(f"parameters on {parameter.device} are not supported: the state lies in host memory")
    if not in_tierd and parameter.numel() > 0 and 0 in (parameter.data_ptr(), gradient.data_ptr()):
        raise Invalid(
            f"parameters of type {type(parameter).__name__} are not supported: they have no bytes of their own"
        )
    if not in_tierd and parameter.is_neg():
        raise Invalid("parameters that torch has only noted as negated are not supported: use resolve_neg() before")
    if not parameter.is_floating_point():
        raise Invalid(f"parameters of dtype {parameter.dtype} are not supported: use a real floating-point one")
    if gradient.dtype != parameter.dtype:
        raise Invalid(f"a gradient of dtype {gradient.dtype} for a parameter of {parameter.dtype}")
