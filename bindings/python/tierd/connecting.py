"""connect: how a program comes to its Client."""

from __future__ import annotations

import ctypes
import os
import pathlib
from collections.abc import Callable

from . import autostart as autostarts
from . import library, places
from .arguments import choice, count, encoded, flag
from .client import Client
from .errors import Disconnected, Error, Invalid, NotFound
from .inspection import job_figures
from .quantity import memory_size
from .session import Session


def connect(
    job: str | None = None,
    socket: str | os.PathLike[str] | None = None,
    guarantee: int | str | None = None,
    limit: int | str | None = None,
    mode: str = "attach",
    autostart: bool = True,
    *,
    token: str | None = None,
    named: bool = False,
    rank: int | None = None,
    world_size: int | None = None,
    spin: str = "auto",
    copy_threads: int = 1,
    ssd: int | str | None = None,
    ram: int | str | None = None,
    data_directory: str | os.PathLike[str] | None = None,
) -> Client:
    """Opens a session with the machine's daemon.

    The daemon: ``socket`` is the path of its socket, or of the directory in which its sockets are; so is
    ``$TIERD_SOCKET``. Without ``socket``, the call tries ``$TIERD_SOCKET`` alone, or else ``tierd.sock`` in
    ``$XDG_RUNTIME_DIR/tierd``, ``/tmp/tierd-UID`` and ``/run/tierd``. Where no daemon answers and neither ``socket``
    nor ``$TIERD_SOCKET`` named one, the call starts a private daemon, unless ``autostart`` is false.
    The daemon says so on stderr, and ends after its last client. No daemon is started for mode ``join``, as a new one
    has no job to join, nor for ``resume`` and ``resume_or_create`` without ``data_directory``, as it would keep
    nothing.

    The job: ``job`` is its name; without it, the ranks of one torchrun launch or Slurm step get a common job, and any
    other program a job of its own, called ``job-`` and eight random hexadecimal digits. ``mode`` says how
    to open it:

    - ``attach`` creates the job, or joins a live one;
    - ``create`` makes a new job: :class:`tierd.AlreadyExists` where it is live;
    - ``join`` joins a live job: :class:`tierd.NotFound` where there is none;
    - ``resume`` opens a named job as its last ``persist`` left it, for every rank of a run. What changed later is lost.
      :class:`tierd.NotFound` where nothing is persisted;
    - ``resume_or_create`` does the same where something is persisted, and else makes a new named job, so that the first
      run of a script can have the same line as the next. ``client.session.resumed`` tells which.

    ``token`` lets a process join a live job (default: ``$TIERD_JOB_TOKEN``). The ranks of one launch or step need none,
    and neither does a process that already has the job open: its second ``connect`` joins its own job. ``named`` keeps
    the job after its last session: its shared tensors stay, and so does what was persisted. The same user's next run
    opens it without a token, with any world size. ``rank`` and ``world_size`` default to the launcher's environment.

    ``guarantee`` is RAM that the job always gets, ``limit`` RAM that it never exceeds, 2 MiB at the least: a number of
    bytes, or a quantity such as ``"64GiB"``. A number of less than 2 MiB is refused unless it has a unit. ``spin`` says
    whether a waiting call spins before it sleeps: ``auto``, ``always`` or ``never``. ``copy_threads`` is the number of
    threads that copy large tensors.

    ``ssd``, ``ram`` and ``data_directory`` are for a private daemon that this call starts; a daemon that runs already
    keeps its own settings. Where that is a private one with other settings and no client any more, the call waits for
    its end, some seconds, and starts another. ``ssd`` is the size of its SSD file (0: no SSD tier; default: a quarter
    of the free space, at most 64 GiB), ``ram`` the most memory that it takes for tensors (default: a quarter of the
    machine's). Both are bytes or quantities. In ``data_directory`` the daemon keeps its SSD file and its index, so that
    a ``named`` job can ``persist`` and the next program can ``resume`` it. Without ``data_directory`` it keeps nothing.
    """
    resources = autostarts.Resources.of(ssd, ram, data_directory)
    if resources != autostarts.Resources() and (socket is not None or not autostart):
        raise Invalid("ssd, ram and data_directory are for a private daemon: leave out socket, and autostart on")
    options = library.ConnectOptions(
        struct_size=ctypes.sizeof(library.ConnectOptions),
        socket=_socket_path(socket),
        job=encoded("job", job),
        token=encoded("token", token),
        mode=choice("mode", mode, library.MODES),
        named=flag("named", named),
        rank=-1 if rank is None else count("rank", rank),
        world_size=0 if world_size is None else count("world_size", world_size),
        guarantee_bytes=memory_size(guarantee, "guarantee"),
        limit_bytes=memory_size(limit, "limit"),
        copy_threads=count("copy_threads", copy_threads),
        spin=choice("spin", spin, library.SPINS),
    )
    named_socket = socket is not None or bool(os.environ.get("TIERD_SOCKET"))
    return _opened(options, resources, autostart and not named_socket and resources.may_serve(mode))


def connect_sized(resources: autostarts.Resources) -> Client:
    """:func:`connect` without arguments. A private daemon that it starts gets ``resources``, where others may run with
    other ones than were computed."""
    options = library.ConnectOptions(
        struct_size=ctypes.sizeof(library.ConnectOptions),
        socket=_socket_path(None),
        mode=library.MODES["attach"],
        rank=-1,
        copy_threads=1,
        spin=library.SPINS["auto"],
    )
    return _opened(options, resources, not os.environ.get("TIERD_SOCKET"))


def connect_beside(resources: autostarts.Resources, has_room: Callable[[Client], bool]) -> Client | None:
    """:func:`connect` to another private daemon of this user than the first, which has no room: to one that runs and
    has room, else to a new one with ``resources``. ``None``: as many run as may."""
    with autostarts.starting():
        idle = []
        for directory in autostarts.further_directories():
            if not autostarts.answers(directory / "tierd.sock"):
                idle.append(directory)
            elif (client := _with_room(directory / "tierd.sock", has_room)) is not None:
                return client
        if not idle:
            return None
        autostarts.start(idle[0], resources, "the private daemon that runs has no room; started another one")
        return connect(socket=idle[0] / "tierd.sock")


def _with_room(socket: pathlib.Path, has_room: Callable[[Client], bool]) -> Client | None:
    try:
        client = connect(socket=socket)
    except (NotFound, Disconnected):
        return None  # It has ended meanwhile.
    try:
        if has_room(client):
            return client
    except BaseException:
        client.close()
        raise
    client.close()
    return None


def _socket_path(socket: str | os.PathLike[str] | None) -> bytes | None:
    """The data socket that was named, by the caller or in the environment. ``None``: the usual places."""
    if socket is None:
        return encoded("TIERD_SOCKET", places.named_socket())
    encoded("socket", socket)  # Raises if it is no path.
    return encoded("socket", places.data_socket(socket))


def _opened(options: library.ConnectOptions, resources: autostarts.Resources, may_start: bool) -> Client:
    functions = library.load()
    session = Session(functions)  # Made before its handle, so that no signal can lose the handle.

    def attempt() -> None:
        session.check(functions.tier_connect(ctypes.byref(options), ctypes.byref(session.handle)))

    try:
        if may_start:
            autostarts.connect(options, attempt, resources)
        else:
            attempt()
        named = options.named or options.mode == library.MODES["resume"]
        return Client(session, None if named else _is_named)
    except BaseException:
        session.close()
        raise


def _is_named(client: Client) -> bool:
    """Whether the client's job is: another process, or its owner, may have named it. True where that cannot be told."""
    try:
        return bool(job_figures(client)["named"])
    except (Error, OSError, KeyError, ValueError):
        return True
