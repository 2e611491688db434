"""CachedCast: the copy of a trained weight in a lower precision that autocast keeps until its context ends.

The idea: torch's cache has a copy of each weight that a forward has come to, half the size of the model. Such a copy
loses its bytes with the parameter, when its module's forward ends, and gets them again, by the same cast, when the
parameter does. For torch it is the same tensor meanwhile, at the same place in the graph: so a weight that is used
twice in a context has one cast and one rounded sum of gradients, as in plain torch.

The cache is torch's own, in C++. A cast is found in the graph of an operation without rows, which autocast gives it to;
where there is none yet, the cast is made, a moment before the module's forward would make it. A cast that something
else refers to, such as hooks for saved tensors, keeps its bytes. What autograd saves of one is packed as a place in the
parameter, and cast again in backward.
"""

from __future__ import annotations

import functools
import operator
import sys
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils import _python_dispatch

from ..errors import Invalid
from . import parameter_state
from .arithmetic import HALVES
from .autograd_guard import autograd_guard, stop_recording
from .tensor_views import View, no_values, tensor_over
from .uninterrupted import uninterrupted

if TYPE_CHECKING:
    from .parameter_store import ParameterStore
    from .stored_parameter import StoredParameter

_C: Any = torch._C  # Some of it has no types.
_autograd: Any = torch._C._autograd

_push, _pop = _autograd._push_saved_tensors_default_hooks, _autograd._pop_saved_tensors_default_hooks

# By dimensions of the weight: an operation for which autograd saves the weight's cast.
_OPERATIONS: dict[int, Callable[..., torch.Tensor]] = {
    2: _C._nn.linear,
    3: torch.conv1d,
    4: torch.conv2d,
    5: torch.conv3d,
}
_NEVER_CAST = (torch.nn.Embedding, torch.nn.EmbeddingBag)


class CachedCast:
    """That of one parameter in the context under way. Under the store's lock."""

    __slots__ = ("_references", "_tensor", "_version", "dtype")

    def __init__(self, tensor: torch.Tensor, version: int) -> None:
        self._tensor = weakref.ref(tensor)
        self._version = version
        self.dtype = tensor.dtype
        self._references = 0  # To the tensor, while only the cache has it.

    @property
    def is_alive(self) -> bool:
        return self._tensor() is not None

    def lies_in(self, storage: torch.UntypedStorage) -> bool:
        tensor = self._tensor()
        return tensor is not None and tensor.untyped_storage()._cdata == storage._cdata

    def count_references(self) -> None:
        self._references = _references(self._tensor)

    def fill(self, stored: StoredParameter, values: torch.Tensor) -> bool:
        """Gives it its bytes, from the parameter's values. False where the cache has it no more."""
        tensor = self._tensor()
        if tensor is None:
            return False
        if stored.version != self._version and _may_look():
            if _from_graph(stored.parameter) is not tensor:  # Kept by something else, such as a traceback.
                return False
            raise Invalid(
                f"parameter {stored.name!r} has changed inside of an autocast context, which would go on with a cast "
                "of what it was before: end the context before optimizer.step(), or call torch.clear_autocast_cache()"
            )
        with autograd_guard():
            tensor.data = values.detach().to(self.dtype)
        return True

    def empty(self) -> None:
        """Takes its bytes, unless something beside the cache refers to it."""
        counted = _references(self._tensor) == self._references
        tensor = self._tensor()
        if counted and tensor is not None:
            with autograd_guard():
                tensor.data = no_values(tensor.shape, self.dtype)


class PackedCast(NamedTuple):
    """What the graph holds instead of a tensor over the bytes of a cast."""

    stored: StoredParameter
    version: tuple[int, int]
    view: View

    def unpack(self) -> torch.Tensor:
        self.stored.require_version(self.version)
        with autograd_guard():
            values = tensor_over(self.stored.storage(), self.stored.dtype, 0, (self.stored.numel,), (1,))
            return self.view.over(values.to(self.view.dtype).untyped_storage())


def watch(store: ParameterStore, module: torch.nn.Module, own: list[StoredParameter]) -> None:
    """Finds the casts of parameters that ``module`` has, which are in use: its forward, which begins, is likely to use
    them."""
    if isinstance(module, _NEVER_CAST) or not torch.is_grad_enabled() or not _may_look():
        return
    for stored in own:
        known = stored.cast is not None and stored.cast.is_alive
        if not known and stored.dtype == torch.float32 and stored.parameter.requires_grad:
            with store.lock:
                _find(stored)


def pack(in_use: Iterable[list[StoredParameter]], value: torch.Tensor) -> PackedCast | None:
    """``value`` as a place in the cast of a parameter in use, if it lies in one: in autocast's, or in any other one,
    such as that of a frozen parameter, which is known by its bytes."""
    if value.dtype not in HALVES or value.layout is not torch.strided or type(value) is not torch.Tensor:
        return None
    if value.device.type != "cpu" or _C._functorch.is_functorch_wrapped_tensor(value):
        return None
    storage = value.untyped_storage()
    for own in in_use:
        for stored in own:
            if stored.dtype == torch.float32 and stored.numel * value.element_size() == storage.nbytes():
                known = stored.cast is not None and stored.cast.lies_in(storage)
                if known or _is_cast(stored, storage, value.dtype):
                    return PackedCast(stored, stored.present_version(), View.of(value))
    return None


def _is_cast(stored: StoredParameter, storage: torch.UntypedStorage, dtype: torch.dtype) -> bool:
    """Whether the storage has the bytes of a cast of the parameter, which is in use."""
    if stored.uses == 0:
        return False
    with autograd_guard():
        stop_recording()
        values = parameter_state.flat(stored.parameter.detach())
        found = tensor_over(storage, torch.int16, 0, (stored.numel,), (1,))
        return all(
            torch.equal(values[:count].to(dtype).view(torch.int16), found[:count]) for count in (64, stored.numel)
        )


def _find(stored: StoredParameter) -> None:
    tensor = _from_graph(stored.parameter)
    if tensor is not None and tensor.stride() == stored.strides and tensor.storage_offset() == 0:
        stored.cast = CachedCast(tensor, stored.version)
        del tensor
        stored.cast.count_references()


def _may_look() -> bool:
    """Whether autocast keeps casts, and no mode would see an operation that is not the model's."""
    if not torch.is_autocast_enabled("cpu") or not torch.is_autocast_cache_enabled():
        return False
    return _C._functorch.peek_interpreter_stack() is None and not _python_dispatch._get_current_dispatch_mode_stack()


def _from_graph(parameter: torch.Tensor) -> torch.Tensor | None:
    """The cast that the cache has of the parameter. None where this torch does not show it."""
    operation = _OPERATIONS.get(parameter.ndim)
    if operation is None or 0 in parameter.shape:
        return None
    dtype = torch.get_autocast_dtype("cpu")
    saved: list[torch.Tensor] = []
    with autograd_guard(), _C.DisableTorchFunction():
        nothing = torch.empty((0, *parameter.shape[1:]), dtype=dtype, device="cpu", requires_grad=True)
        run = functools.partial(operation, nothing, parameter)
        try:
            uninterrupted([functools.partial(_push, saved.append, operator.not_), run, _pop])
        except RuntimeError:  # Of the operation.
            _pop()
            return None
    for each in saved:
        tensor = each if each._base is None else each._base
        node: Any = tensor.grad_fn
        if node is not None and node.name() == "ToCopyBackward0" and tensor.shape == parameter.shape:
            return tensor
    return None


def _references(tensor: weakref.ref[torch.Tensor]) -> int:
    found = tensor()
    return 0 if found is None else sys.getrefcount(found)
