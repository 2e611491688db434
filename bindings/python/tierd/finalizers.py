"""Finalizers that an interrupt may delay, but never loses.

Python reports what a signal's handler raises inside a finalizer, and goes on: what was left to do there is never done.
So the end of an object is first noted, by a call of C, within which no handler runs; then its finalizer is called. One
that was interrupted stays noted, and is called again before the next call that the package makes, on any thread.

What holds: from the moment that an object is gone until its finalizer has returned once, it is noted. So a finalizer
can be called again after any of its steps, and by two threads at once; each step of it must allow that.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from collections.abc import Callable


class Finalizer(weakref.ref):  # type: ignore[type-arg]  # Of an object of any type.
    """``function`` is called after the last reference to its object is gone. Made by :func:`attach`."""

    __slots__ = ("function", "prompt")
    function: Callable[[], object] | None
    prompt: object

    def detach(self) -> None:
        """It is not called any more."""
        self.function = None
        _attached.pop(id(self), None)

    def call(self) -> None:
        """Calls it now, and not again."""
        if self.function is not None:
            self.function()
        self.detach()


# Weak references last here, also where all else that refers to them is garbage, such as a client and its arrays.
_attached: dict[int, Finalizer] = {}
_noted: list[Finalizer] = []
_calling: set[int] = set()  # Threads.


def attach(owner: object, function: Callable[[], object]) -> Finalizer:
    """Has ``function`` called after ``owner`` is gone; it must not refer to it. Where this raises, there is nothing to
    finalize yet: attach before there is."""
    prompt = weakref.ref(owner, _call_promptly)
    finalizer = Finalizer(owner, _noted.append)  # Of two references, the one made last is called first.
    finalizer.function, finalizer.prompt = function, prompt
    _attached[id(finalizer)] = finalizer
    return finalizer


def call_noted() -> None:
    """Calls the finalizers of objects that are gone. One that raises stays noted."""
    thread = threading.get_ident()
    if not _noted or thread in _calling:  # A finalizer makes calls of the package itself.
        return
    try:
        _calling.add(thread)
        while _noted:
            for finalizer in list(_noted):
                finalizer.call()
                with contextlib.suppress(ValueError):  # Another thread has called it too.
                    _noted.remove(finalizer)
    finally:
        _calling.discard(thread)


def _call_promptly(_: object, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
    # Not at exit: arrays may still be read then, and the daemon reclaims what a dead process held.
    if not finalizing():
        call_noted()
