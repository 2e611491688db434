"""Daemons to measure, and tier_bench run against them."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from scrape import scrape

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bindings/python"))

from tierd.daemon import Daemon  # noqa: E402

BUILD = pathlib.Path(os.environ.setdefault("TIERD_BUILD", str(ROOT / "build/release")))  # Its library serves all parts.
MIB, GIB = 1 << 20, 1 << 30


def scratch() -> pathlib.Path:
    """Where SSD files go: a disk, not a tmpfs. TIER_BENCH_DIRECTORY chooses another one."""
    folder = pathlib.Path(os.environ.get("TIER_BENCH_DIRECTORY", ROOT / ".cache"))
    folder.mkdir(exist_ok=True)
    return folder


@contextlib.contextmanager
def daemon(
    arena: int,
    tier: int,
    *,
    spin: str = "auto",
    prefault: bool = False,
    window: str = "",
    sessions: int = 0,
    build: pathlib.Path = BUILD,
    devices: Sequence[str] = (),
    reserve: str = "",
    program: pathlib.Path | None = None,
    more: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[tuple[Daemon, pathlib.Path]]:
    """A private daemon with a named SSD file (so that fio can open it too), gone with everything at the end.

    `sessions`: the most that it takes; 0: its default. `build`: whose programs. `devices`: beside that file. `reserve`:
    the host reserve; empty: its default. `program`: what runs the daemon's program. `more`: keys of its configuration,
    by section.
    """
    disk = pathlib.Path(tempfile.mkdtemp(prefix="tier-bench-", dir=scratch()))
    sockets = pathlib.Path(tempfile.mkdtemp(prefix="tier-bench-"))
    settings: dict[str, dict[str, Any]] = {
        "daemon": {"socket_directory": str(sockets), "data_directory": str(disk)},
        "arena": {"maximum": f"{arena // MIB}MiB", "prefault": prefault}
        | ({"window_size": window} if window else {})
        | ({"host_reserve": reserve} if reserve else {}),
        "ssd": {"devices": [str(disk / "tier.ssd"), *devices], "file_size": f"{tier // MIB}MiB"},
        "engine": {"spin": spin},
        "metrics": {"listen": ""},
    }
    if sessions:
        settings["jobs"] = {"max_sessions": sessions}
    for section, keys in (more or {}).items():
        settings[section] = settings.get(section, {}) | dict(keys)
    try:
        with Daemon(sockets, settings, program=str(program or build / "daemon/tierd")) as process:
            yield process, disk / "tier.ssd"
    finally:
        shutil.rmtree(disk, ignore_errors=True)
        shutil.rmtree(sockets, ignore_errors=True)


LISTENING = {"metrics": {"listen": "127.0.0.1:0"}}  # A daemon with that has metrics.


def metrics(process: Daemon) -> dict[str, float]:
    """All of them, by name and labels."""
    port = int((process.directory / "metrics.port").read_text())
    return scrape(f"http://127.0.0.1:{port}/metrics")


@contextlib.contextmanager
def _signalled(process: Daemon, before: signal.Signals, after: signal.Signals) -> Iterator[None]:
    os.kill(process.process.pid, before)
    try:
        yield
    finally:
        os.kill(process.process.pid, after)


def stopped(process: Daemon) -> contextlib.AbstractContextManager[None]:
    """It does nothing while the block runs, except where something is measured (running)."""
    return _signalled(process, signal.SIGSTOP, signal.SIGCONT)


def running(process: Daemon) -> contextlib.AbstractContextManager[None]:
    """A stopped one goes on while the block runs."""
    return _signalled(process, signal.SIGCONT, signal.SIGSTOP)


def command(process: Daemon, part: str, **options: Any) -> list[str]:
    """The command line of the tier_bench that was built with this daemon, for one part against it."""
    started = cast(list[str], process.process.args)[0]
    program = pathlib.Path(started).parents[1] / "tools/bench/tier_bench"
    words = [str(program), part, "--socket", str(process.directory / "tierd.sock")]
    for name, value in options.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return words


def bench(process: Daemon, part: str, **options: Any) -> dict[str, dict[str, float]]:
    """Runs one part of tier_bench; its figures by name."""
    words = command(process, part, **options)
    result = subprocess.run(words, capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(words)}: {result.stderr.strip()} {process.log_tail()}")
    return {line["figure"]: line for line in map(json.loads, result.stdout.splitlines())}


class Shell:
    """A program that answers each line on its stdin with one JSON object on its stdout."""

    def __init__(self, words: list[str], environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.ready = self._answer()

    def _answer(self) -> dict[str, float]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.process.args!r} ended with {self.process.wait()}")
        answer: dict[str, float] = json.loads(line)
        return answer

    def __call__(self, verb: str) -> float:
        assert self.process.stdin
        print(verb, file=self.process.stdin, flush=True)
        return self._answer()[verb]

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def program(file: str, *words: str | int, environment: Mapping[str, str] | None = None) -> Shell:
    """A part of the bench as a process of its own, which imports the Python package of this checkout."""
    given = os.environ if environment is None else environment
    return Shell([sys.executable, file, *map(str, words)], {**given, "PYTHONPATH": str(ROOT / "bindings/python")})
