"""SSD devices that are full, or whose free space lies in holes: everything that was accepted is read back.

Tensors are put until one is refused; then each is read and compared. RAM holds a part of them only, so every read
exchanges pieces with devices that have room for hardly one more.
"""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt
from node import MIB, daemon
from report import Report

import tierd

Bytes = npt.NDArray[np.uint8]

LARGE, SMALL = 2 * MIB, 4096
DEADLINE = 60.0  # Seconds, of a request that names none.
ROUNDS = 2


def pattern(number: int, size: int) -> Bytes:
    return np.full(size, number % 251, np.uint8)


def put_until_refused(client: tierd.Client, prefix: str) -> int:
    """How many tensors of LARGE bytes were accepted."""
    for number in range(1 << 20):
        try:
            client.put(f"{prefix}{number}", pattern(number, LARGE))
        except tierd.NoSpace:
            return number
    raise AssertionError("nothing was refused")


class Reads:
    """Reads tensors back, and notes how long each takes and how many are not what was put."""

    def __init__(self) -> None:
        self.count = self.lost = 0
        self.longest = 0.0

    def all_of(self, client: tierd.Client, prefix: str, count: int) -> None:
        for number in range(count):
            begin = time.monotonic()
            try:
                right = bool(np.array_equal(client.get(f"{prefix}{number}"), pattern(number, LARGE)))
            except tierd.Error:
                right = False
            self.longest = max(self.longest, time.monotonic() - begin)
            self.count += 1
            self.lost += not right

    def show(self, report: Report, what: str, note: str) -> None:
        report.add(f"{what}: tensors that cannot be read", self.lost, "", at_most=0, ceiling=note)
        report.add(f"{what}: longest read of 2 MiB", self.longest, "s", at_most=DEADLINE, ceiling=f"{self.count} reads")


def in_holes(report: Report, count: int) -> None:
    """`count` tensors of 4 KiB, every other one freed; then another job fills what is left."""
    with daemon(arena=64 * MIB, tier=256 * MIB) as (process, _):
        socket = process.directory / "tierd.sock"
        with tierd.connect(job="holes", socket=socket) as small, tierd.connect(job="large", socket=socket) as large:
            for number in range(count):
                small.put(number, pattern(number, SMALL))
            small.flush()
            small.delete(*range(0, count, 2))
            accepted = put_until_refused(large, "large")
            reads = Reads()
            for _ in range(ROUNDS):
                reads.all_of(large, "large", accepted)
            kept = sum(np.array_equal(small.get(number), pattern(number, SMALL)) for number in range(1, count, 2))
    holes = count // 2 * SMALL / MIB
    note = f"{accepted} tensors of 2 MiB were accepted beside {holes:.0f} MiB in holes of 4 KiB"
    reads.show(report, "free space in holes", note)
    report.add("free space in holes: small tensors that cannot be read", count // 2 - kept, "", at_most=0)


def to_the_last_page(report: Report, jobs: int) -> None:
    with daemon(arena=32 * MIB, tier=128 * MIB) as (process, _):
        socket = process.directory / "tierd.sock"
        clients = [tierd.connect(job=f"full{number}", socket=socket) for number in range(jobs)]
        accepted = [put_until_refused(client, "t") for client in clients]
        reads = Reads()
        for _ in range(ROUNDS):
            for client, count in zip(clients, accepted, strict=True):
                reads.all_of(client, "t", count)
        for client in clients:
            client.close()
    note = f"{' + '.join(map(str, accepted))} tensors of 2 MiB accepted with 32 MiB of RAM and 128 MiB of SSD"
    reads.show(report, f"a full tier, {jobs} job{'s' if jobs > 1 else ''}", note)


def full_devices(report: Report, quick: bool) -> None:
    in_holes(report, 10_000 if quick else 50_000)
    to_the_last_page(report, 1)
    to_the_last_page(report, 2)
