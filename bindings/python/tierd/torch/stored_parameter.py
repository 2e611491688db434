"""Parameters whose bytes lie in tierd. ``StoredParameter`` has what is known of one; ``ParameterStore`` has all of a
model.

The idea: outside of forward and backward a parameter is a placeholder (``placeholder``), which has no bytes. For its
module's forward it becomes a view over a read lease, and a placeholder again behind it. Whatever still looks at the
bytes owns the lease through their storage, so the lease ends with the last of them and never earlier. Tensors that
autograd saves and that lie in a parameter's storage are packed as (parameter, place), and leased again in backward; all
that are alive at one time share one lease.

What holds: ``uses`` counts the scopes that need the view; a parameter is a placeholder exactly if it is 0. A storage
that is alive is found by its weak identity, never by an address. ``version`` counts the changes of the bytes; a packed
tensor of another version is refused, as torch refuses a saved tensor that was changed in place.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from .. import finalizers
from ..client import Client
from ..errors import AlreadyExists, Error, Invalid, NotFound
from ..states import Key, Part
from . import parameter_state
from .autograd_guard import autograd_guard, stop_recording
from .held import Held
from .look_ahead import LookAhead
from .placeholder import NO_COPY, Placeholder
from .scopes import Hooks, Scopes
from .stored_gradient import StoredGradient
from .storage_identity import StorageIdentity
from .tensor_views import tensor_over
from .uninterrupted import completed, uninterrupted

if TYPE_CHECKING:
    from .applied_gradient import AppliedGradient
    from .cached_cast import CachedCast
    from .pending_update import PendingUpdate


class StoredParameter:
    """One parameter in tierd. Its elements lie there in the order that they had in memory."""

    __slots__ = (
        "__weakref__", "_entered_version", "_identity", "_unswapped", "applied", "cast", "deferred", "dtype",
        "gradient", "key", "name", "numel", "parameter", "shape", "shared", "store", "strides", "uses", "version",
    )  # fmt: skip

    def __init__(
        self, store: ParameterStore, name: str, parameter: torch.nn.Parameter, key: Key, shared: bool = False
    ) -> None:
        self.store = store
        self.name = name
        self.parameter = parameter
        self._unswapped = weakref.ref(parameter)  # torch.utils.swap_tensors refuses it: tierd goes by the object.
        self.key = key
        self.shared = shared  # The job's: other ranks read the same bytes, and no rank changes them.
        self.describe(parameter)
        self.version = 0
        self.uses = 0
        self.gradient: StoredGradient | None = None
        self.applied: AppliedGradient | None = None  # By which backward has updated it.
        self.deferred: PendingUpdate | None = None  # To be carried out before the values are read.
        self.cast: CachedCast | None = None  # That autocast has of it.
        self._identity: StorageIdentity | None = None
        self._entered_version = 0  # The parameter's, when it got its values.

    def describe(self, parameter: torch.Tensor) -> None:
        """Notes the shape and the type that the parameter has now."""
        self.dtype = parameter.dtype
        self.shape = parameter.shape
        self.strides = parameter.stride()
        self.numel = parameter.numel()

    @property
    def nbytes(self) -> int:
        return self.numel * self.dtype.itemsize

    def gradient_key(self) -> Key:
        return self.store.reserve(f"{self.key}/gradient")

    def empty_like(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """A tensor of the process with the parameter's shape and strides."""
        return torch.empty_strided(self.shape, self.strides, dtype=dtype or self.dtype, device="cpu")

    # ---- Reading ----

    def storage(self) -> torch.UntypedStorage:
        """The bytes, under a read lease that ends with the storage."""
        with self.store.lock:
            self.settle()
            storage = self.living_storage()
            if storage is None:
                self.store.look_ahead.use([Part(self.key, 0, self.nbytes)])
                lease = self.store.held.making_room(lambda: self.store.client.lease(self.key, shared=self.shared))
                storage = lease.torch(self.dtype, (self.numel,)).untyped_storage()
                self.store.drop_storage(self._identity)
                self._identity = StorageIdentity(storage)
                self.store.by_storage[self._identity.key] = self
                self.store.held.keep(self, storage)
            return storage

    def living_storage(self) -> torch.UntypedStorage | None:
        return None if self._identity is None else self._identity.storage()

    def lies_in(self, storage: torch.UntypedStorage) -> bool:
        return self._identity is not None and self._identity.key == storage._cdata and not self._identity.expired()

    def view(self) -> torch.Tensor:
        """The parameter's values where tierd has them. Do not write to them."""
        with autograd_guard():
            stop_recording()
            return tensor_over(self.storage(), self.dtype, 0, self.shape, self.strides)

    def copy(self) -> torch.Tensor:
        """The values in memory of the process."""
        self.settle()
        with autograd_guard():
            values = self.empty_like()
            self.store.client.get_into(self.key, parameter_state.flat(values), shared=self.shared)
            return values

    # ---- Presence ----

    def enter(self, scope: list[StoredParameter], values: torch.Tensor | None = None) -> None:
        """One more scope needs the values: the parameter has them when this returns, as a view or as ``values``, and is
        in the ``scope``, which is to :meth:`leave` it. An interrupt finds all of this done, or nothing."""
        with self.store.lock:
            if self.uses and values is not None:
                raise Invalid(f"parameter {self.name!r} is in use: gather it outside of forward, and once")
            try:
                if self.uses == 0:
                    found = self.view() if values is None else values
                    Placeholder.fill(self.parameter, found, gathered=values is not None)
                    self.fill_cast(found)
                    self._entered_version = self.parameter._version
                noted = [functools.partial(setattr, self, "uses", self.uses + 1), functools.partial(scope.append, self)]
                uninterrupted(noted)
            except BaseException:
                self._empty()
                raise

    def leave(self, scope: list[StoredParameter]) -> None:
        """One scope less. What forward changed in place, by torch's own count, is written back."""
        with self.store.lock:
            noted = [functools.partial(setattr, self, "uses", self.uses - 1), functools.partial(scope.remove, self)]
            if self.uses > 1:
                uninterrupted(noted)
                return
            leased = self.living_storage() is not None
            changed = leased and self.parameter._version != self._entered_version
            values = self.parameter.detach().clone() if changed else None
            try:
                Placeholder.empty(self.parameter, self.shape, self.dtype, noted)
                if values is not None:
                    self.write(values)
            except Exception:
                raise
            except BaseException:
                if values is not None and self.uses == 0:  # Else it is to leave again.
                    self.write(values)
                raise
            if self.cast is not None:
                self.cast.empty()

    def fill_cast(self, values: torch.Tensor) -> None:
        """Autocast's copy gets its bytes too."""
        if self.cast is not None and not self.cast.fill(self, values):
            self.cast = None

    def _empty(self) -> None:
        """Makes it a placeholder, where no scope uses the values."""
        if self.uses == 0 and type(self.parameter) is not Placeholder:
            Placeholder.empty(self.parameter, self.shape, self.dtype)

    # ---- Writing ----

    def settle(self) -> None:
        """Carries out the update that has been decided on, or waits until it is."""
        if self.deferred is not None:
            self.deferred.run()

    def changed(self) -> None:
        """The bytes are about to change. ``Invalid`` where :meth:`require_changeable` raises it."""
        self.require_changeable()
        self.version += 1

    def require_changeable(self) -> None:
        """``Invalid`` while a view of the bytes is alive, for which a write would wait, and where ranks share them."""
        if self.shared:
            raise Invalid(
                f"parameter {self.name!r} was frozen when the model was offloaded, and all ranks of the job read the "
                "same bytes: it cannot be changed. Unfreeze it before tierd.torch.offload()"
            )
        self.store.release_on_demand(self)
        self.store.held.release(self)
        self._empty()  # Left by an interrupt.
        if self.uses or self.living_storage() is not None:
            raise Invalid(
                f"a view of parameter {self.name!r} is still alive: it cannot be changed while something reads it (a "
                "graph that backward has not used up, the traceback of an interrupt, or .detach() or .data that was "
                "kept, be it in the ctx of a custom Function, which lives as long as the loss). Drop it, or keep the "
                "parameter itself or a clone"
            )

    def require_version(self, version: int) -> None:
        """torch's ``RuntimeError`` unless the bytes are those of ``version``."""
        if version != self.version:
            raise RuntimeError(
                f"parameter {self.name!r} has been modified since forward saved it for backward: it is at "
                f"version {self.version}; expected version {version} instead. Run forward again."
            )

    def is_being_changed(self) -> bool:
        """Whether the forward under way has changed the values in place: the next version, once it ends."""
        return self.uses > 0 and self.parameter._version != self._entered_version

    def write(self, values: torch.Tensor) -> None:
        """Replaces the values by those of a tensor of the same shape."""
        if values.shape != self.shape:
            raise Invalid(f"values of shape {tuple(values.shape)} for {self.name!r}, of shape {tuple(self.shape)}")
        with self.store.lock, autograd_guard():
            stop_recording()
            ours = parameter_state.flat(self.empty_like().copy_(values))
            if self.shared:
                self._require_equal(ours)
                return
            self.settle()
            self.changed()
            completed(functools.partial(self.store.client.put, self.key, ours, replace=True))

    def write_back(self) -> None:
        """Replaces the values by those that the parameter has in the process."""
        with self.store.lock, autograd_guard():
            stop_recording()
            values = parameter_state.flat(self.parameter.detach())
            if self.shared:
                self._require_equal(values)
                return
            self.version += 1
            completed(functools.partial(self.store.client.put, self.key, values, replace=True))

    def _require_equal(self, values: torch.Tensor) -> None:
        """``Invalid`` unless they are, flat and bit for bit, those that the ranks share: no change then."""
        if not torch.equal(values.view(torch.uint8), parameter_state.flat(self.copy()).view(torch.uint8)):
            self.changed()


class Packed(NamedTuple):
    """What the graph holds instead of a tensor over a parameter's bytes."""

    stored: StoredParameter
    version: int
    dtype: torch.dtype
    offset: int
    shape: torch.Size
    strides: tuple[int, ...]

    def unpack(self) -> torch.Tensor:
        self.stored.require_version(self.version)
        with autograd_guard():
            return tensor_over(self.stored.storage(), self.dtype, self.offset, self.shape, self.strides)


class ParameterStore:
    """The parameters of one model. Any thread, each with scopes of its own."""

    creating = False  # Whether a use outside of forward brings values.
    advice = "use it in `with tierd.torch.gathered(model):`, which brings the values into the process"

    def __init__(self, client: Client, name: str, look_ahead_bytes: int) -> None:
        self.client = client
        self.name = name
        self.lock = threading.RLock()
        self.scopes = Scopes()
        self.held = Held()
        self.training_order = LookAhead(client, look_ahead_bytes)
        self.shared = self.training_order.shared
        self.by_storage: dict[int, StoredParameter] = {}
        self.parameters: list[StoredParameter] = []
        self.give_back: dict[StoredParameter, Callable[[], None]] = {}  # To the store that has created them.
        self.saving = 0  # Calls of state_dict() under way.
        keys: dict[str, int] = {}
        self._keys = keys
        finalizers.attach(self, functools.partial(free_all, client, keys))

    @property
    def look_ahead(self) -> LookAhead:
        """The order of what this thread has under way: an evaluation has one of its own."""
        return self.scopes.order or self.training_order

    def adopt(
        self, name: str, parameter: torch.nn.Parameter, resume: bool, persisted: Key | None = None
    ) -> StoredParameter:
        """Moves a parameter into tierd, or takes for it what an earlier run has left there, under ``persisted`` if that
        is another key. It is a placeholder afterwards."""
        key = str(persisted or f"{self.name}/{name}")
        flat = parameter_state.flat(parameter.detach())
        if resume:
            self.require_size(key, flat.nbytes)
            self.reserve(key)
        else:
            self._require_new(key)
            self.reserve(key)
            self.client.put(key, flat)
        stored = StoredParameter(self, name, parameter, key)
        self.parameters.append(stored)
        Placeholder.make(parameter, stored)
        return stored

    def adopt_shared(
        self, name: str, parameter: torch.nn.Parameter, key: str, strides: tuple[int, ...]
    ) -> StoredParameter:
        """Makes a parameter a placeholder for a tensor that the job has whole. It is not freed with the store."""
        stored = StoredParameter(self, name, parameter, key, shared=True)
        stored.strides = strides
        self.shared.add(key)
        self.parameters.append(stored)
        Placeholder.make(parameter, stored)
        return stored

    def require_size(self, key: Key, size: int) -> None:
        found = self.client.tensor(key).size
        if found != size:
            raise Invalid(f"{key!r} has {found} bytes, the parameter {size}: the model is another one")

    def _require_new(self, key: str) -> None:
        """``AlreadyExists`` where an earlier run has left a tensor: never ignored, nor replaced in silence."""
        with contextlib.suppress(NotFound):
            self.client.tensor(key)
            gc.collect()  # A model and its hooks refer to each other: one that is no longer used may still exist.
            self.client.tensor(key)
            raise AlreadyExists(
                f"an earlier run has left {key!r} in this job: pass resume=True to go on with it, or another name"
            )

    def free(self, keep: bool) -> None:
        """Frees all of it, or keeps it as an earlier run has left it. The parameters have their values elsewhere."""
        if not keep:
            free_all(self.client, self._keys)
        self._keys.clear()

    def reserve(self, key: str) -> int:
        """The id of a tensor that is freed with the store, noted before the tensor exists."""
        number = self._keys.get(key)
        if number is None:
            number = self._keys[key] = self.client.tensor_id(key)
        return number

    def release(self, key: str) -> None:
        """The tensor is another store's from now on."""
        self._keys.pop(key, None)

    def begin_use(self, func: Callable[..., Any], values: list[Any]) -> None:
        """Placeholders among ``values`` are about to be used by ``func``."""

    def prepare(self, stored: StoredParameter) -> None:
        """What tierd has of the parameter is about to be used: it is made what it has to be."""
        stored.settle()

    def deep_copy(self, stored: StoredParameter, memo: dict[int, Any]) -> Any:
        """A copy of a placeholder. ``Invalid`` unless it is being created."""
        raise Invalid(NO_COPY)

    def pack(self, value: torch.Tensor) -> Packed | None:
        """``value`` as a place in a parameter, if it lies in one's storage."""
        if not self.by_storage or not _has_storage(value):
            return None
        storage = value.untyped_storage()
        stored = self.by_storage.get(storage._cdata)
        if stored is None or not stored.lies_in(storage):
            return None
        offset = int(value.storage_offset())
        return Packed(
            stored, stored.version + stored.is_being_changed(), value.dtype, offset, value.shape, value.stride()
        )

    def drop_storage(self, identity: StorageIdentity | None) -> None:
        if identity is not None:
            self.by_storage.pop(identity.key, None)

    # ---- Scopes ----

    def open_scope(self, hooks: Hooks) -> None:
        """A module's forward begins. The outermost of this thread has ``hooks`` for what autograd saves."""
        scopes = self.scopes
        with self.lock:
            if scopes.open:
                scopes.open += 1
                return
            if torch._C._current_graph_task_id() == -1:
                self._release_on_demand(scopes.on_demand)  # Left by a backward that failed.
            scopes.begin_outermost(hooks)

    def close_scope(self) -> bool:
        """It ends. Whether it was the outermost."""
        scopes = self.scopes
        with self.lock:
            if scopes.open:
                scopes.end()
            if scopes.open == 0 and torch._C._current_graph_task_id() == -1:
                self._release_on_demand(scopes.on_demand)
            return scopes.open == 0

    def demand(self, stored: StoredParameter) -> bool:
        """A placeholder is used. Inside a forward or a backward of this thread its values come, until that ends; else
        False."""
        scopes = self.scopes
        with self.lock:
            task = torch._C._current_graph_task_id()
            if not scopes.open and task == -1:
                return False
            if task not in (-1, scopes.released_after):  # Once in each backward.
                release = functools.partial(self._end_of_backward, scopes.on_demand)
                torch.autograd.Variable._execution_engine.queue_callback(release)
                scopes.released_after = task
            stored.enter(scopes.on_demand)
            return True

    def release_on_demand(self, stored: StoredParameter) -> None:
        """Takes back values that came for a use outside of the parameter's module."""
        on_demand = self.scopes.on_demand
        with self.lock:
            while stored in on_demand:
                stored.leave(on_demand)

    def release_all_on_demand(self) -> None:
        with self.lock:
            self._release_on_demand(self.scopes.on_demand)

    def _end_of_backward(self, on_demand: list[StoredParameter]) -> None:
        with self.lock:
            self.scopes.released_after = -1
            if self.scopes.open == 0:
                self._release_on_demand(on_demand)

    def _release_on_demand(self, on_demand: list[StoredParameter]) -> None:
        while on_demand:
            on_demand[-1].leave(on_demand)


def stored_of(parameter: torch.Tensor) -> StoredParameter | None:
    """What tierd has of the parameter; none of a plain one."""
    return getattr(parameter, "_tierd_stored", None)


def stored_in(parameters: Iterable[torch.Tensor]) -> Iterator[StoredParameter]:
    for parameter in parameters:
        stored = stored_of(parameter)
        if stored is not None:
            yield stored


def model_of(parameter: torch.Tensor) -> torch.Tensor:
    """A tensor with the parameter's shape and strides."""
    stored = stored_of(parameter)
    return parameter if stored is None else torch.empty_strided(stored.shape, stored.strides, device="meta")


def zeros_like(parameter: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Zeros of the process with the parameter's shape and strides."""
    stored = stored_of(parameter)
    if stored is not None:
        return stored.empty_like(dtype).zero_()
    return torch.zeros_like(parameter, dtype=dtype, memory_format=torch.preserve_format)


def _has_storage(value: torch.Tensor) -> bool:
    return (
        value.layout is torch.strided
        and not value.is_meta
        and not torch._C._functorch.is_functorch_wrapped_tensor(value)
        and type(value) in (torch.Tensor, torch.nn.Parameter)
    )


def free_all(client: Client, keys: dict[str, int]) -> None:
    """Frees tensors for the finalizer, which may run in the middle of any call, and so never waits."""
    with contextlib.suppress(Error):  # The session has ended, and its tensors with it.
        client.discard_unwaited(list(keys.values()))
