"""The ceiling of the SSD figures: fio on the daemon's own file, with its kind of buffer, in its best shape."""

from __future__ import annotations

import dataclasses
import itertools
import json
import mmap
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
from typing import Any

from buffers import Buffers

# The daemon keeps its superblocks in the first bytes of the file: fio stays behind them.
OFFSET = 64 << 20


@dataclasses.dataclass(frozen=True)
class Shape:
    """One way to ask the device: bytes of a request, requests under way, processes."""

    block_kib: int
    depth: int
    jobs: int

    def __str__(self) -> str:
        return f"{self.block_kib} KiB × {self.depth} × {self.jobs}"


# design: block size 1-8 MiB, depth 4-32, 1-2 jobs; the corners and the middle.
SHAPES = [Shape(*parts) for parts in itertools.product((1024, 4096), (8, 32), (1, 2))]


def available() -> bool:
    return shutil.which("fio") is not None


def may_register(shape: Shape) -> bool:
    """Whether memlock lets buffers of this shape be registered: without privileges tierd does without, too."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return limit == resource.RLIM_INFINITY or os.geteuid() == 0 or shape.block_kib * shape.depth * 2048 < limit


def make_buffers() -> Buffers:
    """Enough for every shape. fio has up to two pages more than its requests need, to align them."""
    largest = max(shape.block_kib * shape.depth for shape in SHAPES) << 10
    return Buffers(max(shape.jobs for shape in SHAPES), largest + 2 * mmap.PAGESIZE)


def run(path: pathlib.Path, direction: str, total: int, shape: Shape, buffers: Buffers) -> float:
    """GB/s of one pass of ``direction`` ("read" or "write") over ``total`` bytes of ``path``."""
    size = total // shape.jobs
    job = _job([f"--rw={direction}", f"--io_size={size}"], path, size, shape, buffers)[direction]
    # Wall time of the whole group, as for the daemon: bytes over the slowest job's time.
    return float(job["io_bytes"]) / (float(job["runtime"]) * 1e-3) * 1e-9


def run_mixed(
    path: pathlib.Path, read_part: float, seconds: float, total: int, shape: Shape, buffers: Buffers
) -> float:
    """GB/s, reads and writes together, of ``seconds`` in which ``read_part`` of the bytes are read."""
    mix = round(100 * read_part)
    load = ["--rw=rw", f"--rwmixread={mix}", "--time_based", f"--runtime={round(1000 * seconds)}ms"]
    job = _job(load, path, total // shape.jobs, shape, buffers)
    moved = sum(float(job[direction]["io_bytes"]) for direction in ("read", "write"))
    return moved / (max(float(job[direction]["runtime"]) for direction in ("read", "write")) * 1e-3) * 1e-9


def _job(load: list[str], path: pathlib.Path, size: int, shape: Shape, buffers: Buffers) -> dict[str, Any]:
    """What fio reports of its jobs, each of which has ``size`` bytes of the file."""
    command = [
        "fio", "--name=global", f"--filename={path}", *load, f"--bs={shape.block_kib}k",
        f"--size={size}", f"--iodepth={shape.depth}", "--ioengine=io_uring", "--direct=1",
        "--group_reporting", "--allow_file_create=0", "--output-format=json", "--randrepeat=1", "--norandommap",
        "--refill_buffers=0", "--thread=0",
    ]  # fmt: skip
    if may_register(shape):
        command += ["--fixedbufs", "--registerfiles"]
    files = [buffer.file for buffer in buffers.each[: shape.jobs]]
    for job, file in enumerate(files):
        # fio maps such a file from its start, and neither truncates nor removes one that is there.
        memory = f"--iomem=mmapshared:/proc/self/fd/{file}"
        command += ["--name=ceiling", f"--offset={OFFSET + job * size}", memory]
    result = subprocess.run(command, capture_output=True, text=True, pass_fds=files)
    if result.returncode != 0:
        raise SystemExit(f"fio: {result.stderr.strip()[-400:] or result.stdout.strip()[-400:]}")
    found: dict[str, Any] = json.loads(result.stdout[result.stdout.index("{") :])["jobs"][0]
    return found


def best_shape(path: pathlib.Path, direction: str, total: int, buffers: Buffers, rounds: int) -> tuple[Shape, float]:
    """The shape with the highest median; rounds alternate over the shapes."""
    rates: dict[Shape, list[float]] = {shape: [] for shape in SHAPES}
    for _ in range(rounds):
        for shape in SHAPES:
            rates[shape].append(run(path, direction, total, shape, buffers))
    best = max(SHAPES, key=lambda shape: statistics.median(rates[shape]))
    return best, statistics.median(rates[best])


@dataclasses.dataclass(frozen=True)
class Arm:
    """GB/s of one pass over the file in a direction, each in its best shape."""

    path: pathlib.Path
    total: int
    shapes: dict[str, Shape]
    buffers: Buffers

    def __call__(self, direction: str) -> float:
        return run(self.path, direction, self.total, self.shapes[direction], self.buffers)
