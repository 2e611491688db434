"""SSD devices that are full, or whose free space lies in holes: everything that was accepted is read back.

Tensors are put until one is refused; then each is read and compared. RAM holds a part of them only, so every read
exchanges pieces with devices that have room for hardly one more.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import numpy.typing as npt
from node import LISTENING, MIB, daemon, metrics
from report import Report

import tierd

Bytes = npt.NDArray[np.uint8]

LARGE, SMALL = 2 * MIB, 4096
DEADLINE = 60.0  # Seconds, of a request that names none.
ROUNDS = 2
REWRITTEN_WITHIN = 180.0  # Seconds.
SCATTERED = 'tierd_device_scattered_pieces{device="0"}'
REWRITTEN = 'tierd_device_rewritten_blocks_total{device="0"}'
WRITTEN = 'tierd_device_written_bytes_total{device="0"}'


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


def read_seconds(client: tierd.Client, names: list[str], others: list[str]) -> float:
    """The median of a read from the device: the others have pushed these out of RAM."""
    for name in others:
        client.get(name)
    seconds = []
    for name in names:
        begin = time.monotonic()
        client.get(name)
        seconds.append(time.monotonic() - begin)
    return statistics.median(seconds)


def rewritten(report: Report, count: int) -> None:
    """`count` tensors of 4 KiB, every other one freed: tensors of 2 MiB in such holes, until blocks are rewritten."""
    with (
        daemon(arena=16 * MIB, tier=256 * MIB, more=LISTENING) as (process, _),
        tierd.connect(job="holes", socket=process.directory / "tierd.sock") as client,
    ):
        whole = [f"whole{number}" for number in range(16)]
        for number, name in enumerate(whole):
            client.put(name, pattern(number, LARGE))
        for number in range(count):
            client.put(number, pattern(number, SMALL))
        client.flush()
        client.delete(*range(0, count, 2))
        names: list[str] = []
        while not metrics(process)[SCATTERED]:  # Until no block is free.
            names.append(f"large{len(names)}")
            client.put(names[-1], pattern(len(names), LARGE))
            client.flush()
        written = metrics(process)[WRITTEN]
        names = [names[-1], *(f"scattered{number}" for number in range(7))]
        for name in names[1:]:
            client.put(name, pattern(0, LARGE))
        client.flush()
        scattered = metrics(process)[SCATTERED]
        in_holes_seconds = read_seconds(client, names, whole)
        begin = time.monotonic()
        while metrics(process)[SCATTERED] and time.monotonic() - begin < REWRITTEN_WITHIN:
            time.sleep(0.5)
        waited = time.monotonic() - begin
        in_one_seconds = read_seconds(client, names, whole)
        bare_seconds = read_seconds(client, whole[:8], names + whole[8:])
        figures = metrics(process)
        wrong = sum(not np.array_equal(client.get(number), pattern(number, SMALL)) for number in range(1, count, 2))
    report.add(
        "2 MiB in holes of 4 KiB, once blocks were rewritten: read",
        in_one_seconds / bare_seconds,
        "of one that never lay in holes",
        at_most=1.2,
        ceiling=f"{in_one_seconds * 1e3:.2f}; in holes {in_holes_seconds * 1e3:.2f}, never {bare_seconds * 1e3:.2f} "
        f"ms; {scattered:.0f} pieces lay in holes, {figures[SCATTERED]:.0f} after {waited:.0f} s; "
        f"{figures[REWRITTEN]:.0f} blocks rewritten, {(figures[WRITTEN] - written) / MIB:.0f} MiB written",
    )
    report.add("2 MiB in holes of 4 KiB: small tensors that cannot be read", wrong, "", at_most=0)


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
    rewritten(report, 20_000 if quick else 40_000)
    to_the_last_page(report, 1)
    to_the_last_page(report, 2)
