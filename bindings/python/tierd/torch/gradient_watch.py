"""GradientWatch: the hooks on a model's parameters by which their gradients leave the process.

Autograd calls one when it has finished a parameter's gradient in the process. Torch takes no hook on a parameter that
requires no gradient: one that is unfrozen later gets its hook when it is used next.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from .placeholder import Placeholder
from .stored_parameter import StoredParameter


class GradientWatch:
    """Any thread that runs a forward or a backward of the model."""

    def __init__(self, finished: Callable[[StoredParameter], None]) -> None:
        """``finished`` is a method of an object that may be gone by then."""
        # Weakly: autograd holds the hooks, where the collector does not see it.
        self._finished = weakref.WeakMethod(finished)
        self._handles: dict[StoredParameter, Any] = {}

    def begin(self, stored: StoredParameter) -> None:
        """For a parameter that requires a gradient: from now on, ``finished`` is called with it."""
        if stored in self._handles:
            return
        finished, watched = self._finished, weakref.ref(stored)

        def hook(parameter: torch.Tensor) -> None:
            take, of = finished(), watched()
            if take is not None and of is not None and of.parameter.requires_grad:  # Else frozen since: it got none.
                take(of)

        self._handles[stored] = Placeholder.on_gradient(stored.parameter, hook)

    def end(self) -> None:
        for handle in self._handles.values():
            handle.remove()
        self._handles.clear()
