"""The least time that a training step can take here: for each of its phases, the longer of computing and transfers.

A phase computes as long as plain torch does in the same round, and 0.12 core seconds for each GB that it moves, divided
by the processors. It transfers the bytes that were counted, at fio's rate for this mix of reads and writes, measured
between the steps of that round. The phases: forward; backward and update.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Sequence

import fio
from buffers import Buffers
from node import GIB, MIB, scratch

CORE_SECONDS_PER_GB = 0.12
SPREAD_MAX = 1.5  # Of fio's third quartile over its first: beyond it, a run is repeated and not quoted.
SECONDS = 2.0  # Of fio for each phase and round.
BYTES_MIN = 16 * MIB  # A phase that moves less waits for nothing.
FILE_BYTES = 2 * GIB


@dataclasses.dataclass(frozen=True, slots=True)
class Phase:
    """Of one step: seconds that plain torch computes, bytes that were moved, and fio's GB/s for them (0: not asked)."""

    compute: float
    read: int
    written: int
    rate: float

    @property
    def moved(self) -> int:
        return self.read + self.written

    @property
    def compute_seconds(self) -> float:
        return self.compute + CORE_SECONDS_PER_GB * self.moved / 1e9 / cores()

    @property
    def transfer_seconds(self) -> float:
        return self.moved / 1e9 / self.rate if self.rate else 0.0

    @property
    def bound(self) -> float:
        return max(self.compute_seconds, self.transfer_seconds)


def cores() -> int:
    return len(os.sched_getaffinity(0))


class Disk:
    """fio on a file of its own, where the daemons have theirs, in its best shape. ``size``: bytes of it behind
    ``fio.OFFSET``."""

    def __init__(self, path: pathlib.Path, size: int, seconds: float, buffers: Buffers) -> None:
        self.path, self.size, self.seconds = path, size, seconds
        self._buffers = buffers
        self._shapes: dict[str, fio.Shape] = {}

    def rate(self, phase: str, read: int, written: int) -> float:
        """GB/s of transfers with this proportion of reads. 0: too few bytes to ask. fio's shape is chosen once for each
        ``phase``, by its median."""
        if read + written < BYTES_MIN:
            return 0.0
        part = read / (read + written)
        return self._run(part, self.seconds, self._shape(phase, part))

    def shapes(self) -> dict[str, str]:
        return {phase: str(shape) for phase, shape in self._shapes.items()}

    def _shape(self, phase: str, part: float) -> fio.Shape:
        if phase not in self._shapes:
            rates = {
                shape: statistics.median(self._run(part, self.seconds / 4, shape) for _ in range(3))
                for shape in fio.SHAPES
            }
            self._shapes[phase] = max(fio.SHAPES, key=rates.__getitem__)
        return self._shapes[phase]

    def _run(self, part: float, seconds: float, shape: fio.Shape) -> float:
        return fio.run_mixed(self.path, part, seconds, self.size, shape, self._buffers)


@contextlib.contextmanager
def disk(quick: bool) -> Iterator[Disk]:
    """A file that has been written once, gone at the end."""
    if not fio.available():
        raise SystemExit("bench: fio is missing: the bound of a training step is measured with it (apt install fio)")
    size = FILE_BYTES // 4 if quick else FILE_BYTES
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tier-bench-", dir=scratch()))
    try:
        path = folder / "fio.bytes"
        with path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, fio.OFFSET + size)
        with fio.make_buffers() as buffers:
            fio.run(path, "write", size, fio.SHAPES[0], buffers)
            yield Disk(path, size, SECONDS / 4 if quick else SECONDS, buffers)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def spread(rates: Sequence[float]) -> float:
    """The third quartile over the first; 1 where fio was not asked, and of one rate."""
    asked = [rate for rate in rates if rate]
    if len(asked) < 2:
        return 1.0
    first, _, third = statistics.quantiles(asked, n=4, method="inclusive")
    return third / first
