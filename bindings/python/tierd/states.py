"""Plain values that the client's methods take and return: figures, locations of tensors, ranges. No behaviour."""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

#: The name of a tensor: an id of 64 bits, or a string, to which the daemon gives an id.
Key: TypeAlias = "int | str"


@dataclasses.dataclass(frozen=True, slots=True)
class Stats:
    """What this client has done since it connected, in bytes and counts; the last four fields are the present state.

    The first two count copies between this program's memory and tensors in RAM, by ``put``, ``get`` and their like; not
    what is read or written in place, under a lease. What goes to SSD and comes from there is the daemon's figure, for
    the whole job: ``swap_out_bytes_total`` and ``swap_in_bytes_total`` of :class:`tierd.control.Job`."""

    copied_to_tensors_bytes: int
    copied_from_tensors_bytes: int
    #: Leases granted.
    acquires: int
    #: Acquires that slept until their answer came; a call that spins first: after 20 µs.
    acquire_waits: int
    #: The sum of their waiting times, over all threads.
    acquire_wait_ns: int
    leases_open: int
    #: Windows of the arena that this process has mapped for the client.
    windows_mapped: int
    #: Mappings that show scattered blocks side by side.
    stitched_mappings: int
    #: Windows that are registered with CUDA.
    windows_registered: int


@dataclasses.dataclass(frozen=True, slots=True)
class CopyFigures:
    """What a copy has found in the elements that it copied."""

    nbytes: int
    #: Elements that are infinite or NaN.
    non_finite: int
    sum_of_squares: float


@dataclasses.dataclass(frozen=True, slots=True)
class TensorState:
    """Where a tensor lies at this moment, in bytes."""

    size: int
    #: Rises each time that write leases on the tensor are granted.
    generation: int
    #: Bytes that have a copy in RAM.
    ram_bytes: int
    #: Bytes that have a valid copy on SSD; a byte may have both.
    ssd_bytes: int
    #: Every byte has been sealed since the tensor was created.
    sealed: bool
    #: A lease for reading would raise :class:`tierd.Torn`.
    torn: bool


@dataclasses.dataclass(frozen=True, slots=True)
class SessionState:
    """The daemon and the job of this client."""

    #: Which run of the daemon.
    epoch: int
    #: The daemon's number of this session.
    session: int
    #: Of the largest windows of the arena, in bytes.
    window_size: int
    job: str
    #: Lets other processes join the job: hand it on as ``TIERD_JOB_TOKEN``.
    token: str
    socket: str
    #: False once the daemon has ended, or has ended the session.
    connected: bool
    #: The job was opened with what an earlier run had persisted.
    resumed: bool = False
    #: Seconds that a call waits which is given none: the daemon's ``engine.deadline``.
    request_timeout: float = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """One byte range of one tensor, for :meth:`Client.lease_many`. ``size`` creates the tensor with that many bytes."""

    key: Key
    offset: int = 0
    #: 0: to the end.
    length: int = 0
    #: More than 0: create the tensor with that many bytes.
    size: int = 0
