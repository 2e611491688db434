"""What a daemon must have given back once all of its clients are gone: sessions, jobs, leases, requests, windows, and
what the kernel has for it: descriptors, threads, memory files and their mappings, pinned pages.

    before = leak_audit.Baseline(daemon.pid, ask)   # before the first client
    ...
    before.check()                                  # waits until all of it is back; fails with what is not

`launcher.start` does both around each daemon, so that no test can omit it. Named jobs and what is theirs may stay: they
are kept until they are removed. The kernel closes some things a moment after the clients' end, and retired windows are
looked at once in a second: what is not back yet is asked for again until DEADLINE_S.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import pathlib
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

DEADLINE_S = 30.0
# Between two looks. Where many ask, the daemon's figures are up to 50 ms old: they count once a second look, which
# begins so long after the first, finds nothing either.
PAUSE_S = 0.1
# gRPC makes these when it needs them and keeps some: for a poller of its own, and for what wakes one.
GRPC_KEEPS = {"anon_inode:[eventfd]": 4, "anon_inode:[eventpoll]": 4}
OWN_THREADS = "tier"  # How the daemon's own threads are named; gRPC's pool has as many as it has had calls at a time.
# Pools that are started when they are first needed, and stay: for names of users, small files, ends of sockets.
STARTED_ONCE = re.compile(r"tierd-(names|files|end)-\d+")


@dataclasses.dataclass(frozen=True)
class State:
    """What the daemon says of itself: `tierctl status`, `tierctl job list`, and the metrics where it has a page."""

    status: Mapping[str, Any]
    jobs: list[Mapping[str, Any]]
    metrics: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Kernel:
    """What the kernel says of the daemon's process, by kind."""

    descriptors: collections.Counter[str]  # Without sockets that listen: those are the administrator's.
    threads: collections.Counter[str]
    mapped: collections.Counter[str]  # Memory files.
    pinned_kib: int  # Pages that io_uring has registered.
    window_bytes: int  # Allocated to windows that the daemon has open, the retired ones too.

    @property
    def window_count(self) -> int:
        return self.descriptors["memfd:tierd-window"]


def _kind(target: str) -> str:
    """What a descriptor leads to, without its number."""
    if target.startswith("/memfd:"):
        return "memfd:" + re.sub(r"-?\d+$", "", target.removeprefix("/memfd:").removesuffix(" (deleted)"))
    return re.sub(r":\[\d+\]$", "", target)


def _of_living(descriptor: pathlib.Path) -> bool:
    """A pidfd of a process that has not ended: not even as one whose parent has not asked for its end yet."""
    told = re.search(r"^Pid:\s+(\d+)$", (descriptor.parents[1] / "fdinfo" / descriptor.name).read_text(), re.M)
    if told is None:
        return False
    return pathlib.Path(f"/proc/{told[1]}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def _listening() -> set[str]:
    """Unix sockets of the machine that listen, as descriptors name them."""
    lines = [line.split() for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]]
    return {f"socket:[{fields[6]}]" for fields in lines if int(fields[3], 16) & 0x10000}


def kernel_of(pid: int, keeps_processes: bool = False) -> Kernel:
    """`keeps_processes`: it may have pidfds of processes that live, which are not counted."""
    process = pathlib.Path(f"/proc/{pid}")
    descriptors: collections.Counter[str] = collections.Counter()
    threads: collections.Counter[str] = collections.Counter()
    window_bytes = 0
    listening = _listening()
    for descriptor in (process / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # Closed, or ended, meanwhile.
            target = os.readlink(descriptor)
            kind = _kind(target)
            kept = kind.endswith("[pidfd]") and keeps_processes and _of_living(descriptor)
            descriptors[kind] += target not in listening and not kept
            if kind == "memfd:tierd-window":
                window_bytes += os.stat(descriptor).st_blocks * 512
    for task in (process / "task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            name = (task / "comm").read_text().strip()
            threads[name] += name.startswith(OWN_THREADS) and not STARTED_ONCE.fullmatch(name)
    names = re.findall(r"(/memfd:.*)$", (process / "maps").read_text(), re.M)
    pinned = re.search(r"VmPin:\s+(\d+)", (process / "status").read_text())
    return Kernel(
        descriptors, +threads, collections.Counter(map(_kind, names)), int(pinned[1]) if pinned else 0, window_bytes
    )


def more_than(now: collections.Counter[str], before: collections.Counter[str], kept: Mapping[str, int]) -> list[str]:
    """What there is more of."""
    more = (now - before).items()
    return [f"{count} more {kind}" for kind, count in more if count > kept.get(kind, 0)]


class Baseline:
    """Of a daemon that has had no client. `keeps_processes`: with `jobs.on_unreturned = "kill"` it has pidfds of
    processes that have had sessions, while they live."""

    def __init__(self, pid: int, ask: Callable[[], State], keeps_processes: bool = False) -> None:
        self._pid = pid
        self._keeps_processes = keeps_processes
        self._ask = ask
        self._state = ask()  # First: with it, gRPC has the threads and the descriptors that it keeps.
        self._kernel = kernel_of(pid)

    def check(self) -> None:
        """Waits until nothing is left of clients. AssertionError: all that is."""
        end = time.monotonic() + DEADLINE_S
        clean = 0
        while clean < 2:
            left = self.left()
            clean = clean + 1 if not left else 0
            late = left and time.monotonic() > end
            assert not late, f"left {DEADLINE_S:g} s after the last client's end: " + "; ".join(left)
            time.sleep(PAUSE_S)

    def left(self) -> list[str]:
        """What is not given back now."""
        state = self._ask()
        left = self._left_in_daemon(state)
        return left or self._left_in_kernel(state, kernel_of(self._pid, self._keeps_processes))

    def _left_in_daemon(self, state: State) -> list[str]:
        left = [
            f"{state.status[name]} in {name}" for name in ("session_count", "lease_count", "waiting_count")
            if state.status[name] != 0
        ]  # fmt: skip
        for job in state.jobs:
            if not job["named"] and not job["reserved"]:
                left.append(f"the job {job['name']} of uid {job['uid']}")
            elif job["session_count"] or job["lease_count"] or job["kept_bytes"] or job["owed_bytes"]:
                left.append(f"sessions, leases or windows of the job {job['name']}: {dict(job)}")
        used = state.status["arena_bytes"] - state.status["arena_free_bytes"]
        of_jobs = sum(job["ram_bytes"] for job in state.jobs)
        if used > of_jobs:
            left.append(f"{used} bytes of windows are in use, {of_jobs} of them by jobs")
        most = max(self._state.status["arena_bytes"], sum(job["held_bytes"] for job in state.jobs))
        if state.status["arena_bytes"] > most:
            left.append(f"{state.status['arena_bytes']} bytes of windows, where {most} may stay")
        for name, value in state.metrics.items():
            if value != 0 and (name in _ZERO or (name in _OF_RECORDS and not state.jobs)):
                left.append(f"{name} is {value:g}")
        return left

    def _left_in_kernel(self, state: State, now: Kernel) -> list[str]:
        before = self._kernel
        windows = state.status["window_count"]
        # Windows are counted apart: some of named jobs may stay, and prefaulted ones may have gone.
        descriptors, mapped = +now.descriptors, +now.mapped
        del descriptors["memfd:tierd-window"], mapped["memfd:tierd-window"]
        left = more_than(descriptors, before.descriptors, GRPC_KEEPS)
        left += [f"{more} (threads)" for more in more_than(now.threads, before.threads, {})]
        left += [f"{more} (mapped)" for more in more_than(mapped, before.mapped, {})]
        if now.window_count > windows:
            left.append(f"{now.window_count} memory files of windows, and {windows} windows")
        if now.mapped["memfd:tierd-window"] > windows:
            left.append(f"{now.mapped['memfd:tierd-window']} windows are mapped, of {windows}")
        if now.window_bytes > state.status["arena_bytes"]:
            left.append(f"{now.window_bytes} bytes in {state.status['arena_bytes']} bytes of windows")
        # Each device's ring pins the windows.
        if now.pinned_kib > before.pinned_kib + (len(state.status["devices"]) * state.status["arena_bytes"] >> 10):
            left.append(f"{now.pinned_kib} KiB are pinned, {before.pinned_kib} before")
        return left


# Metrics that are 0 without clients.
_ZERO = {
    "tierd_arena_owed_bytes",
    "tierd_arena_kept_bytes",
    "tierd_arena_refilled_bytes",
    "tierd_arena_lease_bound_bytes",
    *(f'tierd_window_conditions{{condition="{name}"}}' for name in ("making", "emptying", "returning", "overdue")),
    'tierd_window_conditions{condition="closing"}',
    *(f'tierd_metadata_bytes{{kind="{name}"}}' for name in ("leases", "updates", "requests", "answers")),
}  # fmt: skip
# … and without jobs.
_OF_RECORDS = {f'tierd_metadata_bytes{{kind="{name}"}}' for name in ("tensors", "keys")}
