"""Plain values that the client gives and takes: figures, whereabouts, ranges. No behaviour."""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

Key: TypeAlias = "int | str"


@dataclasses.dataclass(frozen=True, slots=True)
class Stats:
    """What this client has done so far. Bytes and counts since it connected, except the last four."""

    swap_out_bytes: int
    swap_in_bytes: int
    acquires: int
    acquire_waits: int  # Those that took longer than 20 µs.
    acquire_wait_ns: int
    leases_open: int
    windows_mapped: int
    stitched_mappings: int
    windows_registered: int


@dataclasses.dataclass(frozen=True, slots=True)
class TensorState:
    """Where a tensor lies at this moment. Bytes."""

    size: int
    generation: int
    ram_bytes: int
    ssd_bytes: int
    sealed: bool
    torn: bool


@dataclasses.dataclass(frozen=True, slots=True)
class SessionState:
    """Which daemon and job this client belongs to. ``token`` lets other ranks join (``TIERD_JOB_TOKEN``)."""

    epoch: int
    session: int
    window_size: int
    job: str
    token: str
    socket: str
    connected: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """One byte range of one tensor, for :meth:`Client.lease_many`. ``size`` creates the tensor with that many bytes."""

    key: Key
    offset: int = 0
    length: int = 0  # 0: to the end.
    size: int = 0
