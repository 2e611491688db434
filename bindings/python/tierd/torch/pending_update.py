"""PendingUpdate: an update of a parameter in tierd that has been decided on, and is not carried out yet.

What holds: a parameter has at most one, and a call that reads its values, its state or its gradient's bytes carries it
out first, or waits until it is. One that fails half-way stays, and the next use goes on with it; no slice is updated
twice.
"""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _python_dispatch

from ..errors import Invalid
from .autograd_guard import autograd_guard, stop_recording
from .stored_parameter import stored_of

if TYPE_CHECKING:
    from .parameter_state import Elements, ParameterState
    from .stored_parameter import StoredParameter
    from .tiered_optimizer import TieredOptimizer


class PendingUpdate:
    """``group`` has the options at the time of the decision; ``gradient`` is the object by which the state knows an
    update that it has begun, and ``elements`` are its elements. ``step`` counts the updates before this one, and with
    it when it has begun; none where the state's own counter does that."""

    __slots__ = ("_within", "elements", "gradient", "group", "optimizer", "step", "stored")

    def __init__(
        self,
        optimizer: TieredOptimizer,
        stored: StoredParameter,
        group: dict[str, Any],
        gradient: object,
        elements: Elements,
        step: torch.Tensor | None = None,
    ) -> None:
        self.optimizer = optimizer
        self.stored = stored
        self.group = group
        self.gradient = gradient
        self.elements = elements
        self.step = step
        self._within = 0  # The thread that carries it out, under the store's lock.

    def run(self) -> None:
        """Any error of tierd, or an interrupt, may leave it half done; then call it again."""
        with self.stored.store.lock:
            self.require_not_within()
            if self.is_due():  # Else another thread has carried it out while this one waited for the lock.
                self._run()

    def _run(self) -> None:
        """The same, under the store's lock."""
        raise NotImplementedError

    def notes_of_end(self, state: ParameterState) -> list[Callable[[], object]]:
        """What is noted when it is carried out, for ``uninterrupted``."""
        raise NotImplementedError

    def notes_of_discard(self) -> list[Callable[[], object]]:
        """What is noted when it is dropped before it has begun."""
        return []

    def stop(self) -> None:
        """Returns when no other thread carries it out, or will. ``Invalid`` in the middle of it."""
        self.require_not_within()

    def drop_gradient(self) -> None:
        """It is dropped, or done: nothing needs its gradient any more."""

    def is_due(self) -> bool:
        """Whether it is neither carried out nor dropped."""
        return self.stored.deferred is self

    def require_not_within(self) -> None:
        """``Invalid`` in the middle of it: it waits where handlers of signals run, and one may look at the model."""
        if self._within == threading.get_ident():
            raise Invalid(
                f"an update of parameter {self.stored.name!r} is under way in this thread: a signal's handler came in "
                "the middle of it, and cannot read the model"
            )

    def _carry_out(self) -> None:
        """For a thread that has the store's lock."""
        try:
            self._within = threading.get_ident()
            carry_out = functools.partial(self.optimizer.carry_out, self)
            outside_of_the_model(functools.partial(self.stored.store.held.making_room, carry_out))
        finally:
            self._within = 0


def options_of(group: dict[str, Any]) -> dict[str, Any]:
    """A group's options, which the caller may change meanwhile; its parameters left out."""
    return {name: copied(value) for name, value in group.items() if name != "params"}


def copied(value: Any) -> Any:
    with autograd_guard():
        return value.detach().clone() if isinstance(value, torch.Tensor) else copy.copy(value)


def is_pending(state: ParameterState) -> bool:
    """Whether an update of the parameter waits."""
    stored = stored_of(state.parameter)
    return stored is not None and stored.deferred is not None


def outside_of_the_model(update: Callable[[], object]) -> None:
    """The forward that needs the parameter may record a graph, or have each operation shown to a mode, such as that of
    a selective checkpoint: the update is none of its operations. ``Invalid`` inside a transformation of torch.func,
    which would change what the update's operations mean; nothing has changed then."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise Invalid(
            "an update that step() has deferred is due inside a transformation of torch.func: call "
            "optimizer.settle() before it"
        )
    with autograd_guard():
        stop_recording()
        if _python_dispatch._get_current_dispatch_mode_stack():
            with _python_dispatch._disable_current_modes():
                update()
        else:
            update()
