"""DiscardedUpdate: what became of a step whose update was dropped, because it could not be carried out.

The idea: an update goes on where it failed, and no slice is updated twice; what it needs is room, or a daemon that
answers. Where that does not come, the caller may give the step up. Nothing takes an update back: a parameter has it,
has it not, or has it in its first slices only. Which of these is said for each, and a mixture is not saved by accident.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from ..errors import Invalid
from .pending_update import is_pending
from .slice_update import free_state
from .stored_parameter import stored_of
from .uninterrupted import uninterrupted

if TYPE_CHECKING:
    from .pending_update import PendingUpdate
    from .parameter_state import ParameterState
    from .tiered_optimizer import TieredOptimizer


@dataclasses.dataclass(frozen=True, slots=True)
class DiscardedUpdate:
    """The parameters of the last step by name: a parameter that is not in tierd is called by its number among all."""

    #: Value and state are those after the step.
    updated: tuple[str, ...] = ()
    #: Value and state are those before it.
    unchanged: tuple[str, ...] = ()
    #: Some slices have the update, and others have not.
    partial: tuple[str, ...] = ()

    @property
    def is_consistent(self) -> bool:
        """Whether the model is what it was before the step. If not, go on from what was saved or persisted last."""
        return not self.updated and not self.partial

    def unless(self, accepted: bool, before: DiscardedUpdate) -> DiscardedUpdate:
        """What keeps the optimizer from being saved now, where ``before`` kept it until now."""
        return DiscardedUpdate() if accepted else before if self.is_consistent else self

    def require_consistent(self, what: str) -> None:
        """``Invalid`` where ``what`` would keep a mixture."""
        if not self.is_consistent:
            raise Invalid(
                f"{what} would keep a step of which a part was dropped ({self}): call optimizer.load_state_dict(), or "
                "discard_update(accept=True) to take the mixture as it is"
            )

    def __str__(self) -> str:
        if not (self.updated or self.unchanged or self.partial):
            return "no update was left to discard"
        parts = [f"{len(self.unchanged)} parameters are as before the step"]
        parts += [f"{len(self.updated)} have its update"] if self.updated else []
        parts += [f"{len(self.partial)} have it in part, such as {self.partial[0]!r}"] if self.partial else []
        return ", ".join(parts) + ("" if self.is_consistent else ": load what was saved or persisted last")


def discard(optimizer: TieredOptimizer, stepped: list[torch.Tensor], under_way: bool) -> DiscardedUpdate:
    """Drops what is left of the last step, in which the parameters ``stepped`` had gradients. It is ``under_way`` where
    ``step()`` itself has failed. Updates that a backward has begun are part of it. Gradients are dropped too."""
    for parameter in optimizer._tiered:
        if (waiting := _pending(optimizer, parameter)) is not None:
            waiting.stop()
    begun = [
        parameter
        for parameter, state in optimizer._tiered.items()
        if state.done or state.finished or _pending(optimizer, parameter) is not None
    ]
    under_way = under_way or any(_pending(optimizer, parameter) is None for parameter in begun)
    found: dict[str, list[str]] = {"updated": [], "unchanged": [], "partial": []}
    left: list[PendingUpdate] = []
    changes: list[Callable[[], object]] = []
    fresh: list[ParameterState] = []  # Of parameters that have no state, as before their first step.
    for parameter in dict.fromkeys([*stepped, *begun]):
        state, update = optimizer._tiered.get(parameter), _pending(optimizer, parameter)
        outcome = "unchanged"
        if update is None and not under_way or state is not None and state.finished:
            outcome = "updated"
        elif state is not None and state.done:
            outcome = "partial"
        found[outcome].append(_name_of(optimizer, parameter))
        if update is not None:
            left.append(update)
            changes.append(functools.partial(setattr, update.stored, "deferred", None))
            changes += update.notes_of_discard() if outcome == "unchanged" else []
        if state is not None and (update is not None or under_way):
            changes += [functools.partial(setattr, state, "done", 0), *state.step_ended()]
            if not state.created:
                fresh.append(state)
    if not (left or under_way):
        return DiscardedUpdate()
    uninterrupted(changes)
    for state in fresh:
        optimizer.state.pop(state.parameter, None)
        free_state(optimizer.client, optimizer._keys, state)
    for update in left:
        update.drop_gradient()
    return DiscardedUpdate(**{outcome: tuple(names) for outcome, names in found.items()})


def drop_unbegun(optimizer: TieredOptimizer) -> None:
    """Drops what a backward that failed has left, where no update of it has begun: as if it had not been."""
    waiting = [update for parameter in optimizer._tiered if (update := _pending(optimizer, parameter)) is not None]
    for update in waiting:
        update.stop()
    if waiting and not any(state.done or state.finished for state in optimizer._tiered.values()):
        discard(optimizer, [], under_way=False)


def require_whole(optimizer: TieredOptimizer, what: str) -> None:
    """``Invalid`` where ``what`` would find a step of which a part is made. What ``step()`` has put off is no part."""
    begun = [
        parameter
        for parameter, state in optimizer._tiered.items()
        if (state.done or state.finished) and not (optimizer._deferred and is_pending(state))
    ]
    if not begun:
        return
    if optimizer._under_way:
        raise Invalid(f"the last step() failed half-way: call step() again before {what}, or discard_update()")
    raise Invalid(
        f"backward has updated {len(begun)} parameters since the last step(), such as "
        f"{_name_of(optimizer, begun[0])!r}: call step() before {what}. If that backward failed, others are not "
        "updated: step() leaves them as they are, and discard_update() says which they are"
    )


def _pending(optimizer: TieredOptimizer, parameter: torch.Tensor) -> PendingUpdate | None:
    """The optimizer's update of the parameter that waits."""
    stored = stored_of(parameter)
    update = None if stored is None else stored.deferred
    return update if update is not None and update.optimizer is optimizer else None


def _name_of(optimizer: TieredOptimizer, parameter: torch.Tensor) -> str:
    stored = stored_of(parameter)
    return f"parameter {optimizer._numbers[parameter]}" if stored is None else stored.name
