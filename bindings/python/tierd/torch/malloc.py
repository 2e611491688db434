"""What becomes of memory that torch has freed: returned to the system, or kept for reuse.

The idea: while a model moves into tierd, what it leaves must go at once. Afterwards each step asks for the same sizes
again: jemalloc, which finds room among what is free, keeps it then, and returns it once a minute. By its own times it
would return whole extents within a step, which are nearly all that is free. glibc would keep far more than is in use,
and so returns it for good.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from ..quantity import byte_count

_ALL_ARENAS = 4096  # jemalloc's MALLCTL_ARENAS_ALL.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_RETURNED_BYTES = 128 << 10  # Where a model is in tierd: glibc would keep more, and fragment its heap.
# Values of jemalloc's dirty_decay_ms: what it comes with, and what is set here.
_DEFAULT_MS, _AT_ONCE_MS, _SOON_MS, _KEPT_MS = 10_000, 0, 1_000, -1
_RETURN_SECONDS = 60.0
_kept_ms = _KEPT_MS
_next_return: float | None = None  # When what is kept is to be returned; nothing is.
_COUNTED_BYTES = 1 << 16


def return_freed_memory(threshold: int | str = "1MiB") -> bool:
    """Makes the allocator return memory to the system that this process has freed: glibc blocks of at least
    ``threshold`` bytes at once; jemalloc, where it was loaded in glibc's place (``python -m tierd.run``), what was not
    used again for a second.

    glibc raises its own threshold, up to 32 MiB, each time such a block is freed, and keeps later blocks for reuse. So
    activations that have moved to tierd still take memory (measured: 1,442 MiB where 862 MiB are in use). A fixed
    threshold costs page faults instead. Returns whether the allocator accepted it.
    """
    global _kept_ms
    size = byte_count(threshold, "threshold")
    jemalloc = _Jemalloc.loaded()
    if jemalloc is not None:
        _kept_ms = _SOON_MS
        return _keep(jemalloc, _kept_ms)
    return _return_by_glibc(size)


@contextlib.contextmanager
def returned_at_once() -> Iterator[None]:
    """What is freed inside is returned at once. Behind it glibc goes on so; jemalloc keeps what is freed until
    :func:`end_of_step`, or for as long as its options say."""
    jemalloc = _Jemalloc.loaded()
    if jemalloc is None:
        _return_by_glibc(_RETURNED_BYTES)
        yield
        return
    try:
        jemalloc.decay(_AT_ONCE_MS)
        yield
    finally:
        own = jemalloc.option("opt.dirty_decay_ms", ctypes.c_ssize_t)
        several = jemalloc.option("opt.narenas", ctypes.c_uint) != 1  # Each would keep as much as one does.
        _keep(jemalloc, own if several or own != _DEFAULT_MS else _kept_ms)


def end_of_step() -> None:
    """Once a minute, returns what is kept: a longer sequence, or an evaluation, may have left it."""
    global _next_return
    if _next_return is None or time.monotonic() < _next_return:
        return
    _next_return = time.monotonic() + _RETURN_SECONDS
    jemalloc = _Jemalloc.loaded()
    if jemalloc is not None:
        jemalloc.purge()


def _keep(jemalloc: _Jemalloc, milliseconds: int) -> bool:
    global _next_return
    _next_return = time.monotonic() + _RETURN_SECONDS if milliseconds == _KEPT_MS else None
    return jemalloc.decay(milliseconds)


def _return_in_child() -> None:
    """A process that was forked, such as one that loads data, makes no steps."""
    if _next_return is not None and (jemalloc := _Jemalloc.loaded()) is not None:
        _keep(jemalloc, _DEFAULT_MS)


os.register_at_fork(after_in_child=_return_in_child)


def _return_by_glibc(size: int) -> bool:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, size)) and bool(mallopt(_M_TRIM_THRESHOLD, size))


class _Jemalloc:
    """jemalloc's controls; names and values are those of its manual. They ignore what this version does not have."""

    def __init__(self, call: Callable[..., int]) -> None:
        self._call = call

    @classmethod
    def loaded(cls) -> _Jemalloc | None:
        """Where it is what this process allocates with: it counts what ``malloc`` gives."""
        loaded = ctypes.CDLL(None)
        call: Any = getattr(loaded, "mallctl", None)
        if call is None:
            return None
        found = cls(call)
        loaded.malloc.restype = ctypes.c_void_p
        before = found.option("thread.allocated", ctypes.c_uint64)
        block = ctypes.c_void_p(loaded.malloc(ctypes.c_size_t(_COUNTED_BYTES)))
        counted = found.option("thread.allocated", ctypes.c_uint64) - before
        loaded.free(block)
        return found if counted >= _COUNTED_BYTES else None

    def option(self, name: str, kind: Any) -> int:
        value, size = kind(), ctypes.c_size_t(ctypes.sizeof(kind))
        self._call(name.encode(), ctypes.byref(value), ctypes.byref(size), None, 0)
        return int(value.value)

    def purge(self) -> None:
        """Returns all that is free."""
        self._call(f"arena.{_ALL_ARENAS}.purge".encode(), None, None, None, ctypes.c_size_t(0))

    def decay(self, milliseconds: int) -> bool:
        """How long each arena, and each to come, keeps pages that are free. 0 also returns those that are free now."""
        value = ctypes.c_ssize_t(milliseconds)
        names = ["arenas", *(f"arena.{arena}" for arena in range(self.option("arenas.narenas", ctypes.c_uint)))]
        codes = [
            self._call(f"{name}.dirty_decay_ms".encode(), None, None, ctypes.byref(value), ctypes.sizeof(value))
            for name in names
        ]
        return not codes[0]  # Of an arena that was never used there is nothing to set.
