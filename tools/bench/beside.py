"""This build beside another version's: every figure of both in turn.

Two daemons live at once, and the one that is not measured is stopped. A daemon that spins would take a stop for the
loss of its processor and sleep for a while: such daemons are started for each measurement. How fast a daemon is depends
on where its memory and its file lie, by a fifth from start to start: others are started several times, each build first
in half of them.

A row is the median of the ratios of the rounds, with its 95 % interval: that of the order statistics between which the
median lies with this probability (the binomial distribution of how many of the rounds are below it). No assumption is
made about how the rounds are distributed.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import pathlib
import statistics
from collections.abc import Callable
from typing import Any

import fio
from hand_over import hand_over
from node import BUILD, GIB, MIB, Shell, bench, command, daemon, running, stopped
from report import Report, interval_of_median

from tierd.daemon import Daemon

Pairs = dict[str, list[tuple[float, float]]]  # By name: figures of this build and of the other, one pair a round.
STARTS = 6
TIME_MOST = 1.03  # Of the other version's time, for what takes processor time alone.


class Pair:
    """Both daemons, this build's first; stopped except the one that is being measured.

    `other_first`: the other's is started first, so that its file lies where this build's would.
    """

    def __init__(
        self, stack: contextlib.ExitStack, other: pathlib.Path, other_first: bool = False, **settings: Any
    ) -> None:
        self.first = 1 if other_first else 0  # Whose memory and places on the device are taken first, too.
        self.daemons: list[Daemon] = []
        self.files: list[pathlib.Path] = []
        for build in (other, BUILD) if other_first else (BUILD, other):
            process, path = stack.enter_context(daemon(build=build, **settings))
            stack.enter_context(stopped(process))
            self.daemons.append(process)
            self.files.append(path)
        if other_first:
            self.daemons.reverse()
            self.files.reverse()

    def measure(self, rounds: int, part: Callable[[int], dict[str, float]]) -> Pairs:
        def run(arm: int) -> dict[str, float]:
            with running(self.daemons[arm]):
                return part(arm)

        return in_turn(rounds, run, self.first)

    def part(self, name: str, figures: dict[str, str], **options: Any) -> Callable[[int], dict[str, float]]:
        return lambda arm: medians(self.daemons[arm], name, figures, **options)


def medians(process: Daemon, part: str, figures: dict[str, str], **options: Any) -> dict[str, float]:
    """A part of tier_bench: the medians of these of its figures, by what they are called here."""
    all_of_them = bench(process, part, **options)
    return {what: all_of_them[figure]["median"] for figure, what in figures.items()}


def in_turn(rounds: int, part: Callable[[int], dict[str, float]], first: int = 0) -> Pairs:
    """part(0) and part(1) in each round, beginning with another one each time; pairs of their figures by name."""
    pairs: Pairs = {}
    for number in range(rounds):
        figures: list[dict[str, float]] = [{}, {}]
        for arm in (0, 1) if (number + first) % 2 == 0 else (1, 0):
            figures[arm] = part(arm)
        for name, value in figures[0].items():
            pairs.setdefault(name, []).append((value, figures[1][name]))
    return pairs


def add_rows(report: Report, pairs: Pairs, rates: bool, at_most: float | None) -> None:
    """Rows of time: for rates, the other's over ours."""
    for what, each in pairs.items():
        ratios = [theirs / ours if rates else ours / theirs for ours, theirs in each]
        low, high = interval_of_median(ratios)
        report.add(
            what,
            statistics.median(ratios),
            "of the other's time",
            at_most=at_most,
            detail={"pairs": each},
            ceiling=f"95 % interval {low:.3f}–{high:.3f} of {len(each)} pairs; "
            f"{statistics.median(ours for ours, _ in each):.3g} beside {statistics.median(its for _, its in each):.3g}",
        )


def in_starts(starts: int, rounds: int, part: Callable[[bool, int], Pairs]) -> Pairs:
    """part(other_first, rounds of this start) for each start; all of their pairs by name."""
    pairs: Pairs = {}
    for start in range(starts):
        each = rounds // starts + (1 if start < rounds % starts else 0)
        for name, found in part(start % 2 == 1, each).items() if each else ():
            pairs.setdefault(name, []).extend(found)
    return pairs


def swaps_in_ram(report: Report, other: pathlib.Path, rounds: int) -> None:
    for size in (64 * MIB, 256 * MIB, GIB):

        def measure(other_first: bool, rounds: int, size: int = size) -> Pairs:
            name = f"{size // MIB}MiB"
            figures = {f"swap_{way}_ram_{name}": f"swap_{way} {name} in RAM" for way in ("out", "in")}
            with contextlib.ExitStack() as stack:
                pair = Pair(stack, other, other_first, arena=size * 5 // 2 + 128 * MIB, tier=2 * GIB, prefault=True)
                return pair.measure(rounds, pair.part("swap-ram", figures, bytes=size, rounds=3))

        add_rows(report, in_starts(STARTS, rounds, measure), True, TIME_MOST)


def leases(report: Report, other: pathlib.Path, rounds: int) -> None:
    busy = {"acquire_release_busy": "acquire(read) + release, spin = always, p50"}
    rate = {
        "batched_acquire_release": "batched acquire(read) + release of 64 KiB tensors",
        "batched_create_seal": "batched create + seal of 64 KiB tensors",
    }

    def spinning(part: str, figures: dict[str, str], **options: Any) -> Pairs:
        def run(arm: int) -> dict[str, float]:
            with daemon(arena=GIB, tier=2 * GIB, spin="always", build=(BUILD, other)[arm]) as (process, _):
                return medians(process, part, figures, spin="always", **options)

        return in_turn(rounds, run)

    add_rows(report, spinning("lease-busy", busy, count=200_000), False, TIME_MOST)
    add_rows(report, spinning("lease-rate", rate, rounds=9, count=200), True, TIME_MOST)

    def from_idle(other_first: bool, rounds: int) -> Pairs:
        cpus = sorted(os.sched_getaffinity(0))
        idle = {"acquire_release_idle": "the same from idle, p50"}
        with contextlib.ExitStack() as stack:
            pair = Pair(stack, other, other_first, arena=256 * MIB, tier=2 * GIB, spin="never")
            for process in pair.daemons:
                for task in pathlib.Path(f"/proc/{process.process.pid}/task").iterdir():
                    os.sched_setaffinity(int(task.name), {cpus[-1]})
            part = pair.part("lease-idle", idle, count=100, spin="never", cpu=cpus[0], peer_cpu=cpus[-1])
            return pair.measure(rounds, part)

    add_rows(report, in_starts(2 * STARTS, 3 * rounds, from_idle), False, TIME_MOST)


def swaps_through_ssd(report: Report, other: pathlib.Path, rounds: int) -> None:
    """Where a file lies on a disk changes its rate by a tenth, for as long as it is there: whose is written first, has
    the slower one here. So each pair is of two rounds, with this build's file first and with the other's: their
    geometric means.
    """
    for size in (4 * MIB, 64 * MIB, 256 * MIB, GIB):
        pairs: Pairs = {}
        for _ in range(3):
            halves = [swaps_of(size, other, -(-rounds * 4 // 15), other_first) for other_first in (False, True)]
            for name, each in halves[0].items():
                pairs.setdefault(name, []).extend(
                    (math.sqrt(ours * our_other), math.sqrt(theirs * their_other))
                    for (ours, theirs), (our_other, their_other) in zip(each, halves[1][name], strict=True)
                )
        add_rows(report, pairs, True, None)


def swaps_of(size: int, other: pathlib.Path, rounds: int, other_first: bool) -> Pairs:
    total = 2 * GIB
    with contextlib.ExitStack() as stack:
        tier = 2 * total + GIB
        pair = Pair(stack, other, other_first, arena=total // 8, tier=tier)
        if fio.available():  # Written once all over: both work on blocks of the same state.
            with fio.make_buffers() as buffers:
                for path in reversed(pair.files) if other_first else pair.files:
                    fio.run(path, "write", tier - fio.OFFSET - 64 * MIB, fio.Shape(4096, 8, 1), buffers)
        shells: list[Shell] = []
        for process in reversed(pair.daemons) if other_first else pair.daemons:
            with running(process):
                shells.append(Shell(command(process, "ssd", bytes=size, total=total)))
        if other_first:
            shells.reverse()

        def swap(arm: int) -> dict[str, float]:
            written, read = shells[arm]("write"), shells[arm]("read")
            shells[arm]("free")
            name = f"{size // MIB} MiB"
            return {f"swap_out until on the device, {name}": written, f"swap_in from the device, {name}": read}

        pairs = pair.measure(rounds, swap)
        for process, shell in zip(pair.daemons, shells, strict=True):
            with running(process):
                shell.close()
        return pairs


def _of_arm(other: pathlib.Path, clean: bool, arm: int) -> dict[str, float]:
    return hand_over((BUILD, other)[arm], clean)


def sparse_borrower(report: Report, other: pathlib.Path, rounds: int) -> None:
    for clean in (False, True):
        pairs = in_turn(rounds, functools.partial(_of_arm, other, clean))
        state = "clean" if clean else "dirty"
        written = [statistics.median(its) for its in zip(*pairs.pop("written"), strict=True)]
        report.note(f"sparse borrower, {state}", {"MiB written to SSD": f"{written[0]:.3g} beside {written[1]:.3g}"})
        named = {f"half of the arena from a sparse borrower, {state}: {what}": its for what, its in pairs.items()}
        add_rows(report, named, False, None)


PARTS = {"ram": swaps_in_ram, "leases": leases, "ssd": swaps_through_ssd, "hand-over": sparse_borrower}


def compare(report: Report, other: pathlib.Path, only: list[str] | None, quick: bool) -> int:
    if not (other / "daemon/tierd").exists():
        raise SystemExit(f"--beside: {other} is no build: it has no daemon/tierd")
    try:
        for name, part in PARTS.items():
            if only and name not in only:
                continue
            print(f"{name}, beside {other}:", flush=True)
            part(report, other, 5 if quick else 25)
    finally:
        report.show()
    return 0
