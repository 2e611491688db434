"""Processes that use a part of the processors and do nothing else: the ceiling of what is measured beside a load.

On few processors, who waits for that load also waits for the processor that it uses. A burner that got less than the
load had would be a lower ceiling: so what one of its processes does not get, the others use for it.

Run as a program, this is the parent of those processes.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import sys
import time
from collections.abc import Iterator

from node import program

PERIOD = 0.002  # Of a burner's work and sleep, seconds.
BEHIND = 5 * PERIOD  # So much less than all were to have: who has its own part goes on.
OWED_MAX = 1.0  # What they did not get is made good up to this, seconds.


@contextlib.contextmanager
def burning(cores: float) -> Iterator[None]:
    """So many processors are busy, evenly over those that there are."""
    burner = program(__file__, f"{cores:.3f}")
    try:
        yield
    finally:
        burner.close()


def burn(cores: float, number: int, used: memoryview[float]) -> None:
    """Uses an equal part of processor time; more, while all of them, each at its number of `used`, are far behind."""
    part = cores / len(used)
    forgiven, begin = 0.0, time.perf_counter()
    while True:
        # By the time that they had a processor, not by the clock: others may have it meanwhile.
        used[number] = time.process_time()
        elapsed = time.perf_counter() - begin
        owed = part * elapsed - used[number]
        behind = cores * elapsed - sum(used) - forgiven
        if behind > OWED_MAX:
            forgiven += behind - OWED_MAX
        if owed <= 0 and behind <= BEHIND:
            time.sleep((1 - min(part, 0.99)) * PERIOD)


def main() -> None:
    count = len(os.sched_getaffinity(0))
    used = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("d")[:count]
    children = []
    for number in range(count):
        child = os.fork()
        if child == 0:
            burn(float(sys.argv[1]), number, used)
        children.append(child)
    print('{"ready": 1}', flush=True)
    sys.stdin.read()
    for child in children:
        os.kill(child, signal.SIGKILL)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
