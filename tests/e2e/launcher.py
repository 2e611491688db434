"""Starts a private daemon for a test: own sockets, own SSD file, own metrics port, everything gone at the end.

    with launcher.start(tmp_path, arena="64MiB", tier="1GiB") as daemon:
        tierd.connect(socket=daemon.socket)

Ready means what it means to systemd: the daemon sent READY=1 to $NOTIFY_SOCKET. The SSD file lies on the disk of the
checkout, for a temporary folder may be a tmpfs, where no tier can be.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TIERD_BUILD", ROOT / "build/release"))
READY_SECONDS_MAX = 30
STOP_SECONDS_MAX = 30


@dataclasses.dataclass(frozen=True)
class Daemon:
    """A running daemon. `log` is what it printed so far."""

    process: subprocess.Popen[bytes]
    folder: pathlib.Path
    socket: str
    metrics_url: str
    log_path: pathlib.Path

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")


def configuration(folder: pathlib.Path, disk: pathlib.Path, arena: str, tier: str, metrics_port: int) -> str:
    return f"""
socket_dir = "{folder}"

[arena]
max = "{arena}"

[ssd]
path = "{disk / 'tier.ssd'}"
size = "{tier}"

[metrics]
listen = "127.0.0.1:{metrics_port}"
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(notices: socket.socket, process: subprocess.Popen[bytes], log: pathlib.Path) -> None:
    """Returns on READY=1; fails with the daemon's own words when it ends or is silent."""
    notices.settimeout(0.2)
    deadline = time.monotonic() + READY_SECONDS_MAX
    while time.monotonic() < deadline:
        with contextlib.suppress(TimeoutError):
            if b"READY=1" in notices.recv(4096):
                return
        if process.poll() is not None:
            pytest.fail(f"tierd ended with {process.returncode}:\n{log.read_text(errors='replace')}")
    pytest.fail(f"tierd was not ready after {READY_SECONDS_MAX} s:\n{log.read_text(errors='replace')}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def start(folder: pathlib.Path, arena: str = "64MiB", tier: str = "1GiB") -> Iterator[Daemon]:
    """A daemon with its sockets in `folder`, until the context ends. Skips without a build."""
    program = BUILD / "daemon/tierd"
    if not program.exists():
        pytest.skip(f"needs a build: {program} is not there")
    (ROOT / ".cache").mkdir(exist_ok=True)
    disk = pathlib.Path(tempfile.mkdtemp(prefix="tier-", dir=ROOT / ".cache"))
    port = free_port()
    config = folder / "tierd.toml"
    config.write_text(configuration(folder, disk, arena, tier, port))
    log = folder / "tierd.log"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
        notices.bind(str(folder / "notify.sock"))
        with log.open("wb") as output:
            process = subprocess.Popen([program, "--config", config], stdout=output, stderr=subprocess.STDOUT,
                                       env=dict(os.environ, NOTIFY_SOCKET=str(folder / "notify.sock")))
        try:
            _wait_until_ready(notices, process, log)
            yield Daemon(process, folder, str(folder / "tierd.sock"), f"http://127.0.0.1:{port}/metrics", log)
        finally:
            _stop(process)
            shutil.rmtree(disk, ignore_errors=True)
