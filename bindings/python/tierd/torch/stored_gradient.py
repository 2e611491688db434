"""Gradients that leave the process as soon as autograd has finished them.

A gradient is copied into tierd in the dtype that it has, by an operation that also counts what is not finite and sums
the squares: the check for overflow takes no memory and no pass of its own (after MemAscend, arXiv 2505.23254, and
Memory-Optimized Offloading, NVMSA 2025). In the process only a window of a few gradients waits for its copy. Another
gradient of the same parameter is added in place, slice by slice, with the bits of torch's own accumulation.

``GradientWindow`` is used by the threads that run backward, one at a time, under the store's lock.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.graph import increment_version

from ..client import Client
from ..errors import Error, Invalid, NotFound
from ..pending_put import PendingPut
from ..states import Part
from . import parameter_state
from .frames import without_frames
from .offloaded_gradient import OffloadedGradient
from .parameter_state import BLOCK, ZEROS, Factor, Stored

if TYPE_CHECKING:
    from .stored_parameter import StoredParameter

_CHECKED = (torch.float32, torch.bfloat16, torch.float16)


class StoredGradient:
    """The gradient of one parameter in tierd."""

    __slots__ = ("_exact", "_factors", "_sum_of_squares", "_window", "dtype", "handle", "key", "stored")

    def __init__(self, window: GradientWindow, stored: StoredParameter, dtype: torch.dtype, exact: bool) -> None:
        self._window = window
        self._exact = exact  # Norms with torch's own bits.
        self._factors: tuple[Factor, ...] = ()  # Applied when the elements are read.
        self._sum_of_squares = 0.0
        self.stored = stored
        self.dtype = dtype
        self.key = stored.gradient_key()
        self.handle = OffloadedGradient.of(self, stored.shape, dtype)

    def elements(self) -> Stored:
        """For the optimizer. Raises what kept the gradient from being stored."""
        self._window.finish(self)
        return Stored(self.key, self.dtype, self._factors)

    def finish_all(self) -> None:
        """Returns when all gradients of the model are in tierd. Raises what kept one from it."""
        self._window.finish_all()

    def is_finite(self) -> bool:
        self._window.finish(self)
        return self._has_zeros or math.isfinite(self._sum_of_squares)

    @without_frames
    def norm(self, order: float, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Of all elements, which are converted to ``dtype`` first."""
        self._require_kept()
        if self._has_zeros:  # One element is like all of them.
            element = parameter_state.times(torch.zeros(1, dtype=self.dtype, device="cpu"), self._factors)
            same: torch.Tensor = torch.linalg.vector_norm(element.expand(self.stored.numel), order, dtype=dtype)
            return same
        self._window.finish(self)
        # By 0 or what is not finite, each element becomes what it is by itself.
        factors = [float(factor) for _, factor in self._factors]
        usual = all(math.isfinite(factor) and factor != 0 for factor in factors)
        if order == 2 and usual and not self._exact and math.isfinite(self._sum_of_squares):
            found = math.sqrt(self._sum_of_squares)
            for (operation, _), factor in zip(self._factors, factors, strict=True):
                found = found / abs(factor) if operation == "div_" else found * abs(factor)
            return torch.tensor(found, dtype=torch.float64, device="cpu").to(dtype or self.dtype)
        lease = self._window.client.lease(self.key)
        values = lease.torch(self.dtype, (self.stored.numel,))
        exact: torch.Tensor = torch.linalg.vector_norm(parameter_state.times(values, self._factors), order, dtype=dtype)
        del values
        lease.release()
        return exact

    def apply(self, operation: str, factor: Any) -> None:
        """The optimizer is to use the gradient as ``mul_`` or ``div_`` by ``factor`` would have left it."""
        self._require_kept()
        if isinstance(factor, torch.Tensor):
            factor = factor.detach().clone().reshape(())
        increment_version(self.handle)
        self._factors += ((operation, factor),)

    def zero(self) -> None:
        """It becomes a gradient of zeros, as ``zero_`` leaves it. What is stored is replaced when it is read."""
        self._require_kept()
        increment_version(self.handle)
        self._factors = (ZEROS,)

    @property
    def _has_zeros(self) -> bool:
        return ZEROS in self._factors

    def _require_kept(self) -> None:
        """``Invalid`` where the parameter has none, or another one, which is in tierd in its place."""
        if self.stored.gradient is not self:
            raise Invalid(f"this gradient of {self.stored.name!r} is gone: it was dropped, and kept only by this name")

    def add(self, gradient: torch.Tensor) -> None:
        """Adds ``gradient``, flat, in place."""
        self.stored.settle()
        increment_version(self.handle)
        self._window.finish(self)
        item, count, total = self.dtype.itemsize, self._window.slice_bytes // self.dtype.itemsize, 0.0
        for begin in range(0, self.stored.numel, count):
            values = gradient[begin : begin + count]
            part = Part(self.key, begin * item, values.numel() * item)
            (lease,) = self._window.client.lease_many([part], write=True)
            ours = lease.torch(self.dtype, values.shape)
            for operation, factor in self._factors:
                getattr(ours, operation)(factor)
            total += _sum_of_squares(ours.add_(values))
            del ours
            lease.release()
        self._factors = ()
        self._sum_of_squares = total

    @without_frames
    def add_to(self, values: torch.Tensor) -> None:
        """Adds the gradient to ``values``, flat: the bits of ``add`` the other way round."""
        self.stored.settle()
        self._window.finish(self)
        item, count = self.dtype.itemsize, self._window.slice_bytes // self.dtype.itemsize
        for begin in range(0, self.stored.numel, count):
            target = values[begin : begin + count]
            part = Part(self.key, begin * item, target.numel() * item)
            (lease,) = self._window.client.lease_many([part])
            ours = lease.torch(self.dtype, target.shape)
            target.add_(parameter_state.times(ours, self._factors))
            del ours
            lease.release()

    def copy(self) -> torch.Tensor:
        """The gradient in memory of the process, with the parameter's strides."""
        self._window.finish(self)
        values = self.stored.empty_like(self.dtype)
        self._window.client.get_into(self.key, parameter_state.flat(values))
        return parameter_state.times(values, self._factors)

    def drop(self) -> None:
        """Frees it, or has the update that is still to use it do so; the parameter has no gradient then."""
        if self.stored.gradient is self:
            self.stored.gradient = None
        if self.stored.deferred is None or self.stored.deferred.gradient is not self:
            self.stored.store.training_order.absent.add(self.key)
            self._window.drop(self)

    def put(self, gradient: torch.Tensor) -> PendingPut | None:
        """Starts to store ``gradient``, flat."""
        client = self._window.client
        if gradient.dtype in _CHECKED:
            return client.start_put(self.key, gradient, transient=True)
        client.put(self.key, gradient, replace=True, transient=True)
        self.arrived(0, _sum_of_squares(gradient))
        return None

    def arrived(self, non_finite: int, sum_of_squares: float) -> None:
        self.stored.store.training_order.absent.discard(self.key)
        self._sum_of_squares = math.inf if non_finite else sum_of_squares


@dataclasses.dataclass(slots=True)
class _OnItsWay:
    """A gradient in the process: being stored, or to be stored again where that has failed."""

    values: torch.Tensor  # Flat.
    pending: PendingPut | None


class GradientWindow:
    """The gradients that are on their way into tierd: at most ``bytes_max`` bytes, or one. One that could not be stored
    stays in the window, and the call that needs it next stores it again: so a step is continued once there is room."""

    def __init__(self, client: Client, bytes_max: int, exact_norm: bool) -> None:
        self.client = client
        self.slice_bytes = 2 * BLOCK
        self._bytes_max = bytes_max
        self._exact_norm = exact_norm
        self._under_way: collections.OrderedDict[StoredGradient, _OnItsWay] = collections.OrderedDict()
        self._bytes = 0

    def take(self, stored: StoredParameter, gradient: torch.Tensor) -> None:
        """Stores a gradient that autograd has finished, or adds it to the one there is."""
        flat = parameter_state.flat_like(gradient, torch.empty_strided(stored.shape, stored.strides, device="meta"))
        if stored.gradient is not None:
            stored.gradient.add(flat)
            return
        stored.settle()  # Its gradient has the key of the new one.
        self._make_room(flat.nbytes)
        taken = StoredGradient(self, stored, gradient.dtype, self._exact_norm)
        stored.store.training_order.absent.add(taken.key)
        stored.gradient = taken
        try:
            pending = taken.put(flat)
        except BaseException:
            stored.gradient = None
            raise
        if pending is not None:
            self._under_way[taken] = _OnItsWay(flat, pending)
            self._bytes += flat.nbytes

    def finish(self, gradient: StoredGradient) -> None:
        """Returns when the gradient is in tierd. Raises what keeps it from it; the next call tries again."""
        on_its_way = self._under_way.get(gradient)
        if on_its_way is None:
            return
        pending, on_its_way.pending = on_its_way.pending or gradient.put(on_its_way.values), None
        assert pending is not None  # Of such a type: the first one was.
        figures = pending.wait()
        gradient.arrived(figures.non_finite, figures.sum_of_squares)
        self._take_out(gradient)

    def finish_all(self) -> None:
        for gradient in list(self._under_way):
            self.finish(gradient)

    def drop(self, gradient: StoredGradient) -> None:
        on_its_way = self._take_out(gradient)
        if on_its_way is not None and on_its_way.pending is not None:
            with contextlib.suppress(Error):
                on_its_way.pending.wait()
        with contextlib.suppress(NotFound):
            self.client.delete(gradient.key)
        gradient.stored.gradient_freed()

    def _take_out(self, gradient: StoredGradient) -> _OnItsWay | None:
        on_its_way = self._under_way.pop(gradient, None)
        self._bytes = sum(each.values.nbytes for each in self._under_way.values())
        return on_its_way

    def _make_room(self, nbytes: int) -> None:
        while self._under_way and self._bytes + nbytes > self._bytes_max:
            self.finish(next(iter(self._under_way)))


def _sum_of_squares(values: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(values, 2, dtype=torch.float64)) ** 2
