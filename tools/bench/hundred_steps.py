"""Losses over 100 steps against plain torch with the same fused optimizer and threads: each offload mode and all
together, with a scheduler, and evaluations between steps. Each run is a process of its own (losses_arm.py).
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

import allocator
from counters import device_bytes
from node import GIB, MIB, ROOT, daemon
from report import Report

STEPS, EVALUATED_EVERY = 100, 10


@dataclasses.dataclass(frozen=True)
class Trained:
    """The shape of the decoder, and an arena of a fifth of what it, its gradients and its moments take."""

    layers: int
    width: int
    heads: int
    context: int
    arena: int


WHOLE = Trained(layers=6, width=384, heads=6, context=128, arena=48 * MIB)
QUICK = Trained(layers=4, width=256, heads=4, context=64, arena=16 * MIB)
# What lies in tierd, and options of offload(); None: that part by itself, without offload(), which has the optimizer's
# state in tierd in each case, and gradients only of the parameters that are there.
MODES: dict[str, dict[str, Any] | None] = {
    "optimizer state": None,
    "activations": None,
    "parameters, optimizer state": {"gradients": "device", "activations": "device"},
    "parameters, gradients, optimizer state": {"activations": "device"},
    "all, update in step": {"update": "step"},
    "all, update deferred": {"update": "deferred"},
    "all, update in backward": {"update": "backward"},
}


def hundred_steps(report: Report, quick: bool) -> None:
    trained = QUICK if quick else WHOLE
    expected = train("plain", trained, "")
    with daemon(arena=trained.arena, tier=2 * GIB, window="2MiB") as (process, _):
        for mode in MODES:
            before, began = device_bytes(process.process.pid), time.perf_counter()
            bits = train(mode, trained, str(process.directory / "tierd.sock"))
            seconds = time.perf_counter() - began
            read, written = (now - then for now, then in zip(device_bytes(process.process.pid), before, strict=True))
            same = sum(ours == theirs for ours, theirs in zip(bits, expected, strict=True))
            report.add(
                f"{mode} in tierd: losses of {STEPS} steps and {STEPS // EVALUATED_EVERY} evaluations, torch's bits",
                same, f"of {len(bits)}", at_least=len(bits),
                ceiling=f"AdamW fused, a warm-up and cosine schedule; {read / 1e9:.1f} GB read from SSD, "
                f"{written / 1e9:.1f} GB written, in {seconds:.0f} s",
            )  # fmt: skip


def train(mode: str, trained: Trained, socket: str) -> list[str]:
    """Bits of the losses of a run in a process of its own, of evaluations too."""
    path = f"{ROOT / 'bindings/python'}{os.pathsep}{ROOT / 'bindings/python/demo'}"
    environment = allocator.environment(bool(socket), {"PYTHONPATH": path})
    program = pathlib.Path(__file__).parent / "losses_arm.py"
    shape = {name: value for name, value in dataclasses.asdict(trained).items() if name != "arena"}
    settings = [json.dumps(MODES.get(mode)), socket, json.dumps(shape), str(STEPS), str(EVALUATED_EVERY)]
    result = subprocess.run(
        [sys.executable, str(program), mode, *settings], capture_output=True, text=True, env=environment
    )
    if result.returncode != 0:
        raise SystemExit(f"bench: the run {mode!r} ended: {result.stderr[-2000:]}")
    bits: list[str] = json.loads(result.stdout.splitlines()[-1])
    return bits
