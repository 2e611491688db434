#!/usr/bin/env python3
"""Trains a byte-level GPT twice, in plain torch and with all of it in tierd by offload(), and compares.

Exit 0 only when the losses of all steps and the final parameters are the same bit for bit, and every optimizer state
came back from SSD at least once. Everything it makes is removed at the end, also after Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from display import StepDisplay, show_table
from footprint import Footprint
from options import HERE, arena_bytes, parse, ssd_bytes, state_bytes, training_command, training_environment

import tierd.control
from tierd.daemon import Daemon
from tierd.quantity import format_bytes


@dataclasses.dataclass
class Outcome:
    """What one run did."""

    losses: list[str] = dataclasses.field(default_factory=list)  # Bit for bit, as hexadecimal floats.
    seconds: list[float] = dataclasses.field(default_factory=list)
    last_loss: float = 0.0
    parameters: int = 0
    threads: int = 0
    idle: int = 0  # Bytes of the trainer with torch alone.
    digest: str = ""
    states: int = 0
    states_returned: int = 0
    swap_out_bytes: int = 0
    swap_in_bytes: int = 0
    activation_bytes: int = 0
    waits: int = 0
    wait_seconds: float = 0.0
    peak: int = 0
    peak_trainer: int = 0
    peak_daemon: int = 0
    peak_memfd: int = 0

    @property
    def step_seconds(self) -> float:
        """The median; the first two steps, which make everything, aside."""
        return statistics.median(self.seconds[2:] or self.seconds)

    @property
    def memory(self) -> int:
        """The peak, beyond a trainer with torch alone."""
        return self.peak - self.idle

    def figures(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"step_seconds": self.step_seconds, "memory": self.memory}


class Failure(Exception):
    """A sentence for the person at the terminal."""


@contextlib.contextmanager
def working_directory(arguments: argparse.Namespace) -> Iterator[pathlib.Path]:
    """A new folder on a real disk, removed afterwards."""
    build = HERE.parents[2] / "build"
    parent = pathlib.Path(arguments.directory or (build if build.is_dir() else "."))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tierd-demo-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def private_daemon(arguments: argparse.Namespace, folder: pathlib.Path) -> Iterator[tuple[Daemon, str]]:
    """A daemon and its socket directory: short, because socket paths are at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="tierd-") as sockets:
        settings = {
            "daemon": {
                "private": True,
                "starter_pid": os.getpid(),
                "socket_directory": sockets,
                "data_directory": str(folder),
            },
            "arena": {"maximum": arena_bytes(arguments), "window_size": "2MiB"},
            "ssd": {"file_size": ssd_bytes(arguments)},
            "engine": {"spin": arguments.spin},
        }
        with Daemon(folder, settings) as daemon:
            yield daemon, sockets


class Swap:
    """The daemon's figures for the job, between steps."""

    def __init__(self, sockets: str) -> None:
        self._control = tierd.control.connect(sockets)
        self._before = (time.monotonic(), 0)

    def figures(self) -> dict[str, Any]:
        jobs = self._control.list_jobs()
        if not jobs:
            return {}
        job = jobs[0]
        now, moved = time.monotonic(), job.swap_out_bytes_total + job.swap_in_bytes_total
        then, before = self._before
        self._before = (now, moved)
        return {
            "ram_bytes": job.ram_bytes,
            "ssd_bytes": job.ssd_bytes,
            "swap_out_bytes": job.swap_out_bytes_total,
            "swap_in_bytes": job.swap_in_bytes_total,
            "swap_rate": (moved - before) / max(1e-9, now - then),
        }


def follow(
    title: str, arguments: argparse.Namespace, socket: str = "", daemon: Daemon | None = None, swap: Swap | None = None
) -> Outcome:
    """Runs training.py to its end, showing its steps."""
    outcome = Outcome()
    command = training_command(arguments, socket)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=training_environment())
    footprint = Footprint(process.pid, daemon.process.pid if daemon else None)
    display = StepDisplay(title, arguments.steps)
    failure = ""
    try:
        assert process.stdout is not None
        for line in process.stdout:
            message = json.loads(line)
            failure = message.get("error", failure)
            take(outcome, message, arguments, display, swap)
        status = process.wait()
    finally:
        display.close()
        footprint.stop()
        if process.poll() is None:
            process.kill()
            process.wait()
    if status != 0 or not outcome.digest:
        tail = f"; the daemon's log ends: {daemon.log_tail()}" if daemon else ""
        raise Failure(f"the {title} run ended with status {status} {failure}{tail}")
    for name in ("peak", "peak_trainer", "peak_daemon", "peak_memfd"):
        setattr(outcome, name, getattr(footprint, name))
    return outcome


def take(
    outcome: Outcome, message: dict[str, Any], arguments: argparse.Namespace, display: StepDisplay, swap: Swap | None
) -> None:
    """One line of training.py's."""
    event = message["event"]
    if event == "ready":
        outcome.parameters, outcome.threads, outcome.idle = message["parameters"], message["threads"], message["idle"]
    elif event == "step":
        outcome.losses.append(message["bits"])
        outcome.seconds.append(message["seconds"])
        outcome.last_loss = message["loss"]
        figures = dict(message)
        figures["tokens_per_second"] = arguments.batch * arguments.context / message["seconds"]
        if swap is not None:
            figures.update(swap.figures())
            for name in ("swap_out_bytes", "swap_in_bytes", "activation_bytes", "waits", "wait_seconds"):
                setattr(outcome, name, figures.get(name, getattr(outcome, name)))
        display.step(message["step"], figures)
    elif event == "states":
        outcome.states, outcome.states_returned = message["count"], message["returned"]
    elif event == "end":
        outcome.digest = message["digest"]


def same(ours: list[str], theirs: list[str]) -> int:
    return sum(a == b for a, b in zip(ours, theirs, strict=True))


def report(arguments: argparse.Namespace, plain: Outcome | None, tiered: Outcome) -> None:
    def column(value: Any, of: Outcome | None) -> str:
        return value(of) if of is not None else "-"

    def seconds(outcome: Outcome) -> str:
        return f"{outcome.step_seconds:.3f} s"

    steps = len(tiered.losses)
    beyond = format_bytes(tiered.memory)
    if plain is not None:
        beyond += f" ({tiered.memory / plain.memory:.2f} of plain)"
    rows = [
        ("memory, peak", column(lambda o: format_bytes(o.peak), plain), format_bytes(tiered.peak)),
        ("  beyond torch itself", column(lambda o: format_bytes(o.memory), plain), beyond),
        ("  trainer", column(lambda o: format_bytes(o.peak_trainer), plain), format_bytes(tiered.peak_trainer)),
        ("  arena and rings", "-", format_bytes(tiered.peak_memfd)),
        ("  daemon", "-", format_bytes(tiered.peak_daemon)),
        ("step, median", column(seconds, plain), seconds(tiered)),
        ("written to SSD", "-", format_bytes(tiered.swap_out_bytes)),
        ("read from SSD", "-", format_bytes(tiered.swap_in_bytes)),
        ("activations offloaded", "-", format_bytes(tiered.activation_bytes)),
        ("waits for data", "-", f"{tiered.waits} ({tiered.wait_seconds:.1f} s)"),
        ("last loss", column(lambda o: f"{o.last_loss:.6f}", plain), f"{tiered.last_loss:.6f}"),
        ("optimizer states back from SSD", "-", f"{tiered.states_returned} of {tiered.states}"),
    ]
    if plain is not None:
        rows.append(("losses identical, bit for bit", "", f"{same(plain.losses, tiered.losses)} of {steps}"))
        rows.append(("final parameters identical", "", "yes" if plain.digest == tiered.digest else "NO"))
    title = (
        f"{tiered.parameters / 1e6:.1f} M parameters, {steps} steps, {tiered.threads} threads; arena "
        f"{format_bytes(arena_bytes(arguments))}, optimizer states {format_bytes(state_bytes(arguments))}"
    )
    show_table(title, rows)


def verdict(plain: Outcome | None, tiered: Outcome) -> list[str]:
    """What is wrong; nothing when all is well."""
    wrong = []
    if plain is not None and plain.losses != tiered.losses:
        first = next(i for i, (a, b) in enumerate(zip(plain.losses, tiered.losses, strict=True), 1) if a != b)
        wrong.append(f"the losses differ, first in step {first}")
    if plain is not None and plain.digest != tiered.digest:
        wrong.append("the final parameters differ")
    if tiered.states == 0 or tiered.states_returned < tiered.states:
        wrong.append(f"only {tiered.states_returned} of {tiered.states} optimizer states came back from SSD")
    return wrong


def save(arguments: argparse.Namespace, plain: Outcome | None, tiered: Outcome) -> None:
    with open(arguments.json, "a") as file:
        figures = {
            "spin": arguments.spin,
            "arena_bytes": arena_bytes(arguments),
            "cpus": len(os.sched_getaffinity(0)),
            "plain": plain.figures() if plain else None,
            "tierd": tiered.figures(),
        }
        file.write(json.dumps(figures) + "\n")


def run(arguments: argparse.Namespace) -> int:
    print(
        f"arena {format_bytes(arena_bytes(arguments))}, optimizer states {format_bytes(state_bytes(arguments))}, "
        f"{arguments.steps} steps, {arguments.threads} threads",
        flush=True,
    )
    plain = None if arguments.no_baseline else follow("plain", arguments)
    with working_directory(arguments) as folder, private_daemon(arguments, folder) as (daemon, sockets):
        tiered = follow("tierd", arguments, f"{sockets}/tierd.sock", daemon, Swap(sockets))
    report(arguments, plain, tiered)
    if arguments.json:
        save(arguments, plain, tiered)
    wrong = verdict(plain, tiered)
    for sentence in wrong:
        print(f"demo: {sentence}", file=sys.stderr)
    return 1 if wrong else 0


def main() -> None:
    # A terminated demo cleans up as an interrupted one does.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        sys.exit(run(parse()))
    except KeyboardInterrupt:
        print("demo: interrupted; everything it made is removed", file=sys.stderr)
        sys.exit(130)
    except (Failure, tierd.Error) as error:
        print(f"demo: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
