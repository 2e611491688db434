"""Whole tensors copied under leases on this thread: read under one, and filled by ranges where they are new and large
or RAM cannot hold them at once.

A range that is refused is requested again with half its length, down to one block; a blocking lease of the caller's own
is reported at once. All requests for one range share one deadline; the next range has a deadline of its own, like the
ranges of a swap.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from . import library
from .errors import AlreadyExists, Invalid, NoMemory, Timeout, WouldDeadlock
from .grant import Grant
from .layout import Memory
from .states import Key, Part

# A tensor larger than this is filled range by range, so that it need not fit into RAM at once.
RANGE_BYTES = 16 << 20
BLOCK = 2 << 20


class Take(NamedTuple):
    """How leases are asked for."""

    ask: Callable[[Part, int, float], Grant]  # Called with flags in addition to the caller's, and seconds to wait.
    timeout: float  # Seconds for each range.


class Deadline:
    """The deadline of one range."""

    def __init__(self, timeout: float) -> None:
        self._waits = timeout > 0
        self._end = time.monotonic() + timeout

    def left(self) -> float:
        """Seconds left: 0 for a caller that does not wait at all, else at least a little, for a lease that needs no
        wait."""
        return max(0.001, self._end - time.monotonic()) if self._waits else 0.0

    def passed(self) -> bool:
        return time.monotonic() >= self._end


def read_whole(take: Take, tensor: int, key: Key, memory: Memory, deadline: Deadline) -> None:
    """Fills ``memory`` under one lease."""
    grant = _take_in_time(take, Part(tensor), memory.size, 0, deadline)
    try:
        segments = grant.segments()
        require_size(key, sum(segment.length for segment in segments), memory)
        _read(segments, memory.address)
    finally:
        grant.drop()


def fill_new(take: Take, tensor: int, key: Key, memory: Memory, free: Callable[[], None]) -> None:
    """Creates the tensor by its first range, which claims the key, and fills range after range. If that fails in the
    middle, ``free`` removes the tensor."""
    length, done = RANGE_BYTES, 0
    grant: Grant | None = None  # The last lease.
    try:
        while done < memory.size:
            part = Part(tensor, done, min(length, memory.size - done), 0 if done else memory.size)
            flags = library.WRITE | library.DISCARD if done else 0
            grant, length = _take_less(take, part, flags, Deadline(take.timeout))
            segments = grant.segments()
            grant.ending.touched = grant.ending.abandoned = True  # Until the range is filled.
            _write(segments, memory.address + done)
            grant.ending.abandoned = False
            grant.end()
            done += length
    except BaseException as error:
        if grant is not None:
            grant.drop()
            if done or grant.ending.sealed:  # A new tensor whose only lease was not sealed is freed with it.
                free()
        elif isinstance(error, AlreadyExists):
            sentence = f"a tensor {key!r} exists: pass replace=True to store another in its place"
            raise AlreadyExists(sentence) from error
        raise


def _read(segments: Iterable[library.Segment], address: int) -> None:
    """Copies leased bytes to the memory from ``address`` on."""
    for segment in segments:
        ctypes.memmove(address, segment.address, segment.length)
        address += segment.length


def _write(segments: Iterable[library.Segment], address: int) -> None:
    """Fills leased bytes from the memory from ``address`` on."""
    for segment in segments:
        ctypes.memmove(segment.address, address, segment.length)
        address += segment.length


def require_size(key: Key, size: int, memory: Memory) -> None:
    if size != memory.size:
        raise Invalid(f"{key!r} holds {size} bytes, the array to fill {memory.size}")


def _take_less(take: Take, part: Part, flags: int, deadline: Deadline) -> tuple[Grant, int]:
    """A lease on the part, or on less of it, and the leased length."""
    length = part.length
    while True:
        asked = Part(part.key, part.offset, length, part.size)
        try:
            return _take_in_time(take, asked, length, flags, deadline), length
        except (NoMemory, WouldDeadlock):
            if length <= BLOCK:
                raise
            length = _half(length)


def _take_in_time(take: Take, part: Part, length: int, flags: int, deadline: Deadline) -> Grant:
    """A lease on ``length`` bytes of the part. If a shorter length can be tried next, only half of the time is spent to
    wait for room: the rest is for the shorter one. Its bytes are copied where they lie, so they need not lie side by
    side."""
    flags |= library.SCATTERED_OK
    if length <= BLOCK:
        return take.ask(part, flags, deadline.left())
    try:
        return take.ask(part, flags, deadline.left() / 2)
    except Timeout:  # Not for room.
        if deadline.passed():
            raise
        return take.ask(part, flags, deadline.left())


def _half(length: int) -> int:
    return max(BLOCK, length // 2 // BLOCK * BLOCK)
