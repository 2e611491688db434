"""Swaps through the SSD beside fio, and beside DeepSpeed's handle where --peers asks for it, on the same disk."""

from __future__ import annotations

import pathlib
import statistics
from collections.abc import Callable

import fio
import peers
from buffers import Buffers
from footprint import cpu_seconds
from node import GIB, MIB, Shell, command, daemon
from report import Report, paired, quartiles, turn

Arms = dict[str, Callable[[str], float]]  # Each measures a direction, "write" or "read", in GB/s.
# Copies, checksums and moves chunks: the least work that keeps a checked copy of a tensor.
BARE = "bare copy"
Rates = dict[str, dict[str, list[float]]]  # By arm and direction, one a round.


def swaps_through_ssd(report: Report, quick: bool, with_peers: bool = False) -> None:
    if not fio.available():
        print("  skipped: needs fio", flush=True)
        return
    with fio.make_buffers() as buffers:
        beside_fio(report, quick, with_peers, buffers)


def beside_fio(report: Report, quick: bool, with_peers: bool, buffers: Buffers) -> None:
    total = GIB if quick else 4 * GIB
    sizes = (4 * MIB, 64 * MIB, GIB // 2) if quick else (2 * MIB, 4 * MIB, 64 * MIB, 256 * MIB, GIB)
    shapes: dict[str, fio.Shape] = {}
    for size in sizes:
        # The data is eight times the arena: next to nothing can be served from RAM.
        tier = total * 2 + GIB
        with daemon(arena=total // 8, tier=tier) as (process, path):
            tierd = Shell(command(process, "ssd", bytes=size, total=total))
            # Written once all over: all arms then work on blocks of the same state.
            fio.run(path, "write", tier - fio.OFFSET - 64 * MIB, fio.Shape(4096, 8, 1), buffers)
            if not shapes:
                shapes = choose_shapes(report, path, min(total, GIB), buffers, rounds=1 if quick else 3)
            arms: Arms = {"tierd": tierd, "fio": fio.Arm(path, total, shapes, buffers)}
            bare = Shell(command(process, "bare-copy", bytes=size, total=total, file=path, offset=fio.OFFSET))
            arms[BARE] = bare
            peer = peers.DeepSpeed(path, size, total, quick) if with_peers else None
            if peer is not None:
                arms["DeepSpeed"] = peer
            used = Processor(process.process.pid, total)
            rates = alternate(arms, tierd, used, rounds=3 if quick else 20)
            for shell in (tierd, bare, peer):
                if shell is not None:
                    shell.close()
        for direction, verb in (("write", "swap_out until on the device"), ("read", "swap_in from the device")):
            what = f"{verb}, {size // MIB} MiB"
            pair = {arm: rates[arm][direction] for arm in ("tierd", "fio")}
            add_ratio(report, what, pair, 0.90 if size >= 4 * MIB else None, buffers.kind)
            each = used.seconds[direction]
            report.add(
                f"processor time of the daemon for each GB, {verb.split()[0]} of {size // MIB} MiB",
                statistics.median(each),
                "core·s",
                at_most=0.16,
                ceiling=f"{min(each):.3f}–{max(each):.3f} in {len(each)} rounds, checksums included",
            )
            alone = f"copy, CRC32C and O_DIRECT {direction} alone, {size // MIB} MiB"
            shape = str(bare.ready["shape"])
            add_ratio(report, what, {arm: rates[arm][direction] for arm in ("tierd", BARE)}, None, shape)
            add_ratio(report, alone, {arm: rates[arm][direction] for arm in (BARE, "fio")}, None, shape)
            if peer is not None:
                pair = {arm: rates[arm][direction] for arm in ("tierd", "DeepSpeed")}
                add_ratio(report, what, pair, 1.0, peer.shape)
                pair = {arm: rates[arm][direction] for arm in (BARE, "DeepSpeed")}
                add_ratio(report, alone, pair, None, shape)


def choose_shapes(
    report: Report, path: pathlib.Path, total: int, buffers: Buffers, rounds: int
) -> dict[str, fio.Shape]:
    shapes = {}
    for direction in ("write", "read"):
        shapes[direction], rate = fio.best_shape(path, direction, total, buffers, rounds)
        report.add(f"fio {direction}, best shape {shapes[direction]}", rate, "GB/s", ceiling=buffers.kind)
    return shapes


class Processor:
    """Processor time that the daemon takes for each GB of a pass, in core seconds, by direction."""

    def __init__(self, pid: int, total: int) -> None:
        self.pid, self.total = pid, total
        self.seconds: dict[str, list[float]] = {"write": [], "read": []}

    def measure(self, arm: Callable[[str], float], direction: str) -> float:
        before = cpu_seconds(self.pid)
        rate = arm(direction)
        self.seconds[direction].append((cpu_seconds(self.pid) - before) / (self.total / 1e9))
        return rate


def alternate(arms: Arms, tierd: Shell, used: Processor, rounds: int) -> Rates:
    """Each round measures every arm once in each direction, beginning with another arm each time. The others write only
    while no tensor lives, since they write into the daemon's file."""
    rates: Rates = {name: {"write": [], "read": []} for name in arms}
    for number in range(rounds):
        order = turn(list(arms), number)
        for name in order:
            if name == "tierd":
                for direction in ("write", "read"):
                    rates[name][direction].append(used.measure(tierd, direction))
                tierd("free")
            else:
                rates[name]["write"].append(arms[name]("write"))
        for name in order:
            if name != "tierd":
                rates[name]["read"].append(arms[name]("read"))
    return rates


def add_ratio(report: Report, what: str, pair: dict[str, list[float]], at_least: float | None, how: str) -> None:
    """The first arm's rates over those of the second, round by round."""
    (arm, ours), (beside, theirs) = pair.items()
    ratio = paired(ours, theirs)
    report.add(
        what,
        ratio["median"],
        f"of {beside}",
        at_least=at_least,
        detail={"pairs": list(zip(ours, theirs, strict=True))},
        ceiling=f"{arm} {statistics.median(ours):.2f} GB/s, {beside} {statistics.median(theirs):.2f} ({how}); "
        f"{quartiles(ratio)}, {len(ours)} pairs",
    )
