"""Starting a private daemon when none answers: for a person trying tierd out, and for single-user machines.

The ranks of a launch all come here at once: a lock on the socket directory lets one start the daemon while the others
wait for it, then connect. The daemon ends by itself some seconds after its last client.
"""

from __future__ import annotations

import fcntl
import os
import pathlib
import socket
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from . import library
from .daemon import Daemon
from .errors import Denied, Disconnected, NotFound

# Kept, so that their destructors do not warn of a child that is still running, as it should be.
_started: list[Daemon] = []


def socket_directory() -> pathlib.Path:
    """Where this user's private daemon has its sockets: the user's runtime directory, else its own place. Never the
    system's /run/tierd: its directory is for one user, and stays."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return pathlib.Path(runtime) / "tierd"
    if os.geteuid() == 0:
        return pathlib.Path("/run/tierd-private")
    return pathlib.Path(tempfile.gettempdir()) / f"tierd-{os.geteuid()}"


def default_sockets() -> list[pathlib.Path]:
    """Where clients look for a daemon that was not named, in this order."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return [pathlib.Path(place) / "tierd.sock" for place in ([f"{runtime}/tierd"] if runtime else []) + ["/run/tierd"]]


def private_settings(directory: pathlib.Path) -> dict[str, Any]:
    """The configuration of a private daemon: the defaults, except where its files lie and for whom it runs."""
    return {"daemon": {"private": True, "starter_pid": os.getpid(), "socket_directory": str(directory)}}


def answers(path: pathlib.Path) -> bool:
    """Whether a daemon listens there, whatever it would say to us."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(str(path))
        except BlockingIOError:
            return True  # It is there, and busy.
        except OSError:
            return False
    return True


def connect_or_start(options: library.ConnectOptions, attempt: Callable[[], None]) -> None:
    """After an attempt that met no daemon, or one that refused: connects to a daemon that is there, else to a private
    one, which is started, with a word on stderr, unless another process does or has."""
    if any(answers(place) for place in default_sockets()):
        try:
            return attempt()  # Another rank was first. Or it refused, and does so again: that is the answer.
        except (NotFound, Disconnected):
            if any(answers(place) for place in default_sockets()):
                raise
    directory = socket_directory()
    _make_own(directory)
    path = directory / "tierd.sock"
    options.socket = os.fsencode(path)
    with open(directory / "autostart.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not answers(path):
            _started[:] = [earlier for earlier in _started if earlier.process.poll() is None]  # Leaves no zombies.
            daemon = Daemon(directory, private_settings(directory), detached=True)
            _started.append(daemon)
            print(
                f"tierd: no daemon was running; started a private one (pid {daemon.process.pid}, {path}, "
                f"log {daemon.log}); it ends after its last client",
                file=sys.stderr,
                flush=True,
            )
        attempt()


def _make_own(directory: pathlib.Path) -> None:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    owner = directory.stat(follow_symlinks=False)
    if owner.st_uid != os.geteuid():
        raise Denied(f"{directory} belongs to uid {owner.st_uid}: no private daemon can be started there")
