"""Activations that wait for backward in tierd instead of in the process: saved-tensor hooks (after SSDTrain, arXiv
2408.10013).

The idea: when autograd saves a tensor, the range of its storage that it looks at is copied into tierd and only a handle
stays in the graph; backward gets a fresh copy with the same offset and strides.

What holds:
  the copy is complete before pack returns, so later in-place changes never reach the saved bytes;
  two saved tensors share one copy when they are one tensor, or views of one, at the same version: it is known by its
  place in its storage, and that by a weak reference that keeps its identity from being given to another, never by an
  address. To lie in the same storage is not enough: the chunks that ATen's recurrent cells cut count versions of their
  own;
  a copy is freed when the last handle to it goes, be that after backward or with a graph that never ran;
  no two nodes of the graph get the same bytes back: one may change what it got, or give it away as a gradient, which
  torch then adds to and scales in place;
  parameters and views of them, other leaves that require gradients, tensor subclasses, other devices and small tensors
  stay in the graph as they are, and backward refuses them as in plain torch when they were changed in place meanwhile.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import itertools
import threading
import types
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import torch

from .. import finalizers
from ..client import Client
from ..errors import Error, NoMemory, NoSpace
from ..quantity import byte_count
from ..states import Part
from .arguments import checked_client
from .frames import modules_under_way
from .storage_identity import StorageIdentity
from .strands import Place, current
from .tensor_views import tensor_over

_sequences = itertools.count(1)

# Ids of activations: far from those of string keys and from ids that people type.
FIRST_ID = 0x4143_0000_0000_0000
_ids = itertools.count(FIRST_ID)

# In a node's metadata: identifies the node.
_TOKEN = "tierd.node"

# A gap this long between the first numbers of two places is one between the graphs of two steps.
_OTHER_STEP = 64

# The start of a stored range keeps its offset within a cache line, and so the alignment that kernels see.
_ALIGNMENT = 64


class _Source(NamedTuple):
    """One version of a tensor and all views of it, which share a version counter."""

    storage: int
    storage_bytes: int
    version: int
    offset: int
    shape: torch.Size
    strides: tuple[int, ...]
    dtype: torch.dtype


class _Evaluation(NamedTuple):
    """One node at work in one backward."""

    backward: int
    node: object  # Its token.


class _Restored(NamedTuple):
    """The tensor that a node got back, while it is alive, for the node's other views of it."""

    storage: StorageIdentity
    by: _Evaluation


class _Copy:
    """Bytes [begin, end) of one storage, as one source had them, in tierd. Freed by the finalizer of this object."""

    __slots__ = ("__weakref__", "begin", "end", "place", "prefetched", "restored", "tensor")

    def __init__(self, tensor: int, place: Place, begin: int, end: int) -> None:
        self.tensor = tensor
        self.place = place
        self.begin = begin
        self.end = end
        self.prefetched = False
        self.restored: _Restored | None = None  # The copy that backward got last.


class _Packed:
    """The object that the graph holds instead of a tensor."""

    __slots__ = ("copy", "dtype", "offset", "shape", "strides")

    def __init__(self, copy: _Copy, value: torch.Tensor) -> None:
        self.copy = copy
        self.dtype = value.dtype
        self.shape = value.shape
        self.strides = value.stride()
        self.offset = value.storage_offset() - copy.begin // value.element_size()


class Kept:
    """A tensor that stays in the graph, and the version that backward must find: torch itself checks versions only
    where there are no hooks."""

    __slots__ = ("output", "value", "version")

    def __init__(self, value: torch.Tensor) -> None:
        # What an operation returned knows its graph, which then would hold itself. A leaf stays the object that it is.
        self.value = value if value.is_leaf else value.detach()
        self.version = self.value._version
        node = value.grad_fn
        self.output = "" if node is None else f", which is output {value.output_nr} of {node.name()},"

    def unchanged(self) -> torch.Tensor:
        """The tensor; torch's ``RuntimeError`` when its bytes may not be those that were saved."""
        version = self.value._version
        if version == self.version:
            return self.value
        hint = "enable anomaly detection to find the operation that failed to compute its gradient, with"
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"[{self.value.type()} {list(self.value.shape)}]{self.output} is at version {version}; expected version "
            f"{self.version} instead. Hint: {hint} torch.autograd.set_detect_anomaly(True)."
        )


# A copy with its source, its tensor and its place, which ends with its sequence.
_Handle: TypeAlias = "weakref.KeyedRef[tuple[_Source, int, Place], _Copy]"


class _Storage:
    """A storage that was alive when something in it was saved, with the copies made of it."""

    __slots__ = ("copies", "identity")

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self.identity = StorageIdentity(storage)
        self.copies: dict[int, _Handle] = {}  # By sequence.


class _BackwardOrder:
    """Stored copies by their places. Backward needs the highest first: what was saved last, or as the strands say that
    run in turn. Finalizers may call ``remove`` in the middle of any method."""

    def __init__(self) -> None:
        self._handles: dict[Place, _Handle] = {}
        self._places: list[Place] = []  # Sorted; also some that were removed.

    def __len__(self) -> int:
        return len(self._handles)

    def handles(self) -> list[_Handle]:
        return list(self._handles.values())

    def add(self, place: Place, handle: _Handle) -> None:
        self._handles[place] = handle
        if len(self._places) > 2 * len(self._handles) + _OTHER_STEP:
            self._places = sorted(self._handles)
        else:
            bisect.insort(self._places, place)

    def remove(self, place: Place) -> None:
        self._handles.pop(place, None)

    def before(self, place: Place) -> Iterator[_Handle]:
        """From the next one on that backward needs behind ``place``, as long as they are of the same step."""
        for earlier in reversed(self._places[: bisect.bisect_left(self._places, place)]):
            handle = self._handles.get(earlier)
            if handle is not None:
                if place[0] - earlier[0] > _OTHER_STEP:
                    return
                place = earlier
                yield handle


class _Registry:
    """The copies alive. Outlives the context manager: graphs are freed after it. Any thread; finalizers may run in the
    middle of any method, so the lock is re-entrant."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.lock = threading.RLock()
        self.storages: dict[_Source, _Storage] = {}
        self.order = _BackwardOrder()  # Stored copies.

    def find(self, key: _Source, begin: int, end: int) -> _Copy | None:
        with self.lock:
            entry = self.storages.get(key)
            storage = None if entry is None else entry.identity.storage()
            # NumPy, or another process, may have written into memory that is not torch's, and nothing has counted that.
            if entry is None or storage is None or not storage.resizable() or storage.is_shared():
                return None
            for reference in list(entry.copies.values()):
                copy = reference()
                if copy is not None and copy.begin <= begin and end <= copy.end:
                    return copy
        return None

    def add(self, key: _Source, storage: torch.UntypedStorage, begin: int, end: int) -> _Copy:
        sequence, strand = next_sequence(), current()
        place = (sequence,) if strand is None else (*strand.copies_place(), sequence)
        copy = _Copy(next(_ids), place, begin, end)
        handle = weakref.KeyedRef(copy, None, (key, copy.tensor, place))  # type: ignore[arg-type]
        # Made before the tensor: whatever interrupts this, the tensor is freed with the copy.
        finalizers.attach(copy, functools.partial(self.drop, *handle.key))
        whole = tensor_over(storage, torch.uint8, begin, (end - begin,), (1,))
        self.client.put(copy.tensor, whole, transient=True)
        with self.lock:
            self.order.add(place, handle)
            self.storages.setdefault(key, _Storage(storage)).copies[sequence] = handle
        return copy

    def drop(self, key: _Source, tensor: int, place: Place) -> None:
        with self.lock:
            self.order.remove(place)
            entry = self.storages.get(key)
            if entry is not None:
                entry.copies.pop(place[-1], None)
                if not entry.copies:
                    del self.storages[key]
        with contextlib.suppress(Error):  # There is no tensor, or it ended with the session.
            self.client.discard(tensor)

    def before(self, copy: _Copy, bytes_max: int) -> list[tuple[_Copy, int]]:
        """The copies that backward will need after ``copy``, and how many bytes of each, up to ``bytes_max``. If the
        next one alone is larger, its first ``bytes_max`` bytes, which arrive while the rest is requested."""
        wanted: list[tuple[_Copy, int]] = []
        left = bytes_max
        with self.lock:
            for handle in self.order.before(copy.place):
                earlier = handle()
                if earlier is None:
                    continue
                length = min(earlier.end - earlier.begin, bytes_max)
                if left < length or left == 0:
                    break
                left -= length
                if not earlier.prefetched:
                    earlier.prefetched = True
                    wanted.append((earlier, length))
        return wanted


class offload_activations:
    """A context manager. The tensors that autograd saves inside it lie in tierd until backward needs them.

    Parameters are not stored in tierd. Autograd shows some of them only as anonymous views; ``model`` (or ``None``)
    names the model whose parameters these are. Tensors below ``min_bytes`` stay in the process. ``prefetch`` is how
    many bytes tierd reads ahead of backward, in backward's order. Both are bytes or quantities. The manager may be
    entered again, also nested. The graph may be used after the ``with`` block, but not after the client is closed.

    A limit: an alias made by ``.data``, ``set_`` or ``unsafe_chunk`` has a version counter of its own, so neither
    autograd's check nor this manager sees a change through it. When such an alias is changed between two saves of its
    tensor, the second save may share the copy made for the first, and backward then gets the bytes of the first.
    """

    def __init__(
        self,
        client: Client,
        *,
        model: torch.nn.Module | None = None,
        min_bytes: int | str = "64KiB",
        prefetch: int | str = "32MiB",
    ) -> None:
        self._registry = _Registry(checked_client(client))
        self._model = model
        self._min_bytes = max(1, byte_count(min_bytes, "min_bytes"))
        self._prefetch_bytes = byte_count(prefetch, "prefetch")
        self._parameters: dict[int, StorageIdentity] = {}  # By the storages' keys; also of some that are gone.
        self._parameters_max = 0  # At so many, those that are gone are taken out.
        self._hooks: list[Any] = []
        self.offloaded_bytes = 0  # Copied into tierd.
        self.shared_bytes = 0  # Saved again, by a copy that existed.

    @property
    def alive(self) -> int:
        """The number of copies in tierd."""
        return len(self._registry.order)

    @property
    def tensors(self) -> list[int]:
        """The ids of the copies in tierd."""
        return [handle.key[1] for handle in self._registry.order.handles()]

    def __enter__(self) -> offload_activations:
        self._sweep()
        if self._model is not None:
            for parameter in self._model.parameters():
                self._leave_out(parameter)
        hooks = torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack)
        hooks.__enter__()
        self._hooks.append(hooks)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self._hooks.pop().__exit__(kind, error, trace)

    def _leave_out(self, parameter: torch.Tensor) -> None:
        if type(parameter) in (torch.Tensor, torch.nn.Parameter) and parameter.layout is torch.strided:
            storage = parameter.untyped_storage()
            if storage._cdata not in self._parameters:
                if len(self._parameters) >= self._parameters_max:
                    self._sweep()
                self._parameters[storage._cdata] = StorageIdentity(storage)

    def _sweep(self) -> None:
        found = list(self._parameters.items())  # Another thread may add one.
        self._parameters = {key: identity for key, identity in found if not identity.expired()}
        self._parameters_max = 2 * len(self._parameters) + 32

    def _is_parameter(self, value: torch.Tensor) -> bool:
        base = _base_of(value)
        if isinstance(base, torch.nn.Parameter) or (base.is_leaf and base.requires_grad):
            self._leave_out(base)
            return True
        known = self._parameters.get(value.untyped_storage()._cdata)
        return known is not None and not known.expired()

    def pack(self, value: torch.Tensor) -> torch.Tensor | Kept | _Packed:
        """What autograd is to hold instead of ``value``, for :meth:`unpack`."""
        if value.is_inference():
            return value  # It counts no versions.
        if not _is_plain(value) or self._is_parameter(value):
            return Kept(value)
        begin, end = _range_of(value)
        if end - begin < self._min_bytes:
            return Kept(value)
        base = _base_of(value)
        first, last = _range_of(base)
        if 2 * (end - begin) >= last - first:
            begin, end = min(begin, first), max(end, last)  # Other views will likely follow: one copy for all.
        storage = value.untyped_storage()
        key = _source_of(base, storage)
        copy = self._registry.find(key, begin, end)
        if copy is None:
            try:
                copy = self._registry.add(key, storage, begin, end)
            except (NoSpace, NoMemory) as error:
                raise type(error)(f"{_described(value)}: {error}") from None
            self.offloaded_bytes += end - begin
        else:
            self.shared_bytes += end - begin
        return _Packed(copy, value)

    def unpack(self, packed: torch.Tensor | Kept | _Packed) -> torch.Tensor:
        if isinstance(packed, Kept):
            return packed.unchanged()
        if isinstance(packed, torch.Tensor):
            return packed
        copy = packed.copy
        # Held until they have been requested: another thread, or the collector, may free their graph.
        ahead = self._registry.before(copy, self._prefetch_bytes)
        if ahead:
            self._registry.client.prefetch([Part(earlier.tensor, 0, length) for earlier, length in ahead])
        by, last = _evaluation(), copy.restored
        storage = last.storage.storage() if last is not None and by is not None and last.by == by else None
        if storage is None:
            whole = torch.empty(copy.end - copy.begin, dtype=torch.uint8, device="cpu")
            self._registry.client.get_into(copy.tensor, whole)
            storage = whole.untyped_storage()
            copy.restored = None if by is None else _Restored(StorageIdentity(storage), by)
            copy.prefetched = False
        return tensor_over(storage, packed.dtype, packed.offset, packed.shape, packed.strides)


def _described(value: torch.Tensor) -> str:
    """What a tensor is that has no room, for a sentence: its id says nothing to a person."""
    modules = modules_under_way()
    what = f"({str(value.dtype).removeprefix('torch.')}, shape {tuple(value.shape)})"
    if not modules:
        return f"an activation {what}"
    name = next((name for name, module in modules[-1].named_modules() if module is modules[0] and name), "")
    return f"an activation of {f'module {name!r}, ' if name else ''}{type(modules[0]).__name__} {what}"


def next_sequence() -> int:
    """A number above those of all copies made so far."""
    return next(_sequences)


def _evaluation() -> _Evaluation | None:
    """The node that backward is executing on this thread; none when a saved tensor is read outside of backward."""
    node = torch._C._current_autograd_node()
    if node is None:
        return None
    # A node is not identified by its number, which each thread counts for itself, nor by its object in Python, which is
    # freed without references to it. Its metadata live as long as the node; the token in them refers to nothing.
    metadata: Any = node.metadata  # torch types it as a method.
    return _Evaluation(torch._C._current_graph_task_id(), metadata.setdefault(_TOKEN, object()))


def _is_plain(value: torch.Tensor) -> bool:
    return (
        type(value) is torch.Tensor
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and value.numel() > 0
        and not value.is_conj()
        and not value.is_neg()
        and not value.is_quantized
        and not torch._C._functorch.is_functorch_wrapped_tensor(value)
    )


def _base_of(value: torch.Tensor) -> torch.Tensor:
    """The tensor that ``value`` is a view of, or itself: views count versions with it."""
    return value if value._base is None else value._base


def _source_of(base: torch.Tensor, storage: torch.UntypedStorage) -> _Source:
    return _Source(
        storage._cdata,
        storage.nbytes(),
        base._version,
        int(base.storage_offset()),
        base.shape,
        base.stride(),
        base.dtype,
    )


def _range_of(value: torch.Tensor) -> tuple[int, int]:
    """The bytes of its storage that ``value`` can reach, the begin rounded down to a cache line."""
    last = sum((extent - 1) * stride for extent, stride in zip(value.shape, value.stride(), strict=True))
    item = value.element_size()
    begin = int(value.storage_offset()) * item
    return begin // _ALIGNMENT * _ALIGNMENT, begin + int(last + 1) * item
