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
        self.calls = 0  # Of them, those of the model itself: one may call itself.
        self.entered: dict[torch.nn.Module, list[list[StoredParameter]]] = {}  # A list for each of these forwards.
        self.own: list[list[StoredParameter]] = []  # The parameters of each such module, the innermost last.
        self.on_demand: list[StoredParameter] = []  # Present until the outermost forward ends.
        self.released_after = -1  # The backward at whose end they are released.
        self.order: LookAhead | None = None  # Of an evaluation under way.
        # Autocast keeps no casts while so many scopes are open; 0: as the caller has it.
        self._uncached_from = 0
        self._opened_in = -1  # The backward in which the first scope was opened.

    def begin_outermost(self, hooks: Hooks) -> None:
        """Opens the first scope. Torch calls ``hooks`` for what autograd saves until it is closed."""
        self._opened_in = torch._C._current_graph_task_id()
        uninterrupted([functools.partial(_push, *hooks), functools.partial(setattr, self, "open", 1)])

    def keep_no_casts(self) -> None:
        """Autocast keeps no casts until the innermost scope ends: without a graph, none is needed twice."""
        if not self._uncached_from and torch.is_autocast_enabled("cpu") and torch.is_autocast_cache_enabled():
            noted = functools.partial(setattr, self, "_uncached_from", self.open)
            uninterrupted([functools.partial(torch.set_autocast_cache_enabled, False), noted])

    def end(self) -> None:
        """Closes the innermost scope."""
        changes: list[Callable[[], object]] = [functools.partial(setattr, self, "open", self.open - 1)]
        if self._uncached_from == self.open:
            changes.append(functools.partial(torch.set_autocast_cache_enabled, True))
            changes.append(functools.partial(setattr, self, "_uncached_from", 0))
        # Torch itself takes back hooks that were opened in a backward which an interrupt has ended.
        in_place = self._opened_in == torch._C._current_graph_task_id() and _top(True) is not None
        if self.open == 1 and in_place:
            changes.append(_pop)
        uninterrupted(changes)
