"""Scopes: what one thread has under way in an offloaded model.

Several threads may each be inside the model's forward or backward, such as those of ``accumulate``; what torch keeps by
thread, as the hooks for saved tensors, is then entered and left by each for itself. What holds: a parameter's ``uses``
is the number of its places in the lists of all threads.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .look_ahead import LookAhead
    from .stored_parameter import StoredParameter


class Scopes(threading.local):
    """Each thread has its own, empty at first."""

    def __init__(self) -> None:
        self.open = 0  # Forwards of modules under way.
        self.entered: dict[torch.nn.Module, list[list[StoredParameter]]] = {}  # A list for each of these forwards.
        self.on_demand: list[StoredParameter] = []  # Present until the outermost forward ends.
        self.released_after = -1  # The backward at whose end they are released.
        self.saved_hooks: Any = None  # Of the outermost forward.
        self.order: LookAhead | None = None  # Of an evaluation under way.
