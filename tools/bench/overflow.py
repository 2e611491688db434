"""What it costs to know whether a gradient is finite: the copy into tierd that checks, less the copy that does not,
beside DeepSpeed's check, which asks isinf and isnan of the whole flat buffer.

Run as a program, this is the process that owns the buffer: it does what the lines on its stdin say.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from node import GIB, MIB, daemon, program
from report import Report, interval

TIME, MEMORY = 0.1, 1.01  # Of DeepSpeed's check, and of the buffer's bytes.
SAMPLES_PER_SECOND = 1000
PASSES = ("unchecked", "checked", "isinf + isnan")


def overflow_check(report: Report, quick: bool) -> None:
    size = 128 * MIB if quick else 512 * MIB
    # The arena holds the copy and its successor, so that neither waits for the SSD.
    with daemon(arena=size * 5 // 2 + 128 * MIB, tier=2 * GIB, prefault=True) as (process, _):
        owner = program(__file__, str(process.directory / "tierd.sock"), size)
        for verb in PASSES:
            owner(verb)
        times: dict[str, list[float]] = {verb: [] for verb in PASSES}
        for number in range(6 if quick else 30):
            for verb in [*PASSES[number % 3 :], *PASSES[: number % 3]]:
                times[verb].append(owner(verb))
        peaks = {verb: 1 + owner(f"memory of {verb}") / size for verb in PASSES}
        owner.close()
    add_rows(report, size, times, peaks)


def add_rows(report: Report, size: int, times: dict[str, list[float]], peaks: dict[str, float]) -> None:
    extra = [with_it - without for with_it, without in zip(times["checked"], times["unchecked"], strict=True)]
    ratios = [each / theirs for each, theirs in zip(extra, times["isinf + isnan"], strict=True)]
    medians = {verb: 1e3 * statistics.median(each) for verb, each in times.items()}
    words = ", ".join(f"{verb} {median:.0f} ms" for verb, median in medians.items())
    what = f"overflow check of {size // MIB} MiB of fp32"
    report.add(
        f"{what}: the copy with it, less the copy without", statistics.median(ratios), "of DeepSpeed's check",
        at_most=TIME, ceiling=f"{words}; {interval(ratios)}",
    )  # fmt: skip
    report.add(
        f"{what}: memory", peaks["checked"], "× the buffer", at_most=MEMORY,
        ceiling=f"isinf + isnan {peaks['isinf + isnan']:.2f} ×; the copy without {peaks['unchecked']:.2f} ×",
    )  # fmt: skip


def private_bytes() -> int:
    """Anonymous memory of this process: the arena, which holds the copy, is not."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no RssAnon")


def growth(work: Callable[[], object]) -> int:
    """By how much this process grows while it works, sampled."""
    before, most, ended = private_bytes(), 0, threading.Event()

    def sample() -> None:
        nonlocal most
        while not ended.wait(1 / SAMPLES_PER_SECOND):
            most = max(most, private_bytes() - before)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        work()
    finally:
        ended.set()
        thread.join()
    return most


def main() -> None:
    import torch

    import tierd
    import tierd.torch

    socket, size = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(2)
    tierd.torch.return_freed_memory()
    client = tierd.connect(job="overflow", socket=socket, copy_threads=2)
    flat = torch.randn(size // 4, generator=torch.Generator().manual_seed(0))

    def peers_check() -> bool:
        return bool(torch.isinf(flat).any()) or bool(torch.isnan(flat).any())

    def checked() -> None:
        figures = client.start_put("gradient", flat).wait()
        assert figures.non_finite == 0

    passes: dict[str, Callable[[], Any]] = {
        "unchecked": lambda: client.put("gradient", flat, replace=True),
        "checked": checked,
        "isinf + isnan": peers_check,
    }
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        verb = line.strip()
        if verb.startswith("memory of "):
            value: float = growth(passes[verb.removeprefix("memory of ")])
        else:
            began = time.perf_counter()
            passes[verb]()
            value = time.perf_counter() - began
        print(json.dumps({verb: value}), flush=True)
    client.close()


if __name__ == "__main__":
    main()
