"""Memory as design §11 counts it: the sum over processes of their PSS without arena mappings, plus the bytes allocated
to all memfds of the daemon.

The arena is shared memory, and nothing else in these processes is, so PSS without it is the anonymous and file-backed
part of smaps_rollup. Memfds are read off the daemon's descriptors, each counted once.
"""

from __future__ import annotations

import os
import pathlib
import threading

SAMPLES_PER_SECOND = 20


def private_bytes(pid: int) -> int:
    """PSS of anonymous and file-backed memory; 0 when the process is gone."""
    total = 0
    try:
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(("Pss_Anon:", "Pss_File:")):
                total += int(line.split()[1]) * 1024
    except (OSError, ValueError):
        return 0
    return total


def memfd_bytes(pid: int) -> int:
    """Bytes allocated to the memfds that the process holds, hugetlb ones included."""
    allocated = {}
    try:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            try:
                if not os.readlink(entry.path).startswith("/memfd:"):
                    continue
                state = os.stat(entry.path)
            except OSError:
                continue
            allocated[state.st_ino] = state.st_blocks * 512
    except OSError:
        return 0
    return sum(allocated.values())


class Footprint:
    """Samples 20 times a second on a thread of its own, from `start` to `stop`; keeps the peak."""

    def __init__(self, trainer: int, daemon: int | None) -> None:
        self._trainer = trainer
        self._daemon = daemon
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.peak = 0
        self.peak_trainer = 0
        self.peak_daemon = 0
        self.peak_memfd = 0
        self._thread.start()

    def _sample(self) -> None:
        while not self._ended.wait(1 / SAMPLES_PER_SECOND):
            trainer = private_bytes(self._trainer)
            daemon = private_bytes(self._daemon) if self._daemon else 0
            memfds = memfd_bytes(self._daemon) if self._daemon else 0
            self.peak = max(self.peak, trainer + daemon + memfds)
            self.peak_trainer = max(self.peak_trainer, trainer)
            self.peak_daemon = max(self.peak_daemon, daemon)
            self.peak_memfd = max(self.peak_memfd, memfds)

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
