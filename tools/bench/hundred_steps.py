"""Losses over 100 steps against plain torch with the same fused optimizer and threads: each offload mode and all
together, with a scheduler, and evaluations between steps. Each run is a process of its own (losses_arm.py).
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

from node import GIB, MIB, ROOT, daemon
from report import Report

STEPS, EVALUATED_EVERY = 100, 10
ARENA = 48 * MIB  # A fifth of what the model, its gradients and its moments take.
# What lies in tierd, and options of offload(); None: that part by itself.
MODES: dict[str, dict[str, Any] | None] = {
    "parameters": {"gradients": "device", "activations": "device"},
    "parameters and gradients": {"activations": "device"},
    "optimizer": None,
    "activations": None,
    "all, update in step": {"update": "step"},
    "all, update deferred": {"update": "deferred"},
    "all, update in backward": {"update": "backward"},
}


def hundred_steps(report: Report, quick: bool) -> None:
    steps = STEPS // 5 if quick else STEPS
    expected = train("plain", "", steps)
    with daemon(arena=ARENA, tier=2 * GIB, window="2MiB") as (process, _):
        for mode in MODES:
            bits = train(mode, str(process.directory / "tierd.sock"), steps)
            same = sum(ours == theirs for ours, theirs in zip(bits, expected, strict=True))
            report.add(
                f"{mode} in tierd: losses of {steps} steps and {steps // EVALUATED_EVERY} evaluations, torch's bits",
                same, f"of {len(bits)}", at_least=len(bits), ceiling="AdamW fused, a warm-up and cosine schedule",
            )  # fmt: skip


def train(mode: str, socket: str, steps: int) -> list[str]:
    """Bits of the losses of a run in a process of its own, of evaluations too."""
    environment = os.environ | {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE"}
    environment["PYTHONPATH"] = f"{ROOT / 'bindings/python'}{os.pathsep}{ROOT / 'bindings/python/demo'}"
    program = pathlib.Path(__file__).parent / "losses_arm.py"
    options = json.dumps(MODES.get(mode))
    words = [sys.executable, str(program), mode, options, socket, str(steps), str(EVALUATED_EVERY)]
    result = subprocess.run(words, capture_output=True, text=True, env=environment)
    if result.returncode != 0:
        raise SystemExit(f"bench: the run {mode!r} ended: {result.stderr[-2000:]}")
    bits: list[str] = json.loads(result.stdout.splitlines()[-1])
    return bits
