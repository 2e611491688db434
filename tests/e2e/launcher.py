"""Starts a private daemon for a test: own sockets, own SSD file, own metrics port, everything gone at the end.

    with launcher.start(tmp_path, arena="64MiB", tier="1GiB") as daemon:
        tierd.connect(socket=daemon.socket)

The SSD file lies on the disk of the checkout, for a temporary folder may be a tmpfs, where no tier can be.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TIERD_BUILD", ROOT / "build/release"))


@dataclasses.dataclass(frozen=True)
class Running:
    """A daemon that answers."""

    socket: str
    metrics_url: str
    pid: int


@contextlib.contextmanager
def start(folder: pathlib.Path, arena: str = "64MiB", tier: str = "1GiB") -> Iterator[Running]:
    """A daemon with its sockets in `folder`, until the context ends. Skips without a build."""
    program = BUILD / "daemon/tierd"
    if not program.exists():
        pytest.skip(f"needs a build: {program} is not there")
    from tierd.daemon import Daemon

    (ROOT / ".cache").mkdir(exist_ok=True)
    disk = pathlib.Path(tempfile.mkdtemp(prefix="tier-", dir=ROOT / ".cache"))
    sections = {
        "socket_directory": str(folder),
        "data_directory": str(disk),
        "arena": {"maximum": arena},
        "ssd": {"file_size": tier},
        "metrics": {"listen": "127.0.0.1:0"},
    }
    daemon = Daemon(folder, sections, program=str(program))
    try:
        port = int((folder / "metrics.port").read_text())
        yield Running(str(folder / "tierd.sock"), f"http://127.0.0.1:{port}/metrics", daemon.process.pid)
    finally:
        daemon.stop()
        shutil.rmtree(disk, ignore_errors=True)
