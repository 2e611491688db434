"""Makes glibc return memory that torch has freed to the system."""

from __future__ import annotations

import ctypes

from ..quantity import byte_count

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
RETURNED_BYTES = 128 << 10  # Where a model is in tierd: glibc would keep more of what is freed, and fragment its heap.


def return_freed_memory(threshold: int | str = "1MiB") -> bool:
    """Makes glibc return blocks of at least ``threshold`` bytes to the system as soon as this process frees them.

    glibc raises its own threshold, up to 32 MiB, each time such a block is freed, and keeps later blocks for reuse. So
    activations that have moved to tierd still take memory (measured: 1,442 MiB where 862 MiB are in use). A fixed
    threshold costs page faults instead. Returns whether the C library accepted it.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    size = byte_count(threshold, "threshold")
    return bool(mallopt(_M_MMAP_THRESHOLD, size)) and bool(mallopt(_M_TRIM_THRESHOLD, size))
