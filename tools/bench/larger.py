"""A model that is far larger than this machine's memory: made in tierd, trained for three steps, all of it on SSD.

Nothing else could train it here, so what its phases compute is that of one of its blocks in plain torch, for each
parameter. It says first what it will write, and is skipped where the disk has no room.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics

import phase_bound
from models import MODELS, Model
from node import GIB, MIB
from phase_bound import Phase
from report import Report
from train import PHASE_NAMES, add_bytes, in_words, plot, two_phases
from trainer import Arm, Plan, Room, alone, started, take_turns

STEPS = 3
PEAK, BYTES, STEP_OF_BOUND = 4.0, 14.5, 1.2  # GiB in all; SSD bytes of a parameter and step; of the bound.
ELEMENTS = 3  # Of each parameter: its value and two moments.


def larger_than_memory(report: Report, name: str, arena: int | None = None) -> None:
    model = MODELS[name]
    plan = plan_of(name, model, arena)
    states = ELEMENTS * model.item * model.parameters
    first = model.item * model.parameters + STEPS * states
    print(
        f"  {name}: {model.parameters / 1e9:.2f} B parameters, {states / 1e9:.1f} GB with states, in an SSD file of "
        f"{plan.tier / GIB:.0f} GiB; will write {first / 1e9:.0f} GB: {model.item * model.parameters / 1e9:.1f} GB to "
        f"make it, {states / 1e9:.1f} GB in each of {STEPS} steps",
        flush=True,
    )
    if why := lacks(plan):
        print(f"  skipped: {name}: {why}", flush=True)
        return
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(phase_bound.disk(quick=False))
        compute = compute_of(model, report)
        arms = stack.enter_context(started([plan], report))
        if not arms:
            return
        (arm,) = arms
        steps = []
        for _ in range(STEPS):
            arm.step(sampled=True, timed=True)
            with alone(None, arms):
                moved = two_phases(arm.figures.bytes[-1])
                steps.append(
                    [
                        Phase(seconds, read, written, disk.rate(phase, read, written))
                        for phase, seconds, (read, written) in zip(PHASE_NAMES, compute, moved, strict=True)
                    ]
                )
        add_rows(report, name, arm, steps)
        plot(report, name, arms, [plan.name])


def plan_of(name: str, model: Model, arena: int | None = None) -> Plan:
    """An SSD file for the states and a sixth as much, in whole GiB; without a word of its own, an ``arena`` for the
    largest parameter and what is updated beside it."""
    largest = model.largest * model.item
    tier = -(-7 * model.item * model.parameters // (2 * GIB)) * GIB + (GIB if model.parameters < 1e9 else 0)
    return Plan(
        f"tierd {name}", "tierd", model, ("--update=backward", "--create"),
        arena=arena or (largest * 5 // 4 + 64 * MIB) // MIB * MIB, tier=tier, disk=tier + 3 * GIB,
        memory=min(int(PEAK * GIB), 8 * model.item * model.parameters),
    )  # fmt: skip


def lacks(plan: Plan) -> str:
    """Also room for the block that is measured in plain torch, which ends before the model is made."""
    return Room().take(block_plan(plan.model)) or Room().take(plan)


def block_plan(model: Model) -> Plan:
    one = dataclasses.replace(model, layers=1, vocabulary=256)
    return Plan("one block in plain torch", "plain", one, memory=5 * one.item * one.parameters)


def compute_of(model: Model, report: Report) -> tuple[float, float]:
    """Seconds that forward, and backward and update, would compute: those of one block, by the parameters that each
    multiplies, or updates."""
    with started([block_plan(model)], report) as arms:
        (arm,) = arms
        take_turns(arms, 4, report)
        forward, backward, update = (statistics.median(each) for each in zip(*arm.figures.phases, strict=True))
        small = arm.model
    multiplied = (model.parameters - model.vocabulary * model.width) / (
        small.parameters - small.vocabulary * small.width
    )
    return forward * multiplied, backward * multiplied + update * model.parameters / small.parameters


def add_rows(report: Report, name: str, arm: Arm, steps: list[list[Phase]]) -> None:
    figures = arm.figures
    peak = max(size for _, size in arm.memory)
    report.add(
        f"{name}: peak, from making it to the last step", peak / GIB, "GiB", at_most=PEAK,
        ceiling=f"arena {arm.plan.arena / GIB:.2f} GiB; {arm.model.parameters / 1e9:.2f} B parameters",
    )  # fmt: skip
    # The first step makes the moments, which it does not read.
    later = dataclasses.replace(
        figures, read=figures.read[1:], written=figures.written[1:], activations=figures.activations[1:]
    )
    add_bytes(report, name, later, BYTES)
    bounds = [sum(phase.bound for phase in step) for step in steps]
    ratios = [seconds / bound for seconds, bound in zip(figures.seconds, bounds, strict=True)]
    seconds = ", ".join(f"{each:.1f}" for each in figures.seconds)
    report.add(
        f"{name}: step", statistics.median(ratios[1:]), "of the phase bound", at_most=STEP_OF_BOUND,
        ceiling=f"{seconds} s; bound {statistics.median(bounds[1:]):.1f} s = {in_words(steps[1:])}",
        detail={"ratios": ratios, "seconds": figures.seconds, "bounds": bounds},
    )  # fmt: skip
    wear = statistics.median(figures.written[1:]) * arm.model.parameters / statistics.median(figures.seconds[1:])
    report.add(f"{name}: SSD wear", wear * 86400 / 1e12, "TB a day")
