"""A LoRA fine-tune by two ranks of one job: whether the base weights lie in RAM once, and are not written after they
were loaded.

Plain torch runs first, alone, and gives the losses. Memory is that of all processes beyond torch alone: PSS of what is
no memfd, and all bytes of the daemon's memfds.
"""

from __future__ import annotations

import contextlib
import pathlib
import statistics
import tempfile

from models import MODELS
from node import GIB, MIB, daemon
from process import Process
from report import Report
from sampling import MEMORY, memory_bytes

RANKS = 2
# As a launcher says it: ranks of one launch have one job.
LAUNCH = {
    "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "bench", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "lora",
    "TORCHELASTIC_RESTART_COUNT": "0",
}  # fmt: skip


def started(stack: contextlib.ExitStack, number: int, *words: str) -> Process:
    name, rank = "process of the LoRA part", LAUNCH | {"RANK": str(number)}
    process = Process(stack, name, "lora_arm.py", words, rank, in_tierd="plain" not in words)
    process.read("idle")
    return process


def used(process: Process, idle: Process) -> int:
    """Beyond what ``idle`` takes, which has torch alone and shares its libraries with as many others."""
    return memory_bytes(process.pid, None) - memory_bytes(idle.pid, None)


def lora_by_ranks(report: Report, quick: bool, model: str = "121M") -> None:
    layers, width = MODELS[model].layers, MODELS[model].width
    shape = [f"--layers={layers}", f"--width={width}"]
    steps = 3 if quick else 10
    with contextlib.ExitStack() as stack:
        idle = started(stack, 0, "plain", *shape)
        plain = started(stack, 0, "plain", *shape)
        plain.tell("go")
        plain.read("ready")
        expected, plain_bytes = [], 0
        for _ in range(steps):
            plain.tell("go")
            expected.append(plain.read("step")["losses"])
            plain_bytes = max(plain_bytes, used(plain, idle))
    base = 4 * 12 * layers * width * width
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tier-bench-"))
        tier = (2 * base + 2 * GIB) // MIB * MIB
        running, _ = stack.enter_context(daemon(arena=(base + GIB) // MIB * MIB, tier=tier, window="2MiB"))
        launch = [f"--socket={running.directory}/tierd.sock", f"--store={folder}/store"]
        idle = started(stack, 0, "plain", *shape)
        ranks = [started(stack, number, "rank", *shape, *launch) for number in range(RANKS)]
        for rank in ranks:
            rank.tell("go")
        ready = [rank.read("ready") for rank in ranks]
        before = MEMORY.memfd_bytes(running.process.pid), _written(running.process.pid)
        answers = []
        for _ in range(steps):
            for rank in ranks:
                rank.tell("go")
            answers.append([rank.read("step") for rank in ranks])
        memfds = MEMORY.memfd_bytes(running.process.pid)
        private = sum(used(rank, idle) for rank in ranks) + MEMORY.private_bytes(running.process.pid)
        wear = _written(running.process.pid) - before[1]
    base = ready[0]["base"]
    what = f"{model}, LoRA by {RANKS} ranks"
    loaded = sum(each["loaded"] for each in ready)
    report.add(f"{what}: base weights", base / 1e6, "MB", ceiling=f"{loaded / 1e6:.0f} MB loaded by all ranks together")
    held = max(each["held"] for step in answers for each in step)
    report.add(f"{what}: base weights in RAM", held / base, "of them", at_most=1.0, ceiling="the daemon's figures")
    total = memfds + private
    report.add(
        f"{what}: memory of all", total / 1e6, "MB",
        ceiling=f"{total / base:.2f} of the base; plain torch {plain_bytes / 1e6:.0f} MB for one rank",
    )  # fmt: skip
    written = max(each["written"] for step in answers for each in step)
    report.add(
        f"{what}: base weights written after load", written, "B", at_most=0,
        ceiling=f"{wear / steps / 1e6:.2f} MB a step written to SSD in all: activations, adapters",
    )  # fmt: skip
    same = sum([each["losses"][0] for each in step] == losses for step, losses in zip(answers, expected, strict=True))
    report.add(f"{what}: steps with plain torch's losses", same, f"of {steps}", at_least=steps)
    seconds = statistics.median(max(each["seconds"] for each in step) for step in answers)
    report.add(f"{what}: step", seconds, "s")


def _written(pid: int) -> int:
    fields = dict(line.split(": ") for line in pathlib.Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["write_bytes"])
