"""What the kernel counts for a process: processor time, and bytes to and from block devices."""

from __future__ import annotations

import pathlib


def core_seconds(pid: int) -> float:
    """Processor time of all threads that are alive."""
    total = 0
    for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((thread / "schedstat").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            continue  # It ended.
    return total / 1e9


def device_bytes(pid: int) -> tuple[int, int]:
    """Bytes that the process has read from block devices and written to them."""
    fields = dict(line.split(": ") for line in pathlib.Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["read_bytes"]), int(fields["write_bytes"])
