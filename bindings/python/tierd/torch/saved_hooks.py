"""Hooks for saved tensors that are not tierd's: a checkpoint's, ``save_on_cpu``, a user's own.

The idea: what such hooks keep may be the parameter itself, as ``save_on_cpu`` keeps what is on the CPU already. That is
a placeholder by the time of backward, and the unpack hook's result reaches C++ without a call that could bring its
values: the gradients would be NaN. So hooks never see a parameter that has its values for a time, but another one over
the same bytes, which owns the lease. Where they return that, the graph gets the parameter's place in tierd instead.

What holds: from the first model in tierd on, all hooks that Python gives to torch pass through ``_push``, wherever they
are opened, also in the middle of a module's forward. Tensors that are not parameters in tierd are given to them as they
are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .stored_parameter import Packed, StoredParameter, stored_of

_autograd: Any = torch._C._autograd
_push_to_torch = _autograd._push_saved_tensors_default_hooks


def watch_hooks() -> None:
    """From now on, hooks that are opened are given no parameters of a model in tierd. Again: nothing."""
    _autograd._push_saved_tensors_default_hooks = _push


class OwnHooks(torch.autograd.graph.saved_tensors_hooks):
    """Hooks of tierd, which know what a parameter is to become."""

    def __enter__(self) -> None:
        _push_to_torch(self.pack_hook, self.unpack_hook)


def push_again(hooks: tuple[Any, Any]) -> None:
    """Gives this thread hooks that another one has."""
    _push_to_torch(*hooks)


def stored_behind(value: torch.Tensor) -> StoredParameter | None:
    """What tierd has of a parameter that has its values for a time, or of that of which this is a view."""
    stored = stored_of(value)
    if stored is None and value._base is not None:
        stored = stored_of(value._base)
    return stored


def _push(pack: Callable[[torch.Tensor], Any], unpack: Callable[[Any], torch.Tensor]) -> None:
    def pack_other(value: torch.Tensor) -> Any:
        stored = stored_behind(value)
        return pack(value) if stored is None else _packed(stored, value, pack)

    def unpack_other(packed: Any) -> torch.Tensor:
        return packed.unpack() if isinstance(packed, Packed) else unpack(packed)

    _push_to_torch(pack_other, unpack_other)


def _packed(stored: StoredParameter, value: torch.Tensor, pack: Callable[[torch.Tensor], Any]) -> Any:
    place = stored.store.pack(value)  # None where the values are in memory of the process: then they may be kept.
    alias = value.detach()
    if isinstance(value, torch.nn.Parameter):  # Many hooks leave parameters as they are.
        alias = torch.Tensor._make_subclass(torch.nn.Parameter, alias, value.requires_grad)
    found = pack(alias)
    parts = found if isinstance(found, (tuple, list)) else (found,)  # save_on_cpu returns a device and a tensor.
    return place if place is not None and any(part is alias for part in parts) else found
