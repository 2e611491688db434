"""A control group with a limit of memory, for one program: version 2 where the memory controller is there, else 1.

Version 2 lowers memory.high, below what is used too. Version 1 has memory.limit_in_bytes only, and the kernel does not
lower it below what it cannot take back itself.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shlex
import time
from collections.abc import Iterator

MIB = 1 << 20
MOUNT = pathlib.Path("/sys/fs/cgroup")
END_S = 10.0
# Of a hard limit above what is used: who needs more before the daemon has given something is killed by the kernel.
MARGIN = 16 * MIB


class Unavailable(Exception):
    """Why this machine gives no such group."""


class MemoryGroup:
    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.v2 = (folder / "memory.high").exists()
        self.limit_file = folder / ("memory.high" if self.v2 else "memory.limit_in_bytes")

    def usage(self) -> int:
        return int((self.folder / ("memory.current" if self.v2 else "memory.usage_in_bytes")).read_text())

    def set_limit(self, limit: int) -> bool:
        """False: the kernel does not take so low a limit now."""
        try:
            self.limit_file.write_text(str(limit))
        except OSError:
            return False
        return True

    def lower_to_usage(self) -> None:
        self.set_limit(self.usage() + (0 if self.v2 else MARGIN))

    def lower(self, limit: int, deadline_s: float) -> bool:
        """As an operator does, in steps where the kernel refuses. False: the limit is not there in time."""
        end = time.monotonic() + deadline_s
        while not (self.v2 or self.usage() + MARGIN <= limit) or not self.set_limit(limit):
            if time.monotonic() > end:
                return False
            self.set_limit(max(limit, self.usage() + MARGIN))
            time.sleep(0.01)
        return True

    def oom_kills(self) -> int:
        text = (self.folder / ("memory.events" if self.v2 else "memory.oom_control")).read_text()
        return sum(int(line.split()[1]) for line in text.splitlines() if line.split()[0] == "oom_kill")

    def program(self, script: pathlib.Path, program: pathlib.Path) -> pathlib.Path:
        """A script at that path that runs the program within the group."""
        procs = shlex.quote(str(self.folder / "cgroup.procs"))
        script.write_text(f'#!/bin/sh\necho $$ > {procs} || exit 1\nexec {shlex.quote(str(program))} "$@"\n')
        script.chmod(0o755)
        return script

    def remove(self) -> None:
        """When its program has ended; the kernel takes a moment to see that."""
        end = time.monotonic() + END_S
        while True:
            try:
                return self.folder.rmdir()
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)


def _own_groups() -> Iterator[pathlib.Path]:
    """Our own groups that could have the memory controller; version 2 first."""
    lines = [line.split(":", 2) for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines()]
    for number, controllers, path in sorted(lines, key=lambda line: int(line[0])):
        if number == "0":
            yield from (mount / path.lstrip("/") for mount in (MOUNT, MOUNT / "unified"))
        elif "memory" in controllers.split(","):
            yield MOUNT / "memory" / path.lstrip("/")


@contextlib.contextmanager
def memory_group() -> Iterator[MemoryGroup]:
    """A new group below our own one. Raises Unavailable where the machine has none for us."""
    for own in _own_groups():
        folder = own / f"tier-{os.getpid()}-{time.monotonic_ns()}"
        with contextlib.suppress(OSError):
            folder.mkdir()
        if not folder.exists():
            continue
        group = MemoryGroup(folder)
        if not group.limit_file.exists():
            folder.rmdir()
            continue
        try:
            yield group
        finally:
            group.remove()
        return
    raise Unavailable("needs root and a control group with the memory controller, or a right to make one")
