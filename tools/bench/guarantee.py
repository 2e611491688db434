"""How long a job waits for what it is guaranteed while another job holds the whole arena, clean: beside a program that
punches as many windows, populates fresh ones, and does nothing else.

The borrower is a process of its own, with a copy of everything on SSD and no lease. It answers the daemon, or it is
stopped: then the daemon asks it until `jobs.reclaim_deadline`, which is taken off. Each round has a daemon and clients
of its own. Run as a program, this is the borrower.

The windows are in pages of the kernel's pool, where this process may fill it (why: `page_pool.py`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import signal
import statistics
import sys
import time
from collections.abc import Iterator

from footprint import cpu_seconds
from node import GIB, MIB, daemon, program
from page_pool import huge_pages, page_pool
from report import Report, paired, quartiles

ARENA = GIB
ASKED = ARENA // 2  # By the owner, in one request; its guarantee.
TENSOR = 8 * MIB  # Of the borrower.
DEADLINE = 3.0  # Seconds: more than the 2 s after which a silent session is asked for other windows.
TIMES = 2  # The bound, of the bare program's time.


@dataclasses.dataclass
class Round:
    """Seconds, and of the processors that were used core seconds."""

    lease: float  # From the request, less the deadline.
    punch: float  # By the bare program …
    populate: float
    lease_cores: float  # … and the processor time of daemon and clients, and of that program.
    bare_cores: float
    how: str


@contextlib.contextmanager
def borrowing(socket: str, stopped: bool) -> Iterator[int]:
    """A borrower that holds the arena while the block runs: its process."""
    from tierd import control

    borrower = program(__file__, socket)
    pid = borrower.process.pid
    try:
        with control.connect(socket) as channel:
            held = {job.name: job.held_bytes for job in channel.list_jobs()}["borrower"]
        if held != ARENA:
            raise SystemExit(f"the borrower holds {held / MIB:.0f} MiB of {ARENA // MIB}")
        if stopped:
            os.kill(pid, signal.SIGSTOP)
            os.waitpid(pid, os.WUNTRACED)  # Until it is.
        yield pid
    finally:
        os.kill(pid, signal.SIGCONT)
        borrower.close()


def taken_back(stopped: bool, pages: str) -> Round:
    import tierd
    from bare_windows import BareWindows

    more = {
        "arena": {"huge_pages": pages},
        "engine": {"evict": "100%"},  # A job's last tenth too is in use.
        "jobs": {"reclaim_deadline": f"{DEADLINE:g}s"},
    }
    with daemon(arena=ARENA, tier=2 * GIB, more=more) as (process, _):
        socket = str(process.directory / "tierd.sock")
        with (
            tierd.connect(job="owner", socket=socket, guarantee=ASKED) as owner,
            borrowing(socket, stopped) as borrower,
        ):
            pids = (process.process.pid, borrower)
            used = sum(map(cpu_seconds, pids)) + time.process_time()
            asked = time.perf_counter()
            lease = owner.create("whole", ASKED)
            seconds = time.perf_counter() - asked
            used = sum(map(cpu_seconds, pids)) + time.process_time() - used
            bare = BareWindows(process, ASKED)  # In the pages that the windows have now.
            lease.release()
    bare.populate()  # What is to be punched. It lies for as long as the borrower's has.
    time.sleep(DEADLINE if stopped else 0)
    before = cpu_seconds(bare.shell.process.pid)
    punch, populate = bare.punch(), bare.populate()
    bare_used = cpu_seconds(bare.shell.process.pid) - before
    bare.close()
    return Round(seconds - (DEADLINE if stopped else 0), punch, populate, used, bare_used, str(bare))


def guarantee_back(report: Report, quick: bool) -> None:
    for stopped in (False, True):
        with page_pool(ARENA) as filled:
            rounds = [taken_back(stopped, huge_pages(filled)) for _ in range(3 if quick else 12)]
        ratio = paired([each.lease for each in rounds], [each.punch + each.populate for each in rounds])
        median = {
            field: statistics.median(getattr(each, field) for each in rounds) * 1e3
            for field in ("lease", "punch", "populate", "lease_cores", "bare_cores")
        }
        who = f"a stopped borrower, after its {DEADLINE:g} s" if stopped else "a borrower that answers"
        report.add(
            f"half of the arena taken back from {who}",
            ratio["median"],
            "of punch + populate",
            at_most=TIMES,
            detail={"rounds": [dataclasses.asdict(each) for each in rounds]},
            ceiling=f"{median['lease']:.0f} ms for {ASKED // MIB} MiB, bare {median['punch']:.0f} + "
            f"{median['populate']:.0f} ({rounds[-1].how}); {quartiles(ratio)} of {len(rounds)} rounds; processor time "
            f"of daemon and clients {median['lease_cores']:.0f} ms, bare {median['bare_cores']:.0f}",
        )


def borrow(socket: str) -> None:
    """Fills the arena, and waits for the end of its stdin."""
    import numpy

    import tierd

    with tierd.connect(job="borrower", socket=socket) as client:
        content = numpy.ones(TENSOR, "u1")
        for number in range(ARENA // TENSOR):
            client.put(number, content)
        client.flush()
        print('{"ready": 1}', flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bindings/python"))
    borrow(sys.argv[1])
