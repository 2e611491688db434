"""The control channel of the daemon (gRPC service ``tier.v1.ControlService``): jobs, limits, quotas, events, drain. No
tensors.

Needs the extra ``tierd[control]`` (grpcio, protobuf). Messages are made from control.proto's descriptors at run time.

    with tierd.control.connect() as control:
        job = control.open_job("nightly", guarantee="8GiB")
        control.set_job("nightly", limit="16GiB")
        for event in control.watch(): ...

The daemon authorises calls by this process's uid, which the kernel states; for another user's job, by that job's token.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import random
import re
import socket as sockets
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any, Literal

from . import arguments, errors, places
from .library import MODES, PACKAGE
from .quantity import memory_size
from .quotas import Quotas, limits, quotas_of, target

try:
    import grpc  # type: ignore[import-untyped]
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]
except ImportError as missing:  # pragma: no cover
    raise ImportError("tierd.control needs grpcio and protobuf: pip install 'tierd[control]'") from missing

_SERVICE = "tier.v1.ControlService"
_TENSORS_LISTED = 1000  # Where no other number is asked for, and of one page.
_UID_NONE = (1 << 32) - 1  # The kernel's "no user".
_PAUSE_FIRST, _PAUSE_MAX = 0.02, 0.64  # Seconds between calls that were turned away.
_BY_NAME = {kind.name: kind for kind in errors.BY_CODE.values()}
# Refusals that do not come from tierd itself.
_BY_STATUS = {
    grpc.StatusCode.UNAVAILABLE: errors.Disconnected,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.Timeout,
    grpc.StatusCode.PERMISSION_DENIED: errors.Denied,
    grpc.StatusCode.UNAUTHENTICATED: errors.Denied,
    grpc.StatusCode.NOT_FOUND: errors.NotFound,
    grpc.StatusCode.INVALID_ARGUMENT: errors.Invalid,
}


@dataclasses.dataclass(frozen=True, slots=True)
class JobSession:
    """A process that is attached to a job. ``rank`` is -1 where it gave none, and ``client_pid`` 0 where it runs in a
    pid namespace that the daemon cannot see."""

    id: int
    rank: int
    client_pid: int


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """A job as the daemon describes it, in bytes and counts. Its ``token`` is empty unless it was asked for, by its
    owner or an administrator. ``sessions`` are in the order of their ids. ``reserved``: an administrator set it aside
    for its owner's first run, which has not come yet. ``owner``: that of a socket whose uid this is; "" of a user of
    the system. A daemon that is older than one of the last three leaves it out."""

    id: int
    name: str
    uid: int
    named: bool
    world_size: int
    ranks: tuple[int, ...]
    token: str
    ram_bytes: int
    ssd_bytes: int
    leased_bytes: int
    dirty_bytes: int
    guarantee_bytes: int
    limit_bytes: int
    share_bytes: int
    window_count: int
    session_count: int
    tensor_count: int
    torn_count: int
    lease_count: int
    swap_out_bytes_total: int
    swap_in_bytes_total: int
    acquire_hits_total: int
    acquire_misses_total: int
    stall_seconds_total: float
    held_bytes: int
    logical_bytes: int
    ssd_guarantee_bytes: int
    ssd_limit_bytes: int
    moved_bytes_total: int
    kept_bytes: int
    promised_bytes: int
    borrowed_bytes: int
    owed_bytes: int
    reserved: bool = False
    owner: str = ""
    sessions: tuple[JobSession, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """An event in the daemon. ``sequence`` rises with each event, also with those that this caller may not see.
    ``kind`` is ``events_lost`` where some up to this one are missing, and the ``message`` says why. ``uid`` is the user
    whose job it is, ``None`` where it is of no job, and ``owner`` the owner of a socket whose uid that is, or ""."""

    sequence: int
    unix_time_ms: int
    kind: str
    job: str
    message: str
    uid: int | None = None
    owner: str = ""


def socket_path(socket: str | os.PathLike[str] | None = None) -> str:
    """Returns the path of the control socket. ``socket`` names it, or its directory, or the data socket
    (``tierd.sock``) beside it, and so does ``$TIERD_SOCKET`` without it. Without both: the first on which a daemon
    listens, in the places that :mod:`tierd.places` lists. ``Disconnected``, with all paths, where none does."""
    named = socket if socket is not None else os.environ.get("TIERD_SOCKET")
    if named:
        path = pathlib.Path(named)
        if path.name == "tierd.sock":
            path = path.with_name("control.sock")
        return str(path / "control.sock" if path.is_dir() else path)
    return _first_listening([str(place / "control.sock") for place in places.directories()])


def _first_listening(paths: list[str]) -> str:
    tried = []
    for place in paths:
        reason = _refusal(place)
        if reason is None:
            return place
        tried.append(f"{place}: {reason}")
    raise errors.Disconnected(f"no tierd daemon could be reached (tried {'; '.join(tried)})")


def _refusal(path: str) -> str | None:
    """Why no daemon answers at ``path``, or ``None``: a socket outlives a daemon that crashed."""
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM | sockets.SOCK_NONBLOCK) as probe:
        try:
            if refusal := places.refusal(pathlib.Path(path).parent):
                return refusal
            probe.connect(path)
        except BlockingIOError:
            return None  # A daemon listens, and is busy.
        except OSError as error:
            return error.strerror or str(error)
    return None


def connect(
    socket: str | os.PathLike[str] | None = None, *, token: str | None = None, timeout: float = 10.0
) -> Control:
    """Opens a control channel to the daemon at ``socket``: the path of a control or admin socket, or their directory.
    ``token`` gives the rights of the owner of one job (default: ``$TIERD_JOB_TOKEN``). ``timeout`` is the deadline of
    each call, in seconds."""
    return Control(socket_path(socket), token or os.environ.get("TIERD_JOB_TOKEN") or "", timeout)


class Control:
    """A control channel. Any thread may call any method. A refusal raises the class of :mod:`tierd.errors` of its
    code."""

    def __init__(self, path: str, token: str, timeout: float) -> None:
        if token and not re.fullmatch("[0-9a-fA-F]{64}", token):
            raise errors.Invalid(
                "the job token must be 64 hexadecimal digits; it comes from token= or $TIERD_JOB_TOKEN"
            )
        self.path = path
        self._timeout = timeout
        self._metadata = [("tier-job-token", token)] if token else []
        self._messages = _load_messages()
        self._channel = grpc.insecure_channel(f"unix:{path}")

    def status(self) -> Any:
        """Returns version, modes, and figures of the arena and the devices: the message ``tier.v1.NodeStatus``."""
        return self._call("GetStatus").status

    def open_job(
        self,
        name: str = "",
        *,
        mode: str = "attach",
        named: bool = False,
        rank: int = -1,
        world_size: int = 0,
        guarantee: int | str | None = None,
        limit: int | str | None = None,
        ssd_guarantee: int | str | None = None,
        ssd_limit: int | str | None = None,
        token: str = "",
        uid: int | None = None,
    ) -> Job:
        """Opens a job without a session. Its processes join with the token of the job that is returned. ``guarantee``
        and ``limit`` are bytes of RAM, ``ssd_guarantee`` and ``ssd_limit`` of SSD; a limit of 0 is none.

        ``uid`` reserves the job for that user, on ``admin.sock`` alone: it waits, also across restarts of the
        daemon, for the user's first run, whose first process joins it in any mode and needs no token. It counts for the
        user's quotas.

        ``Denied`` where the caller is no administrator and names another ``uid``, or the user's quota of jobs is
        reached; ``NoMemory`` and ``NoSpace`` where a guarantee cannot be given; ``AlreadyExists`` and ``NotFound`` by
        ``mode``; ``Invalid`` for a term that is none."""
        if uid is not None and (isinstance(uid, bool) or not isinstance(uid, int) or not 0 <= uid < _UID_NONE):
            raise errors.Invalid(f"uid is {uid!r}: the number of a user lies between 0 and {_UID_NONE - 1}")
        if mode not in MODES:
            raise errors.Invalid(f"mode is {mode!r}: one of {', '.join(MODES)}")
        fields = {
            "name": name,
            "token": token,
            "mode": f"OPEN_MODE_{mode.upper()}",
            "named": named,
            "rank": rank,
            "world_size": world_size,
            "guarantee_bytes": memory_size(guarantee, "guarantee"),
            "limit_bytes": memory_size(limit, "limit"),
            "ssd_guarantee_bytes": memory_size(ssd_guarantee, "ssd_guarantee"),
            "ssd_limit_bytes": memory_size(ssd_limit, "ssd_limit"),
            "uid": uid,
        }
        return _job(self._call("OpenJob", **fields).job)

    def set_job(
        self,
        name: str,
        *,
        guarantee: int | str | None = None,
        limit: int | str | None = None,
        ssd_guarantee: int | str | None = None,
        ssd_limit: int | str | None = None,
    ) -> Job:
        """Changes what a job is guaranteed and may have at most, in bytes: of RAM, and of SSD devices what its tensors
        take. ``None``: no change; a limit of 0: no limit; one of RAM is 2 MiB or more."""
        fields: dict[str, Any] = {"name": name}
        asked = {"guarantee": guarantee, "limit": limit, "ssd_guarantee": ssd_guarantee, "ssd_limit": ssd_limit}
        for term, value in asked.items():
            if value is not None:
                fields[f"{term}_bytes"] = memory_size(value, term)
        return _job(self._call("SetJob", **fields).job)

    def close_job(self, name: str, *, purge: bool = False, unless_attached: bool = False) -> None:
        """Ends the job's sessions, with ``Revoked``, and frees its tensors. ``purge`` also deletes what the job
        persisted, and works where the job is not open. ``unless_attached`` refuses that, with ``Denied``, while
        processes are attached to the job."""
        self._call("CloseJob", name=name, purge=purge, unless_attached=unless_attached)

    def list_jobs(self, *, tokens: bool = False) -> list[Job]:
        """Returns the open jobs that the caller may see, with their tokens if these are asked for. ``tierctl job list``
        also shows what closed jobs persisted."""
        return [_job(message) for page in self._pages("ListJobs", with_tokens=tokens) for message in page.jobs]

    def list_tensors(self, job: str, limit: int = 0) -> list[Any]:
        """Returns the job's tensors as messages ``tier.v1.Tensor``, at most ``limit`` of them (0: 1,000)."""
        tensors: list[Any] = []
        for page in self._pages("ListTensors", job=job, page_size=min(limit or _TENSORS_LISTED, _TENSORS_LISTED)):
            tensors += page.tensors
            if len(tensors) >= (limit or _TENSORS_LISTED):
                break
        return tensors[: limit or _TENSORS_LISTED]

    def quotas(self) -> Quotas:
        """Returns what users have of RAM, SSD, guarantees and jobs, what they may have, and which quota says so. On
        ``admin.sock``: all users that have jobs, and every quota; else the caller alone."""
        return quotas_of(self._call("ListQuotas"))

    def set_quota(
        self,
        *,
        user: str | int | None = None,
        group: str | int | None = None,
        ram: int | str | None = None,
        ssd: int | str | None = None,
        guarantee: int | str | None = None,
        jobs: int | Literal["unlimited"] | None = None,
    ) -> None:
        """Caps what all jobs of ``user``, of each member of ``group``, or, without both, of every user that no other
        quota names, may have together. ``ram``, ``ssd`` and ``guarantee`` (of RAM) are bytes, ``jobs`` is a count. 0 is
        nothing at all, ``"unlimited"`` no bound, ``None`` no change. It holds at once, also for open jobs, comes
        before what the configuration says, and is kept across restarts. On ``admin.sock`` alone.

        ``Denied`` for others than administrators, and by a daemon that keeps nothing; ``NotFound`` where there is no
        such user or group; ``Invalid`` for a guarantee above ``ram``, a value out of range, or nothing to change."""
        self._call("SetQuota", **target(user, group), **limits(ram, ssd, guarantee, jobs))

    def clear_quota(self, *, user: str | int | None = None, group: str | int | None = None) -> None:
        """What :meth:`set_quota` set for ``user``, for ``group``, or without both by default, is no more: the
        configuration decides. On ``admin.sock`` alone. ``NotFound`` where nothing was set; ``Denied`` for others than
        administrators."""
        self._call("ClearQuota", **target(user, group))

    def drain(self, job: str | None = None, *, timeout: float = 60.0) -> None:
        """Returns when all tensors of the job are on SSD; at once where the daemon has no SSD tier. Without ``job``:
        all tensors of the daemon, which then accepts no new work until :meth:`undrain`, also where this fails; for
        administrators. An empty name is ``Invalid``."""
        if job == "":
            raise errors.Invalid("the name of the job is empty; drain() without one drains the node")
        seconds, milliseconds = divmod(max(1, arguments.milliseconds(timeout) or 0), 1000)
        given = {"seconds": seconds, "nanos": milliseconds * 1_000_000}
        self._call("Drain", timeout + 5, job=job or "", timeout=given)

    def undrain(self) -> None:
        """Ends a drain of the daemon: it takes new jobs and processes again. For administrators."""
        self._call("Undrain")

    def watch(self, *, since: int | None = None) -> Watch:
        """Returns the events from now on. No event after the return is missed. With ``since``, the ``sequence`` of an
        event, first the events behind that one; 0: all that the daemon has kept."""
        call = self._channel.unary_stream(
            f"/{_SERVICE}/Watch",
            request_serializer=_serialize,
            response_deserializer=self._messages["WatchResponse"].FromString,
        )(self._request("Watch", since=since), metadata=self._metadata)
        late = threading.Timer(self._timeout, call.cancel)
        late.daemon = True
        late.start()
        try:
            call.initial_metadata()  # Arrives when the subscription is in place, or the call has failed.
        finally:
            late.cancel()
        if call.is_active():
            return Watch(call, self.path)
        if call.code() is grpc.StatusCode.CANCELLED:
            raise errors.Timeout(f"{self.path}: the daemon has not answered within {self._timeout} s")
        raise _translated(call, self.path)

    def close(self) -> None:
        """Ends the channel, and the streams of events over it."""
        self._channel.close()

    def __enter__(self) -> Control:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.close()

    def _pages(self, method: str, /, **fields: Any) -> Iterator[Any]:
        """All pages of a list. A call for a page has the deadline of any call."""
        token = ""
        while True:
            page = self._call(method, page_token=token, **fields)
            yield page
            token = page.next_page_token
            if not token:
                return

    def _request(self, method: str, /, **fields: Any) -> Any:
        try:
            return self._messages[f"{method}Request"](**fields)
        except (ValueError, TypeError) as error:  # A number beyond a field's range, or no text.
            raise errors.Invalid(f"{method}: {error}") from None

    def _call(self, method: str, timeout: float | None = None, /, **fields: Any) -> Any:
        call = self._channel.unary_unary(
            f"/{_SERVICE}/{method}",
            request_serializer=_serialize,
            response_deserializer=self._messages[f"{method}Response"].FromString,
        )
        request = self._request(method, **fields)
        try:
            return _repeat_while_crowded(
                lambda left: call(request, timeout=left, metadata=self._metadata), timeout or self._timeout
            )
        except grpc.RpcError as error:
            raise _translated(error, self.path) from None


class Watch:
    """An iterator over events, which :meth:`cancel` ends."""

    def __init__(self, call: Any, path: str) -> None:
        self._call = call
        self._path = path

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        try:
            message = next(self._call).event
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.CANCELLED:
                raise StopIteration from None
            raise _translated(error, self._path) from None
        at = message.event_time
        milliseconds = at.seconds * 1000 + at.nanos // 1_000_000
        uid = message.uid if message.HasField("uid") else None
        return Event(message.sequence, milliseconds, message.kind, message.job, message.message, uid, message.owner)

    def cancel(self) -> None:
        """Ends the stream: a ``next`` that waits raises ``StopIteration``. Any thread may call it, and again."""
        self._call.cancel()

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.cancel()


def _serialize(message: Any) -> bytes:
    text: bytes = message.SerializeToString()
    return text


def _job(message: Any) -> Job:
    fields = {field.name: getattr(message, field.name) for field in dataclasses.fields(Job)}
    fields["ranks"] = tuple(message.ranks)
    fields["sessions"] = tuple(JobSession(each.id, each.rank, each.client_pid) for each in message.sessions)
    return Job(**fields)


def _repeat_while_crowded(attempt: Callable[[float], Any], timeout: float) -> Any:
    """What ``attempt`` returns, which gets the seconds that are left. It is made again until then where the daemon's
    gRPC turned it away, as too many calls of this user ran; the pauses grow and are random, so that those who came
    together do not come again together."""
    deadline = time.monotonic() + timeout
    longest, left = _PAUSE_FIRST, timeout
    while True:
        try:
            return attempt(left)
        except grpc.RpcError as error:
            pause = longest * random.uniform(0.5, 1)
            left = deadline - time.monotonic() - pause
            if left <= 0 or not _turned_away(error):
                raise
        time.sleep(pause)
        longest = min(2 * longest, _PAUSE_MAX)


def _turned_away(error: Any) -> bool:
    """Before tierd saw the call: what tierd refuses has its code beside it. gRPC's server has this status also for
    calls that it ends while they run, and for messages beyond a limit; this word alone says that none was begun."""
    if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
        return False
    if "Server Threadpool Exhausted" not in (error.details() or ""):
        return False
    return "tier-code" not in dict(error.trailing_metadata() or ())


def _translated(error: Any, path: str) -> errors.Error:
    """The one place where gRPC's failures become this package's."""
    if _turned_away(error):
        return errors.Timeout(f"too many calls of this user at once; try again (at {path})")
    trailing = dict(error.trailing_metadata() or ())
    kind = _BY_NAME.get(str(trailing.get("tier-code", ""))) or _BY_STATUS.get(error.code(), errors.Error)
    return kind(f"{error.details() or error.code().name} (at {path})")


def descriptor_file() -> pathlib.Path:
    """control.proto's descriptors: in the wheel, or in the build tree named by $TIERD_BUILD."""
    places = [PACKAGE / "bundled" / "control.binpb"]
    build = os.environ.get("TIERD_BUILD")
    if build:
        places.append(pathlib.Path(build) / "bindings" / "python" / "control.binpb")
    for place in places:
        if place.exists():
            return place
    raise errors.NotFound(f"control.binpb is missing (tried {', '.join(map(str, places))}): install the wheel")


def proto_folder() -> pathlib.Path:
    """The folder for protoc's ``--proto_path``, with ``tier/v1/control.proto``, for clients in other languages: in the
    wheel, or in the checkout."""
    places = [PACKAGE / "bundled" / "proto", PACKAGE.parents[2] / "proto"]
    for place in places:
        if (place / "tier/v1/control.proto").exists():
            return place
    raise errors.NotFound(f"control.proto is missing (tried {', '.join(map(str, places))}): install the wheel")


def _load_messages() -> dict[str, Any]:
    """Message classes by name, in a pool of their own, so that another package's tier.v1 cannot collide."""
    files = descriptor_pb2.FileDescriptorSet.FromString(descriptor_file().read_bytes())
    pool = descriptor_pool.DescriptorPool()
    messages = {}
    for file in files.file:
        pool.Add(file) if hasattr(pool, "Add") else pool.AddSerializedFile(file.SerializeToString())
        for message in file.message_type:
            descriptor = pool.FindMessageTypeByName(f"{file.package}.{message.name}")
            messages[message.name] = message_factory.GetMessageClass(descriptor)
    return messages
