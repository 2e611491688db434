"""Fine-tuning beside plain torch and DeepSpeed ZeRO-Infinity: one model, one machine, step by step in turn.

Each arm is a process that waits for its turn; the daemons of the others are stopped meanwhile. Memory is the sum over
an arm's processes of the PSS of what is no memfd, and all bytes of the daemon's memfds, less one process with torch
alone; sampled 20 times a second in every third step, which is not timed. SSD bytes are what the kernel counted for the
process that does the arm's I/O.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from typing import Any

from node import GIB, MIB, daemon, scratch, stopped
from peers import PEERS
from report import Report, paired, quartiles
from steps import DEMO, load

WARM_UP = 2  # The first makes the state; the second finds it where it stays.
MODELS = {"121M": (17, 768), "353M": (28, 1024), "1.0B": (36, 1536)}


MEMORY = load(DEMO / "footprint.py")


@dataclasses.dataclass
class Figures:
    """What an arm's steps took, behind the warm-up."""

    seconds: list[float] = dataclasses.field(default_factory=list)
    phases: list[list[float]] = dataclasses.field(default_factory=list)
    read: list[float] = dataclasses.field(default_factory=list)
    written: list[float] = dataclasses.field(default_factory=list)
    bits: list[str] = dataclasses.field(default_factory=list)
    peak: int = 0


class Arm:
    def __init__(self, stack: contextlib.ExitStack, name: str, layers: int, width: int) -> None:
        self.name = name
        self.figures = Figures()
        self._daemon: Any = None
        words = name.split(" ")
        command = [sys.executable, str(pathlib.Path(__file__).parent / "train_arm.py"), words[0].lower()]
        command += [f"--layers={layers}", f"--width={width}", f"--largest={4 * width * width}"]
        environment = os.environ | {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE"}  # The same for all.
        if words[0] == "tierd":
            parameters = 12 * layers * width * width
            self._daemon, _ = stack.enter_context(daemon(arena=192 * MIB, tier=20 * parameters + GIB, window="2MiB"))
            command += [f"--socket={self._daemon.directory}/tierd.sock", f"--update={words[1]}"]
        if words[0] == "DeepSpeed":
            folder = tempfile.mkdtemp(prefix="tier-bench-", dir=scratch())
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            command += [f"--folder={folder}", f"--config={words[1]}"]
            environment |= {
                "PYTHONPATH": str(PEERS),
                "PATH": f"{PEERS / 'bin'}{os.pathsep}{os.environ['PATH']}",
                "TORCH_EXTENSIONS_DIR": str(PEERS / "extensions"),
                "CXX": "g++-12",
                "DS_ACCELERATOR": "cpu",
            }
        self._log = stack.enter_context(tempfile.TemporaryFile("w+"))
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, env=environment
        )
        stack.callback(self._process.wait)
        stack.callback(self._process.kill)
        self.idle = int(self._read("idle")["bytes"])
        self.parameters = int(self._read("ready")["parameters"])

    def step(self, sampled: bool) -> None:
        """One step. Its memory counts if it is sampled, which takes processor time, else its seconds and SSD bytes.
        The first WARM_UP count for the losses only."""
        assert self._process.stdin is not None
        process = self._process.pid if self._daemon is None else self._daemon.process.pid
        before = _device_bytes(process)
        with self._sampled() if sampled else contextlib.nullcontext([0]) as peak:
            print("step", file=self._process.stdin, flush=True)
            answer = self._read("step")
        moved = [after - earlier for after, earlier in zip(_device_bytes(process), before, strict=True)]
        figures = self.figures
        figures.bits.append(answer["bits"])
        if len(figures.bits) > WARM_UP and sampled:
            figures.peak = max(figures.peak, peak[0] - self.idle)
        elif len(figures.bits) > WARM_UP:
            figures.seconds.append(answer["seconds"])
            figures.phases.append(answer["phases"])
            figures.read.append(moved[0] / self.parameters)
            figures.written.append(moved[1] / self.parameters)

    def resting(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._daemon is None else stopped(self._daemon)

    @contextlib.contextmanager
    def _sampled(self) -> Any:
        peak, ended = [0], threading.Event()

        def sample() -> None:
            while True:
                total = MEMORY.private_bytes(self._process.pid)
                if self._daemon is not None:
                    pid = self._daemon.process.pid
                    total += MEMORY.private_bytes(pid) + MEMORY.memfd_bytes(pid)
                peak[0] = max(peak[0], total)
                if ended.wait(1 / MEMORY.SAMPLES_PER_SECOND):
                    return

        thread = threading.Thread(target=sample)
        thread.start()
        try:
            yield peak
        finally:
            ended.set()
            thread.join()

    def _read(self, event: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise SystemExit(f"bench: the arm {self.name} ended: {self._log.read()[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        assert answer["event"] == event, answer
        return answer


def fine_tuning(report: Report, quick: bool, with_peers: bool = False, model: str = "121M") -> None:
    layers, width = MODELS[model]
    names = ["plain", "tierd backward", "tierd step"]
    if with_peers:
        names += ["DeepSpeed default", "DeepSpeed tuned", "DeepSpeed pipelined"]
    with contextlib.ExitStack() as stack:
        arms: list[Arm] = []
        for name in names:
            with contextlib.ExitStack() as others:
                for arm in arms:
                    others.enter_context(arm.resting())
                arms.append(Arm(stack, name, layers, width))
        for number in range(WARM_UP + (5 if quick else 15)):
            for arm in arms[number % len(arms) :] + arms[: number % len(arms)]:
                with contextlib.ExitStack() as others:
                    for other in arms:
                        if other is not arm:
                            others.enter_context(other.resting())
                    arm.step(sampled=number % 3 == 1)
        add_rows(report, model, arms)


def add_rows(report: Report, model: str, arms: list[Arm]) -> None:
    by_name = {arm.name: arm.figures for arm in arms}
    plain = by_name["plain"]
    for arm in arms:
        figures, what = arm.figures, f"{model}, {arm.name}"
        phases = " + ".join(f"{statistics.median(each):.2f}" for each in zip(*figures.phases, strict=True))
        seconds = f"{phases} s (forward, backward, update)"
        report.add(
            f"{what}: memory", figures.peak / 1e6, "MB", ceiling=f"{figures.peak / plain.peak:.3f} of plain torch"
        )
        ratio = paired(figures.seconds, plain.seconds)
        report.add(
            f"{what}: step", statistics.median(figures.seconds), "s", ceiling=f"{seconds}; {quartiles(ratio)} of plain"
        )
        read, written = statistics.median(figures.read), statistics.median(figures.written)
        report.add(
            f"{what}: SSD bytes", read + written, "B/parameter", ceiling=f"{read:.1f} read, {written:.1f} written"
        )
        same = sum(ours == theirs for ours, theirs in zip(figures.bits, plain.bits, strict=True))
        report.add(f"{what}: losses with plain torch's bits", same, f"of {len(plain.bits)}")
    peers = {name: figures for name, figures in by_name.items() if name.startswith("DeepSpeed")}
    if not peers:
        return
    fastest = min(peers.values(), key=lambda figures: statistics.median(figures.seconds))
    bounds = {"DeepSpeed default": 0.05, "DeepSpeed tuned": 0.20}
    for name, figures in by_name.items():
        if name.startswith("tierd"):
            for peer, bound in bounds.items():
                report.add(f"{model}, {name}: memory", figures.peak / peers[peer].peak, f"of {peer}", at_most=bound)
            ratio = paired(figures.seconds, fastest.seconds)
            report.add(
                f"{model}, {name}: step", ratio["median"], "of DeepSpeed's fastest on NVMe", at_most=0.55,
                ceiling=quartiles(ratio),
            )  # fmt: skip


def _device_bytes(pid: int) -> tuple[int, int]:
    fields = dict(line.split(": ") for line in pathlib.Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["read_bytes"]), int(fields["write_bytes"])
