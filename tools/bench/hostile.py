"""A neighbour's throughput beside a hostile client of another user, for each of the ways of hostile_client.py.

A hostile client may use a processor as any process may; it must not take more from its neighbours through the daemon.
So each row is a ratio to the neighbour's throughput beside processes that do nothing but use as much processor time as
the client and, for it, the daemon did. What it has alone is printed too: that may be less, as a virtual processor that
was idle takes long to wake, and beside such processes none is. Run as a program, this is the neighbour: it writes and
reads tensors in RAM.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import resource
import statistics
import sys
import time
from collections.abc import Iterator

from burner import burning
from footprint import cpu_seconds
from node import GIB, MIB, ROOT, Shell, daemon, program
from page_pool import huge_pages, page_pool
from report import Report, paired, quartiles

from hostile_client import BESIDE_EQUAL_PARTS, KINDS

AT_LEAST = 0.9
ARENA = 512 * MIB
TENSOR = MIB
TENSORS = 64
SETTLE = 0.3  # Seconds that a hostile client, or a burner, runs before the neighbour is measured.
HOSTILE_USER = 65533  # Without an account.


@dataclasses.dataclass
class Sample:
    """One measurement: the neighbour's bytes a second, and processor time that others used, of one second."""

    rate: float
    daemon: float
    client: float = 0.0  # Or what the burners got.


def start_hostile(socket: str, kind: str) -> Shell:
    words = [sys.executable, str(pathlib.Path(__file__).with_name("hostile_client.py")), socket, kind]
    if os.geteuid() == 0:
        words = ["setpriv", f"--reuid={HOSTILE_USER}", f"--regid={HOSTILE_USER}", "--clear-groups", *words]
    return Shell(words)


def sample(neighbour: Shell, daemon_pid: int, client_pid: int | None = None) -> Sample:
    """The neighbour works once."""
    time.sleep(SETTLE)
    pids = [daemon_pid] + ([client_pid] if client_pid else [])
    begin, before = time.monotonic(), [cpu_seconds(pid) for pid in pids]
    rate = neighbour("work")
    seconds = time.monotonic() - begin
    used = [(cpu_seconds(pid) - earlier) / seconds for pid, earlier in zip(pids, before, strict=True)]
    return Sample(rate, *used)


def beside_hostile(neighbour: Shell, socket: str, daemon_pid: int, kind: str) -> Sample:
    client = start_hostile(socket, kind)
    try:
        return sample(neighbour, daemon_pid, client.process.pid)
    finally:
        client.close()


def beside_burner(neighbour: Shell, daemon_pid: int, cores: float) -> Sample:
    begin, before = time.monotonic(), children_seconds()
    with burning(cores):
        found = sample(neighbour, daemon_pid)
    found.client = (children_seconds() - before) / (time.monotonic() - begin)
    return found


def children_seconds() -> float:
    """Processor time of the children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cores_for(alone: Sample, beside: Sample) -> float:
    """What the client and the daemon used beyond what the daemon needs for as much work of the neighbour."""
    return beside.client + max(0.0, beside.daemon - alone.daemon * beside.rate / alone.rate)


def hostile(report: Report, quick: bool) -> None:
    rounds, seconds = (2, 1.0) if quick else (10, 5.0)
    for kind in KINDS:
        if kind in BESIDE_EQUAL_PARTS and os.geteuid() != 0:
            print(f"  {kind}: skipped, needs root: becomes another user", flush=True)
            continue
        alone, beside, burners, cores = [], [], [], []
        with (
            page_pool(ARENA) as filled,
            daemon(arena=ARENA, tier=GIB, more={"arena": {"huge_pages": huge_pages(filled)}}) as (process, _),
        ):
            process.directory.chmod(0o755)
            socket, pid = str(process.directory / "tierd.sock"), process.process.pid
            guarantee = 0 if kind in BESIDE_EQUAL_PARTS else 2 * TENSORS * TENSOR
            neighbour = program(__file__, socket, str(seconds), str(guarantee))
            for _ in range(rounds):
                alone.append(sample(neighbour, pid))
                beside.append(beside_hostile(neighbour, socket, pid, kind))
                cores.append(cores_for(alone[-1], beside[-1]))
                burners.append(beside_burner(neighbour, pid, cores[-1]))
            wrong = neighbour("check")
            neighbour.close()
        if wrong:
            raise SystemExit(f"beside {kind}: {wrong:.0f} tensors have other bytes")
        add_row(report, kind, alone, beside, burners, cores)


def add_row(
    report: Report,
    kind: str,
    alone: list[Sample],
    beside: list[Sample],
    burners: list[Sample],
    cores: list[float],
) -> None:
    ratio, to_alone = (paired([each.rate for each in beside], [each.rate for each in arm]) for arm in (burners, alone))
    rates = [statistics.median(each.rate for each in arm) / 1e9 for arm in (beside, burners, alone)]
    report.add(
        f"a neighbour's throughput beside a hostile client: {kind}",
        ratio["median"],
        "of beside a burner",
        at_least=AT_LEAST,
        ceiling=f"{rates[0]:.2f} GB/s; burner of {statistics.median(cores):.2f} processors "
        f"({statistics.median(each.client for each in burners):.2f} had) {rates[1]:.2f}, "
        f"alone {rates[2]:.2f}; {quartiles(ratio)} of {len(cores)} rounds; {to_alone['median']:.3g} of alone",
        detail={
            "arms": {
                name: [dataclasses.asdict(each) for each in arm]
                for name, arm in (("alone", alone), ("hostile", beside), ("burner", burners))
            },
            "cores": cores,
        },
    )


def work(socket: str, seconds: float, guarantee: int) -> None:
    """Answers "work" with the bytes a second that it has written and read, and "check" with the tensors that differ."""
    import numpy

    import tierd

    contents = [numpy.random.default_rng(number).integers(0, 256, TENSOR, numpy.uint8) for number in range(TENSORS)]
    back = numpy.empty(TENSOR, numpy.uint8)
    with tierd.connect(job="neighbour", socket=socket, guarantee=guarantee or None) as client:
        for number, content in enumerate(contents):
            client.put(number, content)

        def different() -> Iterator[int]:
            for number, content in enumerate(contents):
                client.get_into(number, back)
                if not numpy.array_equal(back, content):
                    yield number

        print(json.dumps({"ready": 1}), flush=True)
        for line in sys.stdin:
            if line.strip() == "check":
                print(json.dumps({"check": len(list(different()))}), flush=True)
                continue
            moved, begin = 0, time.perf_counter()
            while (now := time.perf_counter()) < begin + seconds:
                number = moved // TENSOR // 2 % TENSORS
                client.put(number, contents[number], replace=True)
                client.get_into(number, back)
                moved += 2 * TENSOR
            print(json.dumps({"work": moved / (now - begin)}), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "bindings/python"))
    work(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
