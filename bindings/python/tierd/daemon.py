"""A private tierd: a daemon process with a configuration, started and waited for without polling.

Used by autostart, by the demo and by tests; a node's shared daemon belongs to the service manager instead.
"""

from __future__ import annotations

import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import types
from collections.abc import Mapping
from typing import Any

from . import allocator
from .errors import Disconnected, Invalid, NotFound
from .library import PACKAGE

READY_SECONDS = 60.0


def find_program(name: str = "tierd") -> str:
    """The program's path: $TIERD_BINARY (for tierd), else the wheel's own, a build tree named by $TIERD_BUILD, and
    PATH. ``NotFound`` naming all of them."""
    places = []
    if name == "tierd" and os.environ.get("TIERD_BINARY"):
        places.append(pathlib.Path(os.environ["TIERD_BINARY"]))
    places.append(PACKAGE / "bundled" / name)
    build = os.environ.get("TIERD_BUILD")
    if build:
        places.append(pathlib.Path(build) / ("daemon" if name == "tierd" else f"tools/{name}") / name)
    for place in places:
        if os.access(place, os.X_OK) and place.is_file():
            return str(place)
    found = shutil.which(name)
    if found is None:
        tried = ", ".join([str(place) for place in places] + ["PATH"])
        raise NotFound(f"no {name} program (tried {tried}): install tierd, or set TIERD_BINARY")
    return found


def toml(settings: Mapping[str, Any]) -> str:
    """A table of strings, booleans, numbers, lists of them, and tables, as TOML."""
    lines = [f"{key} = {_toml_value(value)}" for key, value in settings.items() if not isinstance(value, Mapping)]
    for section, keys in settings.items():
        if isinstance(keys, Mapping):
            lines += ["", f"[{section}]"] + [f"{key} = {_toml_value(value)}" for key, value in keys.items()]
    return "\n".join(lines) + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class Daemon:
    """A tierd child process that has said READY. Stopped by :meth:`stop` or at the end of a ``with`` block."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        settings: Mapping[str, Any],
        *,
        detached: bool = False,
        program: str | None = None,
    ) -> None:
        """Starts it with ``settings`` as its configuration, written into ``directory`` beside its log. ``detached``: it
        outlives this process's terminal and signals. When it ends instead of becoming ready, raises with the end of its
        log: ``Invalid`` where it refuses its configuration, or what lies in its data directory, else ``Disconnected``.
        """
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.log = self.directory / "tierd.log"
        self.status = ""  # As it described itself when it was ready.
        config = self.directory / "tierd.toml"
        config.write_text(toml(settings))
        command = [program or find_program(), "--config", str(config)]
        with tempfile.TemporaryDirectory(prefix="tierd-ready-") as ready, open(self.log, "ab") as log:
            self._log_start = log.tell()  # The lines before it are of an earlier daemon in this directory.
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
                address = os.path.join(ready, "notify")
                notify.bind(address)
                environment = {**os.environ, "NOTIFY_SOCKET": address}
                environment.pop("WATCHDOG_USEC", None)
                allocator.leave_out(environment)
                self.process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                    start_new_session=detached, close_fds=True,
                )  # fmt: skip
                try:
                    self._wait_ready(notify)
                except BaseException:
                    self.kill()
                    raise

    def _wait_ready(self, notify: socket.socket) -> None:
        deadline = time.monotonic() + READY_SECONDS
        end = os.pidfd_open(self.process.pid)
        try:
            while True:
                left = deadline - time.monotonic()
                readable, _, _ = select.select([notify.fileno(), end], [], [], max(0.0, left))
                if notify.fileno() in readable:
                    lines = notify.recv(4096).decode(errors="replace").split("\n")
                    if "READY=1" in lines:
                        told = [line.removeprefix("STATUS=") for line in lines if line.startswith("STATUS=")]
                        self.status = "".join(told)
                        return
                elif end in readable:
                    status = self.process.wait()
                    refused = Invalid if status == os.EX_CONFIG else Disconnected
                    raise refused(f"tierd ended with status {status} before it was ready: {self.log_tail()}")
                elif left <= 0:
                    raise Disconnected(f"tierd was not ready after {READY_SECONDS:.0f} s: {self.log_tail()}")
        finally:
            os.close(end)

    def log_tail(self, lines: int = 8) -> str:
        """The last lines that this daemon wrote."""
        with open(self.log, "rb") as log:
            log.seek(self._log_start)
            text = log.read().decode(errors="replace").strip().splitlines()
        return " | ".join(text[-lines:]) or f"{self.log} has no line of it"

    def stop(self, timeout: float = 30.0) -> int:
        """Asks the daemon to drain and end; kills it after ``timeout`` seconds. Returns its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                return self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                pass
        return self.kill()

    def kill(self) -> int:
        if self.process.poll() is None:
            self.process.kill()
        return self.process.wait()

    def __enter__(self) -> Daemon:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.stop()
