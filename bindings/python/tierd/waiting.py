"""Operation: one started call of libtier's, from its start until its handle is freed: once, whatever signal comes when.

Python runs a signal's handler, which may raise, between any two steps of Python code on the main thread, so that "free
it" and "note that it is freed" can never be two steps. Here both are one: a handle's token lies in a table; to end the
handle, :func:`end_once` takes the token out and makes the calls within C, where no handler runs. And the owner of a
handle exists before C fills the handle in; what is not ended by then ends with the owner (``finalizers``).
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import operator
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from . import finalizers, library

# How long a call on the main thread may stay inside C before Python looks for signals again.
SLICE_MS = 200


Token: TypeAlias = "dict[int, ctypes.c_void_p]"


def token_of(handle: ctypes.c_void_p) -> Token:
    """The right to end ``handle``, for :func:`end_once`."""
    return {0: handle}


def end_once(token: Token, *calls: Callable[[], Any]) -> list[Any]:
    """Makes the calls if the token has not been taken: their answers, else none. Each is a ``functools.partial`` over
    a function of C. Threads and signals cannot come between the taking and the calls: all that is used here is of C."""
    taken = iter(functools.partial(token.pop, 0, None), None)
    granted = map(operator.itemgetter(1), zip(taken, itertools.repeat(calls)))
    return list(map(operator.call, itertools.chain.from_iterable(granted)))


class _Started:
    """What is left to do with an operation. It keeps ``keeps`` alive until then."""

    __slots__ = ("_keeps", "_library", "_token", "handle", "outcome")

    def __init__(self, functions: ctypes.CDLL, keeps: object) -> None:
        self._library = functions
        self._keeps = keeps
        self.outcome = library.CopyOutcome(struct_size=ctypes.sizeof(library.CopyOutcome))
        self.handle = ctypes.c_void_p()
        self._token = token_of(self.handle)

    @property
    def ended(self) -> bool:
        return not self._token

    def take(self) -> int:
        """Frees the handle of an operation that has ended, and returns its code."""
        code, *_ = end_once(self._token, self._wait()) or [0]
        return int(code)

    def end(self) -> None:
        if self.handle.value:  # Else it was never passed to a call.
            end_once(self._token, functools.partial(self._library.tier_cancel, self.handle), self._wait())

    def _wait(self) -> Callable[[], Any]:
        return functools.partial(self._library.tier_wait, self.handle, 0, ctypes.byref(self.outcome))


class Operation:
    """A ``tier_op``. Pass ``handle`` to the call that starts it, then :meth:`wait`; :meth:`end` in any case.

    ``keeps`` is alive as long as the operation may touch memory: the owner of what is copied, or the leases that
    ``tier_wait`` fills in. Used by one thread.
    """

    __slots__ = ("__weakref__", "_library", "_started", "handle", "outcome")

    def __init__(self, functions: ctypes.CDLL, keeps: object) -> None:
        self._library = functions
        self._started = _Started(functions, keeps)
        self.handle = self._started.handle
        self.outcome = self._started.outcome
        finalizers.attach(self, self._started.end)

    @property
    def ended(self) -> bool:
        """Whether it was waited for, or given up."""
        return self._started.ended

    def wait(self) -> int:
        """Waits where signals are handled, and returns the operation's code. REQUIRES: it was started."""
        while not self._library.tier_poll(self.handle, SLICE_MS):
            pass
        return self._started.take()

    def end(self) -> None:
        """Gives the operation up unless it was waited for. It has stopped touching memory when this returns. May be
        repeated."""
        self._started.end()


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
