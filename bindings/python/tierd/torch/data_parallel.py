"""What data-parallel training needs beside ``offload(process_group=…)``: ``no_sync``, and a refusal of wrappers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.modules.module import register_module_module_registration_hook
from torch.nn.parallel import DistributedDataParallel

from ..errors import Invalid
from .ranks import Ranks
from .runtime import required_runtime, runtime_of
from .stored_parameter import stored_of

_INSTEAD = "pass process_group= to tierd.torch.offload(), which reduces the gradients itself, and do not wrap the model"


@contextlib.contextmanager
def no_sync(model: torch.nn.Module) -> Iterator[None]:
    """A context in which gradients are accumulated on each rank, as DistributedDataParallel's ``no_sync`` does. The
    first backward behind it reduces what was accumulated. Both forward and backward of a micro-batch belong inside::

        with tierd.torch.no_sync(model):
            model(first).backward()
        model(second).backward()
        optimizer.step()

    Without a ``process_group`` there is nothing to leave out, and the context changes nothing. ``Invalid``: the model
    is not offloaded, or is updated in backward, where nothing is accumulated.
    """
    runtime = required_runtime(model)
    if runtime.updates_in_backward:
        raise Invalid("update='backward' updates by each gradient and accumulates none: offload with update='step'")
    if runtime.reduction is None:
        yield
        return
    runtime.reduction.pauses += 1
    try:
        yield
    finally:
        runtime.reduction.pauses -= 1


def together(ranks: Ranks | None, what: str) -> contextlib.AbstractContextManager[None]:
    """``Ranks.together``, or nothing for a process alone."""
    return contextlib.nullcontext() if ranks is None else ranks.together(what)


def require_unwrapped(model: torch.nn.Module) -> None:
    """``Invalid`` where DistributedDataParallel reduces gradients of the model."""
    if any(isinstance(module, DistributedDataParallel) for module in model.modules()):
        raise Invalid(f"the model is in DistributedDataParallel: {_INSTEAD}")


def _refuse_wrapper(wrapper: torch.nn.Module, name: str, module: Any) -> None:
    if not isinstance(wrapper, DistributedDataParallel) or not isinstance(module, torch.nn.Module):
        return
    in_tierd = any(stored_of(parameter) is not None for parameter in module.parameters())
    if in_tierd or any(runtime_of(each) is not None for each in module.modules()):
        raise Invalid(f"a model in tierd cannot be wrapped in {type(wrapper).__name__}: {_INSTEAD}")


# torch calls it when a module becomes part of another one: so before DDP has read or registered anything.
register_module_module_registration_hook(_refuse_wrapper)
