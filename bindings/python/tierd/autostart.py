"""Starting a private daemon when none answers: for a person trying tierd out, and for single-user machines.

The ranks of a launch all come here at once: a lock on the socket directory lets one start the daemon while the others
wait for it, then connect. The daemon ends by itself some seconds after its last client. Where it has no room for a
further model, another one runs beside it, in a directory below its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import socket
import sys
import tomllib
from collections.abc import Callable, Iterator
from typing import Any

from . import library, places, private_daemons
from .daemon import Daemon
from .errors import Denied, Disconnected, Invalid, NotFound
from .quantity import format_bytes, memory_size

# Options that a daemon's refusal may name, and the arguments of tierd.connect that set them.
_ARGUMENTS = {
    "ssd.file_size": "ssd=",
    "ssd.devices": "ssd=0",
    "arena.maximum": "ram=",
    "daemon.data_directory": "data_directory=",
}
_PLACE = "; else $XDG_STATE_HOME/tierd is the place of its SSD file, and ssd=0 makes none"
_FURTHER_MAX = 15  # Private daemons of a user beside the first.
# Kept alive: their destructors would warn of a child that is still running, as it should be.
_started: list[Daemon] = []


def socket_directory() -> pathlib.Path:
    """Where this user's private daemon has its sockets: in the user's runtime directory, else in one of its own. Never
    in the system's /run/tierd: the directory of a private daemon is for one user, and stays."""
    return places.runtime_directory() or places.user_directory()


def default_sockets() -> list[pathlib.Path]:
    """The sockets that clients try when no daemon was named, in this order."""
    return [place / "tierd.sock" for place in places.directories()]


@dataclasses.dataclass(frozen=True)
class Resources:
    """What a private daemon may take, in bytes, and where it keeps tensors; ``None`` leaves it to the daemon."""

    ssd: int | None = None  # 0: no SSD tier.
    ram: int | None = None
    data_directory: str | None = None
    computed: frozenset[str] = frozenset()  # Names of those that the caller did not give: a running daemon may differ.

    def given(self) -> Resources:
        """Those that the caller gave."""
        return dataclasses.replace(self, computed=frozenset(), **dict.fromkeys(self.computed))

    def may_serve(self, mode: str) -> bool:
        """Whether a daemon that starts now can serve ``mode``: only in a data directory can jobs be kept."""
        return mode in ("attach", "create") or (mode.startswith("resume") and self.data_directory is not None)

    @classmethod
    def of(
        cls, ssd: int | str | None, ram: int | str | None, data_directory: str | os.PathLike[str] | None
    ) -> Resources:
        """The arguments of :func:`tierd.connect` as resources. ``Invalid`` if one is no size or no path."""
        if ram is not None and memory_size(ram, "ram") == 0:
            raise Invalid("ram is 0: a daemon needs some; leave it out for a quarter of the machine's")
        if data_directory is not None and not isinstance(data_directory, (str, os.PathLike)):
            raise Invalid(f"data_directory is {data_directory!r}: a path")
        directory = None if data_directory is None else os.fsdecode(data_directory)
        if directory is not None and (not directory or "\0" in directory):
            raise Invalid(f"data_directory is {directory!r}: a path")
        return cls(
            ssd=None if ssd is None else memory_size(ssd, "ssd"),
            ram=None if ram is None else memory_size(ram, "ram"),
            data_directory=None if directory is None else os.path.abspath(directory),
        )


def private_settings(directory: pathlib.Path, resources: Resources) -> dict[str, Any]:
    """The configuration of a private daemon: the defaults, except where its files lie, for whom it runs, and what
    ``resources`` says."""
    daemon = {"private": True, "starter_pid": os.getpid(), "socket_directory": str(directory)}
    settings: dict[str, Any] = {"daemon": daemon}
    if resources.data_directory is not None:
        daemon["data_directory"] = resources.data_directory
    if resources.ram is not None:
        settings["arena"] = {"maximum": resources.ram}
    if resources.ssd is not None:
        settings["ssd"] = {"file_size": resources.ssd} if resources.ssd else {"devices": ["none"]}
    return settings


def private_data_directory() -> pathlib.Path:
    """Where a private daemon without ``data_directory`` has its SSD file, which has no name: by the daemon's rule."""
    given = os.environ.get("STATE_DIRECTORY")
    if given:
        return pathlib.Path(given.split(":")[0])
    state, home = os.environ.get("XDG_STATE_HOME"), os.environ.get("HOME")
    if state:
        return pathlib.Path(state) / "tierd"
    if os.geteuid() == 0:
        return pathlib.Path("/var/lib/tierd")
    if home and _may_write(pathlib.Path(home) / ".local/state/tierd"):
        return pathlib.Path(home) / ".local/state/tierd"
    return pathlib.Path("/var/tmp")


def _may_write(directory: pathlib.Path) -> bool:
    """In it, and in what is above where it is missing: the nearest directory that is there decides."""
    there = next((place for place in [directory, *directory.parents] if os.path.exists(place)), directory)
    return os.path.isdir(there) and os.access(there, os.W_OK | os.X_OK, effective_ids=True)


def is_running() -> bool:
    """Whether a daemon answers where :func:`tierd.connect` looks for one."""
    return any(answers(place) for place in default_sockets())


def answers(path: pathlib.Path) -> bool:
    """Whether a daemon listens there, even if it would refuse this client."""
    try:
        if places.refusal(path.parent) is not None:
            return False
    except OSError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(str(path))
        except BlockingIOError:
            return True  # A daemon listens, and is busy.
        except OSError:
            return False
    return True


def connect(options: library.ConnectOptions, attempt: Callable[[], None], resources: Resources) -> None:
    """Has ``attempt`` open a session with the first daemon found, else with a private one, which is started."""
    _wait_for_other(socket_directory(), resources)
    try:
        attempt()
    except (NotFound, Disconnected):
        pass  # What is raised below is the answer: that no daemon was there before is no part of it.
    else:
        directory = socket_directory()
        if directory / "tierd.sock" == default_sockets()[0] and answers(directory / "tierd.sock"):
            _report_other_resources(directory, resources)
        return
    connect_or_start(options, attempt, resources)


def connect_or_start(
    options: library.ConnectOptions, attempt: Callable[[], None], resources: Resources = Resources()
) -> None:
    """After an attempt that met no daemon, or one that refused: connects to a daemon that answers now, else to a
    private one. It starts that with ``resources``, and says so on stderr, unless another process does or has."""
    if any(answers(place) for place in default_sockets()):
        try:
            return attempt()  # Another rank was first. Or the daemon refused, and does so again: that is the answer.
        except (NotFound, Disconnected):
            if any(answers(place) for place in default_sockets()):
                raise
    directory = socket_directory()
    path = directory / "tierd.sock"
    options.socket = os.fsencode(path)
    with starting():
        if answers(path):
            _report_other_resources(directory, resources)
            return attempt()
        daemon = start(directory, resources, "no daemon was running; started a private one")
        try:
            attempt()
        except BaseException:  # An interrupt too.
            _end_unused(daemon)
            raise


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """One process of the user at a time is in this context: it alone starts private daemons."""
    directory = socket_directory()
    _make_own(directory)
    with open(directory / "autostart.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def further_directories() -> list[pathlib.Path]:
    """Where private daemons have their sockets that are started beside the first. No client looks there unasked."""
    return [socket_directory() / str(number) for number in range(2, 2 + _FURTHER_MAX)]


def private_directories() -> list[pathlib.Path]:
    """Where this user's private daemons have their sockets."""
    return [socket_directory(), *further_directories()]


def start(directory: pathlib.Path, resources: Resources, told: str) -> Daemon:
    """Starts a private daemon in ``directory``, and says ``told`` about it on stderr. Call it in :func:`starting`."""
    ending = private_daemons.holder_of(directory)
    if ending is not None:  # It takes no sessions any more, and a second one is refused beside it.
        private_daemons.wait_for_end(ending)
    _started[:] = [earlier for earlier in _started if earlier.process.poll() is None]  # Leaves no zombies.
    daemon = _start(directory, resources)
    _started.append(daemon)
    _tell(
        f"{told} (pid {daemon.process.pid}, {directory / 'tierd.sock'}, log {daemon.log}); it ends after its last "
        f"client{_lack(daemon)}"
    )
    return daemon


def _end_unused(daemon: Daemon) -> None:
    """Ends a daemon that refused its first client, unless another one has come: without a session it would last as long
    as this process, with resources that the caller may want to change."""
    found = private_daemons.found_in(daemon.directory)
    if found is not None and not found.sessions:
        daemon.stop()
        _tell(f"ended the private daemon (pid {daemon.process.pid}), which has no client")


def _wait_for_other(directory: pathlib.Path, resources: Resources) -> None:
    """Where a private daemon has other resources than the caller gave, and no session: waits for its end, which is
    near, so that one with these is started."""
    given = resources.given()
    if given.ram is None and given.ssd is None and not given.data_directory:
        return  # As most callers: no daemon is asked for the sake of it.
    if directory / "tierd.sock" != default_sockets()[0] or not answers(directory / "tierd.sock"):
        return
    wanted = _other_resources(directory, resources)
    found = private_daemons.found_in(directory) if wanted else None
    if found is None or found.sessions:
        return
    _tell(
        f"{found} and no client; waiting for its end, {private_daemons.END_SECONDS} s after its last one, to start "
        f"another with {wanted}"
    )
    private_daemons.wait_for_end(found.pid)


def _report_other_resources(directory: pathlib.Path, resources: Resources) -> None:
    """Warns on stderr if the running private daemon was started with other resources than the caller gave."""
    wanted = _other_resources(directory, resources)
    if not wanted:
        return
    found = private_daemons.found_in(directory)
    what = "" if found is None else f" (pid {found.pid}, with {found.room})"
    _tell(
        f"the private daemon that runs in {directory}{what} was started with another ssd, ram or data_directory than "
        f"{wanted}; it keeps them until it ends, {private_daemons.END_SECONDS} s after its last client: end those "
        "first, or leave these arguments out"
    )


def _other_resources(directory: pathlib.Path, resources: Resources) -> str:
    """Those that the caller gave, where the running private daemon was started with other ones; else nothing."""
    given = resources.given()
    wanted = private_settings(directory, given)
    try:
        running = tomllib.loads((directory / "tierd.toml").read_text())
    except (OSError, ValueError):
        return ""  # Not a private daemon of this package: its operator sets its resources.
    wanted["daemon"].pop("starter_pid")
    if all(running.get(section, {}).get(key) == value for section in wanted for key, value in wanted[section].items()):
        return ""
    named = {"ram": given.ram, "ssd": given.ssd}
    words = [f"{name}={format_bytes(size)}" for name, size in named.items() if size is not None]
    return ", ".join(words + ([f"data_directory={given.data_directory}"] if given.data_directory else []))


def _tell(words: str) -> None:
    print(f"tierd: {words}", file=sys.stderr, flush=True)


def _start(directory: pathlib.Path, resources: Resources) -> Daemon:
    try:
        return Daemon(directory, private_settings(directory, resources), detached=True)
    except (Disconnected, Invalid) as error:
        named = [option for option in _ARGUMENTS if option in str(error)]
        if not named:
            raise
        # The daemon's sentence names options of a file that is written again at each start.
        arguments = " and ".join(f"{_ARGUMENTS[option]} for {option}" for option in named)
        place = _PLACE if "daemon.data_directory" in named else ""
        others = private_daemons.described(private_directories())
        raise type(error)(f"{error}; for a private daemon, tierd.connect takes {arguments}{place}{others}") from None


def _lack(daemon: Daemon) -> str:
    """Why the daemon has no SSD tier or a small one, unless that was asked for, and what a caller can do about it."""
    for words in ("no SSD tier, tensors stay in RAM: ", "the SSD file is smaller"):
        if (start := daemon.status.find(words)) >= 0:
            return f"; {daemon.status[start:]} (tierd.connect takes ssd= and data_directory=)"
    return ""


def _make_own(directory: pathlib.Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        refusal = places.refusal(directory)
    except OSError as error:
        refusal = f"{error}: set XDG_RUNTIME_DIR to a directory that only this user may write"
    if refusal is None and (owner := directory.stat(follow_symlinks=False).st_uid) != os.geteuid():
        refusal = (
            f"{directory} belongs to uid {owner}: have it removed, or set XDG_RUNTIME_DIR to a directory of this user's"
        )
    if refusal is not None:
        raise Denied(f"no private daemon can be started: {refusal}")
