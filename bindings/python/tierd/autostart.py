"""Starting a private daemon when none answers: for a person trying tierd out, and for single-user machines.

The ranks of a launch all come here at once: a lock on the socket directory lets one start the daemon while the others
wait for it, then connect. The daemon ends by itself some seconds after its last client.
"""

from __future__ import annotations

import fcntl
import os
import pathlib
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
    """Where this user's private daemon has its sockets: the first place clients look, else a directory in /tmp."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return pathlib.Path(runtime) / "tierd"
    if os.geteuid() == 0:
        return pathlib.Path("/run/tierd")
    return pathlib.Path(tempfile.gettempdir()) / f"tierd-{os.geteuid()}"


def private_settings(directory: pathlib.Path) -> dict[str, Any]:
    """The configuration of a private daemon: defaults, but for its place and who it is for."""
    return {"daemon": {"private": True, "starter_pid": os.getpid(), "socket_directory": str(directory)}}


def start_and_connect(options: library.ConnectOptions, attempt: Callable[[], int]) -> int:
    """Starts a private daemon, unless another process does or has, and connects to it. Says so on stderr."""
    directory = socket_directory()
    _make_own(directory)
    options.socket = os.fsencode(directory / "tierd.sock")
    with open(directory / "autostart.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            return attempt()  # Another rank was first.
        except (NotFound, Disconnected):
            pass
        daemon = Daemon(directory, private_settings(directory), detached=True)
        _started.append(daemon)
        print(
            f"tierd: no daemon was running; started a private one (pid {daemon.process.pid}, {directory}/tierd.sock, "
            f"log {daemon.log}); it ends after its last client",
            file=sys.stderr,
            flush=True,
        )
        return attempt()


def _make_own(directory: pathlib.Path) -> None:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    owner = directory.stat(follow_symlinks=False)
    if owner.st_uid != os.geteuid():
        raise Denied(f"{directory} belongs to uid {owner.st_uid}: no private daemon can be started there")
