"""Processes that use a part of the processors and do nothing else: the ceiling of what is measured beside a load.

On few processors, who waits for that load also waits for the processor that it uses.

Run as a program, this is one of those processes.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator

from node import program

PERIOD = 0.002  # Of a burner's work and sleep, seconds.
OWED_MAX = 10 * PERIOD  # What it did not get is made good up to this.


@contextlib.contextmanager
def burning(cores: float) -> Iterator[None]:
    """So many processors are busy, evenly over those that there are."""
    count = len(os.sched_getaffinity(0))
    burners = [program(__file__, f"{cores / count:.3f}") for _ in range(count)]
    try:
        yield
    finally:
        for burner in burners:
            burner.close()


def burn(part: float) -> None:
    """Uses this part of a processor until stdin ends."""
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    print('{"ready": 1}', flush=True)
    owed, at, used = 0.0, time.perf_counter(), time.process_time()
    while True:
        now, spent = time.perf_counter(), time.process_time()
        # By the time that it had a processor, not by the clock: others may have it meanwhile.
        owed = min(owed + part * (now - at) - (spent - used), OWED_MAX)
        at, used = now, spent
        if owed <= 0:
            time.sleep((1 - min(part, 0.99)) * PERIOD)


if __name__ == "__main__":
    burn(float(sys.argv[1]))
