"""What a trainer and its daemon take while they run: memory 20 times a second, processor time and SSD bytes 100 times.

Each Sampler has a thread of its own. Times are those of CLOCK_MONOTONIC, which all processes share.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from types import TracebackType

from counters import core_seconds, device_bytes
from steps import DEMO, load

MEMORY = load(DEMO / "footprint.py")
COUNTS_PER_SECOND = 100
_TICKS = COUNTS_PER_SECOND // MEMORY.SAMPLES_PER_SECOND


@dataclasses.dataclass(frozen=True, slots=True)
class Counts:
    """Totals since the processes began."""

    at: float  # Seconds.
    trainer: float  # Core seconds.
    daemon: float
    read: int  # Bytes that the process with the arm's I/O has read from the device, and written to it.
    written: int


class Sampler:
    """Samples from ``with`` to its end. ``memory``: (seconds, bytes beyond those of the process ``idle``); ``counts``:
    of trainer and daemon."""

    def __init__(self, trainer: int, daemon: int | None, *, idle: int) -> None:
        self._trainer, self._daemon, self._idle = trainer, daemon, idle
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.memory: list[tuple[float, int]] = []
        self.counts: list[Counts] = []

    @property
    def peak(self) -> int:
        return max((size for _, size in self.memory), default=0)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        tick = 0
        idle = memory_bytes(self._idle, None)
        while True:
            if tick % _TICKS == 0:
                self.memory.append((time.perf_counter(), memory_bytes(self._trainer, self._daemon) - idle))
            self.counts.append(self._count())
            tick += 1
            if self._ended.wait(1 / COUNTS_PER_SECOND):
                return

    def _count(self) -> Counts:
        io = self._trainer if self._daemon is None else self._daemon
        daemon = 0.0 if self._daemon is None else core_seconds(self._daemon)
        return Counts(time.perf_counter(), core_seconds(self._trainer), daemon, *device_bytes(io))


def memory_bytes(trainer: int, daemon: int | None) -> int:
    """As design §11 counts it: PSS of what is no memfd, and all bytes of the daemon's memfds."""
    total: int = MEMORY.private_bytes(trainer)
    if daemon is not None:
        total += MEMORY.private_bytes(daemon) + MEMORY.memfd_bytes(daemon)
    return total
