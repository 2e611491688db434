"""What a daemon takes: processor time, and memory as docs/benchmarks.md counts it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import time

SAMPLES_PER_SECOND = 20


def cpu_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass
class Footprint:
    """Bytes beside the arena: PSS of what is no memfd, what is allocated to memfds that are no windows, and of both
    what the index environments take (the memfd of the ram one, the mapped file of the ssd one)."""

    private: int = 0
    memfds: int = 0
    index: int = 0

    @property
    def total(self) -> int:
        return self.private + self.memfds


def _mapped(pid: int) -> tuple[int, int]:
    """PSS of mappings that are no memfd, and of those what belongs to LMDB's file."""
    total = index = 0
    name = ""
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        head = line.split(maxsplit=5)
        if "-" in head[0] and not head[0].endswith(":"):
            name = head[5] if len(head) == 6 else ""
        elif head[0] == "Pss:" and "/memfd:" not in name:
            total += int(head[1]) * 1024
            index += int(head[1]) * 1024 if name.endswith(".mdb") else 0
    return total, index


def take(pid: int) -> Footprint:
    private, index = _mapped(pid)
    footprint = Footprint(private=private, index=index)
    seen: set[int] = set()
    for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            target, status = os.readlink(descriptor), os.stat(descriptor)
            if not target.startswith("/memfd:") or target.startswith("/memfd:tierd-window") or status.st_ino in seen:
                continue
            seen.add(status.st_ino)
            footprint.memfds += status.st_blocks * 512
            footprint.index += status.st_blocks * 512 if target.startswith("/memfd:tier-index") else 0
    return footprint


def peak(pid: int, seconds: float) -> Footprint:
    """The largest of samples taken at 20 Hz."""
    largest = take(pid)
    for _ in range(int(seconds * SAMPLES_PER_SECOND)):
        time.sleep(1 / SAMPLES_PER_SECOND)
        largest = max(largest, take(pid), key=lambda sample: sample.total)
    return largest
