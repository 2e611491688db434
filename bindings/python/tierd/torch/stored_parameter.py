"""StoredParameter: what is known of one parameter whose bytes lie in tierd.

The idea: outside of forward and backward a parameter is a placeholder (``placeholder``), which has no bytes. For its
module's forward it becomes a view over a read lease, and a placeholder again behind it. Whatever still looks at the
bytes owns the lease through their storage, so the lease ends with the last of them and never earlier. Tensors that
autograd saves and that lie in a parameter's storage are packed as (parameter, place), and leased again in backward; all
that are alive at one time share one lease.

What forward changes in place, by torch's own count, or by assigning other bytes, is written back behind it.

What holds: ``uses`` counts the scopes that need the view; a parameter is a placeholder exactly if it is 0. A storage
that is alive is found by its weak identity, never by an address. ``version`` counts the changes of the bytes; a packed
tensor of another version is refused, as torch refuses a saved tensor that was changed in place.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ..errors import Invalid
from ..states import Key, Part
from . import parameter_state
from .autograd_guard import autograd_guard, stop_recording
from .placeholder import Placeholder
from .stored_gradient import StoredGradient
from .storage_identity import StorageIdentity
from .tensor_views import View, no_values, tensor_over
from .uninterrupted import completed, uninterrupted

if TYPE_CHECKING:
    from .applied_gradient import AppliedGradient
    from .cached_cast import CachedCast
    from .parameter_store import ParameterStore
    from .pending_update import PendingUpdate


GRADIENT = "/gradient"  # The end of the keys of gradients.


class StoredParameter:
    """One parameter in tierd. Its elements lie there in the order that they had in memory."""

    __slots__ = (
        "__weakref__", "_changes", "_entered", "_entered_version", "_identity", "_leased", "_saved", "_unswapped",
        "applied", "cast", "deferred", "dtype", "given", "gradient", "key", "name", "numel", "parameter", "shape",
        "shared", "store", "strides", "uses", "version",
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
        self.given = False  # Its ``grad`` is a tensor of the caller's, to which backward adds in place.
        self.applied: AppliedGradient | None = None  # By which backward has updated it.
        self.deferred: PendingUpdate | None = None  # To be carried out before the values are read.
        self.cast: CachedCast | None = None  # That autocast has of it.
        self._identity: StorageIdentity | None = None
        self._entered_version = 0  # The parameter's, when it got its values, …
        self._entered: StorageIdentity | None = None  # … and the storage where these are, …
        self._leased = False  # … under a lease.
        self._saved: tuple[torch.Tensor, int] | None = None  # Counts the changes of the last copy for state_dict().
        self._changes = 0  # The parameter's versions that the last change by a forward has made of one.

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
        """Of a gradient that is about to be stored, and freed with the model unless it is before."""
        return self.store.reserve(f"{self.key}{GRADIENT}")

    def gradient_freed(self) -> None:
        self.store.release(f"{self.key}{GRADIENT}")

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

    def copy_to_save(self) -> torch.Tensor:
        """The same for ``Module.state_dict``. In plain torch that has the parameters' own bytes: a change of the copy
        in place is noticed when the parameter is used next."""
        self._require_saved_unchanged()
        values = self.copy()
        if not values.is_inference():
            with autograd_guard():
                counting = values.detach()
                counting.data = no_values(self.shape, self.dtype)
            self._saved = counting, counting._version
        return values

    def _require_saved_unchanged(self) -> None:
        if self._saved is not None and self._saved[0]._version != self._saved[1]:
            self._saved = None  # It is said once.
            raise Invalid(
                f"state_dict() of a model in tierd has copies, and that of {self.name!r} was changed in place: that "
                "changes no parameter. Use load_state_dict(), or copy_() of the parameter; or clone what you change"
            )

    # ---- Presence ----

    def enter(self, scope: list[StoredParameter], values: torch.Tensor | None = None) -> None:
        """One more scope needs the values: the parameter has them when this returns, as a view or as ``values``, and is
        in the ``scope``, which is to :meth:`leave` it. An interrupt finds all of this done, or nothing."""
        with self.store.lock:
            if self.uses and values is not None:
                raise Invalid(f"parameter {self.name!r} is in use: gather it outside of forward, and once")
            try:
                if self.uses == 0:
                    self._require_saved_unchanged()
                    found = self.view() if values is None else values
                    Placeholder.fill(self.parameter, found, gathered=values is not None)
                    self.fill_cast(found)
                    self._leased = values is None
                    self._entered = self._identity if values is None else StorageIdentity(found.untyped_storage())
                    self._entered_version = self.parameter._version
                    if self.store.watch is not None and self.parameter.requires_grad:
                        self.store.watch(self)
                noted = [functools.partial(setattr, self, "uses", self.uses + 1), functools.partial(scope.append, self)]
                uninterrupted(noted)
            except BaseException:
                self._empty()
                raise

    def leave(self, scope: list[StoredParameter]) -> None:
        """One scope less. What forward has changed is written back."""
        with self.store.lock:
            noted = [functools.partial(setattr, self, "uses", self.uses - 1), functools.partial(scope.remove, self)]
            if self.uses > 1:
                uninterrupted(noted)
                return
            replaced = self._leased and self.has_other_bytes()
            changes = self.parameter._version - self._entered_version if self._leased else 0
            values = self.parameter.detach().clone() if replaced or changes else None
            in_place = not replaced
            try:
                Placeholder.empty(self.parameter, self.shape, self.dtype, noted)
                if values is not None:
                    self._keep_changed(values, changes, in_place)
            except Exception:
                raise
            except BaseException:
                if values is not None and self.uses == 0:  # Else it is to leave again.
                    self._keep_changed(values, changes, in_place)
                raise
            if self.cast is not None:
                self.cast.empty()

    def has_other_bytes(self) -> bool:
        """Whether the parameter, which has values, has others than it got: they were assigned to its ``data``."""
        return self._entered is not None and self.parameter.untyped_storage()._cdata != self._entered.key

    def _keep_changed(self, values: torch.Tensor, changes: int, in_place: bool) -> None:
        if self.shared and in_place:
            raise Invalid(
                f"parameter {self.name!r} was changed in place in forward. It was frozen when the model was offloaded, "
                "and all ranks of the job read the same bytes, which are changed now: end this run, and unfreeze the "
                "parameter before tierd.torch.offload()"
            )
        self.require_fitting(values)
        self.write(values)
        self._changes = changes

    def require_fitting(self, values: torch.Tensor) -> None:
        """``Invalid`` unless the parameter, as it was put into tierd, could have these values."""
        if values.shape != self.shape or values.dtype != self.dtype:
            raise Invalid(
                f"parameter {self.name!r} is in tierd in shape {tuple(self.shape)} of {self.dtype}, and was given "
                f"values of shape {tuple(values.shape)} of {values.dtype}: it keeps those that it had"
            )

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
        self._saved = None

    def require_changeable(self) -> None:
        """``Invalid`` while a view of the bytes is alive, for which a write would wait, and where ranks share them."""
        if self.shared:
            raise Invalid(
                f"parameter {self.name!r} was frozen when the model was offloaded, and all ranks of the job read the "
                "same bytes: it cannot be changed. Unfreeze it before tierd.torch.offload()"
            )
        self.store.release_on_demand(self)
        self._empty()  # Left by an interrupt.
        self.require_unread(also=self.uses != 0)

    def require_unread(self, also: bool = False) -> None:
        """``Invalid`` while a view of the bytes in tierd is alive, or ``also``."""
        self.store.held.release(self)
        if also or self.living_storage() is not None:
            raise Invalid(
                f"a view of parameter {self.name!r} is still alive: it cannot be changed while something reads it (a "
                "graph that backward has not used up, the traceback of an interrupt, or .detach() or .data that was "
                "kept, be it in the ctx of a custom Function, which lives as long as the loss). Drop it, or keep the "
                "parameter itself or a clone"
            )

    def require_version(self, version: tuple[int, int]) -> None:
        """torch's ``RuntimeError`` unless the bytes are those of ``version``."""
        expected, changes = version
        if expected != self.version or changes not in (0, self._changes):
            advice = "Run forward again."
            if self.applied is not None:  # By this backward: running it again comes to the same.
                advice = "The loss uses it elsewhere too: pass update='deferred' to tierd.torch.offload()."
            raise RuntimeError(
                f"parameter {self.name!r} has been modified since forward saved it for backward: it is at "
                f"version {self.version}; expected version {expected} instead. {advice}"
            )

    def present_version(self) -> tuple[int, int]:
        """What the values are now, for :meth:`require_version`. What the forward under way has changed in place is the
        next version, once it ends, if it makes no further change."""
        changes = self.parameter._version - self._entered_version if self.uses else 0
        return self.version + (changes != 0), changes

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

    def require_writable_back(self) -> None:
        """``Invalid`` where :meth:`write_back` could not replace the values."""
        self.require_fitting(self.parameter.detach())
        if not self.shared:
            self.require_unread()

    def write_back(self) -> None:
        """Replaces the values by those that the parameter has in the process."""
        with self.store.lock, autograd_guard():
            stop_recording()
            found = self.parameter.detach()
            self.require_fitting(found)
            values = parameter_state.flat_like(found, model_of(self.parameter))
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
    version: tuple[int, int]
    view: View

    def unpack(self) -> torch.Tensor:
        self.stored.require_version(self.version)
        with autograd_guard():
            return self.view.over(self.stored.storage())


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


def form_of(parameter: torch.Tensor) -> list[Any]:
    """What its bytes mean, beside their number: for the record of a run."""
    return [str(parameter.dtype), list(parameter.shape), list(model_of(parameter).stride())]


def zeros_like(parameter: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Zeros of the process with the parameter's shape and strides."""
    stored = stored_of(parameter)
    if stored is not None:
        return stored.empty_like(dtype).zero_()
    return torch.zeros_like(parameter, dtype=dtype, memory_format=torch.preserve_format)
