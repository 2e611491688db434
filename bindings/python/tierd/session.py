"""Session: one ``tier_client`` and everything that may still need it.

The idea: libtier's handle is closed by the last call or lease that ends. Two tables hold the calls under way and the
leases whose arrays are alive; ``close()`` refuses new calls at once and closes the handle when both are empty, so that
no array ever loses the memory beneath it.

Any thread may call anything, and a finalizer or a signal's handler may come between any two steps. So there is no lock
to be found held: the tables change by single operations of ``dict``, and every handle (session, operation, lease) has
an owner before C fills it in, which ends it by one step that nothing can split (see ``waiting``). A call enters its
table before it looks whether the session is closing, and ``close()`` says so before it looks at the table: one of the
two sees the other. After ``fork()`` the child's copy is dead: it calls nothing in libtier and answers ``Disconnected``.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence

from . import library
from .errors import Disconnected, Error, Invalid, Stale
from .waiting import SLICE_MS, Operation, end_once, run_aside, token_of

DEADLINE_MS = 60_000
KEYS_REMEMBERED = 65_536

Ids = ctypes.Array[ctypes.c_uint64]


class Grant:
    """One lease of libtier's, from before it is granted. Ended exactly once: by :meth:`end`, by :meth:`drop`, or by its
    finalizer, which calls :meth:`drop`."""

    __slots__ = ("_handle", "_session", "_token", "abandon", "address", "failure", "key", "length", "write")

    def __init__(self, session: Session, handle: ctypes.c_void_p, write: bool) -> None:
        self._session = session
        self._handle = handle  # A part of the array that libtier fills in.
        self._token = token_of(handle)
        self.key = object()  # In the session's table, which must not keep the grant itself alive.
        self.write = write
        self.abandon = write  # The content is not final: revert it instead of sealing it.
        self.failure: Error | None = None  # Why what was written could not be sealed.
        self.address = 0
        self.length = 0

    def locate(self) -> None:
        """Sets the address of the leased bytes, as one range. Raises the failure of stitching."""
        address, length = ctypes.c_void_p(), ctypes.c_uint64()
        self._session.check(
            self._session.library.tier_lease_data(self._handle, ctypes.byref(address), ctypes.byref(length))
        )
        self.address, self.length = address.value or 0, length.value

    def end(self) -> None:
        """Ends the lease. If the bytes written under it could not be made final, raises the reason, once."""
        self.drop()
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    def drop(self) -> None:
        """Ends the lease. Safe from finalizers, at interpreter shutdown, in a forked child, and repeatedly."""
        session = self._session
        if session.forked:
            return  # The lease is the parent's.
        given_up = library.ABANDON if self.address else library.UNTOUCHED  # Without an address, nothing was written.
        flags = given_up if self.abandon else 0
        codes: list[int | None] = []
        try:
            if self._handle.value:  # Else nothing was granted.
                codes = end_once(session.library.tier_release, self._token, flags)
        finally:
            if not self._token or not self._handle.value:  # Else the finalizer ends it.
                session.grants.pop(self.key, None)
        if codes and codes[0] and self.write and not self.abandon:
            self.failure = library.failure(session.library, codes[0], session.keys)
        session.close_if_last()

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # Not at exit: arrays may still be read then, and the daemon reclaims what a dead process held. And before the
        # last attribute was set, no lease had been requested.
        if not finalizing() and hasattr(self, "length"):
            self.drop()


class Session:
    def __init__(self, functions: ctypes.CDLL, handle: int = 0) -> None:
        self.library = functions
        self.handle = ctypes.c_void_p(handle)  # For tier_connect to fill in.
        self.ids: dict[str, int] = {}  # Recently used string keys, with the ids that the daemon gave them …
        self.keys: dict[int, str] = {}  # … and the keys by these ids.
        self.grants: dict[object, int] = {}  # The thread of each lease that is alive or requested.
        self._token = token_of(self.handle)
        self._process = os.getpid()
        self._closing = False
        self._calls: dict[object, int] = {}  # The thread of each call under way.

    @property
    def closed(self) -> bool:
        return self._closing

    @property
    def forked(self) -> bool:
        return self._process != os.getpid()

    # ---- Counting ----

    def _enter(self, call: object) -> None:
        self._calls[call] = threading.get_ident()
        if self.forked:
            raise Disconnected(
                f"this client belongs to process {self._process}; process {os.getpid()} was forked from it and "
                "has no session: call tierd.connect() here"
            )
        if self.closed:
            raise Stale("this client is closed: call tierd.connect() again")

    def _blocks_itself(self) -> bool:
        """Whether this thread holds leases, and no other thread holds one or waits in a call: then only this thread can
        end a lease that it would wait for. Without leases the blocking one is libtier's own, which a cancelled copy may
        leave for a moment."""
        thread = threading.get_ident()
        return bool(self.grants) and all(
            other == thread for table in (self.grants, self._calls) for other in list(table.values())
        )

    # ---- Closing ----

    def close(self) -> int:
        """Refuses calls from now on and ends the session when nothing needs it any more. Returns the leases that
        still do."""
        self._closing = True
        alive = len(self.grants)
        self.close_if_last()
        return alive

    def close_if_last(self) -> None:
        if self._closing and not self._calls and not self.grants and self.handle.value and not self.forked:
            end_once(self.library.tier_close, self._token)

    # ---- Calling ----
    #
    # Each takes its call out of the table by one step of C in a `finally`, so that no signal can keep it there.

    def check(self, code: int) -> None:
        """Raises the exception of ``code`` with the sentence libtier left on this thread."""
        if code != library.OK:
            raise library.failure(self.library, code, self.keys)

    def call(self, name: str, *arguments: object) -> None:
        """One call that answers at once, or soon."""
        call = object()
        try:
            self._enter(call)
            self.check(getattr(self.library, name)(self.handle, *arguments))
        finally:
            self._calls.pop(call, None)
            self.close_if_last()

    def intern(self, key: str) -> int:
        """The id that the daemon gives a string key. Recent ids are remembered, to save calls and to name keys in
        errors."""
        text = key.encode()
        if not 1 <= len(text) <= 1024:
            raise Invalid(f"a string key has 1 to 1024 bytes, this one {len(text)}")
        number = ctypes.c_uint64()
        self.call("tier_intern", text, len(text), ctypes.byref(number))
        if len(self.keys) >= KEYS_REMEMBERED:
            self.ids.clear()
            self.keys.clear()
        self.ids[key], self.keys[number.value] = number.value, key
        return number.value

    def call_waiting(self, name: str, ids: Sequence[int], flags: int) -> None:
        """``tier_free``, ``tier_flush`` or ``tier_persist``, which may wait for long and take no deadline: signals are
        handled meanwhile. The daemon carries out an interrupted call all the same."""
        if name == "tier_free" and self._blocks_itself():
            flags |= library.NO_WAIT_OWN
        if ids:
            self._complete(Operation(self.library, None), f"{name}_start", _array(ids), len(ids), flags)
        else:  # All tensors: libtier has no started call for that.
            run_aside(lambda: self.call(name, None, 0, flags))

    def free_unwaited(self, ids: Sequence[int], flags: int) -> None:
        """Asks that tensors be freed, and waits for no lease and no answer: for finalizers."""
        for begin in range(0, len(ids), library.BATCH_MAX):
            batch = ids[begin : begin + library.BATCH_MAX]
            operation = Operation(self.library, None)
            self.call("tier_free_start", _array(batch), len(batch), flags, ctypes.byref(operation.handle))
            operation.end()

    def _complete(self, operation: Operation, name: str, *arguments: object) -> None:
        """Starts an operation and waits for it. When a signal's handler raises, the operation is given up and has
        stopped touching memory before the exception continues."""
        call = object()
        try:
            self._enter(call)
            self.check(getattr(self.library, name)(self.handle, *arguments, ctypes.byref(operation.handle)))
            self.check(operation.wait())
        except BaseException:
            operation.end()
            raise
        finally:
            self._calls.pop(call, None)
            self.close_if_last()

    def grant(self, name: str, ranges: Sequence[library.Range], flags: int, timeout_ms: int | None) -> list[Grant]:
        """``tier_create`` or ``tier_acquire``: leases on all of ``ranges``, or an exception and none. Until the caller
        says otherwise, a write lease that is dropped is abandoned."""
        leases = (ctypes.c_void_p * len(ranges))()
        step = ctypes.sizeof(ctypes.c_void_p)
        handles = [ctypes.c_void_p.from_buffer(leases, index * step) for index in range(len(ranges))]
        writes = name == "tier_create" or bool(flags & library.WRITE)
        grants = [Grant(self, handle, writes) for handle in handles]
        call = object()
        try:
            self._enter(call)
            if self._blocks_itself():
                flags |= library.NO_WAIT_OWN
            if timeout_ms == 0:
                flags |= library.NO_WAIT
            # Made before C fills them in: the client stays open until the last one is dropped, whatever interrupts
            # this.
            self.grants.update(dict.fromkeys([grant.key for grant in grants], threading.get_ident()))
            self._take(name, (library.Range * len(ranges))(*ranges), flags, timeout_ms, leases, grants)
            return grants
        except BaseException:
            for grant in grants:
                grant.drop()
            raise
        finally:
            self._calls.pop(call, None)
            self.close_if_last()

    def _take(
        self,
        name: str,
        ranges: ctypes.Array[library.Range],
        flags: int,
        timeout_ms: int | None,
        leases: ctypes.Array[ctypes.c_void_p],
        grants: list[Grant],
    ) -> None:
        """Fills ``leases``. On the main thread the call is first made with a short deadline, which costs least where
        nothing has to be waited for; if that passes, it is started with the rest of the time and waited for where
        signals are handled."""
        total_ms = DEADLINE_MS if timeout_ms is None else timeout_ms
        sliced = total_ms > SLICE_MS and threading.current_thread() is threading.main_thread()
        slice_ms = SLICE_MS if sliced else total_ms
        begin = time.monotonic()
        code = getattr(self.library, f"{name}_batch")(self.handle, ranges, len(ranges), flags, slice_ms, leases)
        waited_ms = (time.monotonic() - begin) * 1000
        # A refusal before the slice's end is final; one at its end may be only the slice's. WOULD_DEADLOCK, there, says
        # that this client's leases stand in the way: with NO_WAIT_OWN they are this thread's, else others may end them.
        passing = {library.TIMEOUT, library.NO_MEMORY}
        if not flags & library.NO_WAIT_OWN:
            passing.add(library.WOULD_DEADLOCK)
        if sliced and waited_ms >= slice_ms * 0.9 and code in passing:
            rest_ms = max(1, total_ms - int(waited_ms))
            operation = Operation(self.library, grants)
            self._complete(operation, f"{name}_start", ranges, len(ranges), flags, rest_ms, leases)
        else:
            self.check(code)

    def start_copy(
        self, name: str, tensor: int, address: int, size: int, options: library.CopyOptions, owner: object
    ) -> Operation:
        """Starts ``tier_swap_out`` or ``tier_swap_in``. ``owner`` keeps the memory at ``address`` alive. What the
        operation's ``wait`` returns is for :meth:`check`; closing the client ends the operation too."""
        operation = Operation(self.library, owner)
        self.call(name, tensor, address, size, ctypes.byref(options), ctypes.byref(operation.handle))
        return operation

    def copy(
        self, name: str, tensor: int, address: int, size: int, options: library.CopyOptions, owner: object
    ) -> library.CopyOutcome:
        """``tier_swap_out`` or ``tier_swap_in`` with its wait. ``owner`` keeps the memory at ``address`` alive."""
        operation = Operation(self.library, owner)
        self._complete(operation, name, tensor, address, size, ctypes.byref(options))
        return operation.outcome


def _array(ids: Sequence[int]) -> Ids:
    return (ctypes.c_uint64 * len(ids))(*ids)
