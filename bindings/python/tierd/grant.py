"""Grant: one lease of libtier's, from before it is granted until it has ended: once, whatever signal comes when.

The lease ends with the grant: what needs the leased bytes keeps it. How it is to end is in its ``ending``, which the
session has until then. A write lease under which no byte can have been written is given back untouched; nothing is lost
then.
"""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING

from . import finalizers, library
from .errors import Disconnected, Error
from .waiting import end_once, token_of

if TYPE_CHECKING:
    from .session import Session


_SEGMENTS = 16  # Of one lease, mostly.


class Ending:
    """What is left to do with a lease. ``handle`` is a part of the array that libtier fills in."""

    __slots__ = ("_failure", "_handle", "_session", "_token", "_write", "abandoned", "evict_first", "touched")

    def __init__(self, session: Session, handle: ctypes.c_void_p, write: bool) -> None:
        self._session = session
        self._handle = handle
        self._token = token_of(handle)
        self._write = write
        self._failure: Error | None = None  # Why what was written could not be sealed.
        self.touched = False  # The bytes may have been written.
        self.abandoned = False  # What was written is not final: revert it instead of sealing it.
        self.evict_first = False  # It will not be used soon.

    @property
    def granted(self) -> bool:
        """Whether libtier has a lease, or had one."""
        return bool(self._handle.value)

    @property
    def sealed(self) -> bool:
        """Whether the end of the lease seals what was written."""
        return self.touched and not self.abandoned

    def require_process(self) -> None:
        """``Disconnected`` in a process that was forked from the lease's."""
        if self._session.forked:
            raise Disconnected("this lease is of the process that this one was forked from, and so is its memory")

    def end(self) -> None:
        """Ends the lease. If the bytes written under it could not be made final, raises the reason, once."""
        self.drop()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def drop(self) -> None:
        """Ends the lease. Safe from finalizers, in a forked child, and repeatedly: what an interrupt has kept from
        being done, the next call does."""
        session = self._session
        if session.forked:
            return  # The lease is the parent's.
        flags = 0
        if self._write and not self.touched:
            flags = library.UNTOUCHED
        elif self._write and self.abandoned:
            flags = library.ABANDON
        if self.evict_first:
            flags |= library.EVICT_FIRST
        no_longer_open = functools.partial(session.grants.pop, self, None)
        if self._handle.value:
            release = functools.partial(session.library.tier_release, self._handle, flags)
            code, *_ = end_once(self._token, release, no_longer_open) or [0]
            if code and self._write and self.sealed:
                self._failure = library.failure(session.library, code, session.keys)
        else:  # Nothing was granted yet; an acquire that goes on keeps the grant.
            no_longer_open()
        session.close_if_last()

    def locate(self) -> tuple[int, int]:
        """The address and the length of the leased bytes, as one range. Raises the failure of stitching."""
        address, length = ctypes.c_void_p(), ctypes.c_uint64()
        self._session.check(
            self._session.library.tier_lease_data(self._handle, ctypes.byref(address), ctypes.byref(length))
        )
        return address.value or 0, length.value

    def segments(self) -> list[library.Segment]:
        """The leased bytes where they lie, in their order: nothing is mapped for it."""
        room = _SEGMENTS
        while True:
            found, count = (library.Segment * room)(), ctypes.c_size_t()
            self._session.check(
                self._session.library.tier_lease_segments(self._handle, found, room, ctypes.byref(count))
            )
            if count.value <= room:
                return found[: count.value]
            room = count.value


class Grant:
    """Ended exactly once: by :meth:`end`, by :meth:`drop`, or with the last reference to it."""

    __slots__ = ("__weakref__", "address", "ending", "length")

    def __init__(self, session: Session, handle: ctypes.c_void_p, write: bool) -> None:
        self.ending = Ending(session, handle, write)
        self.address = 0
        self.length = 0
        finalizers.attach(self, self.ending.drop)

    def locate(self) -> None:
        """Sets the address of the leased bytes, as one range. Raises the failure of stitching."""
        self.address, self.length = self.ending.locate()

    def segments(self) -> list[library.Segment]:
        return self.ending.segments()

    def end(self) -> None:
        self.ending.end()

    def drop(self) -> None:
        self.ending.drop()
