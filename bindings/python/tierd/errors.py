"""What tierd answers, as exceptions: one class for each code of ``tier.h`` that is not OK.

Every one carries ``code`` (the number), ``name`` (``"NO_MEMORY"``) and a sentence with figures. Catch the class when
you act on it (``except tierd.NoMemory``), :class:`Error` when you only report. Where Python has a class of the same
meaning, the exception is one of that too (:class:`Timeout` is a :class:`TimeoutError`).
"""

from __future__ import annotations

from typing import ClassVar


class Error(Exception):
    """Something tierd or its client library refused or could not do."""

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
    """Created twice, or a live job opened with mode ``create``."""

    code = 3
    name = "ALREADY_EXISTS"


class Denied(Error):
    """The caller has no right to it, or the daemon was started without what it needs."""

    code = 4
    name = "DENIED"


class NoMemory(Error, MemoryError):
    """The owner's share of RAM cannot hold it."""

    code = 5
    name = "NO_MEMORY"


class NoSpace(Error):
    """The SSD tier cannot hold it."""

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
    """A writer died, and the tensor would mix generations: rewrite it, restore it, or ``accept`` it as it stands."""

    code = 9
    name = "TORN"


class Stale(Error):
    """A handle of an earlier run of the daemon, or of something already freed or closed."""

    code = 10
    name = "STALE"


class Disconnected(Error, ConnectionError):
    """The daemon is gone or answers no more, or this process was forked from the one that connected."""

    code = 11
    name = "DISCONNECTED"


class Revoked(Error):
    """The daemon ended this session; the sentence says why. There is no automatic reconnect."""

    code = 12
    name = "REVOKED"


class WouldDeadlock(Error):
    """Only the caller's own leases stand in the way: give some back first."""

    code = 13
    name = "WOULD_DEADLOCK"


class Timeout(Error, TimeoutError):
    """The deadline passed; trying again may help."""

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
