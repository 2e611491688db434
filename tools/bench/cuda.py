"""Swaps of a GPU's tensors while they stay in RAM, alternating with the copies of the driver alone: from and to pinned
memory of the same size, on one stream. And what the first copy pays to pin the windows. Needs a CUDA device.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from node import GIB, MIB, daemon
from report import Report, paired, quartiles, turn

import tierd

SIZES = (64 * MIB, 256 * MIB, GIB)
WINDOWS = ("2MiB", "64MiB")  # As small as this arena makes them, and as large as one of 128 GiB does.


def seconds(call: Callable[[], object]) -> float:
    import torch

    torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def swaps_of(size: int, window: str, report: Report, rounds: int) -> None:
    import torch

    tensor = torch.randint(256, (size,), dtype=torch.uint8, device="cuda")
    pinned = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    name = f"{size // MIB} MiB in windows of {window.replace('MiB', ' MiB')}"
    # Write-behind begins at half of the arena: this stays below it.
    with daemon(arena=size * 5 // 2 + 128 * MIB, tier=2 * GIB, prefault=True, window=window) as (process, _):
        client = tierd.connect(job="cuda", socket=str(process.directory / "tierd.sock"))
        first = seconds(lambda: client.put("key", tensor))
        calls: dict[str, Callable[[], object]] = {
            "out": lambda: client.put("key", tensor, replace=True),
            "in": lambda: client.get_into("key", tensor),
            "to pinned memory": lambda: pinned.copy_(tensor, non_blocking=True),
            "from pinned memory": lambda: tensor.copy_(pinned, non_blocking=True),
        }
        for call in calls.values():
            call()
        taken: dict[str, list[float]] = {name: [] for name in calls}
        for number in range(rounds):
            for each in turn(list(calls), number):
                taken[each].append(seconds(calls[each]))
        client.close()
    middle = statistics.median(taken["out"])
    report.add(f"the first swap_out of a GPU's {name}", (first - middle) * GIB / size, "s more per GiB")
    for ours, theirs in (("out", "to pinned memory"), ("in", "from pinned memory")):
        ratio = paired(taken[theirs], taken[ours])
        rates = [size / statistics.median(taken[arm]) / 1e9 for arm in (theirs, ours)]
        report.add(
            f"swap_{ours} of a GPU's {name}",
            ratio["median"],
            f"of a copy {theirs}",
            ceiling=f"the driver {rates[0]:.1f} GB/s, tierd {rates[1]:.1f}; {quartiles(ratio)}",
        )


def gpu_swaps(report: Report, quick: bool) -> None:
    import torch

    if not torch.cuda.is_available():
        return report.note("swaps of a GPU's tensors were not measured", {"reason": "needs a CUDA device"})
    for window in WINDOWS:
        for size in SIZES:
            swaps_of(size, window, report, 5 if quick else 21)
