"""What a step takes here at the least, measured: plain torch, while threads move the bytes of tierd's step and compute
their checksums, and do nothing else.

The phase bound adds up what both take alone. This says how much of it two processors can keep: a kernel of torch splits
its work among all of them in equal parts, so what one of them does meanwhile is waited for by the other.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import fio
import phase_bound
from models import MODELS
from node import BUILD
from phase_bound import Disk
from report import Report, interval
from train import PLAIN_BYTES, Bound, add_losses, in_words
from trainer import Arm, Plan, available_memory, started, take_turns, tier_bytes

UPDATE = "backward"
OURS = f"tierd {UPDATE}"
BESIDE, RETURNED = "plain beside bare moves", "the same, freed memory returned"


def floor_of_step(report: Report, quick: bool, name: str = "121M") -> None:
    model = MODELS[name]
    memory = PLAIN_BYTES * model.parameters
    if 3 * memory > available_memory():
        print(f"  skipped: {name}: needs {3 * memory / 1e9:.1f} GB of memory", flush=True)
        return
    with phase_bound.disk(quick) as disk:
        moves = f"--moves={chr(10).join(command(disk))}"
        plans = [
            Plan("plain", "plain", model, memory=memory),
            Plan(OURS, "tierd", model, (f"--update={UPDATE}",), tier=tier_bytes(model.parameters, UPDATE, model.item)),
            Plan(BESIDE, "beside", model, (moves,), memory=memory),
            Plan(RETURNED, "beside", model, (moves, "--returned"), memory=memory),
        ]
        with started(plans, report) as arms:
            if len(arms) < len(plans):
                return
            plain, ours, *floors = arms
            for arm in floors:
                arm.beside = ours
            bound = Bound(disk, [ours], plain)
            take_turns(arms, 5 if quick else 15, report, between=bound.measure)
            add_rows(report, name, ours, floors, bound)
            for arm in arms[1:]:
                add_losses(report, f"{name}, {arm.name}", arm.figures.bits, plain.figures.bits)


def command(disk: Disk) -> list[str]:
    program = BUILD / "tools/bench/tier_bench"
    return [str(program), "bare-moves", f"--file={disk.path}", f"--offset={fio.OFFSET}", f"--total={disk.size}"]


def add_rows(report: Report, name: str, ours: Arm, floors: Sequence[Arm], bound: Bound) -> None:
    steps = bound.phases[ours.name]
    least = [sum(phase.bound for phase in step) for step in steps]
    spread = bound.spread()
    quotable = spread <= phase_bound.SPREAD_MAX
    report.add(
        f"{name}: fio between the steps, third quartile over first", spread, "×", at_most=phase_bound.SPREAD_MAX,
        quotable=quotable,
    )  # fmt: skip
    for arm in (ours, *floors):
        ratios = [seconds / each for seconds, each in zip(arm.figures.seconds, least, strict=True)]
        phases = " + ".join(f"{statistics.median(each):.2f}" for each in zip(*arm.figures.phases, strict=True))
        report.add(
            f"{name}, {arm.name}: step", statistics.median(ratios), "of the phase bound", quotable=quotable,
            ceiling=f"{arm.figures.step:.2f} s = {phases}; bound {statistics.median(least):.2f} s = {in_words(steps)}; "
            f"{interval(ratios)}",
        )  # fmt: skip
    for arm in floors:
        ratios = [one / other for one, other in zip(ours.figures.seconds, arm.figures.seconds, strict=True)]
        report.add(
            f"{name}, {ours.name}: step", statistics.median(ratios), f"of {arm.name}", quotable=quotable,
            ceiling=interval(ratios),
        )  # fmt: skip
