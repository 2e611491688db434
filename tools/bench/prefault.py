"""How fast a daemon populates its arena at start, beside a program that populates as many windows of the same size and
kind with a thread for each processor, and does nothing else.

Windows are as large as an arena of 128 GiB makes them, and as small as one of this size does: these cost their calls
again for each 2 MiB. Either program is watched from outside: what the kernel counts as its shared memory begins to grow
with the first step, and has all of the arena with the last.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shlex
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator

from bare_windows import BareWindows
from node import BUILD, GIB, LISTENING, MIB, daemon, metrics
from report import Report, paired, quartiles

ARENA = 2 * GIB
WINDOWS = ("64MiB", "2MiB")
BEGUN = MIB  # Both have less before their first step.
EVERY_S = 0.002
DEADLINE_S = 120.0
THREADS_MAX = 16  # Of the bare program: one for each processor. More do not populate memory faster.
PART = 0.9  # The bound, of the bare program's rate.


def shared_bytes(pid: int) -> int:
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssShmem:"):
            return int(line.split()[1]) << 10
    raise SystemExit(f"/proc/{pid}/status has no RssShmem")


class Watch:
    """Times a process from its first step to its last, in a thread."""

    def __init__(self, pid: int) -> None:
        self.lead = 0.0  # Seconds from now to its first step.
        self.seconds = 0.0
        self._thread = threading.Thread(target=self._watch, args=(pid,))
        self._thread.start()

    def _watch(self, pid: int) -> None:
        begin = before = time.perf_counter()
        first = 0.0
        while (now := time.perf_counter()) < begin + DEADLINE_S:
            with contextlib.suppress(FileNotFoundError):
                shared = shared_bytes(pid)
                if not first and shared >= BEGUN:
                    first = before  # The last time it had not begun.
                    self.lead = first - begin
                if shared >= ARENA:
                    self.seconds = now - first
                    return
            before = now
            time.sleep(EVERY_S)

    def wait(self) -> float:
        self._thread.join()
        if not self.seconds:
            raise SystemExit(f"{ARENA // MIB} MiB were not populated in {DEADLINE_S:g} s")
        return self.seconds


@contextlib.contextmanager
def announced() -> Iterator[tuple[pathlib.Path, pathlib.Path]]:
    """A program that writes its process id to a pipe and becomes the daemon; and the pipe."""
    with tempfile.TemporaryDirectory(prefix="tier-bench-") as folder:
        pipe, script = pathlib.Path(folder) / "pid", pathlib.Path(folder) / "program"
        os.mkfifo(pipe)
        words = f"#!/bin/sh\necho $$ > {shlex.quote(str(pipe))}\n"
        script.write_text(f'{words}exec {shlex.quote(str(BUILD / "daemon/tierd"))} "$@"\n')
        script.chmod(0o755)
        yield script, pipe


def touch(bare: BareWindows | None) -> None:
    """Touches so much memory and frees it: a virtual machine's host may have to give it first, which is slower than to
    populate it. Free memory goes back to such a host within moments, so both find it as old."""
    if bare is not None:
        other = bare.another()
        other.populate()
        other.close()


def one_round(window: str, known: BareWindows | None) -> tuple[float, float, BareWindows]:
    """Seconds of the daemon and of the bare program, and the latter. `window`: the size of one. `known`: that of the
    round before."""
    watch: list[Watch] = []
    with announced() as (script, pipe):
        reader = threading.Thread(target=lambda: watch.append(Watch(int(pipe.read_text()))))
        reader.start()
        more = LISTENING | {"arena": {"huge_pages": "never"}}
        touch(known)
        with daemon(arena=ARENA, tier=256 * MIB, prefault=True, window=window, program=script, more=more) as (
            process,
            _,
        ):
            reader.join()
            ours = watch[0].wait()
            if metrics(process)["tierd_arena_prefault_target_bytes"] != ARENA:
                raise SystemExit(f"not all of {ARENA // MIB} MiB was to be had: {process.log_tail()}")
            bare = BareWindows(process, ARENA, min(len(os.sched_getaffinity(0)), THREADS_MAX))
    touch(bare)
    time.sleep(watch[0].lead)
    watching = Watch(bare.shell.process.pid)
    bare.populate()
    theirs = watching.wait()
    bare.close()
    return ours, theirs, bare


def prefault(report: Report, quick: bool) -> None:
    for window in WINDOWS:
        _, _, how = one_round(window, None)  # Uncounted.
        ours, bare, _ = zip(*(one_round(window, how) for _ in range(3 if quick else 12)), strict=True)
        ratio = paired(bare, ours)  # Of rates.
        rates = [ARENA / statistics.median(seconds) / 1e9 for seconds in (ours, bare)]
        report.add(
            f"prefault of {ARENA // MIB} MiB in windows of {window}",
            ratio["median"],
            "of the bare rate",
            at_least=PART,
            detail={"seconds": ours, "bare": bare},
            ceiling=f"{rates[0]:.2f} GB/s, bare {rates[1]:.2f} ({how}); {quartiles(ratio)} of {len(ours)} rounds",
        )
