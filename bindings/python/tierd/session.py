"""Session: one ``tier_client`` and everything that may still need it.

The idea: libtier's handle is closed by whoever leaves last. Calls under way and leases whose arrays are alive each hold
a count; ``close()`` refuses new calls at once and frees the handle when both counts are zero, so that no array ever
loses the memory beneath it.

Any thread may call anything. A finalizer may run in the middle of any of these methods, on the same thread, so the lock
is re-entrant and what it guards is consistent at every step. After ``fork()`` the child's copy is dead: it calls
nothing in libtier and answers ``Disconnected``.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TypeVar

from . import library
from .errors import Disconnected, Stale

# How long a call on the main thread may stay inside C before Python looks for signals again.
SLICE_MS = 200
DEADLINE_MS = 60_000

_GOES_ON = b"it goes on"

_T = TypeVar("_T")

_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


class Grant:
    """One lease of libtier's. Ended exactly once, by ``end``; whoever holds the buffer over it calls that last."""

    __slots__ = ("_ended", "abandon", "address", "length", "_lease", "_session", "_thread", "__weakref__")

    def __init__(self, session: Session, lease: int, thread: int) -> None:
        self._session = session
        self._lease = lease
        self._thread = thread
        self._ended = False
        self.abandon = False  # The content is not final: revert it instead of sealing it.
        self.address = 0
        self.length = 0

    def locate(self) -> None:
        """Learns where the leased bytes lie, as one range. Raises what stitching raises."""
        address, length = ctypes.c_void_p(), ctypes.c_uint64()
        self._session.check(
            self._session.library.tier_lease_data(self._lease, ctypes.byref(address), ctypes.byref(length))
        )
        self.address, self.length = address.value or 0, length.value

    def end(self) -> None:
        """Gives the lease back. Safe from finalizers, at interpreter shutdown and in a forked child."""
        if self._ended:
            return
        self._ended = True
        self._session.end_grant(self._lease, self._thread, library.ABANDON if self.abandon else 0)


class Session:
    def __init__(self, functions: ctypes.CDLL, handle: int) -> None:
        self.library = functions
        self._handle = handle
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._closing = False
        self._calls: dict[int, int] = {}  # Calls under way, by thread.
        self._grants: dict[int, int] = {}  # Leases alive, by the thread that took them.
        _sessions.add(self)

    @property
    def closed(self) -> bool:
        return self._closing or self._handle == 0

    @property
    def forked(self) -> bool:
        return self._process != os.getpid()

    # ---- Counting ----

    def _enter(self) -> int:
        thread = threading.get_ident()
        with self._lock:
            if self.forked:
                raise Disconnected(
                    f"this client belongs to process {self._process}; process {os.getpid()} was forked from it and "
                    "has no session: call tierd.connect() here"
                )
            if self.closed:
                raise Stale("this client is closed: call tierd.connect() again")
            self._calls[thread] = self._calls.get(thread, 0) + 1
        return thread

    def _leave(self, thread: int) -> None:
        with self._lock:
            _decrement(self._calls, thread)
        self._close_if_last()

    def _add_grants(self, leases: Sequence[int], thread: int) -> list[Grant]:
        with self._lock:
            self._grants[thread] = self._grants.get(thread, 0) + len(leases)
        return [Grant(self, lease, thread) for lease in leases]

    def end_grant(self, lease: int, thread: int, flags: int) -> None:
        if self.forked:
            return  # The lease is the parent's.
        self.library.tier_release(lease, flags)
        with self._lock:
            _decrement(self._grants, thread)
        self._close_if_last()

    def _alone(self, thread: int) -> bool:
        """Whether no other thread holds a lease or waits in a call, so that only our own leases can block us."""
        with self._lock:
            return all(t == thread for t in self._grants) and all(t == thread for t in self._calls)

    # ---- Closing ----

    def close(self) -> int:
        """Refuses calls from now on and ends the session when nothing needs it any more. Returns the leases that
        still do."""
        with self._lock:
            self._closing = True
            alive = sum(self._grants.values())
        self._close_if_last()
        return alive

    def _close_if_last(self) -> None:
        with self._lock:
            if not self._closing or self._calls or self._grants or self._handle == 0:
                return
            handle, self._handle = self._handle, 0
        if not self.forked:
            self.library.tier_close(handle)

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()  # Another thread of the parent may have held it.

    # ---- Calling ----

    def check(self, code: int) -> None:
        """Raises the exception of ``code`` with the sentence libtier left on this thread."""
        if code != library.OK:
            raise library.failure(self.library, code)

    def call(self, name: str, *arguments: object) -> None:
        """One call that answers at once, or soon."""
        thread = self._enter()
        try:
            self.check(getattr(self.library, name)(self._handle, *arguments))
        finally:
            self._leave(thread)

    def call_waiting(self, name: str, *arguments: object) -> None:
        """One call that may wait for long and takes no deadline: signals are handled meanwhile. An interrupted call
        runs to its end on its own thread."""
        if threading.current_thread() is not threading.main_thread():
            self.call(name, *arguments)
            return
        _run_aside(lambda: self.call(name, *arguments), lambda _: None)

    def grant(
        self, name: str, ranges: Sequence[library.Range], flags: int, timeout_ms: int | None
    ) -> list[Grant]:
        """``tier_create_batch`` or ``tier_acquire_batch``: all of ``ranges`` or an exception.

        On the main thread the call is first made with a short deadline; if that passes, a helper thread makes it again
        with the rest of the time and its place in the queue, and the main thread waits where signals reach it.
        """
        thread = self._enter()
        try:
            if self._alone(thread):
                flags |= library.NO_WAIT_OWN
            total_ms = DEADLINE_MS if timeout_ms is None else timeout_ms
            if timeout_ms == 0:
                flags |= library.NO_WAIT
            array = (library.Range * len(ranges))(*ranges)
            sliced = total_ms > SLICE_MS and threading.current_thread() is threading.main_thread()
            begin = time.monotonic()
            leases = self._try_grant(name, array, flags, SLICE_MS if sliced else total_ms, sliced)
            if leases is None:
                rest_ms = max(1, total_ms - int((time.monotonic() - begin) * 1000))

                def again() -> list[int]:
                    helper = self._enter()  # This call may outlive ours, and the handle must outlive it.
                    try:
                        granted = self._try_grant(name, array, flags, rest_ms, False)
                        assert granted is not None
                        return granted
                    finally:
                        self._leave(helper)

                leases = _run_aside(again, self._give_back)
            return self._add_grants(leases, thread)
        finally:
            self._leave(thread)

    def _try_grant(
        self, name: str, ranges: ctypes.Array[library.Range], flags: int, timeout_ms: int, may_repeat: bool
    ) -> list[int] | None:
        leases = (ctypes.c_void_p * len(ranges))()
        begin = time.monotonic()
        code = getattr(self.library, name)(self._handle, ranges, len(ranges), flags, timeout_ms, leases)
        if code == library.OK:
            return [lease or 0 for lease in leases]
        # A refusal before the slice's end is final; one at its end may be only the slice's.
        waited = (time.monotonic() - begin) * 1000 >= timeout_ms * 0.9
        if may_repeat and waited and code in (library.TIMEOUT, library.NO_MEMORY):
            return None
        self.check(code)
        raise AssertionError("unreachable")

    def _give_back(self, leases: list[int]) -> None:
        for lease in leases:
            self.library.tier_release(lease, library.ABANDON)

    def copy(
        self, name: str, tensor: int, address: int, size: int, options: library.CopyOptions
    ) -> library.CopyOutcome:
        """``tier_swap_out`` or ``tier_swap_in`` with its wait. When a signal's handler raises, the copy is cancelled
        and has stopped touching the memory before the exception goes on."""
        thread = self._enter()
        try:
            operation = ctypes.c_void_p()
            self.check(
                getattr(self.library, name)(
                    self._handle, tensor, address, size, ctypes.byref(options), ctypes.byref(operation)
                )
            )
            outcome = library.CopyOutcome(struct_size=ctypes.sizeof(library.CopyOutcome))
            try:
                while True:
                    code = self.library.tier_wait(operation, SLICE_MS, ctypes.byref(outcome))
                    # TIMEOUT is how the operation ended, and its handle freed, unless the sentence says it goes on.
                    if code != library.TIMEOUT or _GOES_ON not in self.library.tier_last_error():
                        break
            except BaseException:
                self.library.tier_cancel(operation)
                self.library.tier_wait(operation, 0, None)
                raise
            self.check(code)
            return outcome
        finally:
            self._leave(thread)


def _decrement(counts: dict[int, int], key: int) -> None:
    left = counts.get(key, 0) - 1
    if left > 0:
        counts[key] = left
    else:
        counts.pop(key, None)


def _run_aside(work: Callable[[], _T], undo: Callable[[_T], None]) -> _T:
    """Runs ``work`` on a thread of its own and waits for it where signals are handled. When a handler raises, ``work``
    goes on alone and ``undo`` takes what it brings."""
    ended = threading.Event()
    lock = threading.Lock()
    abandoned = False
    results: list[_T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            failures.append(error)
        else:
            with lock:
                if not abandoned:
                    results.append(result)
                    ended.set()
                    return
            undo(result)
        ended.set()

    threading.Thread(target=run, name="tierd-wait", daemon=True).start()
    try:
        # In slices: a signal that comes just before the thread sleeps does not wake it.
        while not ended.wait(SLICE_MS / 1000):
            pass
    except BaseException:
        with lock:
            abandoned = True
        for result in results:
            undo(result)
        raise
    if failures:
        raise failures[0]
    return results[0]


def _revive_in_child() -> None:
    for session in list(_sessions):
        session.after_fork_in_child()


os.register_at_fork(after_in_child=_revive_in_child)
