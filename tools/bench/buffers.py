"""Memory for fio of the kind that the daemon's windows are: memfds, in huge pages wherever the kernel gives them."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
from types import TracebackType

BLOCK = 2 << 20  # A huge page; the daemon's block.
STEP = 8 << 20  # Collapsed at a time, as the daemon's windows are.
MAP_FIXED = 0x10
MADV_POPULATE_WRITE, MADV_COLLAPSE = 23, 25  # Linux 5.14 and 6.1: younger than Python's module.

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def _advise(address: int, length: int, advice: int) -> bool:
    return bool(_libc.madvise(address, length, advice) == 0)


def pmd_mapped(address: int) -> int:
    """Bytes of shared memory that this process maps by huge entries, in its mapping that begins at ``address``."""
    with open("/proc/self/smaps") as smaps:
        found = False
        for line in smaps:
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                found = int(line.split("-", 1)[0], 16) == address
            elif found and line.startswith("ShmemPmdMapped:"):
                return int(line.split()[1]) << 10
    return 0


class Buffer:
    """A memfd whose pages are all there. ``huge`` says what they are."""

    def __init__(self, size: int) -> None:
        self.size = -(-size // STEP) * STEP
        self.file = os.memfd_create("tier-bench-buffer")
        os.ftruncate(self.file, self.size)
        # A huge page wants its boundary in addresses as well: mapped over a reservation that surely has one.
        with mmap.mmap(-1, self.size + BLOCK, mmap.MAP_PRIVATE) as reserved:
            place = ctypes.c_char.from_buffer(reserved)
            address = -(-ctypes.addressof(place) // BLOCK) * BLOCK
            del place
            self._fill(address)

    def _fill(self, address: int) -> None:
        access = mmap.PROT_READ | mmap.PROT_WRITE
        if _libc.mmap(address, self.size, access, mmap.MAP_SHARED | MAP_FIXED, self.file, 0) != address:
            raise OSError(ctypes.get_errno(), "cannot map a buffer")
        _advise(address, self.size, mmap.MADV_HUGEPAGE)
        for step in range(address, address + self.size, STEP):
            # As the daemon does: one page of each block, then all of the block at once.
            for block in range(step, step + STEP, BLOCK):
                _advise(block, mmap.PAGESIZE, MADV_POPULATE_WRITE)
            _advise(step, STEP, MADV_COLLAPSE)
        if not _advise(address, self.size, MADV_POPULATE_WRITE):
            raise OSError(ctypes.get_errno(), f"cannot populate a buffer of {self.size} bytes")
        self.huge = pmd_mapped(address) == self.size

    def close(self) -> None:
        os.close(self.file)


class Buffers:
    """One buffer a process of fio's, for the whole measurement."""

    def __init__(self, count: int, size: int) -> None:
        self.each = [Buffer(size) for _ in range(count)]

    @property
    def kind(self) -> str:
        huge = all(buffer.huge for buffer in self.each)
        return "huge pages" if huge else "4 KiB pages: the machine cannot collapse"

    def __enter__(self) -> Buffers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for buffer in self.each:
            buffer.close()
