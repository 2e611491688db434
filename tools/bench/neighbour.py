"""Leases of tensors in RAM while other jobs force compaction and hand-over: whether a neighbour waits for these.

The neighbour's tensors lie within its guarantee. One job fills what it may have with small tensors, frees most of them,
and asks for whole blocks: what is left moves together. Two others take a guarantee from each other again and again,
each while the other one's windows are nearly empty: what lies there moves, and the windows go over. Then the same
leases beside processes that use as much processor time as the daemon and these jobs did; and beside a program that does
nothing but make and punch as many windows, with a burner for the rest: what of it is the kernel's.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Iterator

from bare_windows import BareWindows
from burner import burning
from footprint import cpu_seconds
from node import GIB, LISTENING, MIB, Shell, command, daemon, metrics
from report import Report, figure

from tierd import control
from tierd.daemon import Daemon

ARENA = GIB
OWN = 16 * MIB  # Guaranteed to the neighbour, which has 4 MiB.
SCATTERED = 256 * MIB  # Guaranteed to the job that frees most of its small tensors; its limit too.
HIGH, LOW = 512 * MIB, 64 * MIB  # Guaranteed in turn to the two that take it from each other …
TAKEN = 448 * MIB  # … in one request of so many bytes.
QUANTILE = 0.999
ABOVE_MS = 1.0  # The bound, above the time beside a burner.
BATCH = 128 * MIB  # Of windows that the bare program makes, and then punches, at a time.
WARM_UP_S = 30.0  # In that time both loads are to be under way.
COUNTED = ("compacted", "emptied", "windows")
COMPACTION = ("block", "slot")  # Causes of moves; the third is hand-over.


class Counters:
    """What a daemon counts of moves and of windows that went to other jobs."""

    def __init__(self, process: Daemon) -> None:
        values = metrics(process)
        moves = "tierd_compaction_moves_total"
        self.compacted = sum(values[f'{moves}{{cause="{cause}"}}'] for cause in COMPACTION)
        self.emptied = values[f'{moves}{{cause="window"}}']
        self.windows = sum(n for name, n in values.items() if name.startswith("tierd_hand_over_windows_total"))

    def all_rose(self, before: Counters) -> bool:
        return all(getattr(self, name) > getattr(before, name) for name in COUNTED)


@contextlib.contextmanager
def repeated(*works: Callable[[], object]) -> Iterator[None]:
    """Each again and again in a thread of its own, while the block runs."""
    ended = threading.Event()
    faults: list[BaseException] = []

    def repeat(work: Callable[[], object]) -> None:
        try:
            while not ended.is_set():
                work()
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    if faults:
        raise faults[0]


class Loads:
    """The jobs that force compaction and hand-over, and what they and the daemon used and did meanwhile."""

    def __init__(self, process: Daemon) -> None:
        self.process = process
        self.scatter = Shell(command(process, "scatter", job="scattered", guarantee=SCATTERED))
        self.takers = {
            name: Shell(command(process, "take", job=name, guarantee=LOW, bytes=TAKEN)) for name in ("east", "west")
        }
        self.order = list(self.takers)
        self.control = control.connect(str(process.directory / "tierd.sock"))
        self.shells = [self.scatter, *self.takers.values()]
        self.pids = [process.process.pid, *(shell.process.pid for shell in self.shells)]
        self.cores: list[float] = []
        self.compacted: list[float] = []  # A second, each.
        self.emptied: list[float] = []
        self.windows: list[float] = []

    def take(self) -> None:
        """The other one of the two gets the guarantee, and takes its memory."""
        self.order.reverse()
        taker, giver = self.order
        self.control.set_job(giver, guarantee=LOW)
        self.control.set_job(taker, guarantee=HIGH)
        self.takers[taker]("take")

    def both(self) -> contextlib.AbstractContextManager[None]:
        return repeated(lambda: self.scatter("scatter"), self.take)

    def warm_up(self) -> None:
        """Until there is both compaction and hand-over: the first time they wait for new memory."""
        before, end = Counters(self.process), time.monotonic() + WARM_UP_S
        with self.both():
            while not Counters(self.process).all_rose(before):
                if time.monotonic() > end:
                    raise SystemExit(f"no compaction or no hand-over in {WARM_UP_S:g} s: {self.process.log_tail()}")
                time.sleep(0.1)

    def used(self) -> float:
        return sum(map(cpu_seconds, self.pids)) + time.process_time()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        with self.both():
            before, used, begin = Counters(self.process), self.used(), time.monotonic()
            yield
            seconds, cores, after = time.monotonic() - begin, self.used() - used, Counters(self.process)
        if not after.all_rose(before):
            raise SystemExit(f"no compaction or no hand-over beside these leases: {vars(before)}, then {vars(after)}")
        self.cores.append(cores / seconds)
        for name in COUNTED:
            getattr(self, name).append((getattr(after, name) - getattr(before, name)) / seconds)

    def close(self) -> None:
        self.control.close()
        for shell in self.shells:
            shell.close()


@contextlib.contextmanager
def making(bare: BareWindows, rate: float, cores: float) -> Iterator[None]:
    """So many windows a second are made and punched, and so many processors used in all."""
    begin, made, windows = time.perf_counter(), 0, BATCH // bare.size

    def batch() -> None:
        nonlocal made
        bare.populate()
        bare.punch()
        made += windows
        time.sleep(max(0.0, begin + made / rate - time.perf_counter()))

    used = cpu_seconds(bare.shell.process.pid)
    batch()  # Before the clock of what follows: it tells what a window costs.
    each = (cpu_seconds(bare.shell.process.pid) - used) / windows
    begin, made = time.perf_counter(), 0
    with burning(max(0.01, cores - each * rate)), repeated(batch):
        yield


def neighbour(report: Report, quick: bool) -> None:
    rounds, count = (3, 4000) if quick else (12, 10_000)
    times: dict[str, list[float]] = {"alone": [], "loads": [], "burn": [], "made": []}
    with daemon(arena=ARENA, tier=4 * GIB, more=LISTENING) as (process, _):
        reader = Shell(command(process, "lease-shell", count=count, guarantee=OWN, quantile=QUANTILE))
        loads = Loads(process)
        loads.warm_up()
        bare = BareWindows(process, BATCH, threads=1)
        for _ in range(rounds):
            times["alone"].append(reader("hits") / 1e3)
            with loads.running():
                times["loads"].append(reader("hits") / 1e3)
            with burning(loads.cores[-1]):
                times["burn"].append(reader("hits") / 1e3)
            with making(bare, loads.windows[-1], loads.cores[-1]):
                times["made"].append(reader("hits") / 1e3)
        bare.close()
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
        ceiling=f"{median['loads']:.2f} ms; burner of {each['cores']:.2f} processors {median['burn']:.2f}, with so "
        f"many bare windows {median['made']:.2f}, alone {median['alone']:.2f}; quartiles {lower:.2g}–{upper:.2g} of "
        f"{rounds} rounds; a second {figure(each['compacted'])} pieces moved for blocks, {figure(each['emptied'])} out "
        f"of windows, {figure(each['windows'])} windows handed over",
    )
