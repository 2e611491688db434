"""Whole tensors copied under leases on this thread, by ranges where they are large or RAM cannot hold them at once.

A range that cannot be had is asked for again with half its length, down to one block: so what could be stored under a
limit can be read under it, and a lease of the caller's own that stands in the way is told at once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TypeAlias

from . import library
from .errors import AlreadyExists, Invalid, NoMemory, WouldDeadlock
from .layout import Memory
from .session import Grant
from .states import Key, Part

# A tensor larger than this is filled range by range, so that it need not fit into RAM at once.
RANGE_BYTES = 16 << 20
BLOCK = 2 << 20

# A lease on a part, with flags beside those the caller has chosen.
Take: TypeAlias = "Callable[[Part, int], Grant]"


def read_whole(take: Take, tensor: int, key: Key, memory: Memory) -> None:
    """Fills ``memory`` under one lease."""
    grant = take(Part(tensor), 0)
    try:
        grant.locate()
        require_size(key, grant.length, memory)
        ctypes.memmove(memory.address, grant.address, memory.size)
    finally:
        grant.drop()


def read_ranges(take: Take, tensor: int, memory: Memory) -> None:
    """Fills ``memory`` range by range. REQUIRES: it has the tensor's size."""
    length, done = RANGE_BYTES, 0
    while done < memory.size:
        grant, length = _take_less(take, Part(tensor, done, min(length, memory.size - done)), 0)
        try:
            grant.locate()
            ctypes.memmove(memory.address + done, grant.address, length)
        finally:
            grant.drop()
        done += length


def fill_new(take: Take, tensor: int, key: Key, memory: Memory, free: Callable[[], None]) -> None:
    """Creates the tensor by its first range, which claims the key, and fills range after range. ``free`` removes what
    was made when that fails in the middle."""
    length, done = RANGE_BYTES, 0
    grant: Grant | None = None  # The last one; it comes to be abandoned, unless its range was filled.
    try:
        while done < memory.size:
            part = Part(tensor, done, min(length, memory.size - done), 0 if done else memory.size)
            grant, length = _take_less(take, part, library.WRITE | library.DISCARD if done else 0)
            grant.locate()
            ctypes.memmove(grant.address, memory.address + done, length)
            grant.abandon = False
            grant.end()
            done += length
    except BaseException as error:
        if grant is not None:
            grant.drop()
            if done or not grant.abandon:  # A new tensor whose only lease is abandoned goes with it.
                free()
        elif isinstance(error, AlreadyExists):
            sentence = f"a tensor {key!r} exists: pass replace=True to store another in its place"
            raise AlreadyExists(sentence) from error
        raise


def require_size(key: Key, size: int, memory: Memory) -> None:
    if size != memory.size:
        raise Invalid(f"{key!r} holds {size} bytes, the array to fill {memory.size}")


def _take_less(take: Take, part: Part, flags: int) -> tuple[Grant, int]:
    """A lease on the part, or on less of it, and on how much."""
    length = part.length
    while True:
        try:
            return take(Part(part.key, part.offset, length, part.size), flags), length
        except (NoMemory, WouldDeadlock):
            if length <= BLOCK:
                raise
            length = max(BLOCK, length // 2 // BLOCK * BLOCK)
