"""How long the memory of a killed client is away: from its death, as the kernel reports it, to the next client's lease.

A client (this file, run by itself) creates tensors in most of the arena and holds their write leases; it is killed, and
another one, connected before, creates a tensor that needs more than was left.
"""

from __future__ import annotations

import pathlib
import signal
import statistics
import subprocess
import sys
import time

from node import GIB, MIB, daemon

ARENA = 64 * MIB
HELD = 7  # Of eight parts of the arena; the other client asks for five.
PART = ARENA // 8


def hold(socket: str) -> None:
    """The victim: holds its leases until it is killed."""
    import tierd

    client = tierd.connect(job="victim", socket=socket)
    leases = [client.create(f"part-{index}", PART) for index in range(HELD)]
    print(len(leases), flush=True)
    signal.pause()


def wait_for(process: subprocess.Popen[str]) -> None:
    assert process.stdout
    if not process.stdout.readline():
        raise SystemExit(f"the client that was to be killed ended with {process.wait()}")


def reclaim_ms(quick: bool) -> list[float]:
    """Milliseconds of each round, each with a daemon and clients of its own."""
    import tierd

    times = []
    for _ in range(3 if quick else 15):
        with daemon(arena=ARENA, tier=2 * GIB, prefault=True) as (process, _):
            socket = str(process.directory / "tierd.sock")
            words = [sys.executable, __file__, socket]
            victim = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
            try:
                with tierd.connect(job="heir", socket=socket) as heir:
                    wait_for(victim)
                    victim.kill()
                    victim.wait()
                    died = time.perf_counter()
                    with heir.create("whole", 5 * PART):
                        times.append((time.perf_counter() - died) * 1e3)
            finally:
                victim.kill()
                victim.wait()
    return times


def quartiles_of(times: list[float]) -> str:
    lower, _, upper = statistics.quantiles(times, n=4)
    return f"quartiles {lower:.3g}–{upper:.3g}, longest {max(times):.3g} ms of {len(times)} rounds"


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bindings/python"))
    hold(sys.argv[1])
