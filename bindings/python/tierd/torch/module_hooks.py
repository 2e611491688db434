"""The hooks that tierd has on the modules of a model: found by what they are of, and not by the handles that torch
returns, as an interrupt may come before one of these is kept."""

from __future__ import annotations

import functools
from typing import Any

import torch


def remove_hooks(model: torch.nn.Module, owner: object) -> None:
    """Removes those that are partials with ``owner`` as their first argument."""
    for module in model.modules():
        untyped: Any = module
        hooks = (
            module._forward_pre_hooks, module._forward_hooks, untyped._state_dict_pre_hooks, untyped._state_dict_hooks,
            untyped._load_state_dict_pre_hooks,
        )  # fmt: skip
        for found in hooks:
            for number, hook in list(found.items()):
                called: Any = getattr(hook, "hook", hook)  # Torch has some of them in an object.
                if isinstance(called, functools.partial) and called.args[:1] == (owner,):
                    del found[number]
                    untyped._forward_hooks_always_called.pop(number, None)
