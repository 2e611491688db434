"""What looking at a node costs: a scrape of /metrics, the engine thread's part of it, and tierctl top.

A node with 64 jobs and 1,000 sessions that hold a tensor each. A scrape stands beside /healthz, which the same server
answers without any figure, in alternation. The engine thread's part is the processor time of the thread that runs the
engine while scrapes come so far apart that each takes figures of its own, less that of as many seconds without.
Beside jobs that keep the engine awake, what the daemon says that scrapes took of it or kept it from waking: that is no
processor time of it, and nothing is promised of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import pty
import resource
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

from footprint import cpu_seconds
from node import BUILD, GIB, daemon
from reclaim import quartiles_of
from report import Report
from scrape import scrape

JOBS, SESSIONS = 64, 1000
LOADS = 2  # Jobs that ask for tensors in RAM, one after the other, as fast as they are answered.
TENSOR = 64 * 1024
APART = 0.06  # Seconds between scrapes: the daemon lets those share their figures that come within 50 ms.
OPEN_FILES = 64 * 1024  # Of this process: the descriptors of so many sessions.
MORE: dict[str, dict[str, Any]] = {
    "metrics": {"listen": "127.0.0.1:0"},
    # One user's processes take at most seven eighths.
    "jobs": {"max_sessions": 2 * SESSIONS, "max_jobs_per_uid": JOBS + LOADS, "max_attaches_per_second": 10_000},
}


@dataclasses.dataclass
class Scrape:
    ms: float
    bytes: int


def fetch(port: int, path: str) -> Scrape:
    begin = time.perf_counter()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        size = len(answer.read())
    return Scrape((time.perf_counter() - begin) * 1e3, size)


@contextlib.contextmanager
def crowded() -> Iterator[tuple[int, str, int]]:
    """A node with so many jobs and sessions: its process, its socket, and the port of its metrics."""
    import numpy
    import tierd

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, OPEN_FILES), hard))
    content = numpy.ones(TENSOR, "u1")
    with daemon(GIB, GIB, more=MORE) as (process, _), contextlib.ExitStack() as clients:
        socket = str(process.directory / "tierd.sock")
        for number in range(SESSIONS):
            client = clients.enter_context(tierd.connect(job=f"job-{number % JOBS}", socket=socket))
            client.put(number, content)
        yield process.process.pid, socket, int((process.directory / "metrics.port").read_text())


def thread_seconds(pid: int, name: str) -> float:
    """Processor time of the thread of that name."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            return int((task / "schedstat").read_text().split()[0]) / 1e9
    raise SystemExit(f"process {pid} has no thread {name}")


def engine_us(pid: int, port: int, seconds: float) -> float:
    """Processor time of the engine thread for one scrape."""

    def used(scraped: bool) -> tuple[float, int]:
        begin, before, scrapes = time.perf_counter(), thread_seconds(pid, "tierd-engine"), 0
        while time.perf_counter() - begin < seconds:
            if scraped:
                fetch(port, "/metrics")
                scrapes += 1
            time.sleep(APART)
        return (thread_seconds(pid, "tierd-engine") - before) / (time.perf_counter() - begin) * seconds, scrapes

    idle, _ = used(False)
    busy, scrapes = used(True)
    return (busy - idle) / scrapes * 1e6


LOAD = """
import sys, numpy, tierd
with tierd.connect(job=sys.argv[1], socket=sys.argv[2]) as client:
    out = numpy.ones(65536, "u1")
    client.put("a", out)
    print("ready", flush=True)
    while True:
        client.get_into("a", out)
"""


@contextlib.contextmanager
def loaded(socket: str) -> Iterator[None]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with contextlib.ExitStack() as ends:
        for number in range(LOADS):
            words = [sys.executable, "-c", LOAD, f"load-{number}", socket]
            load = ends.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE, env=environment))
            ends.callback(load.kill)
            assert load.stdout is not None
            if load.stdout.readline() != b"ready\n":
                raise SystemExit("a job that is to keep the engine awake has ended")
        yield


def observed_us(pid: int, port: int, seconds: float) -> tuple[float, float]:
    """What the engine thread spent on one scrape, or waited for, as the daemon counts it; and how busy it was."""
    before, busy, begin, scrapes = observed_seconds(port), thread_seconds(pid, "tierd-engine"), time.perf_counter(), 1
    while time.perf_counter() - begin < seconds:
        time.sleep(APART)
        fetch(port, "/metrics")
        scrapes += 1
    time.sleep(APART)
    spent = observed_seconds(port) - before
    share = (thread_seconds(pid, "tierd-engine") - busy) / (time.perf_counter() - begin)
    return spent / scrapes * 1e6, share


def observed_seconds(port: int) -> float:
    return scrape(f"http://127.0.0.1:{port}/metrics")["tierd_engine_observed_seconds_total"]


def cpu_of_top(socket: str, seconds: float) -> float:
    """The part of a processor that tierctl top takes, in a terminal that is read."""
    ours, theirs = pty.openpty()
    words = [str(BUILD / "tools/tierctl/tierctl"), "--socket", socket, "top"]
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, env=os.environ | {"TERM": "xterm"}) as top:
        os.close(theirs)

        def read() -> None:
            with contextlib.suppress(OSError):  # It has ended.
                while os.read(ours, 1 << 16):
                    pass

        reader = threading.Thread(target=read)
        reader.start()
        try:
            time.sleep(1)  # It has connected, and drawn once.
            before, begin = cpu_seconds(top.pid), time.perf_counter()
            time.sleep(seconds)
            return (cpu_seconds(top.pid) - before) / (time.perf_counter() - begin)
        finally:
            top.terminate()
            top.wait()
            reader.join()
            os.close(ours)


def observing(report: Report, quick: bool) -> None:
    rounds, seconds = (20, 2.0) if quick else (200, 10.0)
    with crowded() as (pid, socket, port):
        fetch(port, "/metrics")
        pairs = [(fetch(port, "/metrics"), fetch(port, "/healthz")) for _ in range(rounds)]
        times = [page.ms for page, _ in pairs]
        bare = [health.ms for _, health in pairs]
        what = f"a scrape with {JOBS} jobs and {SESSIONS:,} sessions"
        report.add(
            what,
            statistics.median(times),
            "ms",
            at_most=20,
            ceiling=f"/healthz {statistics.median(bare):.2f} ms; {quartiles_of(times)} ms",
        )
        report.add(f"{what}: size", max(page.bytes for page, _ in pairs) / 1000, "kB", at_most=200)
        parts = [engine_us(pid, port, seconds) for _ in range(3 if quick else 10)]
        report.add(
            f"{what}: processor time of the engine thread",
            statistics.median(parts),
            "µs",
            at_most=50,
            ceiling=f"{quartiles_of(parts)} µs",
        )
        with loaded(socket):
            observed = [observed_us(pid, port, seconds) for _ in range(3 if quick else 10)]
        times = [spent for spent, _ in observed]
        busy = statistics.median(share for _, share in observed)
        report.add(
            f"{what}, beside {LOADS} jobs: the engine thread does not get on",
            statistics.median(times),
            "µs",
            ceiling=f"{quartiles_of(times)} µs; it works {busy:.0%} of the time",
        )
        shares = [100 * cpu_of_top(socket, seconds) for _ in range(2 if quick else 6)]
        report.add(
            "tierctl top at 1 Hz",
            statistics.median(shares),
            "% of a core",
            at_most=1,
            ceiling=f"{quartiles_of(shares)} %",
        )
