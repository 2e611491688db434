"""How long a job waits for what it is guaranteed while another job holds everything sparse, and what that costs both.

The borrower has 64 KiB in each block of 2 MiB of nearly all of the arena; its bytes are on SSD as well (clean), or not
(dirty). Another job, connected before, asks for half of the arena in one request. Then the borrower reads all of its
tensors. Each round has a daemon and clients of its own.
"""

from __future__ import annotations

import pathlib
import statistics
import time

from node import BUILD, GIB, MIB, daemon
from reclaim import quartiles_of
from report import Report

ARENA = 512 * MIB
BLOCK = 2 * MIB
PIECE = 64 * 1024
BLOCKS = 224  # Of 256.
ASKED = 224 * MIB


def written_bytes(pid: int) -> int:
    """By the daemon, to any device, since it started."""
    for line in pathlib.Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    raise SystemExit(f"/proc/{pid}/io has no write_bytes")


def hand_over(build: pathlib.Path, clean: bool) -> dict[str, float]:
    """Milliseconds, and MiB written to SSD."""
    import numpy

    import tierd

    piece, rest = numpy.ones(PIECE, "u1"), numpy.zeros(BLOCK - PIECE, "u1")
    back = numpy.empty_like(piece)
    with daemon(arena=ARENA, tier=2 * GIB, prefault=True, build=build) as (process, _):
        socket = str(process.directory / "tierd.sock")
        with tierd.connect(job="borrower", socket=socket) as borrower:
            for number in range(BLOCKS):
                borrower.put(f"piece {number}", piece)
                borrower.put(f"rest {number}", rest)
            for number in range(BLOCKS):
                borrower.delete(f"rest {number}")
            borrower.flush()
            for number in () if clean else range(BLOCKS):
                with borrower.lease(f"piece {number}", write=True) as changed:  # In place; its copy on SSD is outdated.
                    changed.memoryview()[:1] = b"2"
            with tierd.connect(job="owner", socket=socket, guarantee=ASKED) as owner:
                before = written_bytes(process.process.pid)
                asked = time.perf_counter()
                lease = owner.create("whole", ASKED)
                got = time.perf_counter()
                written = written_bytes(process.process.pid) - before
                for number in range(BLOCKS):
                    borrower.get_into(f"piece {number}", back)
                read = time.perf_counter()
                lease.release()
    return {"given back": (got - asked) * 1e3, "read again": (read - got) * 1e3, "written": written / MIB}


def sparse_borrower(report: Report, quick: bool) -> None:
    for clean in (False, True):
        rounds = [hand_over(BUILD, clean) for _ in range(3 if quick else 15)]
        for what in ("given back", "read again"):
            times = [each[what] for each in rounds]
            written = statistics.median(each["written"] for each in rounds)
            report.add(
                f"half of the arena from a sparse borrower, {'clean' if clean else 'dirty'}: {what}",
                statistics.median(times),
                "ms",
                ceiling=f"{quartiles_of(times)}; {written:.3g} MiB written",
            )
