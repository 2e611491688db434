"""SliceUpdate: runs an optimizer's kernel over the slices of parameters, under leases, while tierd reads the next ones.

What holds: a slice is updated once in each step, whatever fails or interrupts it. The kernel and the note that its
slices are done are one step of C, between whose parts no signal's handler runs. So a step that failed half-way can be
continued by the same call.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence

import torch

from .. import library
from ..client import Client
from ..errors import Error, NoMemory, NotFound, Timeout, WouldDeadlock
from ..lease import Lease
from ..states import Part
from . import parameter_state
from .look_ahead import LookAhead
from .parameter_state import BLOCK, Elements, ParameterState, Slice, Stored
from .uninterrupted import uninterrupted

# How many units tierd is asked for ahead of the one that is updated. With one, the disk has nothing to do while the
# processors compute with what has come.
UNITS_AHEAD = 2
# How long a unit that can be divided waits for its leases.
DIVISIBLE_SECONDS = 2.0


class Operands:
    """What a kernel works on: one element for each slice."""

    def __init__(self, unit: Sequence[Slice]) -> None:
        self.unit = unit
        self.values: list[torch.Tensor] = []
        self.gradients: list[torch.Tensor] = []
        self.state: dict[str, list[torch.Tensor]] = {kind: [] for each in unit for kind in each.state.keys}
        self.first = not unit[0].state.created  # The first update of these elements; a unit has no others beside them.
        # The counters as this step leaves them: theirs change when the kernel has run.
        begun = {id(each.step): each.step + 1 for each in unit if each.begin == 0}
        self.steps = [begun.get(id(each.step), each.step) for each in unit]

    def exact(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """The values that a kernel changes, which are the master copies where there are some, and their gradients. They
        live as long as the operands."""
        if master := self.of("master"):
            self.gradients = [gradient.to(torch.float32) for gradient in self.gradients]
            return master, self.gradients
        return self.values, self.gradients

    def of(self, kind: str) -> list[torch.Tensor]:
        return self.state.get(kind, [])


# Returns the update of the operands as one call of C.
Kernel = Callable[[Operands], Callable[[], object]]


class SliceUpdate:
    """``keys`` are the tensors that the optimizer may have in tierd, with their ids."""

    def __init__(self, client: Client, keys: dict[str, int], slice_bytes: int) -> None:
        self._client = client
        self._keys = keys
        self.slice_bytes = slice_bytes
        self.fetch_hook: Callable[[Sequence[Part]], None] | None = None
        self.look_ahead: LookAhead | None = None  # Asks for what comes next, instead of the units that follow.
        self.beside_backward = False  # Which needs RAM itself: units are asked for as other uses are.

    def watch_fetches(self, hook: Callable[[Sequence[Part]], None] | None) -> None:
        """``hook`` is called with ranges before they are first asked for, here and by the look-ahead."""
        self.fetch_hook = hook
        if self.look_ahead is not None:
            self.look_ahead.fetch_hook = hook

    def run(self, kernel: Kernel, slices: list[Slice], patience: float | None = None) -> None:
        """Updates the slices. An error leaves those that are done as they are: :func:`parameter_state.slices_of` gives
        the rest. With ``patience``, a unit waits so many seconds for RAM, and is not divided where there is too
        little."""
        units = parameter_state.units_of(slices, self.slice_bytes, library.BATCH_MAX)
        asked = 0
        for index, unit in enumerate(units):
            if self.look_ahead is not None:
                if self.fetch_hook is not None:
                    self.fetch_hook([part for each in unit for part in each.existing_parts()])
                self.look_ahead.use([part for each in unit for part in each.parts()], self._ahead_bytes(unit))
            else:
                asked = self._ask_ahead(units, index, asked)
            self._update(kernel, unit, patience)

    def _ahead_bytes(self, unit: list[Slice]) -> int:
        return 0 if self.beside_backward else UNITS_AHEAD * self.slice_bytes * unit[0].parts_count

    def _ask_ahead(self, units: list[list[Slice]], index: int, asked: int) -> int:
        """Prefetches the units after this one; returns how many units have been requested."""
        end = min(index + 1 + UNITS_AHEAD, len(units))
        for ahead in range(max(asked, index), end):
            parts = [part for each in units[ahead] for part in each.existing_parts()]
            if parts:
                if self.fetch_hook is not None:
                    self.fetch_hook(parts)
                if ahead > index:
                    self._client.prefetch(parts)
        return max(asked, end)

    def _update(self, kernel: Kernel, unit: list[Slice], patience: float | None) -> None:
        """Updates a unit, or, where RAM cannot hold its leases at once, one half after the other. A unit that can be
        divided waits for RAM only shortly: the rest of the deadline is for its halves."""
        middle = len(unit) // 2 if patience is None else 0
        leases: list[Lease] = []
        try:
            self._take(unit, leases, DIVISIBLE_SECONDS if middle else patience)
        except (NoMemory, WouldDeadlock, Timeout) as error:
            _give_back(unit, leases)
            if not middle:
                raise
            if isinstance(error, NoMemory):  # The next units are to fit.
                self.slice_bytes = max(BLOCK, self.slice_bytes // 2)
            for half in (unit[:middle], unit[middle:]):
                self._update(kernel, half, patience)
            return
        except BaseException:
            _give_back(unit, leases)
            raise
        try:
            self._apply(kernel, unit, leases)
        except BaseException:
            # The leases end with their views, which this exception's frames still hold.
            _give_up_unfilled(unit, leases)
            raise
        for lease in leases[: sum(len(each.state.keys) for each in unit)]:
            lease.evict_first()  # Nothing needs the state before the next step's update.
        with contextlib.ExitStack() as all_of_them:  # Also after one that fails.
            for lease in leases:
                all_of_them.callback(lease.release)

    def _take(self, unit: list[Slice], leases: list[Lease], timeout: float | None) -> None:
        """Leases on the ranges of the state, of stored values and of stored gradients, in this order."""
        first = unit[0]
        values = [part for each in unit for part in each.value_parts()]
        gradients = [part for each in unit for part in each.gradient_parts()]
        if not first.state.created and first.begin == 0:
            leases += self._create(first, timeout)
            if values:
                leases += self._client.lease_many(values, write=True, timeout=timeout)
        else:
            state = [part for each in unit for part in each.state_parts()]
            if state or values:
                leases += self._client.lease_many(state + values, write=True, timeout=timeout)
        if gradients:
            leases += self._client.lease_many(gradients, timeout=timeout)

    def _create(self, first: Slice, timeout: float | None) -> list[Lease]:
        new = {key: self._client.tensor_id(key) for key in first.state.keys.values() if key not in self._keys}
        self._keys.update(new)  # Noted before they exist: an interrupt may come at any point.
        try:
            return self._client.lease_many(first.creating_parts(), timeout=timeout)
        except Error:
            for key in new:
                self._keys.pop(key, None)  # None was made: an existing tensor is not the optimizer's.
            raise

    def _apply(self, kernel: Kernel, unit: list[Slice], leases: list[Lease]) -> None:
        operands = Operands(unit)
        views = iter(leases)
        for each in unit:
            for kind in each.state.keys:
                operands.state[kind].append(next(views).torch(each.state.dtype))
        for each in unit:
            operands.values.append(_elements(each.values, each, views))
        for each in unit:
            gradient = _elements(each.gradient, each, views)
            factors = each.gradient.factors if isinstance(each.gradient, Stored) else ()
            operands.gradients.append(parameter_state.times(gradient, factors))
        del views
        for index, each in enumerate(unit):
            if not each.state.created:
                for kind in each.state.keys:
                    fill_initial(kind, operands.state[kind][index], operands.values[index])
        work = [kernel(operands)]
        for value, exact in zip(operands.values, operands.of("master"), strict=False):
            work.append(functools.partial(value.copy_, exact))
        for each, step in zip(unit, operands.steps, strict=True):
            work += [functools.partial(each.step.copy_, step), *_done(each)]
        with torch._C.DisableTorchFunction():  # No mode's code in Python in between.
            uninterrupted(work)


def drop_unfinished(client: Client, keys: dict[str, int], slices: Iterable[Slice]) -> None:
    """Drops state that was being made when the step failed, and of which nothing is done: it starts from zero again in
    the next step."""
    for each in slices:
        state = each.state
        if not state.created and state.done == 0 and not keys.keys().isdisjoint(state.keys.values()):
            each.step.zero_()
            free_state(client, keys, state)


def free_state(client: Client, keys: dict[str, int], state: ParameterState) -> None:
    """Frees the tensors of the state that are in ``keys``; one that cannot be freed now is freed later."""
    for key in state.keys.values():
        if key in keys:
            with contextlib.suppress(Error):
                with contextlib.suppress(NotFound):
                    client.delete(key)
                keys.pop(key, None)


def fill_initial(kind: str, view: torch.Tensor, values: torch.Tensor) -> None:
    if kind == "master":
        view.copy_(values)
    else:
        view.zero_()


def _elements(elements: Elements, each: Slice, views: Iterable[Lease]) -> torch.Tensor:
    """The slice of them: of the process, or the next leased view."""
    if isinstance(elements, Stored):
        view: torch.Tensor = next(iter(views)).torch(elements.dtype)
        return view
    return elements.narrow(0, each.begin, each.count)


def _done(each: Slice) -> list[Callable[[], object]]:
    """The note that the slice is updated."""
    state = each.state
    if each.end < state.parameter.numel():
        return [functools.partial(setattr, state, "done", each.end)]
    names: dict[str, object] = {"created": True, "finished": True, "done": 0}
    return [functools.partial(setattr, state, name, value) for name, value in names.items()]


def _give_back(unit: list[Slice], leases: list[Lease]) -> None:
    """Ends leases under which nothing was written."""
    _give_up_unfilled(unit, leases)
    with contextlib.ExitStack() as all_of_them:
        for lease in leases:
            all_of_them.callback(lease.release)
    leases.clear()


def _give_up_unfilled(unit: list[Slice], leases: list[Lease]) -> None:
    """State of which nothing was made must not become final: it is freed with its leases. Other state is whole, before
    or after the kernel, or is filled when the step is continued; it is sealed as it stands."""
    first = unit[0].state
    if not first.created and first.done == 0:
        for lease in leases[: len(first.keys)]:
            lease.abandon()
