"""Two hungry jobs in one arena: does each hold what it is promised?

Each job is a process of its own that reads its tensors in a circle; together they have far more than the arena holds.
The first has all of the arena before the second comes. Run as a program, this is one of the two processes.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from node import GIB, MIB, Shell, daemon, program
from report import Report

from tierd import control

ARENA = GIB
FOR_NOBODY = ARENA // 16
TENSOR = 8 * MIB
FROM = 2.0  # Seconds after both run.
SAMPLES_PER_SECOND = 10
PART = 0.95  # Of its promise: what a job is to hold …
TIME = 0.99  # … in this part of the samples.


def start(socket: str, job: str, guarantee: int) -> Shell:
    return program(__file__, socket, job, guarantee, 2 * ARENA // TENSOR, TENSOR)


def holds(report: Report, shares: tuple[int, int], seconds: float) -> None:
    """Guarantees in this proportion, of all that may be guaranteed."""
    unit = (ARENA - FOR_NOBODY) // sum(shares)
    # Room on SSD for twice the arena of each, and as much again as writes are under way.
    with daemon(arena=ARENA, tier=5 * GIB) as (process, _):
        socket = str(process.directory / "tierd.sock")
        promised = {"hog": unit * shares[0], "late": unit * shares[1]}
        jobs = [start(socket, name, guarantee) for name, guarantee in promised.items()]
        for job in jobs:
            job("cycle")
        rates: dict[str, list[float]] = {name: [] for name in promised}
        with control.connect(socket) as channel:
            begin = time.monotonic()
            while (now := time.monotonic() - begin) < FROM + seconds:
                if now >= FROM:
                    for listed in channel.list_jobs():
                        rates[listed.name].append(listed.held_bytes / promised[listed.name])
                time.sleep(1 / SAMPLES_PER_SECOND)
        rounds = [job("stop") for job in jobs]
        for job in jobs:
            job.close()
    for name, samples in rates.items():
        part = sum(sample >= PART for sample in samples) / len(samples)
        report.add(
            f"two hungry jobs, guarantees {shares[0]}:{shares[1]}, {name}: samples with ≥ {PART} of its promise",
            part,
            "of all",
            at_least=TIME,
            ceiling=f"{len(samples)} samples, least {min(samples):.2f} of {promised[name] // MIB} MiB; "
            f"{rounds[list(rates).index(name)]:.0f} tensors read",
        )


def contention(report: Report, quick: bool) -> None:
    for shares in ((1, 1), (1, 3)):
        holds(report, shares, 10 if quick else 60)


def cycle(socket: str, job: str, guarantee: int, count: int, size: int) -> None:
    """Answers "cycle" when it has begun to read, and "stop" with the tensors it has read."""
    import tierd

    with tierd.connect(job=job, socket=socket, guarantee=guarantee) as client:
        content = bytes(size)
        for number in range(count):
            client.put(number, content)
        stopped = threading.Event()
        read = 0

        def go_round() -> None:
            nonlocal read
            while not stopped.is_set():
                with client.lease(read % count):
                    read += 1

        reader = threading.Thread(target=go_round)
        print(json.dumps({"ready": 1}), flush=True)
        for line in sys.stdin:
            if line.strip() == "cycle":
                reader.start()
                print(json.dumps({"cycle": 1}), flush=True)
            else:
                stopped.set()
                reader.join()
                print(json.dumps({"stop": read}), flush=True)


if __name__ == "__main__":
    cycle(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
