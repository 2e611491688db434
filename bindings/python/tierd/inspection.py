"""What can be seen of a daemon, a job and the memory of processes, from outside.

The daemon's figures come from ``tierctl``, as a program of its own: the control channel in this process
(:mod:`tierd.control`) would need gRPC, whose threads do not survive the fork of a data loader. Memory is counted as
docs/benchmarks.md counts it: PSS without the arena's mappings, and what is allocated to memfds. Any thread.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
from collections.abc import Mapping
from typing import Any

from .client import Client
from .daemon import find_program
from .errors import Disconnected, NotFound

_SECONDS = 10.0
_DEGRADED = 6  # Exit code of tierctl where the daemon answers, and lacks something.


def daemon_status(client: Client) -> dict[str, Any]:
    """The client's daemon, in the fields of the message ``tier.v1.NodeStatus``. ``NotFound``: it has no control socket,
    or there is no ``tierctl``; ``Disconnected``: it does not answer there."""
    return _ask(client, "status")


def job_figures(client: Client) -> dict[str, Any]:
    """The client's job, in the fields of the message ``tier.v1.Job``. Errors as for :func:`daemon_status`."""
    return _ask(client, "job", "show", "--", client.session.job)


def status_at(control: pathlib.Path) -> dict[str, Any]:
    """The daemon behind that control socket, as :func:`daemon_status`; no session is needed, and none begins."""
    return _ask_at(control, os.environ, "status")


def _ask(client: Client, *words: str) -> dict[str, Any]:
    session = client.session
    environment = {**os.environ, "TIERD_JOB_TOKEN": session.token}  # For a job of another user.
    return _ask_at(pathlib.Path(session.socket).with_name("control.sock"), environment, *words)


def _ask_at(control: pathlib.Path, environment: Mapping[str, str], *words: str) -> dict[str, Any]:
    if not control.exists():
        raise NotFound(f"there is no control socket {control}")
    command = [find_program("tierctl"), "--json", "--socket", str(control), *words]
    try:
        told = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        raise Disconnected(f"the daemon gave no answer at {control} in {_SECONDS:.0f} s") from None
    if told.returncode not in (0, _DEGRADED):
        raise Disconnected(f"tierctl {words[0]}: {told.stderr.decode(errors='replace').strip()}")
    figures: dict[str, Any] = json.loads(told.stdout)
    return figures


@dataclasses.dataclass(frozen=True, slots=True)
class Pss:
    """The proportional set size of a process, in bytes: a page that N processes map counts 1/N in each. The arena is
    in neither part: it is shared memory."""

    anonymous: int
    files: int

    @property
    def total(self) -> int:
        """Both together."""
        return self.anonymous + self.files


def pss_of(pid: int | str = "self", root: str = "/proc") -> Pss | None:
    """None where the process is gone, or belongs to another user."""
    found = {"Pss_Anon:": 0, "Pss_File:": 0}
    try:
        for line in pathlib.Path(f"{root}/{pid}/smaps_rollup").read_text().splitlines():
            fields = line.split()
            if fields[0] in found:
                found[fields[0]] = int(fields[1]) * 1024
    except OSError:
        return None
    return Pss(found["Pss_Anon:"], found["Pss_File:"])


def memfd_bytes(pid: int) -> int | None:
    """Bytes allocated to the memfds that a process holds, huge pages included: of a daemon, the arena and the rings of
    its clients. None where the process is gone, or belongs to another user."""
    allocated: dict[int, int] = {}
    try:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            try:
                if os.readlink(entry.path).startswith("/memfd:"):
                    state = os.stat(entry.path)
                    allocated[state.st_ino] = state.st_blocks * 512
            except OSError:  # Closed meanwhile.
                continue
    except OSError:
        return None
    return sum(allocated.values())


def available_memory(root: str = "/") -> int:
    """Bytes of RAM that new work of this process can have: the machine's ``MemAvailable``, or less where a cgroup
    (version 2 or 1) around it has less left. ``root`` is where ``proc`` and ``sys`` lie."""
    lines = (pathlib.Path(root) / "proc/meminfo").read_text().splitlines()
    left = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    try:
        groups = (pathlib.Path(root) / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        groups = []
    tree = pathlib.Path(root) / "sys/fs/cgroup"
    for line in groups:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            left += _left_in(tree, path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            left += _left_in(tree / "memory", path, *names)
    return min(left)


def _left_in(tree: pathlib.Path, path: str, limit: str, usage: str, reclaimable: str) -> list[int]:
    """What each of the groups from ``path`` up to the root has left, where it has a limit."""
    left = []
    group = tree / path.lstrip("/")
    for place in [group, *group.parents]:
        try:
            most = (place / limit).read_text().strip()
            statistics = dict(line.split() for line in (place / "memory.stat").read_text().splitlines())
            if most != "max":
                used = int((place / usage).read_text())
                left.append(max(0, int(most) - used + int(statistics.get(reclaimable, 0))))
        except (OSError, ValueError):
            pass  # The root has no limit; and a container sees its own group as the root.
        if place == tree:
            break
    return left
