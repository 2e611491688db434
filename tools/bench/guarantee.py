"""How long a job waits for what it is guaranteed while another job holds the whole arena, clean: beside a program that
punches as many windows, populates fresh ones, and does nothing else.

The borrower is a process of its own, with a copy of everything on SSD and no lease. It answers the daemon, or it is
stopped: then the daemon asks it until `jobs.reclaim_deadline`, which is taken off. Each round has a daemon and clients
of its own. Run as a program, this is the borrower.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import statistics
import sys
import time
from collections.abc import Iterator

from node import BUILD, GIB, MIB, daemon, program
from report import Report, paired, quartiles

ARENA = GIB
ASKED = ARENA // 2  # By the owner, in one request; its guarantee.
TENSOR = 8 * MIB  # Of the borrower.
DEADLINE = 3.0  # Seconds: more than the 2 s after which a silent session is asked for other windows.
TIMES = 2  # The bound, of the bare program's time.


@contextlib.contextmanager
def borrowing(socket: str, stopped: bool) -> Iterator[None]:
    """A borrower that holds the arena while the block runs."""
    from tierd import control

    borrower = program(__file__, socket)
    try:
        with control.connect(socket) as channel:
            held = {job.name: job.held_bytes for job in channel.list_jobs()}["borrower"]
        if held != ARENA:
            raise SystemExit(f"the borrower holds {held / MIB:.0f} MiB of {ARENA // MIB}")
        if stopped:
            os.kill(borrower.process.pid, signal.SIGSTOP)
            os.waitpid(borrower.process.pid, os.WUNTRACED)  # Until it is.
        yield
    finally:
        os.kill(borrower.process.pid, signal.SIGCONT)
        borrower.close()


def taken_back(stopped: bool) -> tuple[float, float, float, str]:
    """Seconds of one round: to the lease, to punch as much, and to populate as much; and how the latter two did."""
    import tierd
    from bare_windows import BareWindows

    more = {
        "arena": {"huge_pages": "never"},
        "engine": {"evict": "100%"},  # A job's last tenth too is in use.
        "jobs": {"reclaim_deadline": f"{DEADLINE:g}s"},
    }
    with daemon(arena=ARENA, tier=2 * GIB, more=more) as (process, _):
        socket = str(process.directory / "tierd.sock")
        with tierd.connect(job="owner", socket=socket, guarantee=ASKED) as owner, borrowing(socket, stopped):
            asked = time.perf_counter()
            lease = owner.create("whole", ASKED)
            seconds = time.perf_counter() - asked
            lease.release()
        bare = BareWindows(process, ASKED)
    bare.populate()  # What is to be punched.
    punch, populate = bare.punch(), bare.populate()
    bare.close()
    return seconds - (DEADLINE if stopped else 0), punch, populate, str(bare)


def guarantee_back(report: Report, quick: bool) -> None:
    os.environ.setdefault("TIERD_BUILD", str(BUILD))
    for stopped in (False, True):
        ours, punches, fresh, how = zip(*(taken_back(stopped) for _ in range(3 if quick else 12)), strict=True)
        bare = [sum(pair) for pair in zip(punches, fresh, strict=True)]
        ratio = paired(ours, bare)
        times = [statistics.median(each) * 1e3 for each in (ours, punches, fresh)]
        who = f"a stopped borrower, after its {DEADLINE:g} s" if stopped else "a borrower that answers"
        report.add(
            f"half of the arena taken back from {who}",
            ratio["median"],
            "of punch + populate",
            at_most=TIMES,
            detail={"seconds": ours, "punch": punches, "populate": fresh},
            ceiling=f"{times[0]:.0f} ms for {ASKED // MIB} MiB, bare {times[1]:.0f} + {times[2]:.0f} ms ({how[-1]}); "
            f"{quartiles(ratio)} of {len(ours)} rounds",
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
