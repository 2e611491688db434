"""Operation: one started call of libtier's, from its start until its handle is freed: once, whatever signal comes when.

Python runs a signal's handler, which may raise, between any two steps of Python code on the main thread, so that "free
it" and "note that it is freed" can never be two steps. Here both are one: a handle's token lies in a table; to end the
handle, :func:`end_once` takes the token out and makes the call within C, where no handler runs. And the owner of a
handle exists before C fills the handle in, and ends it in ``__del__`` if it is not ended by then.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from collections.abc import Callable
from typing import TypeAlias

from . import library

# How long a call on the main thread may stay inside C before Python looks for signals again.
SLICE_MS = 200


Token: TypeAlias = "dict[int, ctypes.c_void_p]"


def token_of(handle: ctypes.c_void_p) -> Token:
    """The right to end ``handle``, for :func:`end_once`."""
    return {0: handle}


def end_once(function: Callable[..., int | None], token: Token, *arguments: object) -> list[int | None]:
    """Calls ``function(handle, *arguments)`` if the token has not been taken: its answer, else nothing. Threads and
    signals cannot come between the taking and the call: ``list``, ``map``, ``iter`` and ``pop`` are all of C."""
    taken = iter(functools.partial(token.pop, 0, None), None)
    return list(map(function, taken, *[(argument,) for argument in arguments]))


class Operation:
    """A ``tier_op``. Pass ``handle`` to the call that starts it, then :meth:`wait`; :meth:`end` in any case.

    ``keeps`` is alive as long as the operation may touch memory: the owner of what is copied, or the leases that
    ``tier_wait`` fills in. Used by one thread.
    """

    __slots__ = ("_keeps", "_library", "_token", "handle", "outcome")

    def __init__(self, functions: ctypes.CDLL, keeps: object) -> None:
        self._library = functions
        self._keeps = keeps
        self.outcome = library.CopyOutcome(struct_size=ctypes.sizeof(library.CopyOutcome))
        self.handle = ctypes.c_void_p()
        self._token = token_of(self.handle)

    def wait(self) -> int:
        """Waits where signals are handled, and returns the operation's code. REQUIRES: it was started."""
        while not self._library.tier_poll(self.handle, SLICE_MS):
            pass
        return self._take()[0] or 0

    def end(self) -> None:
        """Gives the operation up unless it was waited for. It has stopped touching memory when this returns. May be
        repeated."""
        if self.handle.value and self._token:
            self._library.tier_cancel(self.handle)
            self._take()

    def _take(self) -> list[int | None]:
        return end_once(self._library.tier_wait, self._token, 0, ctypes.byref(self.outcome))

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not finalizing() and hasattr(self, "_token"):  # Else it was never passed to a call.
            self.end()


def run_aside(work: Callable[[], None]) -> None:
    """Runs ``work`` on a thread of its own and waits for it where signals are handled. When a handler raises, ``work``
    continues alone. For calls that libtier cannot start without waiting for them."""
    if threading.current_thread() is not threading.main_thread():
        work()
        return
    ended = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)
        finally:
            ended.set()

    threading.Thread(target=run, name="tierd-wait", daemon=True).start()
    # In slices: a signal that comes just before the thread sleeps does not wake it.
    while not ended.wait(SLICE_MS / 1000):
        pass
    if failures:
        raise failures[0]
