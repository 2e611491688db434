"""Leases of tensors in RAM while another job swaps through the SSD at full rate: whether a hit waits for a device.

They lie within their job's equal part, so they stay in RAM. On few processors a hit also waits for the processor that
the swapping uses. So the row is a ratio to the same leases beside processes that do nothing but use as much processor
time.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Iterator

from burner import burning
from footprint import cpu_seconds
from node import GIB, MIB, Shell, command, daemon
from report import Report, paired, quartiles

TENSOR = 64 * MIB  # Of the job that swaps.
DATA = GIB  # That it has, four times its arena.
BESIDE_BURNER = 1.5


@contextlib.contextmanager
def swapping(swapper: Shell) -> Iterator[None]:
    """Everything out, everything in, again and again."""
    ended = threading.Event()

    def swap() -> None:
        while not ended.is_set():
            swapper("write")
            swapper("read")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        time.sleep(0.2)  # Until it is under way.
        yield
    finally:
        ended.set()
        thread.join()


def hits(report: Report, quick: bool) -> None:
    rounds = 3 if quick else 12
    times: dict[str, list[float]] = {"alone": [], "swap": [], "burn": []}
    cores = []
    with daemon(arena=DATA // 4, tier=4 * GIB) as (process, _):
        reader = Shell(command(process, "lease-shell", count=2000))
        swapper = Shell(command(process, "ssd", bytes=TENSOR, total=DATA))
        pids = (process.process.pid, swapper.process.pid)

        def used() -> float:
            return sum(map(cpu_seconds, pids))

        for _ in range(rounds):
            times["alone"].append(reader("hits"))
            with swapping(swapper):
                begin, before = time.monotonic(), used()
                times["swap"].append(reader("hits"))
                cores.append((used() - before) / (time.monotonic() - begin))
            with burning(cores[-1]):
                times["burn"].append(reader("hits"))
        for each in (reader, swapper):
            each.close()
    ratio = paired(times["swap"], times["burn"])
    median = {name: statistics.median(values) for name, values in times.items()}
    report.add(
        "acquire + release in RAM while another job swaps, p99",
        ratio["median"],
        "of beside a burner",
        at_most=BESIDE_BURNER,
        ceiling=f"{median['swap']:.0f} µs; burner of {statistics.median(cores):.2f} processors {median['burn']:.0f}, "
        f"alone {median['alone']:.0f}; {quartiles(ratio)} of {rounds} rounds",
    )
