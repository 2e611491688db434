"""The demo's step under each spin mode, step by step in turn.

Steps of one run differ by a tenth with what the host does meanwhile, runs of one mode by a few percent with where
their memory and their file happen to lie. So each mode has a daemon and a trainer of its own, all of them live at once,
and each step is taken by one after the other, a second apart, while the other trainers wait for their turn and the
other daemons are stopped; and all of them start again several times.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from node import GIB, ROOT, daemon
from report import turn

DEMO = ROOT / "bindings/python/demo"
WARM_UP = 4  # Steps that make everything, and the first that find it on SSD.


def load(path: pathlib.Path) -> ModuleType:
    """A module whose name is taken here."""
    spec = importlib.util.spec_from_file_location(f"demo_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class PacedTrainer:
    """A trainer that takes a step when told, and its daemon, which runs only meanwhile."""

    def __init__(self, stack: contextlib.ExitStack, mode: str, steps: int) -> None:
        options = load(DEMO / "options.py")
        arguments = options.parse(["--steps", str(steps), "--spin", mode])
        arena = options.arena_bytes(arguments)
        self._daemon, _ = stack.enter_context(daemon(arena=arena, tier=2 * GIB, spin=mode, window="2MiB"))
        stack.callback(self._signal, signal.SIGCONT)  # Before the daemon is asked to end.
        command = options.training_command(arguments, f"{self._daemon.directory}/tierd.sock")
        self._trainer = subprocess.Popen(
            [*command, "--paced"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=options.training_environment(),
        )
        stack.callback(self._trainer.wait)
        stack.callback(self._trainer.kill)
        self._read("ready")
        self._signal(signal.SIGSTOP)

    def step(self) -> float:
        """Seconds of one step."""
        assert self._trainer.stdin
        self._signal(signal.SIGCONT)
        print(file=self._trainer.stdin, flush=True)
        seconds = float(self._read("step")["seconds"])
        self._signal(signal.SIGSTOP)
        return seconds

    def _read(self, event: str) -> dict[str, Any]:
        assert self._trainer.stdout
        line = self._trainer.stdout.readline()
        message: dict[str, Any] = json.loads(line) if line else {"event": "end"}
        if message["event"] != event:
            raise SystemExit(f"the trainer said {line!r}; {self._daemon.log_tail()}")
        return message

    def _signal(self, number: signal.Signals) -> None:
        os.kill(self._daemon.process.pid, number)


def paired_steps(modes: Sequence[str], rounds: int, steps: int) -> dict[str, list[float]]:
    """Seconds of each of ``rounds`` times ``steps`` steps by mode, in the order in which they were taken."""
    times: dict[str, list[float]] = {mode: [] for mode in modes}
    for round_number in range(rounds):
        with contextlib.ExitStack() as stack:
            trainers = {mode: PacedTrainer(stack, mode, WARM_UP + steps) for mode in turn(modes, round_number)}
            for number in range(WARM_UP + steps):
                for mode in turn(modes, number):
                    seconds = trainers[mode].step()
                    if number >= WARM_UP:
                        times[mode].append(seconds)
    return times
