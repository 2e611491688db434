"""A state that an optimizer is given: which of it belongs to which parameter, and whether it fits, before anything is
loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..errors import Invalid
from .group_options import check_options, check_step
from .parameter_state import MASTER

if TYPE_CHECKING:
    from .tiered_optimizer import TieredOptimizer


def fitting(optimizer: TieredOptimizer, given: dict[str, Any]) -> list[tuple[torch.Tensor, dict[str, Any]]]:
    """The parameters that have a state in the ``state_dict`` given, with it. ``Invalid`` unless it fits them."""
    found = []
    for group, saved in zip(optimizer.param_groups, given["param_groups"], strict=False):
        check_options(saved, optimizer.defaults)
        for parameter, index in zip(group["params"], saved["params"], strict=False):  # torch refuses this itself.
            state = {kind: v for kind, v in given["state"].get(index, {}).items() if v is not None}
            if state:
                _check(optimizer, parameter, state, optimizer._kinds(saved))
                found.append((parameter, state))
    return found


def _check(optimizer: TieredOptimizer, parameter: torch.Tensor, state: dict[str, Any], kinds: list[str]) -> None:
    missing = [kind for kind in ["step"] * optimizer._counts_steps + kinds if kind not in state]
    if missing:
        shape = tuple(parameter.shape)
        raise Invalid(f"the state of a parameter of shape {shape} has no {' and no '.join(missing)}")
    if "step" in state:
        check_step(state["step"])
    for kind in (*optimizer._kinds_of_state, MASTER):
        if kind in state and state[kind].shape != parameter.shape:
            shape = tuple(state[kind].shape)
            raise Invalid(f"{kind} has shape {shape}, its parameter {tuple(parameter.shape)}")
