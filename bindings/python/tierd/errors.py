"""The refusals of tierd as exceptions: one class for each code of ``tier.h`` except OK.

Each exception has a ``code`` (the number), a ``name`` (``"NO_MEMORY"``) and a sentence with figures. Catch the class on
which you act (``except tierd.NoMemory``), or :class:`Error` to report any of them. Where Python has a class of the same
meaning, it is a base class too: :class:`Timeout` is a :class:`TimeoutError`.
"""

from __future__ import annotations

from typing import ClassVar


class Error(Exception):
    """tierd or its client library refused a call or could not complete it."""

    code: int = -1
    name: ClassVar[str] = "UNKNOWN"


class Invalid(Error, ValueError):
    """The call can never be right: fix the caller."""

    code = 1
    name = "INVALID"


class NotFound(Error, LookupError):
    """No such tensor, job, session, device or daemon."""

    code = 2
    name = "NOT_FOUND"


class AlreadyExists(Error):
    """The key has a tensor already, or the job that mode ``create`` is to open is live."""

    code = 3
    name = "ALREADY_EXISTS"


class Denied(Error):
    """The caller has no right to do this, or the daemon was started without what the call needs."""

    code = 4
    name = "DENIED"


class NoMemory(Error, MemoryError):
    """The job's share of RAM cannot hold it."""

    code = 5
    name = "NO_MEMORY"


class NoSpace(Error):
    """The SSD tier, or RAM and SSD together, cannot hold it."""

    code = 6
    name = "NO_SPACE"


class IoError(Error):
    """A device failed."""

    code = 7
    name = "IO_ERROR"


class Corrupt(Error):
    """Bytes came back from a device with a wrong checksum."""

    code = 8
    name = "CORRUPT"


class Torn(Error):
    """A writer ended before its update was complete, so the tensor has parts of two contents: write it again, restore
    it from a manifest, or ``accept`` it as it is."""

    code = 9
    name = "TORN"


class Stale(Error):
    """A handle of an earlier run of the daemon, or of something that is freed or closed already."""

    code = 10
    name = "STALE"


class Disconnected(Error, ConnectionError):
    """The daemon has ended or does not answer, or this process was forked from the one that connected; or a rank of the
    process group has."""

    code = 11
    name = "DISCONNECTED"


class Revoked(Error):
    """The daemon ended this session; the sentence says why. Nothing reconnects by itself."""

    code = 12
    name = "REVOKED"


class WouldDeadlock(Error):
    """Only leases of this client block the request: release some first."""

    code = 13
    name = "WOULD_DEADLOCK"


class Timeout(Error, TimeoutError):
    """The deadline has passed. Another attempt may succeed."""

    code = 14
    name = "TIMEOUT"


class VersionMismatch(Error):
    """Library and daemon speak different versions of the protocol."""

    code = 15
    name = "VERSION"


class LiveViews(Error, BufferError):
    """A ``with client.lease(...)`` block was left while arrays over the lease are alive.

    The memory stays valid, and the lease lasts, until the last of them is gone. Delete them before leaving the block.
    """

    code = Invalid.code
    name = "INVALID"


BY_CODE: dict[int, type[Error]] = {
    kind.code: kind
    for kind in (
        Invalid, NotFound, AlreadyExists, Denied, NoMemory, NoSpace, IoError, Corrupt, Torn, Stale, Disconnected,
        Revoked, WouldDeadlock, Timeout, VersionMismatch,
    )
}  # fmt: skip


def from_code(code: int, sentence: str) -> Error:
    """The exception for a code of the C interface: the one translation point between the two."""
    kind = BY_CODE.get(code)
    if kind is None:
        error = Error(f"code {code}: {sentence}")
        error.code = code
        return error
    return kind(sentence or kind.name)
