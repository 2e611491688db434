"""DeferredUpdate: the part of an optimizer's step that is carried out when the parameter is needed next.

``step()`` has decided: the gradient is complete, and the group's options are those of the call. The update itself runs
before the first use of the parameter, in the order of the next forward, so that what it reads and writes goes on beside
the forward of the layers before it (after GreedySnake, arXiv 2512.17570). The parameter is then in RAM for the forward
that needs it. The bits are those of an update in ``step()``.

What holds: a parameter has at most one, and a call that reads its values, its state or its gradient's bytes carries it
out first. The gradient stays in tierd until then, also when the loop has set ``parameter.grad`` to ``None``. An update
that fails half-way stays, and the next use goes on with it; no slice is updated twice.
"""

from __future__ import annotations

import contextlib
import copy
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _python_dispatch

from ..errors import Invalid
from .group_options import check_options
from .stored_parameter import stored_of

if TYPE_CHECKING:
    from .tiered_optimizer import TieredOptimizer
    from .parameter_state import ParameterState, Stored
    from .stored_gradient import StoredGradient
    from .stored_parameter import StoredParameter


class DeferredUpdate:
    """``group`` has the options at the time of the step; ``elements`` are those of ``gradient``; ``step`` counts the
    updates before this one, and with it when it has begun."""

    __slots__ = ("elements", "gradient", "group", "optimizer", "step", "stored")

    def __init__(
        self,
        optimizer: TieredOptimizer,
        stored: StoredParameter,
        group: dict[str, Any],
        gradient: StoredGradient,
        elements: Stored,
        step: torch.Tensor,
    ) -> None:
        self.optimizer = optimizer
        self.stored = stored
        self.group = group
        self.gradient = gradient
        self.elements = elements
        self.step = step

    def run(self) -> None:
        """Any error of tierd, or an interrupt, may leave it half done; then call it again."""
        with self.stored.store.lock, _outside_of_the_model():
            self.stored.store.held.making_room(lambda: self.optimizer.carry_out(self))
            if self.stored.gradient is not self.gradient:
                self.gradient.drop()


def options_of(group: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """A group's options, which the caller may change meanwhile; its parameters left out. ``Invalid``: an update by them
    would fail."""
    check_options(group, defaults)
    return {name: copied(value) for name, value in group.items() if name != "params"}


def copied(value: Any) -> Any:
    with torch.inference_mode(False):
        return value.detach().clone() if isinstance(value, torch.Tensor) else copy.copy(value)


def is_deferred(state: ParameterState) -> bool:
    """Whether an update of the parameter waits."""
    stored = stored_of(state.parameter)
    return stored is not None and stored.deferred is not None


@contextlib.contextmanager
def _outside_of_the_model() -> Any:
    """The forward that needs the parameter may record a graph, or have each operation shown to a mode, such as that of
    a selective checkpoint: the update is none of its operations. ``Invalid`` inside a transformation of torch.func,
    which would change what the update's operations mean; nothing has changed then."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise Invalid(
            "an update that step() has deferred is due inside a transformation of torch.func: call "
            "optimizer.settle() before it"
        )
    with torch.inference_mode(False), torch.no_grad(), _python_dispatch._disable_current_modes():
        yield
