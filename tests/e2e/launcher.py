"""Starts a daemon for a test: own sockets, own SSD file, own metrics port, everything gone at the end.

    with launcher.start(tmp_path, arena="64MiB", tier="1GiB") as daemon:
        tierd.connect(socket=daemon.socket)

The SSD file lies on the disk of the checkout, for a temporary folder may be a tmpfs, where no tier can be.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import leak_audit
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools/bench"))

from scrape import scrape  # noqa: E402

BUILD = pathlib.Path(os.environ.get("TIERD_BUILD", ROOT / "build/release")).resolve()

ENDING_S = 5.0
DEGRADED = 6  # The exit status of `tierctl status` where the daemon does less than it was set up for.


@dataclasses.dataclass(frozen=True)
class Running:
    """A daemon that answers."""

    socket: str
    metrics_url: str
    pid: int
    directory: pathlib.Path
    process: subprocess.Popen[bytes]
    before: leak_audit.Baseline | None = None  # Of its first client.

    def audit(self) -> None:
        """All of its clients are gone: waits until it has given back what was theirs. Nothing where it has ended."""
        if self.before is None or self.process.poll() is not None:
            return
        try:
            self.before.check()
        except AssertionError:
            try:
                self.process.wait(ENDING_S)  # It was told to end, and answers no more.
            except subprocess.TimeoutExpired:
                pass
            else:
                return
            raise


def environment(**extra: str) -> dict[str, str]:
    """For a Python child that is to find the package in the checkout and its library in the build tree."""
    return dict(os.environ, PYTHONPATH=str(ROOT / "bindings/python"), TIERD_BUILD=str(BUILD), **extra)


def need_build() -> pathlib.Path:
    """The daemon's program; skips without one."""
    program = BUILD / "daemon/tierd"
    if not program.exists():
        pytest.skip(f"needs a build: {program} is not there")
    return program


def need_user(uid: int) -> None:
    """Skips where no process of that user can be started, or it could not read the checkout."""
    if os.geteuid() != 0:
        pytest.skip("needs root: becomes another user")
    tried = subprocess.run(
        [sys.executable, "-c", "import tierd"], env=environment(), cwd="/", capture_output=True, text=True,
        user=uid, group=uid, extra_groups=[],
    )  # fmt: skip
    if tried.returncode != 0:
        pytest.skip(f"needs a checkout that uid {uid} can read: {tried.stderr.strip()[-200:]}")


@contextlib.contextmanager
def disk_folder() -> Iterator[pathlib.Path]:
    """A new folder on the checkout's disk, removed afterwards."""
    (ROOT / ".cache").mkdir(exist_ok=True)
    disk = pathlib.Path(tempfile.mkdtemp(prefix="tier-", dir=ROOT / ".cache"))
    try:
        yield disk
    finally:
        shutil.rmtree(disk, ignore_errors=True)


@contextlib.contextmanager
def start(
    folder: pathlib.Path,
    arena: str = "64MiB",
    tier: str = "1GiB",
    settings: Mapping[str, Any] | None = None,
    program: pathlib.Path | None = None,
    audited: bool = True,
    keeps_processes: bool = False,
) -> Iterator[Running]:
    """A daemon with its sockets in `folder`, until the context ends; `settings` replace sections. `program` runs
    it. Skips without a build.

    At the end of the context all clients must be gone, and the daemon must have given back what was theirs
    (leak_audit.py), unless it has ended by then. `audited` is False where that cannot be, and the caller says why.
    `keeps_processes`: see leak_audit.Baseline."""
    program = program or need_build()
    from tierd.daemon import Daemon

    with disk_folder() as disk:
        sections = {
            "daemon": {"socket_directory": str(folder), "data_directory": str(disk)},
            "arena": {"maximum": arena},
            "ssd": {"file_size": tier},
            "metrics": {"listen": "127.0.0.1:0"},
            **(settings or {}),
        }
        with Daemon(folder, sections, program=str(program)) as daemon:
            port_file = folder / "metrics.port"
            port = int(port_file.read_text()) if port_file.exists() else 0
            url = f"http://127.0.0.1:{port}/metrics"
            running = Running(str(folder / "tierd.sock"), url, daemon.process.pid, folder, daemon.process)
            before = leak_audit.Baseline(running.pid, lambda: state_of(running), keeps_processes) if audited else None
            running = dataclasses.replace(running, before=before)
            yield running
            running.audit()


def state_of(daemon: Running) -> leak_audit.State:
    said = run_tierctl(daemon, "status", "--json")
    assert said.returncode in (0, DEGRADED), said.stderr
    status = json.loads(said.stdout)
    jobs = json.loads(tierctl(daemon, "job", "list", "--json"))["jobs"]
    served = not daemon.metrics_url.endswith(":0/metrics")
    return leak_audit.State(status, jobs, scrape(daemon.metrics_url) if served else {})


def metrics(daemon: Running) -> dict[str, float]:
    """All of them, by name and labels, of no moment before this call: pages and calls that come close together share
    the engine's figures, and those may be a second old."""
    turns = "tierd_engine_turns_total"
    known = scrape(daemon.metrics_url)[turns]
    tierctl(daemon, "device", "list")  # The engine is asked: it takes a turn.
    end = time.monotonic() + 30
    while (page := scrape(daemon.metrics_url))[turns] == known:
        assert time.monotonic() < end, "the same figures for 30 s"
    return page


def wait_for(what: str, holds: Callable[[], bool], seconds: float = 30) -> None:
    """Asks again and again whether it holds, at the pace of what that asks."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"


def need_tierctl() -> pathlib.Path:
    """Its program; skips without one."""
    program = BUILD / "tools/tierctl/tierctl"
    if not program.exists():
        pytest.skip(f"needs a build: {program} is not there")
    return program


def run_tierctl(
    daemon: Running | str | os.PathLike[str], *words: object, **options: Any
) -> subprocess.CompletedProcess[str]:
    """tierctl with these words, asking this daemon: by its usual socket, or by one that is named in place of it.
    `options` are those of `subprocess.run`."""
    at = daemon.directory if isinstance(daemon, Running) else daemon
    command = [str(need_tierctl()), "--socket", str(at), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)


def tierctl(daemon: Running, *words: object) -> str:
    """What it prints for these words. It must succeed."""
    result = run_tierctl(daemon, *words)
    assert result.returncode == 0, result.stderr
    return result.stdout
