"""Three jobs on a node without SSD, each of whose memory lies scattered: pool maps before and after compaction.

Each job fills its third of the arena with small tensors and frees seven of eight. Then each asks for whole blocks, as
many bytes as it has free pages: all of them must be had, though hardly a block is free. The time for a request beside
that of an equal one from free blocks, by the same daemon.
"""

from __future__ import annotations

import dataclasses
import statistics
import subprocess
import time
from typing import Any

from node import BUILD, LISTENING, MIB, daemon, metrics
from report import Report

ARENA = 192 * MIB
GUARANTEE = ARENA // 3 - 4 * MIB  # Of each job, and what it fills.
SMALL = 32 * 1024
KEPT = 8  # One of so many tensors stays.
BLOCK = 2 * MIB
LEFT = 4  # Blocks of each job that are not asked for: what is kept fills some, and one may be filled in part.
JOBS = ("a", "b", "c")
ASKED = GUARANTEE // BLOCK * (KEPT - 1) // KEPT - LEFT  # Blocks, by each job.


@dataclasses.dataclass
class Round:
    scattered: float  # Seconds until the last block was had.
    free: float  # The same from free blocks.
    moved: float  # Bytes.
    refused: int
    maps: list[str]


def pool_map(socket: str) -> str:
    words = [str(BUILD / "tools/tierctl/tierctl"), "--socket", socket, "pool", "map"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def compacted() -> Round:
    import numpy

    import tierd

    more: dict[str, dict[str, Any]] = LISTENING | {"ssd": {"devices": ["none"]}}
    content = numpy.ones(SMALL, "u1")
    with daemon(arena=ARENA, tier=0, more=more) as (process, _):
        socket = str(process.directory / "tierd.sock")
        clients = [tierd.connect(job=name, socket=socket, guarantee=GUARANTEE) for name in JOBS]
        for client in clients:
            for number in range(GUARANTEE // SMALL):
                client.put(number, content)
        for client in clients:
            for number in range(GUARANTEE // SMALL):
                if number % KEPT:
                    client.delete(number)
        maps = [pool_map(socket)]
        refused = 0
        start = time.perf_counter()
        for client in clients:
            for number in range(ASKED):
                try:
                    client.create(f"block {number}", BLOCK).release()
                except tierd.NoMemory:
                    refused += 1
        scattered = time.perf_counter() - start
        maps.append(pool_map(socket))
        for client in clients:
            for number in range(0, GUARANTEE // SMALL, KEPT):
                if not (client.get(number) == content).all():
                    raise SystemExit(f"tensor {number} has changed")
            for number in range(ASKED):
                client.delete(f"block {number}")
        start = time.perf_counter()
        for client in clients:
            for number in range(ASKED):
                client.create(f"again {number}", BLOCK).release()
        free = time.perf_counter() - start
        figures = metrics(process).items()
        moved = sum(value for name, value in figures if name.startswith("tierd_compaction_moved_bytes"))
        for client in clients:
            client.close()
    return Round(scattered, free, moved, refused, maps)


def compaction(report: Report, quick: bool) -> None:
    rounds = [compacted() for _ in range(2 if quick else 10)]
    for when, picture in zip(("before", "after"), rounds[0].maps, strict=True):
        print(f"  tierctl pool map, {when} compaction:\n{picture}", flush=True)
    report.add(
        f"{len(JOBS) * ASKED} whole blocks for three jobs that have one small tensor of {KEPT} left, no SSD: refused",
        max(each.refused for each in rounds),
        "of them",
        at_most=0,
        detail={"maps": rounds[0].maps},
        ceiling=f"{statistics.median(each.scattered for each in rounds) * 1e3:.0f} ms for all, "
        f"{statistics.median(each.moved for each in rounds) / MIB:.0f} MiB moved; from free blocks "
        f"{statistics.median(each.free for each in rounds) * 1e3:.0f} ms",
    )
