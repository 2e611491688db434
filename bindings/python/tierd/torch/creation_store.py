"""CreationStore: the parameters that ``creating`` has put into tierd, until ``offload`` takes them over.

The idea: a new parameter leaves when its module's constructor has returned. A use of it brings its values back: it is
an ordinary parameter then, in a window of limited size, so that code may write to it by any means; when it has to make
room, its values, whatever they are by then, are stored. A parameter whose bytes something else refers to (a view, an
array, a graph) stays in the process as long as that is so: nothing that is written to them can be lost.

What holds: a parameter is a placeholder, or in the window, or an ordinary one of which tierd knows nothing. A tensor in
tierd is freed with its parameter. The parameters of a run that is resumed have no tensors here: what is written to them
is dropped, as their values come from the run. Used by the thread that creates.
"""

from __future__ import annotations

import copy
import functools
import gc
import itertools
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .. import finalizers
from ..client import Client
from ..errors import Invalid, NoMemory, NoSpace
from ..progress import Advance
from ..states import Key
from . import parameter_state
from .offloaded_gradient import function_name
from .placeholder import MARKS, Placeholder, can_be_placeholder, unmarked, without_values
from .parameter_store import ParameterStore, free_all
from .stored_parameter import StoredParameter, stored_of
from .uninterrupted import uninterrupted

_no_dispatch = torch._C.DisableTorchFunctionSubclass
_OWN_REFERENCES = 3  # To a parameter that only its StoredParameter has: its own, a local variable, an argument.


class CreationStore(ParameterStore):
    def __init__(
        self, client: Client, name: str, min_bytes: int, window_bytes: int, resume: bool, of_ranks: bool
    ) -> None:
        super().__init__(client, name, 0)
        self.creating = True
        self.resume = resume
        self.advance: Advance = lambda moved: None  # Told of the bytes of each parameter that leaves first.
        self.of_ranks = of_ranks  # Each rank of a process group has one, and no two the same keys.
        self.advice = (
            "pass the model to tierd.torch.offload(…, resume=True) first"
            if resume
            else "pass the model to tierd.torch.offload() first, or use it in `with tierd.torch.gathered(model):`"
        )
        self._min_bytes = min_bytes
        self._window_bytes = window_bytes
        self._window: dict[StoredParameter, None] = {}  # Those that have their values, the first brought first.
        self._frees: weakref.WeakKeyDictionary[StoredParameter, Any] = weakref.WeakKeyDictionary()
        self._numbers = itertools.count()
        self._late: torch.nn.Parameter | None = None  # Assigned last to a module that was there already.
        self._roots: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()

    # ---- New parameters ----

    def collect(self, module: torch.nn.Module, outermost: bool) -> None:
        """A constructor has returned: what ``module`` has leaves."""
        self._make_room(0, set())
        self._late = None
        for parameter in parameters_of(module):
            self.take(parameter)
        if outermost:
            self._roots.add(module)

    def assigned(self, parameter: torch.nn.Parameter) -> None:
        """A module whose constructor has returned is given a parameter. It leaves when the next one is, and not now:
        what has made it may still refer to its bytes."""
        self._make_room(0, set())
        before, self._late = self._late, parameter
        if before is not None:
            self.take(before)

    def take(self, parameter: torch.nn.Parameter) -> None:
        """Moves an ordinary parameter into tierd, unless it is small, of a kind that cannot be stored, or something
        else refers to its bytes."""
        if stored_of(parameter) is not None or not is_storable(parameter, self._min_bytes) or is_shared(parameter):
            return
        key = f"{self.name}/created/{next(self._numbers)}"
        stored = StoredParameter(self, key, parameter, key)
        if not self.resume:
            self._require_new(key)
            self.own(stored)
            self._put(stored)
        Placeholder.make(parameter, stored)
        self.advance(stored.nbytes)

    def own(self, stored: StoredParameter) -> None:
        """Its tensor is freed with the parameter from now on."""
        stored.store = self
        if not self.resume and stored not in self._frees:
            keys = {str(stored.key): self.client.tensor_id(stored.key)}
            self._frees[stored] = finalizers.attach(stored, functools.partial(free_all, self.client, keys))

    def give_up(self, stored: StoredParameter) -> None:
        """Its tensor is another store's from now on."""
        free = self._frees.pop(stored, None)
        if free is not None:
            free.detach()

    def drop(self, stored: StoredParameter) -> None:
        """Frees its tensor: the bytes are elsewhere too."""
        free = self._frees.pop(stored, None)
        if free is not None:
            free.call()

    def deep_copy(self, stored: StoredParameter, memo: dict[int, Any]) -> Any:
        if not self.creating:
            return super().deep_copy(stored, memo)
        self._make_room(stored.nbytes, set())
        self.demand(stored)
        with unmarked(stored.parameter):
            made = copy.deepcopy(stored.parameter, memo)
        self.take(made)
        return made

    # ---- Uses ----

    def begin_use(self, func: Callable[..., Any], values: list[Any]) -> None:
        """Makes room for a call of ``func`` with ``values``."""
        if not self.creating:
            return
        used = {stored for stored in _stored_among(values) if stored.store is self}
        if self.resume and not without_values(func):
            name = next(iter(used)).name
            raise Invalid(
                f"{function_name(func)} reads {name!r}, whose values come with the run that is resumed: do it after "
                "tierd.torch.offload(resume=True), in tierd.torch.gathered(), or create without resume=True"
            )
        self._make_room(sum(stored.nbytes for stored in used if stored not in self._window), used)

    def demand(self, stored: StoredParameter) -> bool:
        if not self.creating:
            return False
        if self.resume:
            values = stored.empty_like()
            values.fill_(float("nan")) if stored.dtype.is_floating_point else values.zero_()
        else:
            values = stored.copy()
        noted = [functools.partial(setattr, stored, "uses", 1), functools.partial(self._window.setdefault, stored)]
        Placeholder.fill(stored.parameter, values, notes=noted)
        return True

    def release_on_demand(self, stored: StoredParameter) -> None:
        self.prepare(stored)

    def prepare(self, stored: StoredParameter) -> None:
        """Takes the values back where they are in the process. ``Invalid`` if tierd has none."""
        if self.resume:
            raise Invalid(f"parameter {stored.name!r} has no values before tierd.torch.offload(resume=True)")
        if stored in self._window:
            self._leave(stored)

    # ---- Leaving ----

    def close(self, failed: bool) -> None:
        """Nothing is brought any more. What something else refers to is an ordinary parameter from now on; after a
        failure, everything in the window is."""
        try:
            while self._window:
                stored = next(iter(self._window))
                if failed or not self._leave(stored):
                    self.let_go(stored)
                del stored  # And with it a parameter that nothing else refers to.
            if self._late is not None and not failed:
                self.take(self._late)
            for module in () if failed else list(self._roots):
                for parameter in parameters_of(module):
                    self.take(parameter)
        finally:
            self.creating = False
            self._late = None
            self._roots.clear()

    def settle(self, stored: StoredParameter) -> None:
        """It is a placeholder, or an ordinary parameter, when this returns."""
        if stored in self._window and not self._leave(stored):
            self.let_go(stored)

    def let_go(self, stored: StoredParameter) -> None:
        """Makes a parameter of the window an ordinary one."""
        parts = [(stored.parameter.__dict__, mark) for mark in MARKS] + [(self._window, stored)]
        uninterrupted([functools.partial(of.pop, name) for of, name in parts])
        self.drop(stored)

    def _make_room(self, size: int, used: set[StoredParameter]) -> None:
        """Takes values back, the first brought first, until ``size`` bytes fit into the window; all if it is 0."""
        held = sum(stored.nbytes for stored in self._window)
        for stored in list(self._window):
            if size and held + size <= self._window_bytes:
                return
            nbytes = stored.nbytes
            if stored not in used and self._leave(stored):
                held -= nbytes

    def _leave(self, stored: StoredParameter) -> bool:
        """Stores the values and makes the parameter a placeholder. False, and nothing has changed, where something else
        refers to them."""
        parameter = stored.parameter
        if is_shared(parameter):
            if sys.getrefcount(parameter) > _OWN_REFERENCES:
                return False
            self.let_go(stored)  # Replaced by one that shares its bytes.
            return True
        if not is_storable(parameter, 1):  # Other values were assigned to its .data.
            self.let_go(stored)
            return True
        stored.describe(parameter)
        if not self.resume:
            self._put(stored)
        noted = [
            functools.partial(self._window.pop, stored),
            functools.partial(setattr, stored, "uses", 0),
            functools.partial(setattr, stored, "version", stored.version + 1),
        ]
        Placeholder.empty(parameter, stored.shape, stored.dtype, noted)
        return True

    def _put(self, stored: StoredParameter) -> None:
        values = parameter_state.flat(stored.parameter.detach())
        try:
            self.client.put(stored.key, values, replace=True)
        except (NoSpace, NoMemory):
            gc.collect()  # A module that was dropped may still exist: its children refer to each other.
            self.client.put(stored.key, values, replace=True)


def parameters_of(module: torch.nn.Module) -> Iterator[torch.nn.Parameter]:
    """Those of the module and what is in it; not of scripted modules, whose parameters C++ has."""
    for each in module.modules() if "_modules" in module.__dict__ else ():
        if not isinstance(each, torch.jit.ScriptModule) and "_parameters" in each.__dict__:
            yield from (parameter for parameter in list(each._parameters.values()) if parameter is not None)


def is_storable(parameter: torch.nn.Parameter, min_bytes: int) -> bool:
    if torch.nn.parameter.is_lazy(parameter) or parameter.layout is not torch.strided:
        return False
    return (
        parameter.device.type == "cpu"
        and can_be_placeholder(parameter.dtype)
        and parameter.is_leaf
        and not parameter.is_inference()
        and parameter.numel() > 0
        and parameter.nbytes >= min_bytes
        and parameter.data_ptr() != 0
        and parameter_state.is_dense(parameter.shape, parameter.stride())
    )


def is_shared(parameter: torch.nn.Parameter) -> bool:
    """Whether anything but the parameter refers to its bytes."""
    with _no_dispatch():
        storage = parameter.untyped_storage()
    count: Any = torch._C._storage_Use_Count
    return bool(count(storage._cdata) > 2)  # The parameter's own, and that of `storage`.


def _stored_among(values: Any) -> Iterator[StoredParameter]:
    for value in values:
        if isinstance(value, torch.Tensor):
            stored = stored_of(value)
            if stored is not None:
                yield stored
        elif isinstance(value, (list, tuple)):
            yield from _stored_among(value)
        elif isinstance(value, dict):
            yield from _stored_among(value.values())


def created_in(model: torch.nn.Module) -> list[tuple[str, StoredParameter]]:
    """The parameters of ``model`` that are in tierd by ``creating``, with their names in the model."""
    for parameter in model.parameters():
        stored = stored_of(parameter)
        if stored is not None and isinstance(stored.store, CreationStore):
            stored.store.settle(stored)
    found = [(path, stored_of(parameter)) for path, parameter in model.named_parameters()]
    return [(path, stored) for path, stored in found if stored is not None and isinstance(stored.store, CreationStore)]


def require_fitting(
    created: list[tuple[str, StoredParameter]], client: Client | None, resume: bool, of_ranks: bool
) -> None:
    """``Invalid`` unless ``offload`` with these arguments can take over what was created."""
    for path, stored in created:
        if client is not None and stored.store.client is not client:
            raise Invalid(f"parameter {path!r} was created by another client: leave out client=, or pass that one")
        if stored.store.client is not created[0][1].store.client:
            raise Invalid(
                f"{created[0][0]!r} and {path!r} were created by different clients: create all of a model in one "
                "creating(), or give each the same client="
            )
        if isinstance(stored.store, CreationStore) and stored.store.resume != resume:
            raise Invalid(
                f"parameter {path!r} was created with resume={not resume}: give creating() and offload() the same"
            )
        if isinstance(stored.store, CreationStore) and stored.store.of_ranks != of_ranks:
            raise Invalid(
                f"parameter {path!r} was created {'without' if of_ranks else 'with'} process_group: give creating() "
                "and offload() the same"
            )


def take_over(store: ParameterStore, name: str, stored: StoredParameter, persisted: Key | None) -> None:
    """Makes a created parameter one of ``store``: as it is, or with the values of a run that is resumed."""
    origin, key = stored.store, stored.key
    assert isinstance(origin, CreationStore)
    if origin.resume:
        key = store.key_of(name, persisted)

    def give_back() -> None:
        store.release(str(key))
        stored.key = key
        origin.own(stored)

    _take(store, stored, give_back)
    stored.store, stored.name, stored.key = store, name, key
    store.reserve(str(key))
    origin.give_up(stored)


def share(store: ParameterStore, name: str, stored: StoredParameter, key: str) -> None:
    """Makes a created parameter one of ``store`` whose bytes the job has whole under ``key``; its own are freed."""
    origin, private = stored.store, stored.key
    assert isinstance(origin, CreationStore)

    def give_back() -> None:
        if not origin.resume:  # In place of what is there, where an interrupt has come before that was dropped.
            origin.client.put(private, parameter_state.flat(stored.copy()), replace=True)
        stored.key, stored.shared = private, False
        origin.own(stored)

    _take(store, stored, give_back)
    stored.store, stored.name, stored.key, stored.shared = store, name, key, True
    store.shared.add(key)
    origin.drop(stored)


def _take(store: ParameterStore, stored: StoredParameter, give_back: Callable[[], None]) -> None:
    """It is one of ``store``, which knows how to give it back."""
    known = functools.partial(store.give_back.__setitem__, stored, give_back)
    uninterrupted([known, functools.partial(store.parameters.append, stored)])
