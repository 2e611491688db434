"""Scopes: what one thread has under way in an offloaded model.

Several threads may each be inside the model's forward or backward, such as those of ``accumulate``; what torch keeps by
thread, as the hooks for saved tensors, is then entered and left by each for itself. What holds: a parameter's ``uses``
is the number of its places in the lists of all threads.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from .uninterrupted import uninterrupted

if TYPE_CHECKING:
    from .look_ahead import LookAhead
    from .stored_parameter import StoredParameter

_autograd: Any = torch._C._autograd
_push, _pop = _autograd._push_saved_tensors_default_hooks, _autograd._pop_saved_tensors_default_hooks
_top = _autograd._top_saved_tensors_default_hooks


Hooks: TypeAlias = "tuple[Callable[[torch.Tensor], Any], Callable[[Any], torch.Tensor]]"


class Scopes(threading.local):
    """Each thread has its own, empty at first. Torch has hooks of theirs exactly as long as a scope is open."""

    def __init__(self) -> None:
        self.open = 0  # Forwards of modules under way.
        self.entered: dict[torch.nn.Module, list[list[StoredParameter]]] = {}  # A list for each of these forwards.
        self.on_demand: list[StoredParameter] = []  # Present until the outermost forward ends.
        self.released_after = -1  # The backward at whose end they are released.
        self.order: LookAhead | None = None  # Of an evaluation under way.
        self._opened_in = -1  # The backward in which the first scope was opened.

    def begin_outermost(self, hooks: Hooks) -> None:
        """Opens the first scope. Torch calls ``hooks`` for what autograd saves until it is closed."""
        self._opened_in = torch._C._current_graph_task_id()
        uninterrupted([functools.partial(_push, *hooks), functools.partial(setattr, self, "open", 1)])

    def end_outermost(self) -> None:
        # Torch itself takes back hooks that were opened in a backward which an interrupt has ended.
        has_hooks = self._opened_in == torch._C._current_graph_task_id() and _top(True) is not None
        uninterrupted([*[_pop] * has_hooks, functools.partial(setattr, self, "open", 0)])
