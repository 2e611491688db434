"""The promises of training that need models and arms of their own: all bf16, the optimizer alone, deeper models with
the same arena, activations that set the peak.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

from models import ARENA, MODELS, Model, gpt
from node import GIB
from report import Report, interval
from train import PLAIN_BYTES, add_bytes, add_losses
from trainer import Arm, Plan, started, take_turns, tier_bytes

BF16_BYTES, OPTIMIZER_BYTES = 14.3, 16.2  # Of SSD for a parameter and step, read and written.
DEPTHS = (12, 24, 48)
DEPTHS_APART = 1.05  # The highest peak of the lowest.
ACTIVATIONS_PEAK, ACTIVATIONS_STEP = 0.40, 1.05  # Of the same without.


def all_bf16(report: Report, quick: bool) -> None:
    """Parameters, gradients and optimizer state in bf16, updated in backward, beside plain torch in bf16."""
    model = dataclasses.replace(MODELS["121M"], dtype="bfloat16")
    tier = tier_bytes(model.parameters, "backward", model.item)
    plans = [
        Plan("plain", "plain", model, memory=PLAIN_BYTES * model.parameters // 2),
        Plan("tierd backward", "tierd", model, ("--update=backward", "--create"), tier=tier),
    ]
    with started(plans, report) as arms:
        if len(arms) < 2:
            return
        take_turns(arms, 5 if quick else 15, report)
        ours = arms[1].figures
        report.add("121M, all bf16: memory", ours.peak / 1e6, "MB", ceiling=f"{_peak_ratio(arms):.3f} of plain torch")
        add_bytes(report, "121M, all bf16, update in backward", ours, BF16_BYTES)
        add_losses(report, "121M, all bf16", arms[1].figures.bits, arms[0].figures.bits)


def optimizer_alone(report: Report, quick: bool) -> None:
    """Only the optimizer's state in tierd, the model in the process."""
    model = MODELS["121M"]
    plans = [
        Plan("plain", "plain", model, memory=PLAIN_BYTES * model.parameters),
        Plan("optimizer", "optimizer", model, tier=12 * model.parameters + GIB, memory=12 * model.parameters),
    ]
    with started(plans, report) as arms:
        if len(arms) < 2:
            return
        take_turns(arms, 5 if quick else 15, report)
        add_bytes(report, "121M, the optimizer alone", arms[1].figures, OPTIMIZER_BYTES)
        report.add("121M, the optimizer alone: memory", _peak_ratio(arms), "of plain torch")
        add_losses(report, "121M, the optimizer alone", arms[1].figures.bits, arms[0].figures.bits)


def flat_in_depth(report: Report, quick: bool) -> None:
    """One width and one arena, more and more layers. The models are made in tierd: to make one of many layers whole in
    the process leaves holes in its heap."""
    width, arena = (256, ARENA // 3) if quick else (768, ARENA)  # Either is full at each depth.
    for update in ("backward", "deferred"):
        plans = []
        for layers in DEPTHS:
            model = gpt(layers, width)
            tier = tier_bytes(model.parameters, update, model.item)
            name = f"{layers} layers, update {update}"
            plans.append(Plan(name, "tierd", model, (f"--update={update}", "--create"), arena=arena, tier=tier))
        with started(plans, report) as arms:
            if len(arms) < len(plans):
                continue
            take_turns(arms, 3 if quick else 9, report)
            peaks = [arm.figures.peak for arm in arms]
            words = ", ".join(f"{peak / 1e6:.0f}" for peak in peaks)
            report.add(
                f"width {width}, 12, 24 and 48 layers, update {update}: highest peak",
                max(peaks) / min(peaks), "of the lowest", at_most=DEPTHS_APART, ceiling=f"{words} MB",
            )  # fmt: skip


def activation_offload(report: Report, quick: bool) -> None:
    """A stack of blocks whose activations set the peak, with them in tierd and in the process. An optimizer without
    state, and memory that is returned when it is freed, on both sides."""
    model = Model("stack", layers=4 if quick else 12, width=768, heads=12, batch=12, context=512)
    activations = 64 * model.layers * model.width * model.batch * model.context  # At most 16 vectors a block.
    plans = [
        Plan("kept", "stateless", model, memory=8 * model.parameters + activations),
        Plan("offloaded", "activations", model, tier=2 * activations + GIB, memory=8 * model.parameters),
    ]
    with started(plans, report) as arms:
        if len(arms) < 2:
            return
        take_turns(arms, 3 if quick else 12, report)
        kept, offloaded = (arm.figures for arm in arms)
        what = f"activations of {model.layers} blocks of width 768, {model.batch} × 512, offloaded"
        report.add(
            f"{what}: peak of the whole step", offloaded.steady_peak / kept.steady_peak, "of without",
            at_most=ACTIVATIONS_PEAK,
            ceiling=f"{offloaded.steady_peak / 1e6:,.0f} of {kept.steady_peak / 1e6:,.0f} MB; parameters and gradients "
            f"{8 * model.parameters / 1e6:,.0f} MB",
        )  # fmt: skip
        ratios = [ours / theirs for ours, theirs in zip(offloaded.seconds, kept.seconds, strict=True)]
        moved = statistics.median(offloaded.activations) * model.parameters / 1e6
        report.add(
            f"{what}: step", statistics.median(ratios), "of without", at_most=ACTIVATIONS_STEP,
            ceiling=f"{kept.step:.2f} s without; {moved:,.0f} MB go out and come back; {interval(ratios)}",
        )  # fmt: skip
        add_losses(report, what, offloaded.bits, kept.bits)


def _peak_ratio(arms: Sequence[Arm]) -> float:
    return arms[1].figures.peak / arms[0].figures.peak
