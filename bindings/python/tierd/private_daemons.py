"""What a private daemon of this user holds, and when it ends, from outside: for those that come while it still runs.

A private daemon ends some seconds after its last session. Until then it has its memory and its SSD file, which the next
daemon may need, and the resources that it was started with, which the next program may not want.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import select
from collections.abc import Iterable

from .errors import Disconnected, NotFound
from .inspection import status_at
from .quantity import format_bytes

END_SECONDS = 5  # After the last session: the daemon's rule (daemon/session/private_lifetime.h).
WAIT_SECONDS = 15.0  # With the time that the daemon takes to give back what it has.


@dataclasses.dataclass(frozen=True, slots=True)
class PrivateDaemon:
    """As it described itself."""

    directory: pathlib.Path
    pid: int
    sessions: int
    ram: int  # That its tensors may take.
    ssd: int

    @property
    def room(self) -> str:
        return f"{format_bytes(self.ram)} of RAM and {format_bytes(self.ssd)} of SSD space"

    def __str__(self) -> str:
        return f"the private daemon in {self.directory} (pid {self.pid}) has {self.room}"


def found_in(directory: pathlib.Path) -> PrivateDaemon | None:
    """``None``: no daemon answers there, it is not private, or there is no ``tierctl`` to ask it."""
    try:
        status = status_at(directory / "control.sock")
    except (NotFound, Disconnected, OSError, ValueError):
        return None
    if not status["private_daemon"]:
        return None
    ssd = sum(device["capacity_bytes"] for device in status["devices"])
    return PrivateDaemon(directory, status["pid"], status["session_count"], status["arena_max_bytes"], ssd)


def wait_for_idle(directories: Iterable[pathlib.Path], ram: int, ssd: int) -> None:
    """Waits for the end of those private daemons that have no session and less than ``ram`` or ``ssd``."""
    for directory in directories:
        found = found_in(directory)
        if found is not None and not found.sessions and (found.ram < ram or found.ssd < ssd):
            wait_for_end(found.pid)


def described(directories: Iterable[pathlib.Path]) -> str:
    """What the private daemons there hold and until when, to be added to a refusal; nothing where there are none."""
    found = [str(daemon) for daemon in map(found_in, directories) if daemon is not None]
    return "".join(f"; {each}, and ends {END_SECONDS} s after its last client" for each in found)


def wait_for_end(pid: int, seconds: float = WAIT_SECONDS) -> bool:
    """Whether the process has ended by then."""
    try:
        end = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        readable, _, _ = select.select([end], [], [], seconds)
        return bool(readable)
    finally:
        os.close(end)


def holder_of(directory: pathlib.Path, locks: str = "/proc/locks") -> int | None:
    """The process of a daemon that has the directory's lock, which it keeps until all that it had is given back.
    ``None``: no process has it, or one that is not seen from here."""
    try:
        inode = os.stat(directory / "tierd.lock").st_ino
        lines = pathlib.Path(locks).read_text().splitlines()
    except OSError:
        return None
    # "1: FLOCK ADVISORY WRITE pid major:minor:inode 0 EOF"
    for fields in (line.split() for line in lines):
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(inode):
            return int(fields[4]) if int(fields[4]) > 0 else None
    return None
