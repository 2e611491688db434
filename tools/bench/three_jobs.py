"""Three torch jobs of two users train at once, in an arena smaller than what any two of them store.

`b` is opened with a guarantee before any job trains, and holds nothing. `a` and `c`, of another user, borrow what it is
guaranteed. Then b's trainer starts, and the memory comes back from them while they go on. All three must have the
losses that each has by itself in plain torch, bit by bit. Each trainer is a process of its own (three_jobs_arm.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from node import BUILD, GIB, MIB, ROOT, daemon
from report import Report

POLL = 0.05  # Seconds between two looks at what the daemon says.
DEADLINE = 300.0  # For each thing that is waited for, seconds.
SLACK = 2 * MIB  # Of a guarantee: what is less than the next window.
STEPS_BESIDE = 3  # Of a and c before b comes, and of all three after it has its guarantee.
Owners = dict[str, dict[str, int]]  # What `tierctl pool map` says of each job.
OWNER, BORROWER = 65532, 65533  # Users without an account.


@dataclasses.dataclass(frozen=True)
class Job:
    name: str
    uid: int
    seed: int


A, B, C = Job("a", BORROWER, 1), Job("b", OWNER, 2), Job("c", BORROWER, 3)
JOBS = (A, B, C)


@dataclasses.dataclass(frozen=True)
class Size:
    """Of the models, of the arena, and of what `b` is guaranteed."""

    shape: Mapping[str, int]
    arena: int
    guarantee: int

    @property
    def state_bytes(self) -> int:
        """What one job stores between two steps: parameters and two moments."""
        width, context = self.shape["width"], self.shape["context"]
        block = 12 * width * width + 13 * width
        return 12 * (2 * 256 * width + context * width + self.shape["layers"] * block + 2 * width)


SMALL = Size({"layers": 3, "width": 256, "heads": 4, "context": 64}, arena=48 * MIB, guarantee=24 * MIB)
LARGE = Size({"layers": 6, "width": 384, "heads": 6, "context": 64}, arena=192 * MIB, guarantee=96 * MIB)


class Trainer:
    """A training process, and the losses that it has printed so far."""

    def __init__(self, job: Job, size: Size, socket: str = "", *, token: str = "", steps: int = 0) -> None:
        self.name = job.name
        self.losses: list[str] = []
        self.ready = False
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        environment["PYTHONPATH"] = f"{ROOT / 'bindings/python'}{os.pathsep}{ROOT / 'bindings/python/demo'}"
        environment |= {"TIERD_JOB_TOKEN": token} if token else {}
        words = [job.name, socket, dict(size.shape), job.seed, steps]
        self.process = subprocess.Popen(
            [sys.executable, str(pathlib.Path(__file__).with_name("three_jobs_arm.py")), json.dumps(words)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
            cwd="/", **(other_user(job.uid) if socket else {}),
        )  # fmt: skip
        self._readers = [threading.Thread(target=self._read_losses), threading.Thread(target=self._read_errors)]
        self.errors = ""
        for reader in self._readers:
            reader.start()

    def _read_losses(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            if self.ready:
                self.losses.append(line.strip())
            self.ready = True

    def _read_errors(self) -> None:
        assert self.process.stderr
        self.errors = self.process.stderr.read()

    def require_alive(self) -> None:
        if self.process.poll():
            self.close()
            raise SystemExit(f"the trainer of {self.name} ended with {self.process.returncode}: {self.errors[-2000:]}")

    def finish(self) -> None:
        """It ends after its step, without an error."""
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(DEADLINE)
        self.require_alive()
        self.close()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for reader in self._readers:
            reader.join()


def other_user(uid: int) -> dict[str, Any]:
    """Arguments of Popen for a process of that user."""
    return {"user": uid, "group": uid, "extra_groups": []}


def borrowed_in(owners: Owners) -> int:
    """Bytes that a and c hold beyond what they are promised."""
    return sum(owners.get(job.name, {}).get("borrowed_bytes", 0) for job in (A, C))


class Node:
    """A daemon that all users reach, as `tierctl` shows it."""

    def __init__(self, socket: str) -> None:
        self.socket = socket
        pathlib.Path(socket).parent.chmod(0o755)

    def tierctl(self, *words: str, uid: int = 0) -> str:
        program = BUILD / "tools/tierctl/tierctl"
        result = subprocess.run(
            [str(program), *words, "--socket", str(pathlib.Path(self.socket).parent)],
            capture_output=True, text=True, timeout=60, cwd="/", **(other_user(uid) if uid else {}),
        )  # fmt: skip
        if result.returncode != 0:
            raise SystemExit(f"tierctl {' '.join(words)}: {result.stderr}")
        said: str = result.stdout
        return said

    def ask(self, *words: str, uid: int = 0) -> Any:
        return json.loads(self.tierctl(*words, "--json", uid=uid))

    def owners(self) -> Owners:
        """The figures of each job that holds, or is owed, memory."""
        return {owner["job"]: owner for owner in self.ask("pool", "map")["owners"]}

    def left_over(self) -> dict[str, int]:
        """What is not as it was before any job came: nothing, once all have gone."""
        status = self.ask("status")
        counts = {name: status[f"{name}_count"] for name in ("job", "session", "tensor", "lease", "waiting", "window")}
        counts["owners of windows"] = len(self.owners())
        counts["live SSD bytes"] = sum(device["live_bytes"] for device in status["devices"])
        return {name: count for name, count in counts.items() if count}


def wait_for(what: str, holds: Callable[[], bool], trainers: Sequence[Trainer] = ()) -> None:
    end = time.monotonic() + DEADLINE
    while not holds():
        for trainer in trainers:
            trainer.require_alive()
        if time.monotonic() > end:
            raise SystemExit(f"after {DEADLINE:.0f} s: not {what}")
        time.sleep(POLL)


def more_steps(trainers: Sequence[Trainer], count: int) -> Callable[[], bool]:
    """Whether each has made so many more than now."""
    until = [len(trainer.losses) + count for trainer in trainers]
    return lambda: all(len(trainer.losses) >= least for trainer, least in zip(trainers, until, strict=True))


@dataclasses.dataclass
class Outcome:
    losses: dict[str, list[str]]  # By job.
    borrowed: int  # Bytes that a and c held beyond what they were promised, before b came.
    held: int  # Bytes that b held at last.
    steps_beside: int  # Of a and c, from b's start until it held its guarantee.
    left_over: dict[str, int]


class Transcript:
    """What the daemon shows of the trainers, as lines, while they train."""

    def __init__(self, node: Node, told: Callable[[str], None]) -> None:
        self._node = node
        self.told = told
        self.trainers: list[Trainer] = []
        self._last: list[str] = []

    def look(self) -> Owners:
        """What jobs hold now; tells it where it has changed."""
        owners = self._node.owners()
        memory, words = [], []
        for trainer in self.trainers:
            figures = owners.get(trainer.name, {})
            held, borrowed, owed = (figures.get(f"{name}_bytes", 0) // MIB for name in ("held", "borrowed", "owed"))
            memory.append(f"holds {held:2} MiB ({borrowed:2} borrowed, {owed} owed)")
            losses = trainer.losses
            trained = f"step {len(losses)} loss {float.fromhex(losses[-1]):.6f}" if losses else "no step yet"
            words.append(f"{trainer.name} {memory[-1]}, {trained}")
        if memory != self._last:
            self.told("; ".join(words))
        self._last = memory
        return owners

    def holds(self, job: Job, least: int) -> bool:
        return self.look().get(job.name, {}).get("held_bytes", 0) >= least

    def picture(self) -> None:
        """The windows, as `tierctl pool map` draws them."""
        self.look()
        self.told("tierctl pool map\n" + self._node.tierctl("pool", "map"))


def take_back(node: Node, size: Size, told: Callable[[str], None]) -> Outcome:
    """The three jobs, from the first one's start to the last one's end. `told` gets the lines of a transcript."""
    seen = Transcript(node, told)
    token = node.ask("job", "open", B.name, "--guarantee", f"{size.guarantee // MIB}MiB", uid=B.uid)["token"]
    told(f"b is guaranteed {size.guarantee // MIB} of {size.arena // MIB} MiB, and has no process yet")
    with contextlib.ExitStack() as stack:

        def start(job: Job, token: str = "") -> Trainer:
            told(f"{job.name} starts, a process of user {job.uid}")
            trainer = stack.enter_context(contextlib.closing(Trainer(job, size, node.socket, token=token)))
            seen.trainers.append(trainer)
            return trainer

        borrowers = [start(A), start(C)]
        wait_for("steps of a and c", more_steps(borrowers, STEPS_BESIDE), borrowers)
        wait_for("b's memory with a and c", lambda: borrowed_in(seen.look()) >= size.guarantee // 2, borrowers)
        borrowed = borrowed_in(seen.look())
        seen.picture()
        before = sum(len(trainer.losses) for trainer in borrowers)
        start(B, token)
        for part in (size.guarantee // 2, size.guarantee - SLACK):
            wait_for(f"{part} bytes with b", functools.partial(seen.holds, B, part), seen.trainers)
            seen.picture()
        steps_beside = sum(len(trainer.losses) for trainer in borrowers) - before
        wait_for("more steps of all", more_steps(seen.trainers, STEPS_BESIDE), seen.trainers)
        held = seen.look()[B.name]["held_bytes"]
        seen.picture()
        for trainer in seen.trainers:
            trainer.finish()
            told(f"{trainer.name} has ended after {len(trainer.losses)} steps")
        wait_for("an empty daemon", lambda: not node.left_over())
    losses = {trainer.name: trainer.losses for trainer in seen.trainers}
    return Outcome(losses, borrowed, held, steps_beside, node.left_over())


def solos(size: Size, steps: Mapping[str, int], socket: str = "") -> dict[str, list[str]]:
    """The losses of each job by itself: in plain torch, or in the daemon with nobody beside it."""
    losses = {}
    for job in JOBS:
        with contextlib.closing(Trainer(job, size, socket, steps=steps[job.name])) as trainer:
            trainer.finish()
            losses[job.name] = trainer.losses
    return losses


def three_jobs(report: Report, quick: bool) -> None:
    if os.geteuid() != 0:
        return report.note("three jobs of two users were not measured", {"reason": "it needs root"})
    size = SMALL if quick else LARGE
    begin = time.monotonic()

    def told(line: str) -> None:
        print(f"{time.monotonic() - begin:8.2f} s  {line}", flush=True)

    with daemon(arena=size.arena, tier=2 * GIB) as (process, _):
        node = Node(str(process.directory / "tierd.sock"))
        outcome = take_back(node, size, told)
        steps = {name: len(losses) for name, losses in outcome.losses.items()}
        alone = {"in tierd alone": solos(size, steps, node.socket), "in plain torch": solos(size, steps)}
    for name, losses in outcome.losses.items():
        for number, loss in enumerate(losses):
            others = (f"{where} {float.fromhex(run[name][number]):.9f}" for where, run in alone.items())
            print(f"{name} step {number + 1:3}  {float.fromhex(loss):.9f}  {'  '.join(others)}")
        for where, run in alone.items():
            same = sum(one == other for one, other in zip(losses, run[name], strict=True))
            what = f"three jobs of two users, {name}: losses with the bits of a run {where}"
            report.add(what, same, f"of {len(losses)}", at_least=len(losses))
    report.add(
        "what the late job holds of its guarantee", outcome.held / size.guarantee, "of it",
        at_least=(size.guarantee - SLACK) / size.guarantee,
        ceiling=f"{outcome.borrowed / MIB:.0f} MiB were lent; {outcome.steps_beside} steps of a and c meanwhile",
    )  # fmt: skip
    report.add("jobs, sessions, tensors, windows left over", sum(outcome.left_over.values()), "", at_most=0)
