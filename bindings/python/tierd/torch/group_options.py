"""Checks of a parameter group's options and of step counts, before anything depends on them."""

from __future__ import annotations

import math
import numbers
from typing import Any

import torch

from ..errors import Invalid


def check_options(group: dict[str, Any], defaults: dict[str, Any]) -> None:
    """``Invalid`` where an option that is a number by default is none in the group, or a pair of numbers none."""
    for name, default in defaults.items():
        if name not in group:
            continue  # Of a version of torch that does not have it.
        value = group[name]
        if isinstance(default, (tuple, list)):
            good = isinstance(value, (tuple, list)) and len(value) == len(default) and all(map(_is_number, value))
        else:
            good = not isinstance(default, (int, float, torch.Tensor)) or isinstance(default, bool) or _is_number(value)
        if not good:
            raise Invalid(f"the parameter group's {name} is {value!r}: give it a value like {default!r}")


def check_step(step: Any) -> None:
    """``Invalid`` unless it can be a number of updates."""
    count = float(step) if _is_number(step) else math.nan
    if not (math.isfinite(count) and count >= 0 and count == int(count)):
        raise Invalid(f"the state's step is {step!r}: it is the number of updates")


def told_options(optimizer: torch.optim.Optimizer) -> list[str]:
    """A line for each parameter group: the options that decide on the values of an update. What the caller keeps in a
    group beside them is left out."""
    return [
        f"with {_told(group, optimizer.defaults)} in parameter group {number}"
        for number, group in enumerate(optimizer.param_groups)
    ]


# How torch is to compute, not what.
_MANNERS = frozenset({"foreach", "fused", "capturable", "differentiable"})


def _told(group: dict[str, Any], defaults: dict[str, Any]) -> str:
    values = {name: group[name] for name in defaults if name in group and name not in _MANNERS}
    plain = {name: value.item() if isinstance(value, torch.Tensor) else value for name, value in values.items()}
    return ", ".join(f"{name}={value!r}" for name, value in plain.items())


def _is_number(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and not value.is_complex()
    return isinstance(value, numbers.Real)  # Those of numpy too.
