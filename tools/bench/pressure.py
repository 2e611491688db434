"""How soon and how fast a daemon gives memory back when the limit of its control group is lowered, beside a bare
fallocate(PUNCH_HOLE) of as many bytes in the same group, one after the other.

The arena is full of tensors that lie on SSD too. The limit is lowered once, to what is used: all of the host reserve is
then missing. A thread of this process reads what the group uses, every 100 µs.
"""

from __future__ import annotations

import ctypes
import dataclasses
import mmap
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from memory_group import MemoryGroup, memory_group
from node import BUILD, GIB, MIB, daemon

RESERVE = 512 * MIB
FILLED = 768 * MIB
TENSOR = 8 * MIB
DEADLINE_S = 20.0
QUIET_S = 0.5  # Nothing more comes back.
MADV_POPULATE_WRITE, MADV_COLLAPSE = 23, 25
FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE = 1, 2
MAP_FIXED = 16
BLOCK = 2 * MIB


@dataclasses.dataclass
class Giving:
    start_ms: float  # From the limit, or the call, to the first byte that is back.
    bytes: int
    gb_per_s: float  # From the first byte to the last.


def watch(group: MemoryGroup, lower: Callable[[], object]) -> Giving:
    """What comes back after `lower`."""
    before = group.usage()
    asked = time.perf_counter()
    lower()
    first, last, least = 0.0, asked, before
    first_use = before
    while time.perf_counter() - (last if first else asked) < (QUIET_S if first else DEADLINE_S):
        use = group.usage()
        now = time.perf_counter()
        if use < least - MIB:
            if not first:
                first, first_use = now, use
            least, last = use, now
        time.sleep(1e-4)
    if not first:
        raise SystemExit(f"nothing was given back in {DEADLINE_S:g} s: {group.usage()} bytes are used")
    return Giving((first - asked) * 1e3, before - least, (first_use - least) / max(last - first, 1e-6) / 1e9)


def of_daemon(group: MemoryGroup) -> Giving:
    import numpy
    import tierd

    assert group.set_limit(8 * GIB)
    script = pathlib.Path(tempfile.mkdtemp(prefix="tier-bench-")) / "program"
    try:
        program = group.program(script, BUILD / "daemon/tierd")
        with daemon(GIB, 2 * GIB, reserve=f"{RESERVE // MIB}MiB", program=program) as (process, _):
            with tierd.connect(job="pressed", socket=str(process.directory / "tierd.sock")) as client:
                for number in range(FILLED // TENSOR):
                    client.put(number, numpy.full(TENSOR, number % 251, "u1"))
                client.flush()
                time.sleep(QUIET_S)
                giving = watch(group, group.lower_to_usage)
                for number in range(FILLED // TENSOR):
                    if not (client.get(number) == number % 251).all():
                        raise SystemExit(f"tensor {number} has other bytes")
                if group.oom_kills() or process.process.poll() is not None:
                    raise SystemExit("the daemon was killed")
                return giving
    finally:
        script.unlink(missing_ok=True)
        script.parent.rmdir()


def hold_and_punch(size: int) -> None:
    """The bare process: holds so many bytes in a memfd, of huge pages where the kernel makes them, until it is told."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    file = os.memfd_create("bare")
    os.ftruncate(file, size)
    access = mmap.PROT_READ | mmap.PROT_WRITE
    # At a boundary of 2 MiB, or no huge page can lie there.
    place = libc.mmap(None, size + BLOCK, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    place = libc.mmap((place + BLOCK - 1) // BLOCK * BLOCK, size, access, mmap.MAP_SHARED | MAP_FIXED, file, 0)
    huge = 0
    for at in range(place, place + size, BLOCK):
        libc.madvise(at, mmap.PAGESIZE, MADV_POPULATE_WRITE)
        if libc.madvise(at, BLOCK, MADV_COLLAPSE) == 0:
            huge += BLOCK
        elif libc.madvise(at, BLOCK, MADV_POPULATE_WRITE) != 0:
            raise SystemExit(os.strerror(ctypes.get_errno()))
    print(huge, flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
    if libc.fallocate(file, mode, ctypes.c_long(0), ctypes.c_long(size)) != 0:
        raise SystemExit(os.strerror(ctypes.get_errno()))
    print(time.perf_counter() - began, flush=True)


def bare_gb_per_s(group: MemoryGroup, size: int) -> float:
    script = pathlib.Path(tempfile.mkdtemp(prefix="tier-bench-")) / "program"
    try:
        program = group.program(script, pathlib.Path(sys.executable))
        words = [str(program), __file__, str(size)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin and process.stdout
            held = process.stdout.readline()
            if not held:
                raise SystemExit(f"the bare process ended with {process.wait()}")
            if int(held) != size:
                print(f"of {size} bytes {int(held)} are in huge pages", file=sys.stderr)
            process.stdin.write("\n")
            process.stdin.flush()
            return size / float(process.stdout.readline()) / 1e9
    finally:
        script.unlink(missing_ok=True)
        script.parent.rmdir()


def give_back(quick: bool) -> tuple[list[Giving], list[float]]:
    """Rounds of a daemon each, and of the bare call each."""
    givings, bare = [], []
    for _ in range(2 if quick else 7):
        with memory_group() as group:
            givings.append(of_daemon(group))
        with memory_group() as group:
            assert group.set_limit(8 * GIB)
            bare.append(bare_gb_per_s(group, givings[-1].bytes // BLOCK * BLOCK))
    return givings, bare


if __name__ == "__main__":
    hold_and_punch(int(sys.argv[1]))
