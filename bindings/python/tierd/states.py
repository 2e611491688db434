"""Plain values that the client's methods take and return: figures, locations of tensors, ranges. No behaviour."""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

Key: TypeAlias = "int | str"


@dataclasses.dataclass(frozen=True, slots=True)
class Stats:
    """What this client has done since it connected, in bytes and counts; the last four fields are the present state.

    The first two count copies between this program's memory and tensors in RAM, by ``put``, ``get`` and their like; not
    what is read or written in place, under a lease. What goes to SSD and comes from there is the daemon's figure, for
    the whole job: ``swap_out_bytes_total`` and ``swap_in_bytes_total`` of :class:`tierd.control.Job`."""

    copied_to_tensors_bytes: int
    copied_from_tensors_bytes: int
    acquires: int
    acquire_waits: int  # Acquires whose answer took longer than 20 µs.
    acquire_wait_ns: int
    leases_open: int
    windows_mapped: int
    stitched_mappings: int
    windows_registered: int


@dataclasses.dataclass(frozen=True, slots=True)
class CopyFigures:
    """What a copy has found in the elements that it copied."""

    nbytes: int
    non_finite: int  # Elements that are infinite or NaN.
    sum_of_squares: float


@dataclasses.dataclass(frozen=True, slots=True)
class TensorState:
    """Where a tensor lies at this moment, in bytes."""

    size: int
    generation: int
    ram_bytes: int
    ssd_bytes: int
    sealed: bool
    torn: bool


@dataclasses.dataclass(frozen=True, slots=True)
class SessionState:
    """The daemon and the job of this client. ``token`` lets other processes join the job (``TIERD_JOB_TOKEN``).
    ``window_size`` is that of the largest windows, in bytes. ``resumed``: the job was opened with what an earlier run
    had persisted."""

    epoch: int
    session: int
    window_size: int
    job: str
    token: str
    socket: str
    connected: bool
    resumed: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """One byte range of one tensor, for :meth:`Client.lease_many`. ``size`` creates the tensor with that many bytes."""

    key: Key
    offset: int = 0
    length: int = 0  # 0: to the end.
    size: int = 0
