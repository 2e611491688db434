"""An arm of the training bench as the bench sees it: a process that trains, its daemon if it has one, what they take.

Memory is the sum over an arm's processes of the PSS of what is no memfd, and all bytes of the daemon's memfds, less one
process with torch alone, which lives as long as the arms do: so all share the pages of torch's libraries with equally
many others. SSD bytes are what the kernel counted for the process that does the arm's I/O.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from models import ARENA, Model
from node import GIB, MIB, daemon, scratch, stopped
from peers import PEERS
from process import Ended, Hung, Process
from report import Report, turn
from sampling import Sampler

WARM_UP = 2  # The first makes the state; the second finds it where it stays.
PEER_SECONDS = 1800.0  # For an answer of a peer: the longest seen, the build of its operator, takes minutes.
TRAINER_BYTES = 256 * MIB  # Of a process whose model is in tierd, beside the model that it makes first.
SCRIPT = "train_arm.py"
PHASES = ("forward", "backward", "update")


@dataclasses.dataclass(frozen=True)
class Plan:
    """What an arm is to be. ``name``: for the table. ``arm``, ``options``: of train_arm.py. ``tier``: bytes of its
    daemon's SSD file; 0: it has no daemon. ``memory``, ``disk``: bytes that it is known to need; without a word
    of its own, an arm with a daemon needs its arena, TRAINER_BYTES, and the values of the model while it is made."""

    name: str
    arm: str
    model: Model
    options: tuple[str, ...] = ()
    arena: int = ARENA
    tier: int = 0
    memory: int = 0
    disk: int = 0

    def __post_init__(self) -> None:
        if self.tier and not self.memory:
            object.__setattr__(self, "memory", self.arena + TRAINER_BYTES + self.model.item * self.model.parameters)


class Room:
    """What this machine has for arms, from now on: bytes of memory, and of disk space where SSD files go."""

    def __init__(self) -> None:
        self.memory = available_memory()
        self.disk = shutil.disk_usage(scratch()).free

    def take(self, plan: Plan) -> str:
        """Sets what the arm needs aside, however late it will use it. Else what there is too little of: a sentence."""
        disk = max(plan.disk, plan.tier)
        if plan.memory > self.memory:
            return f"needs {plan.memory / 1e9:.1f} GB of memory, {self.memory / 1e9:.1f} GB are available"
        if disk > self.disk:
            return f"needs {disk / 1e9:.1f} GB of disk space in {scratch()}, {self.disk / 1e9:.1f} GB are available"
        self.memory -= plan.memory
        self.disk -= disk
        return ""


def available_memory() -> int:
    """Bytes that processes can have without swapping."""
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/meminfo has no MemAvailable")


@dataclasses.dataclass
class Figures:
    """What an arm's timed steps took, the bits of all losses, and the peaks of memory: from the start on, and behind
    the warm-up. Bytes are of each parameter, except those of phases and memory."""

    seconds: list[float] = dataclasses.field(default_factory=list)
    phases: list[list[float]] = dataclasses.field(default_factory=list)
    bytes: list[list[tuple[int, int]]] = dataclasses.field(default_factory=list)  # Of each phase, read and written.
    read: list[float] = dataclasses.field(default_factory=list)
    written: list[float] = dataclasses.field(default_factory=list)
    activations: list[float] = dataclasses.field(default_factory=list)  # That went into tierd.
    surveyed: list[float] = dataclasses.field(default_factory=list)  # Read and written, in sampled steps.
    bits: list[str] = dataclasses.field(default_factory=list)
    peak: int = 0
    steady_peak: int = 0

    @property
    def step(self) -> float:
        return statistics.median(self.seconds)

    @property
    def transferred(self) -> float:
        """Read and written."""
        return statistics.median(map(sum, zip(self.read, self.written, strict=True)))


class Arm:
    """Made, it waits for its turn. ``timeline``: of the last step whose memory was sampled."""

    def __init__(self, stack: contextlib.ExitStack, plan: Plan, idle: Process) -> None:
        self.name, self.plan = plan.name, plan
        self._idle = idle
        self.figures = Figures()
        self.moved: list[tuple[int, int]] = []  # By the last step, in each phase, read and written.
        self.beside: Arm | None = None  # Whose last step's bytes this one is told ("beside").
        self.memory: list[tuple[float, int]] = []  # Of all samples: seconds that the arm has run, and bytes.
        self.timeline: dict[str, Any] | None = None
        self._daemon: Any = None
        command = [plan.arm, f"--model={plan.model.encoded()}", *plan.options]
        environment: dict[str, str] = {}
        if plan.tier:
            self._daemon, _ = stack.enter_context(daemon(arena=plan.arena, tier=plan.tier, window="2MiB"))
            command += [f"--socket={self._daemon.directory}/tierd.sock", f"--counted={self._daemon.process.pid}"]
        if plan.arm == "deepspeed":
            folder = tempfile.mkdtemp(prefix="tier-bench-", dir=scratch())
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            command += [f"--folder={folder}"]
            environment = {
                "PYTHONPATH": str(PEERS),
                "PATH": f"{PEERS / 'bin'}{os.pathsep}{os.environ['PATH']}",
                "TORCH_EXTENSIONS_DIR": str(PEERS / "extensions"),
                "CXX": "g++-12",
                "DS_ACCELERATOR": "cpu",
            }
        patience = PEER_SECONDS if plan.arm == "deepspeed" else None
        name, in_tierd = f"arm {plan.name}", plan.arm == "tierd"
        self._process = Process(stack, name, SCRIPT, command, environment, patience, in_tierd)
        self._process.read("idle")
        sampler = self._sampler()
        with sampler:
            self.ready = self._process.read("ready")
        self._keep(sampler)
        self.figures.peak = sampler.peak

    @property
    def model(self) -> Model:
        return self.plan.model

    def step(self, sampled: bool, timed: bool) -> None:
        """One step. To sample its memory takes processor time. Its seconds and SSD bytes count if it is ``timed``."""
        figures = self.figures
        sampler = self._sampler() if sampled else None
        with contextlib.nullcontext() if sampler is None else sampler:
            phases = [f"{read}+{written}" for read, written in (self.beside.moved if self.beside else [])]
            self._process.tell(" ".join(["survey" if sampled else "step", *phases]))
            answer = self._process.read("step")
        figures.bits.append(answer["bits"])
        self.moved = [(read, written) for read, written in answer["bytes"]]
        if sampler is not None:
            self._keep(sampler)
            self.timeline = _timeline(answer, sampler)
            figures.peak = max(figures.peak, sampler.peak)
            if len(figures.bits) > WARM_UP:
                figures.steady_peak = max(figures.steady_peak, sampler.peak)
                figures.surveyed.append(sum(answer["surveyed"]) / self.model.parameters)
        if timed:
            parameters = self.model.parameters
            figures.seconds.append(answer["seconds"])
            figures.phases.append(answer["phases"])
            figures.bytes.append(self.moved)
            figures.read.append(sum(read for read, _ in answer["bytes"]) / parameters)
            figures.written.append(sum(written for _, written in answer["bytes"]) / parameters)
            figures.activations.append(answer["activations"] / parameters)

    def resting(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._daemon is None else stopped(self._daemon)

    def trace(self) -> dict[str, Any]:
        """For the plots."""
        return {"memory": self.memory, "peak": self.figures.peak, "step": self.timeline}

    def _sampler(self) -> Sampler:
        daemon = None if self._daemon is None else self._daemon.process.pid
        return Sampler(self._process.pid, daemon, idle=self._idle.pid)

    def _keep(self, sampler: Sampler) -> None:
        """Its memory, as if the arm had run all the time."""
        if not sampler.memory:
            return
        start, began = self.memory[-1][0] if self.memory else 0.0, sampler.memory[0][0]
        self.memory += [(round(start + at - began, 3), size) for at, size in sampler.memory]


def _timeline(answer: dict[str, Any], sampler: Sampler) -> dict[str, Any]:
    began = answer["began"]
    ends = [sum(answer["phases"][: number + 1]) for number in range(len(answer["phases"]))]
    counts = [
        [round(each.at - began, 4), round(each.trainer, 4), round(each.daemon, 4), each.read, each.written]
        for each in sampler.counts
    ]
    return {"phases": list(PHASES), "ends": ends, "counts": counts}


@contextlib.contextmanager
def started(plans: Sequence[Plan], report: Report) -> Iterator[list[Arm]]:
    """The arms, each made while the others rest; those that this machine has no room for are named and left out."""
    with contextlib.ExitStack() as stack:
        arms: list[Arm] = []
        room = Room()
        idle = Process(stack, "process with torch alone", SCRIPT, ["plain"])
        idle.read("idle")
        for plan in plans:
            if why := room.take(plan):
                print(f"  skipped: {plan.name}: {why}", flush=True)
                continue
            try:
                with alone(None, arms):
                    arms.append(Arm(stack, plan, idle))
            except Ended as failed:
                leave_out(plan, failed, report)
                continue
            report.note(plan.name, {"versions": arms[-1].ready["versions"], "config": arms[-1].ready["config"]})
        yield arms


@contextlib.contextmanager
def alone(arm: Arm | None, arms: Sequence[Arm]) -> Iterator[None]:
    """All others rest."""
    with contextlib.ExitStack() as others:
        for other in arms:
            if other is not arm:
                others.enter_context(other.resting())
        yield


def leave_out(plan: Plan, failed: Ended, report: Report) -> None:
    """A peer that fails or hangs is named, and the others go on. An arm of tierd or of plain torch ends the bench."""
    if plan.arm != "deepspeed":
        raise failed
    how = "hung" if isinstance(failed, Hung) else "it failed"
    report.doubt(f"left out: {plan.name}: {how}: {str(failed).strip().splitlines()[-1]}")


def take_turns(arms: list[Arm], rounds: int, report: Report, between: Callable[[], None] = lambda: None) -> None:
    """``rounds`` steps of each arm behind the warm-up, each round beginning with another one. In every third round the
    memory is sampled and nothing timed; ``between`` is called at the end of the others, while all arms rest. A peer
    that fails is removed from ``arms``."""
    for number in range(-WARM_UP, rounds):
        timed = number >= 0 and number % 3 != 2
        for arm in turn(arms, number):
            try:
                with alone(arm, arms):
                    arm.step(sampled=not timed, timed=timed)
            except Ended as failed:
                leave_out(arm.plan, failed, report)
                arms.remove(arm)
        if timed:
            with alone(None, arms):
                between()


def tier_bytes(parameters: int, update: str, item: int) -> int:
    """Of the SSD file of an arm: values, moments and gradients, as many again of what is rewritten, activations."""
    elements = 3 if update == "backward" else 4
    return elements * item * parameters * 5 // 4 + GIB
