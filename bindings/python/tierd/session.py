"""Session: one ``tier_client`` and everything that may still need it.

The idea: libtier's handle is closed by the last call or lease that ends. Two tables hold the calls under way and the
leases whose arrays are alive; ``close()`` refuses new calls at once and closes the handle when both are empty, so that
no array ever loses the memory beneath it.

Any thread may call anything, and a finalizer or a signal's handler may come between any two steps. So there is no lock
to be found held: the tables change by single operations of ``dict``, and every handle (session, operation, lease) has
an owner before C fills it in, which ends it by one step that nothing can split (see ``waiting``). What an interrupted
finalizer has left to do is done before the next call (see ``finalizers``). A call enters its table before it looks
whether the session is closing, and ``close()`` says so before it looks at the table: one of the two sees the other.
After ``fork()`` the child's copy is dead: it calls nothing in libtier and answers ``Disconnected``.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import time
import weakref
from collections.abc import Sequence

from . import finalizers, library
from .errors import Disconnected, Invalid, Stale
from .grant import Ending, Grant
from .waiting import SLICE_MS, Operation, end_once, run_aside, token_of

KEYS_REMEMBERED = 65_536

Ids = ctypes.Array[ctypes.c_uint64]

_forks: list[None] = []  # Those between the process that imported this and this one, noted by one call of C.
os.register_at_fork(after_in_child=functools.partial(_forks.append, None))


class Session:
    def __init__(self, functions: ctypes.CDLL, handle: int = 0) -> None:
        self.library = functions
        self.handle = ctypes.c_void_p(handle)  # For tier_connect to fill in.
        self.ids: dict[str, int] = {}  # Recently used string keys, with the ids that the daemon gave them …
        self.keys: dict[int, str] = {}  # … and the keys by these ids.
        self.grants: dict[Ending, int] = {}  # The thread of each lease that is alive or requested.
        self._deadline_ms = 0  # Not asked yet.
        self._token = token_of(self.handle)
        self._process, self._forks = os.getpid(), len(_forks)
        self._closing = False
        self._calls: dict[object, int] = {}  # The thread of each call under way.
        self._copies: dict[weakref.ref[Operation], None] = {}  # Those that were started.

    @property
    def closed(self) -> bool:
        return self._closing

    @property
    def forked(self) -> bool:
        return self._forks != len(_forks)  # Asked several times a call: the kernel is not, as by getpid().

    @property
    def deadline_ms(self) -> int:
        """Of a call that is given no time. The same for all of the session."""
        if not self._deadline_ms:
            fields = library.SessionFields(struct_size=ctypes.sizeof(library.SessionFields))
            self.call("tier_session", ctypes.byref(fields))
            self._deadline_ms = fields.request_timeout_ms or 60_000  # An older libtier does not say.
        return self._deadline_ms

    # ---- Counting ----

    def _enter(self, call: object) -> None:
        finalizers.call_noted()
        self._calls[call] = threading.get_ident()
        if self.forked:
            raise Disconnected(
                f"this client belongs to process {self._process}; process {os.getpid()} was forked from it and "
                "has no session: call tierd.connect() here"
            )
        if self.closed:
            raise Stale("this client is closed: call tierd.connect() again")

    def blocks_itself(self) -> bool:
        """Whether this thread holds leases, and no other thread holds one or waits in a call, nor does a copy go on by
        itself: then only this thread can end a lease that it would wait for. Without leases the blocking one is
        libtier's own, which a cancelled copy may leave for a moment."""
        thread = threading.get_ident()
        copies = [reference() for reference in list(self._copies)]
        return (
            bool(self.grants)
            and all(other == thread for table in (self.grants, self._calls) for other in list(table.values()))
            and all(copy is None or copy.ended for copy in copies)
        )

    # ---- Closing ----

    def close(self) -> int:
        """Refuses calls from now on and ends the session when nothing needs it any more. Returns the leases that
        still do."""
        self._closing = True
        alive = sum(ending.granted for ending in list(self.grants))
        self.close_if_last()
        return alive

    def close_if_last(self) -> None:
        if self._closing and not self._calls and not self.grants and self.handle.value and not self.forked:
            end_once(self._token, functools.partial(self.library.tier_close, self.handle))

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
        try:
            text = key.encode()
        except UnicodeEncodeError as error:
            raise Invalid(f"a string key is Unicode text, and {key!r} holds half a character") from error
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
        if name == "tier_free" and self.blocks_itself():
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
        """``tier_create`` or ``tier_acquire``: leases on all of ``ranges``, or an exception and none."""
        leases = (ctypes.c_void_p * len(ranges))()
        step = ctypes.sizeof(ctypes.c_void_p)
        handles = [ctypes.c_void_p.from_buffer(leases, index * step) for index in range(len(ranges))]
        writes = name == "tier_create" or bool(flags & library.WRITE)
        grants = [Grant(self, handle, writes) for handle in handles]
        call = object()
        try:
            self._enter(call)
            if self.blocks_itself():
                flags |= library.NO_WAIT_OWN
            if timeout_ms == 0:
                flags |= library.NO_WAIT
            # Made before C fills them in: the client stays open until the last one is dropped, whatever interrupts
            # this.
            self.grants.update(dict.fromkeys([grant.ending for grant in grants], threading.get_ident()))
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
        total_ms = self.deadline_ms if timeout_ms is None else timeout_ms
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
        copies = self._copies
        copies[weakref.ref(operation, lambda reference: copies.pop(reference, None))] = None
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
