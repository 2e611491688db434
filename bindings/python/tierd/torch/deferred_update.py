"""DeferredUpdate: the part of an optimizer's step that is carried out when the parameter is needed next.

``step()`` has decided: the gradient is complete, and the group's options are those of the call. The update itself runs
before the first use of the parameter, in the order of the next forward, so that what it reads and writes goes on beside
the forward of the layers before it (after GreedySnake, arXiv 2512.17570). The parameter is then in RAM for the forward
that needs it. The bits are those of an update in ``step()``. The gradient stays in tierd until then, also when the loop
has set ``parameter.grad`` to ``None``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from .pending_update import PendingUpdate

if TYPE_CHECKING:
    from .parameter_state import ParameterState
    from .stored_gradient import StoredGradient


class DeferredUpdate(PendingUpdate):
    """``step()`` has counted it already."""

    __slots__ = ()
    gradient: StoredGradient

    def _run(self) -> None:
        self._carry_out()
        if self.stored.gradient is not self.gradient:
            self.gradient.drop()

    def notes_of_decision(self) -> list[Callable[[], object]]:
        """What is noted when ``step()`` ends, for ``uninterrupted``."""
        step = self.optimizer.step_of(self.stored.parameter)
        return [functools.partial(setattr, self.stored, "deferred", self), functools.partial(step.add_, 1)]

    def notes_of_end(self, state: ParameterState) -> list[Callable[[], object]]:
        return [*state.step_ended()]

    def notes_of_discard(self) -> list[Callable[[], object]]:
        return [functools.partial(self.optimizer.step_of(self.stored.parameter).sub_, 1)]

    def drop_gradient(self) -> None:
        self.gradient.drop()
