"""ParameterStore: the parameters of one model that lie in tierd.

It finds the parameter behind what autograd saves, brings those that are used outside of their module's forward, and
frees what it has stored when the model is gone.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import threading
from collections.abc import Callable
from typing import Any

import torch

from .. import finalizers
from ..client import Client
from ..errors import AlreadyExists, Error, Invalid, NotFound
from ..states import Key
from . import parameter_state
from .held import Held
from .look_ahead import LookAhead
from .placeholder import NO_COPY, Placeholder
from .scopes import Hooks, Scopes
from .storage_identity import StorageIdentity
from .stored_parameter import GRADIENT, Packed, StoredParameter
from .tensor_views import View


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
        self.watch: Callable[[StoredParameter], None] | None = None  # For one that requires a gradient and is used.
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
        key = self.key_of(name, persisted)
        flat = parameter_state.flat(parameter.detach())
        if resume:
            self.reserve(key)
        else:
            self._require_new(key)
            self.reserve(key)
            self.client.put(key, flat)
        stored = StoredParameter(self, name, parameter, key)
        Placeholder.make(parameter, stored, [functools.partial(self.parameters.append, stored)])
        return stored

    def adopt_shared(
        self, name: str, parameter: torch.nn.Parameter, key: str, strides: tuple[int, ...]
    ) -> StoredParameter:
        """Makes a parameter a placeholder for a tensor that the job has whole. It is not freed with the store."""
        stored = StoredParameter(self, name, parameter, key, shared=True)
        stored.strides = strides
        self.shared.add(key)
        Placeholder.make(parameter, stored, [functools.partial(self.parameters.append, stored)])
        return stored

    def key_of(self, name: str, persisted: Key | None) -> str:
        """The parameter's key; ``persisted`` is the one that the run which is resumed had for it."""
        return str(persisted or f"{self.name}/{name}")

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
        for key, number in () if keep else list(self._keys.items()):
            free_all(self.client, {key: number})  # Each by itself: the last one may not exist yet.
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
        return Packed(stored, stored.present_version(), View.of(value))

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


def _has_storage(value: torch.Tensor) -> bool:
    return (
        value.layout is torch.strided
        and not value.is_meta
        and not torch._C._functorch.is_functorch_wrapped_tensor(value)
        and type(value) in (torch.Tensor, torch.nn.Parameter)
    )


def free_all(client: Client, keys: dict[str, int]) -> None:
    """Frees tensors for the finalizer, which may run in the middle of any call, and so never waits. The daemon frees
    all tensors of a request or none: those that may not exist, as gradients on their way, have requests of their
    own."""
    uncertain = [number for key, number in keys.items() if key.endswith(GRADIENT)]
    certain = [number for key, number in keys.items() if not key.endswith(GRADIENT)]
    for numbers in (certain, *([number] for number in uncertain)):
        with contextlib.suppress(Error):  # The session has ended, and its tensors with it.
            client.discard_unwaited(numbers)
