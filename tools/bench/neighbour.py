"""Leases of tensors in RAM while other jobs force compaction and hand-over: whether a neighbour waits for these.

The neighbour's tensors lie within its guarantee. One job fills what it may have with small tensors, frees most of them,
and asks for whole blocks: what is left moves together. Two others take a guarantee from each other again and again,
each while the other one's windows are nearly empty: what lies there moves, and the windows go over. Then the same
leases beside processes that use as much processor time as the daemon and these jobs did.

Run as a program, this is one of the two loads.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator

from burner import burning
from footprint import cpu_seconds
from node import BUILD, GIB, LISTENING, MIB, Shell, command, daemon, metrics, program
from report import Report, figure

from tierd.daemon import Daemon

ARENA = GIB
BLOCK = 2 * MIB
OWN = 16 * MIB  # Guaranteed to the neighbour, which has 4 MiB.
SCATTERED = 256 * MIB  # Guaranteed to the job that frees most of its small tensors; its limit too.
SMALL = 64 * 1024
KEPT = 8  # It keeps one of so many.
HIGH, LOW = 512 * MIB, 64 * MIB  # Guaranteed in turn to the two that take it from each other.
QUANTILE = 0.999
ABOVE_MS = 1.0  # The bound, above the time beside a burner.
WARM_UP_S = 30.0  # In that time both loads are to be under way.
COUNTED = ("compacted", "emptied", "windows")
COMPACTION = ("block", "slot")  # Causes of moves; the third is hand-over.


class Counters:
    """What a daemon counts of moves and of windows that went to other jobs."""

    def __init__(self, process: Daemon) -> None:
        values = metrics(process)
        moves = "tier_compaction_moves_total"
        self.compacted = sum(values[f'{moves}{{cause="{cause}"}}'] for cause in COMPACTION)
        self.emptied = values[f'{moves}{{cause="window"}}']
        self.windows = sum(n for name, n in values.items() if name.startswith("tier_hand_over_windows_total"))

    def all_rose(self, before: Counters) -> bool:
        return all(getattr(self, name) > getattr(before, name) for name in COUNTED)


class Loads:
    """The processes of the jobs, and what they and the daemon have used and done while they were running."""

    def __init__(self, process: Daemon) -> None:
        self.process = process
        socket = str(process.directory / "tierd.sock")
        self.shells = [program(__file__, name, socket) for name in ("scatter", "take in turn")]
        self.pids = [process.process.pid, *(shell.process.pid for shell in self.shells)]
        self.cores: list[float] = []
        self.compacted: list[float] = []  # A second, each.
        self.emptied: list[float] = []
        self.windows: list[float] = []

    def warm_up(self) -> None:
        """Runs them until there is both compaction and hand-over: the first time they wait for new memory."""
        before, end = Counters(self.process), time.monotonic() + WARM_UP_S
        for shell in self.shells:
            shell("run")
        while not Counters(self.process).all_rose(before):
            if time.monotonic() > end:
                raise SystemExit(f"no compaction or no hand-over in {WARM_UP_S:g} s: {self.process.log_tail()}")
            time.sleep(0.1)
        for shell in self.shells:
            shell("stop")

    def used(self) -> float:
        return sum(map(cpu_seconds, self.pids))

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        for shell in self.shells:
            shell("run")
        before, used, begin = Counters(self.process), self.used(), time.monotonic()
        yield
        seconds, cores, after = time.monotonic() - begin, self.used() - used, Counters(self.process)
        self.cores.append(cores / seconds)
        if not after.all_rose(before):
            raise SystemExit(f"no compaction or no hand-over beside these leases: {vars(before)}, then {vars(after)}")
        for name in COUNTED:
            getattr(self, name).append((getattr(after, name) - getattr(before, name)) / seconds)
        for shell in self.shells:
            shell("stop")

    def close(self) -> None:
        for shell in self.shells:
            shell.close()


def neighbour(report: Report, quick: bool) -> None:
    os.environ.setdefault("TIERD_BUILD", str(BUILD))
    rounds, count = (3, 4000) if quick else (12, 10_000)
    times: dict[str, list[float]] = {"alone": [], "loads": [], "burn": []}
    with daemon(arena=ARENA, tier=4 * GIB, more=LISTENING) as (process, _):
        reader = Shell(command(process, "lease-shell", count=count, guarantee=OWN, quantile=QUANTILE))
        loads = Loads(process)
        loads.warm_up()
        for _ in range(rounds):
            times["alone"].append(reader("hits") / 1e3)
            with loads.running():
                times["loads"].append(reader("hits") / 1e3)
            with burning(loads.cores[-1]):
                times["burn"].append(reader("hits") / 1e3)
        reader.close()
        loads.close()
    above = [one - other for one, other in zip(times["loads"], times["burn"], strict=True)]
    lower, middle, upper = statistics.quantiles(above, n=4)
    median = {name: statistics.median(values) for name, values in times.items()}
    each = {name: statistics.median(getattr(loads, name)) for name in ("cores", *COUNTED)}
    report.add(
        "acquire + release in RAM beside compaction and hand-over, p99.9",
        middle,
        "ms above a burner",
        at_most=ABOVE_MS,
        detail={"ms": times, "cores": loads.cores, "windows": loads.windows},
        ceiling=f"{median['loads']:.2f} ms; burner of {each['cores']:.2f} processors {median['burn']:.2f}, alone "
        f"{median['alone']:.2f}; quartiles {lower:.2g}–{upper:.2g} of {rounds} rounds; a second "
        f"{figure(each['compacted'])} pieces moved for blocks, {figure(each['emptied'])} out of windows, "
        f"{figure(each['windows'])} windows handed over",
    )


def scatter(socket: str) -> Callable[[], None]:
    """Fills what the job may have with small tensors, frees most, and asks for as many whole blocks as fit."""
    import tierd
    from tierd import Part

    client = tierd.connect(job="scattered", socket=socket, guarantee=SCATTERED, limit=SCATTERED)
    count = SCATTERED * 9 // 10 // SMALL
    kept = range(0, count, KEPT)
    blocks = [f"block {number}" for number in range(SCATTERED * 5 // 8 // BLOCK)]

    def once() -> None:
        for begin in range(0, count, 512):
            parts = [Part(number, size=SMALL) for number in range(begin, min(count, begin + 512))]
            for lease in client.lease_many(parts):
                lease.release()
        client.delete(*(number for number in range(count) if number % KEPT))
        for lease in client.lease_many([Part(block, size=BLOCK) for block in blocks]):
            lease.release()
        client.delete(*kept, *blocks)

    return once


def take_in_turn(socket: str) -> Callable[[], None]:
    """Each time the other one of two jobs gets the guarantee and takes its memory, then leaves little in each block."""
    import tierd
    from tierd import Part, control

    channel = control.connect(socket)
    clients = {name: tierd.connect(job=name, socket=socket, guarantee=LOW) for name in ("east", "west")}
    order = list(clients)
    filled: set[str] = set()  # Those with pieces.
    asked = HIGH * 7 // 8
    pieces = [f"piece {number}" for number in range(asked // BLOCK)]
    rests = [f"rest {number}" for number in range(asked // BLOCK)]

    def once() -> None:
        order.reverse()
        taker, giver = order
        channel.set_job(giver, guarantee=LOW)
        channel.set_job(taker, guarantee=HIGH)
        client = clients[taker]
        if taker in filled:
            client.delete(*pieces)
        client.create("whole", asked).release()
        client.delete("whole")
        for piece, rest in zip(pieces, rests, strict=True):
            for lease in client.lease_many([Part(piece, size=SMALL), Part(rest, size=BLOCK - SMALL)]):
                lease.release()
        client.delete(*rests)
        filled.add(taker)

    return once


def serve(once: Callable[[], None]) -> None:
    """Repeats it from "run" to "stop", which is answered with the number of times."""
    print(json.dumps({"ready": 1}), flush=True)
    for _ in sys.stdin:
        ended = threading.Event()
        times = 0

        def repeat(ended: threading.Event = ended) -> None:
            nonlocal times
            try:
                while not ended.is_set():
                    once()
                    times += 1
            except BaseException:
                traceback.print_exc()
                os._exit(1)

        thread = threading.Thread(target=repeat)
        thread.start()
        print(json.dumps({"run": 1}), flush=True)
        sys.stdin.readline()
        ended.set()
        thread.join()
        print(json.dumps({"stop": times}), flush=True)


if __name__ == "__main__":
    serve({"scatter": scatter, "take in turn": take_in_turn}[sys.argv[1]](sys.argv[2]))
