"""Fine-tuning beside plain torch and DeepSpeed ZeRO-Infinity: one model, one machine, step by step in turn.

Each arm is a process that waits for its turn; the daemons of the others are stopped meanwhile. Between the steps of a
round, fio moves bytes at the mix of reads and writes that each phase of tierd's steps had: the bound of the step.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import pathlib
import statistics
from collections.abc import Iterable, Mapping, Sequence

import phase_bound
from models import ARENA, MODELS, UPDATES, Model
from phase_bound import Disk, Phase
from plots import write_plots
from report import Report, interval, paired, quartiles
from trainer import Arm, Figures, Plan, available_memory, started, take_turns, tier_bytes

from tierd.quantity import format_bytes

STEP_OF_BOUND, STEP_OF_PEER = 1.2, 0.55
DEFERRED_STEP = 0.8  # Of the step with updates in step(), where the phase bound allows it.
# Of SSD for a parameter and step, without activations: updated in backward, and with stored gradients.
IN_BACKWARD_BYTES, STORED_BYTES = 28.5, 40.8
# By model and arm: at most so much of that arm's memory.
MEMORY_OF_PEER = {
    "121M": {"DeepSpeed default": 0.05, "DeepSpeed tuned": 0.20},
    "353M": {"DeepSpeed default": 0.04, "DeepSpeed tuned": 0.15},
    "1.0B": {"DeepSpeed tuned": 0.15},
}
PLAIN_BYTES = 20  # Of memory for each parameter.
# Of memory: GB, and bytes for each parameter. Measured with 121 M, 353 M and 1.0 B parameters ("CPU": 3 M and 121 M),
# and rounded up. What is in memory comes last: where there is not enough, the others are compared.
PEER_MEMORY = {"default": (3.5, 39), "tuned": (3.0, 6.5), "pipelined": (3.3, 15), "CPU": (0.5, 43)}
IN_MEMORY = "DeepSpeed CPU"  # The arm without NVMe.
PLAIN_PARAMETERS_MAX = 500_000_000  # Plain torch trains no more: of larger models, a part of the blocks.
PLAIN_PART = 4
SECONDS_A_DAY = 86400


def plans(name: str, with_peers: bool, chosen: Sequence[str], memory: int, arena: int = ARENA) -> list[Plan]:
    """Plain torch and the ``chosen`` arms for a model, or all of them. Where it is too large for plain torch beside the
    others, and a part of its layers fits, it trains that. ``memory``: bytes that there are. ``arena``: tierd's."""
    model = MODELS[name]
    others = [plan for plan in beside_plain(model, with_peers, arena) if not chosen or plan.name in chosen]
    part = dataclasses.replace(model, layers=model.layers // PLAIN_PART)
    left = memory - sum(plan.memory for plan in others)
    makes_room = PLAIN_BYTES * part.parameters <= left < PLAIN_BYTES * model.parameters
    plain = part if model.parameters > PLAIN_PARAMETERS_MAX or makes_room else model
    return [Plan("plain", "plain", plain, memory=PLAIN_BYTES * plain.parameters), *others]


def beside_plain(model: Model, with_peers: bool, arena: int) -> list[Plan]:
    found = []
    for update in UPDATES:
        tier = tier_bytes(model.parameters, update, model.item)
        found.append(
            Plan(f"tierd {update}", "tierd", model, (f"--update={update}", "--create"), arena=arena, tier=tier)
        )
    for config, (fixed, each) in PEER_MEMORY.items() if with_peers else ():
        name = f"DeepSpeed {config}"
        found.append(
            Plan(
                name, "deepspeed", model, (f"--config={config}",),
                memory=int(fixed * 1e9 + each * model.parameters),
                disk=0 if name == IN_MEMORY else 17 * model.parameters,
            )
        )  # fmt: skip
    return found


class Bound:
    """The phase bound of each timed step of some arms. ``rates``: fio's GB/s, by arm and then by phase."""

    def __init__(self, disk: Disk, arms: Sequence[Arm], plain: Arm) -> None:
        self._disk, self._arms, self._plain = disk, arms, plain
        self.phases: dict[str, list[list[Phase]]] = {arm.name: [] for arm in arms}

    def measure(self) -> None:
        """After a round: fio at the mixes of its steps."""
        for arm in self._arms:
            scale = arm.model.layers / self._plain.model.layers
            forward, backward, update = (scale * seconds for seconds in self._plain.figures.phases[-1])
            deferred = arm.name.endswith("deferred")  # The next forward updates.
            computes = (forward + update * deferred, backward + update * (not deferred))
            moved = two_phases(arm.figures.bytes[-1])
            self.phases[arm.name].append(
                [
                    Phase(compute, read, written, self._disk.rate(f"{arm.name}, {phase}", read, written))
                    for phase, compute, (read, written) in zip(PHASE_NAMES, computes, moved, strict=True)
                ]
            )

    def spread(self) -> float:
        """The widest of fio's quartiles, of any phase of any arm."""
        return max(
            phase_bound.spread([step[number].rate for step in steps])
            for steps in self.phases.values()
            for number in range(len(PHASE_NAMES))
        )


PHASE_NAMES = ("forward", "backward and update")


def two_phases(moved: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Bytes of the forward, and those of backward and update together."""
    forward, backward, update = moved
    return [forward, (backward[0] + update[0], backward[1] + update[1])]


def fine_tuning(
    report: Report, quick: bool, with_peers: bool = False, model: str = "121M", chosen: Iterable[str] = (),
    arena: int = ARENA,
) -> None:  # fmt: skip
    """``chosen``: the arms to measure beside plain torch; all of them if there are none. ``arena``: tierd's."""
    wanted = plans(model, with_peers, tuple(chosen), available_memory(), arena)
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(phase_bound.disk(quick))
        arms = stack.enter_context(started(wanted, report))
        if not arms or arms[0].name != "plain":
            return
        bound = Bound(disk, [arm for arm in arms if arm.name.startswith("tierd")], arms[0])
        take_turns(arms, 5 if quick else 15, report, between=bound.measure)
        report.note("fio", {"file": "beside the daemons'", "shapes": disk.shapes(), "seconds": disk.seconds})
        add_rows(report, model, arms)
        add_bounds(report, model, arms, bound)
        add_deferred(report, model, arms, bound)
        add_peers(report, model, arms)
        plot(report, model, arms, [plan.name for plan in wanted])


def add_rows(report: Report, model: str, arms: Sequence[Arm]) -> None:
    """What each arm took."""
    plain = arms[0]
    whole = plain.model == MODELS[model]
    if not whole:
        print(f"  {model}: plain torch trains a part of the layers: no losses are compared", flush=True)
    for arm in arms:
        figures, what = arm.figures, f"{arm_title(model, arm)}"
        beside = [f"{figures.peak / plain.figures.peak:.3f} of plain torch"] if whole else []
        beside += [f"{figures.steady_peak / 1e6:,.0f} behind the start"]
        beside += [f"arena {format_bytes(arm.plan.arena)}"] if arm.plan.tier else []
        report.add(f"{what}: memory", figures.peak / 1e6, "MB", ceiling="; ".join(beside))
        add_step(report, what, figures, plain.figures if whole else None)
        most = {"plain": None, "tierd backward": IN_BACKWARD_BYTES}.get(arm.name, STORED_BYTES)
        add_bytes(report, what, figures, most if arm.plan.arm == "tierd" else None)
        if whole and arm is not plain:
            add_losses(report, what, figures.bits, plain.figures.bits, promised=arm.name.startswith("tierd"))


def add_losses(report: Report, what: str, ours: Sequence[str], theirs: Sequence[str], promised: bool = True) -> None:
    """How many have plain torch's bits, and how far from its losses the others are."""
    same = sum(one == other for one, other in zip(ours, theirs, strict=True))
    apart = [abs(float.fromhex(one) / float.fromhex(other) - 1) for one, other in zip(ours, theirs, strict=True)]
    most = max(apart, key=lambda each: (math.isnan(each), each))
    report.add(
        f"{what}: losses with plain torch's bits", same, f"of {len(ours)}", at_least=len(ours) if promised else None,
        ceiling="" if same == len(ours) else f"the first differs by {apart[0]:.1e}, the most by {most:.1e}",
    )  # fmt: skip


def arm_title(model: str, arm: Arm) -> str:
    part = "" if arm.model == MODELS[model] else f" ({arm.model.layers} of {MODELS[model].layers} layers)"
    return f"{model}, {arm.name}{part}"


def add_step(report: Report, what: str, figures: Figures, plain: Figures | None) -> None:
    phases = " + ".join(f"{statistics.median(each):.2f}" for each in zip(*figures.phases, strict=True))
    words = f"{phases} s (forward, backward, update)"
    if plain is not None and plain is not figures:
        ratio = paired(figures.seconds, plain.seconds)
        words += f"; {ratio['median']:.2f} of plain ({quartiles(ratio)})"
    report.add(f"{what}: step", figures.step, "s", ceiling=words)


def add_bytes(report: Report, what: str, figures: Figures, at_most: float | None) -> None:
    """SSD bytes, of them what activations can have taken, and what they wear."""
    read, written = statistics.median(figures.read), statistics.median(figures.written)
    activations = statistics.median(figures.surveyed) if figures.surveyed else 0.0
    words = f"{read:.1f} read, {written:.1f} written"
    if activations:
        moved = statistics.median(figures.activations)
        words += f"; without {activations:.1f} of activations ({moved:.1f} go into tierd)"
    report.add(
        f"{what}: SSD bytes", figures.transferred - activations, "B/parameter", ceiling=words, at_most=at_most
    )  # fmt: skip


def add_bounds(report: Report, model: str, arms: Sequence[Arm], bound: Bound) -> None:
    if not bound.phases:
        report.doubt(f"{model}: no arm of tierd could run")
        return
    spread = bound.spread()
    quotable = spread <= phase_bound.SPREAD_MAX
    report.add(
        f"{model}: fio between the steps, third quartile over first", spread, "×", at_most=phase_bound.SPREAD_MAX,
        ceiling=f"{sum(len(steps) for steps in bound.phases.values())} rounds of arms", quotable=quotable,
    )  # fmt: skip
    if not quotable:
        report.doubt(f"{model}: fio's quartiles differ by {spread:.2f} ×, more than {phase_bound.SPREAD_MAX}: repeat")
    for arm in arms:
        if arm.name not in bound.phases:
            continue
        steps = bound.phases[arm.name]
        least = [sum(phase.bound for phase in step) for step in steps]
        ratios = [seconds / bound for seconds, bound in zip(arm.figures.seconds, least, strict=True)]
        report.add(
            f"{model}, {arm.name}: step", statistics.median(ratios), "of the phase bound", at_most=STEP_OF_BOUND,
            ceiling=f"{statistics.median(least):.2f} s = {in_words(steps)}; {interval(ratios)}", quotable=quotable,
            detail={"ratios": ratios, "seconds": arm.figures.seconds, "bounds": least,
                    "phases": [[dataclasses.asdict(phase) for phase in step] for step in steps]},
        )  # fmt: skip


def add_deferred(report: Report, model: str, arms: Sequence[Arm], bound: Bound) -> None:
    """The step with the deferred update beside the one that updates in ``step()``. The least that the ratio can be is
    the phase bound of the former over the time of the latter: where that is more, nothing is promised."""
    by_name = {arm.name: arm.figures for arm in arms}
    if not {"tierd deferred", "tierd step"} <= by_name.keys():
        return
    deferred, plain = (by_name[name] for name in ("tierd deferred", "tierd step"))
    bounds = [sum(phase.bound for phase in step) for step in bound.phases["tierd deferred"]]
    least = statistics.median(each / other for each, other in zip(bounds, plain.seconds, strict=True))
    ratios = [each / other for each, other in zip(deferred.seconds, plain.seconds, strict=True)]
    same = sum(one == other for one, other in zip(deferred.bits, plain.bits, strict=True))
    report.add(
        f"{model}, deferred update: step", statistics.median(ratios), "of the update in step()",
        at_most=DEFERRED_STEP if least <= DEFERRED_STEP else None, quotable=bound.spread() <= phase_bound.SPREAD_MAX,
        ceiling=f"{deferred.step:.2f} beside {plain.step:.2f} s; the bound allows {least:.2f}; {interval(ratios)}; "
        f"{same} of {len(plain.bits)} losses with the same bits",
    )  # fmt: skip


def in_words(steps: Sequence[Sequence[Phase]]) -> str:
    """The medians of each phase: computing, and transfers at fio's rate."""
    words = []
    for phases in zip(*steps, strict=True):
        compute = statistics.median(phase.compute_seconds for phase in phases)
        transfer = statistics.median(phase.transfer_seconds for phase in phases)
        rate = statistics.median(phase.rate for phase in phases)
        words.append(f"max({compute:.2f} computing, {transfer:.2f} at {rate:.1f} GB/s)")
    return " + ".join(words)


def add_peers(report: Report, model: str, arms: Sequence[Arm]) -> None:
    by_name = {arm.name: arm.figures for arm in arms}
    for name, figures in by_name.items():
        if name != "plain":  # What a day of such steps writes.
            wear = statistics.median(figures.written) * MODELS[model].parameters / figures.step * SECONDS_A_DAY
            report.add(f"{model}, {name}: SSD wear", wear / 1e12, "TB a day", ceiling=f"{figures.step:.2f} s a step")
    for name in (name for name in by_name if name.startswith("tierd")):
        for peer, bound in MEMORY_OF_PEER.get(model, {}).items():
            add_memory_ratio(report, model, by_name, name, peer, bound)
        add_step_ratio(report, model, by_name, name)
        if IN_MEMORY in by_name:
            add_memory_ratio(report, model, by_name, name, IN_MEMORY, None)
            ratios = paired(by_name[name].seconds, by_name[IN_MEMORY].seconds)
            report.add(
                f"{model}, {name}: step", ratios["median"], f"of {IN_MEMORY}",
                ceiling=f"{by_name[IN_MEMORY].step:.2f} s; {quartiles(ratios)}",
            )  # fmt: skip


def add_memory_ratio(
    report: Report, model: str, by_name: Mapping[str, Figures], name: str, peer: str, at_most: float | None
) -> None:
    if peer in by_name:
        ratio = by_name[name].peak / by_name[peer].peak
        report.add(f"{model}, {name}: memory", ratio, f"of {peer}", at_most=at_most)


def add_step_ratio(report: Report, model: str, by_name: Mapping[str, Figures], name: str) -> None:
    """Of the fastest peer with its state on NVMe, as tierd's is on SSD."""
    on_nvme = [peer for peer in by_name if peer.startswith("DeepSpeed") and peer != IN_MEMORY]
    if not on_nvme:
        return
    fastest = min(on_nvme, key=lambda peer: by_name[peer].step)
    ratios = [ours / theirs for ours, theirs in zip(by_name[name].seconds, by_name[fastest].seconds, strict=True)]
    report.add(
        f"{model}, {name}: step", statistics.median(ratios), "of DeepSpeed's fastest on NVMe",
        at_most=STEP_OF_PEER, ceiling=f"{fastest}, {by_name[fastest].step:.2f} s; {interval(ratios)}",
    )  # fmt: skip


def plot(report: Report, model: str, arms: Sequence[Arm], wanted: Sequence[str]) -> None:
    """The traces of the arms as JSON, and what is drawn from them."""
    order = {name: place for place, name in enumerate(sorted(wanted, key=lambda name: name.startswith("tierd")))}
    trace = {
        "model": model,
        "subtitle": f"AdamW, {MODELS[model].dtype}, batch 1 × 256, beyond a process with torch alone: the start, then "
        "some steps with their peak",
        "arms": {arm.name: arm.trace() for arm in sorted(arms, key=lambda arm: order[arm.name])},
    }
    report.folder.mkdir(parents=True, exist_ok=True)
    path = pathlib.Path(report.folder) / f"train-{model}.json"
    path.write_text(json.dumps(trace) + "\n")
    for written in [path, *write_plots(trace, report.folder)]:
        print(f"  wrote {written}", flush=True)
