"""What becomes of memory that torch has freed: returned to the system, or kept for reuse.

The idea: while a model moves into tierd, what it leaves must go at once. Afterwards each step asks for the same sizes
again: jemalloc, which finds room among what is free, keeps it then. glibc would keep far more than is in use, and so
returns it for good.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from ..quantity import byte_count

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_ALL_ARENAS = 4096  # jemalloc's MALLCTL_ARENAS_ALL.
_AT_ONCE, _NEVER = 0, -1  # Values of jemalloc's dirty_decay_ms.
RETURNED_BYTES = 128 << 10  # Where a model is in tierd: glibc would keep more of what is freed, and fragment its heap.


def return_freed_memory(threshold: int | str = "1MiB") -> bool:
    """Makes the allocator return memory to the system as soon as this process frees it: glibc blocks of at least
    ``threshold`` bytes, jemalloc, where it was loaded in glibc's place (``python -m tierd.run``), all pages.

    glibc raises its own threshold, up to 32 MiB, each time such a block is freed, and keeps later blocks for reuse. So
    activations that have moved to tierd still take memory (measured: 1,442 MiB where 862 MiB are in use). A fixed
    threshold costs page faults instead. Returns whether the allocator accepted it.
    """
    size = byte_count(threshold, "threshold")
    if (call := _jemalloc()) is not None:
        return _decay(call, _AT_ONCE)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, size)) and bool(mallopt(_M_TRIM_THRESHOLD, size))


def reuse_freed_memory() -> bool:
    """Returns what is free now, and has jemalloc keep what is freed from now on. Whether there is jemalloc: another
    allocator does as before."""
    call = _jemalloc()
    if call is None:
        return False
    call(f"arena.{_ALL_ARENAS}.purge".encode(), None, None, None, 0)
    return _decay(call, _NEVER)


def _jemalloc() -> Callable[..., int] | None:
    """Its ``mallctl``, where it is what the process allocates with."""
    found: Callable[..., int] | None = getattr(ctypes.CDLL(None), "mallctl", None)
    return found


def _decay(call: Callable[..., int], milliseconds: int) -> bool:
    """When each arena, and each to come, is to return pages that are free."""
    value = ctypes.c_ssize_t(milliseconds)
    count, size = ctypes.c_uint(), ctypes.c_size_t(ctypes.sizeof(ctypes.c_uint))
    if call(b"arenas.narenas", ctypes.byref(count), ctypes.byref(size), None, 0):
        return False
    for arena in range(count.value):  # Of one that was never used there is nothing to set.
        call(f"arena.{arena}.dirty_decay_ms".encode(), None, None, ctypes.byref(value), ctypes.sizeof(value))
    return not call(b"arenas.dirty_decay_ms", None, None, ctypes.byref(value), ctypes.sizeof(value))
