"""A daemon that an alert is about: it can be killed, and started again with other settings at the same addresses."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import sys
import tempfile
import time
import urllib.error
from collections.abc import Callable, Mapping
from typing import Any

import launcher
import tierd
from launcher import ROOT
from tierd.daemon import Daemon

sys.path.insert(0, str(ROOT / "tools/faults"))

from faulty_device import FaultyDevice, lacks  # noqa: E402

MIB = 1 << 20


PAUSE_SECONDS = 0.05


def wait_for(what: str, holds: Callable[[], bool], seconds: float = 30) -> None:
    """Asks again and again whether it holds, with pauses: many scenes ask at a time."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(PAUSE_SECONDS)


class Needs(Exception):
    """What this machine lacks for the cause of an alert."""


class Node:
    """`name` is the label `instance` of its series. Everything it made is gone after close()."""

    def __init__(self, name: str, settings: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.stack = contextlib.ExitStack()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tier-"))
        self.stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.disk = self.stack.enter_context(launcher.disk_folder())
        self.port = 0
        self.daemon: Daemon | None = None
        self.stack.callback(self.stop)
        self._settings = {
            "daemon": {"socket_directory": str(self.folder), "data_directory": str(self.disk)},
            "arena": {"maximum": "32MiB"},
            "ssd": {"file_size": "128MiB"},
            **(settings or {}),
        }

    def start(self, program: pathlib.Path | None = None, **sections: Mapping[str, Any]) -> None:
        """Stops it first where it runs. `sections` replace those of its settings, this time."""
        self.stop()
        settings = {**self._settings, **sections, "metrics": {"listen": f"127.0.0.1:{self.port}"}}
        self.daemon = Daemon(self.folder, settings, program=str(program or launcher.need_build()))
        self.port = int((self.folder / "metrics.port").read_text())

    @property
    def running(self) -> launcher.Running:
        assert self.daemon is not None
        url = f"http://127.0.0.1:{self.port}/metrics"
        return launcher.Running(self.socket, url, self.daemon.process.pid, self.folder, self.daemon.process)

    @property
    def socket(self) -> str:
        return str(self.folder / "tierd.sock")

    def connect(self, job: str = "training", **options: Any) -> tierd.Client:
        """Closed with the node, where it is not before."""
        client = tierd.connect(job=job, socket=self.socket, **options)
        self.stack.callback(client.close)
        return client

    def tierctl(self, *words: str) -> str:
        return launcher.tierctl(self.running, *words)

    def figure(self, series: str) -> float:
        return launcher.metrics(self.running).get(series, 0.0)

    def wait_figure(self, series: str, least: float = 1.0, most: float = float("inf"), *, seconds: float = 30) -> None:
        """Until the daemon itself serves that."""
        wait_for(f"{least} <= {series} <= {most}", lambda: least <= self.figure(series) <= most, seconds)

    def up(self) -> bool:
        try:
            return bool(launcher.metrics(self.running))
        except (OSError, urllib.error.URLError):
            return False

    def faulty_device(self, size: int, **options: Any) -> FaultyDevice:
        if missing := lacks():
            raise Needs(f"{', '.join(missing)}: a device that fails")
        folder = self.disk / "faulty"
        folder.mkdir()
        device = FaultyDevice(folder, size, **options)
        # Ended behind the daemon that has it open.
        self.stack.callback(device.close)
        self.stack.callback(self.stop)
        return device

    def stop(self) -> None:
        if self.daemon is not None:
            self.daemon.stop()

    def close(self) -> None:
        self.stack.close()
