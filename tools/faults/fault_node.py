"""A daemon with devices that can be made to fail, one named job on it, and what was acknowledged to that job."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import mmap
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy
from fault_table import DEADLINE
from faulty_device import FaultyDevice

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bindings/python"))
BUILD = pathlib.Path(os.environ.get("TIERD_BUILD", ROOT / "build/release"))
os.environ.setdefault("TIERD_BUILD", str(BUILD))

import tierd  # noqa: E402
from tierd.daemon import Daemon  # noqa: E402

MIB = 1 << 20
TENSOR = 8 * MIB  # Four pieces: with two devices, some on each.
ARENA = 64 * MIB
DEVICE = 256 * MIB
JOB = "run"


@dataclasses.dataclass(frozen=True)
class Devices:
    """What a daemon is started on: `count` devices, `failing` of them block devices that can be made to fail."""

    count: int = 1
    failing: int = 0
    write_error: str = "EIO"
    small_index: bool = False  # The index lies in a small file system.


def content(seed: int) -> numpy.ndarray[Any, numpy.dtype[numpy.uint8]]:
    return numpy.random.default_rng(seed).integers(0, 256, TENSOR, numpy.uint8)


class Node:
    """Closed with everything that belongs to it at the end of a `with` block."""

    def __init__(self, about: Devices) -> None:
        self._stack = contextlib.ExitStack()
        self.about = about
        self.faulty: list[FaultyDevice] = []
        self.files: list[pathlib.Path] = []
        self.acknowledged: dict[str, numpy.ndarray[Any, Any]] = {}
        self.persisted: dict[str, numpy.ndarray[Any, Any]] = {}
        self._seed = 0
        self.client: tierd.Client | None = None
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _folder(self, place: pathlib.Path | None = None) -> pathlib.Path:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tier-faults-", dir=place))
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        return folder

    def _start(self) -> None:
        cache = ROOT / ".cache"
        cache.mkdir(exist_ok=True)
        disk = self._folder(cache)
        self.data = disk / "data"
        self.data.mkdir()
        if self.about.small_index:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=264m", "tmpfs", self.data], check=True)
            self._stack.callback(lambda: subprocess.run(["umount", self.data], check=False))
        paths = []
        for index in range(self.about.count):
            if index < self.about.failing:
                folder = disk / f"device{index}"
                folder.mkdir()
                device = FaultyDevice(folder, DEVICE, write_error=self.about.write_error)
                self._stack.callback(device.close)
                self.faulty.append(device)
                paths.append(device.path)
            else:
                self.files.append(disk / f"file{index}")
                paths.append(str(self.files[-1]))
        self.sockets = self._folder()
        settings = {
            "daemon": {"socket_directory": str(self.sockets), "data_directory": str(self.data)},
            "arena": {"maximum": f"{ARENA // MIB}MiB"},
            "ssd": {"devices": paths, "file_size": f"{DEVICE // MIB}MiB"},
            "engine": {"deadline": f"{DEADLINE:.0f}s"},
            "metrics": {"listen": ""},
        }
        self.daemon = Daemon(self.sockets, settings, program=str(BUILD / "daemon/tierd"))
        self._stack.callback(self.daemon.stop)
        self.free_before = self.bytes_of("free")
        self._stack.callback(self.close_client)

    def alive(self) -> bool:
        return self.daemon.process.poll() is None

    # ---- The job ----

    def connect(self, mode: str = "attach") -> tierd.Client:
        self.client = tierd.connect(job=JOB, socket=str(self.sockets / "tierd.sock"), named=True, mode=mode)
        return self.client

    def close_client(self) -> None:
        if self.client is not None:
            self.client.close()
            self.client = None

    @property
    def open_client(self) -> tierd.Client:
        assert self.client is not None, "the job is not open"
        return self.client

    def fresh(self) -> numpy.ndarray[Any, Any]:
        self._seed += 1
        return content(self._seed)

    def put(self, key: str, replace: bool = False) -> None:
        """Stores new bytes; they are acknowledged once it returns."""
        array = self.fresh()
        self.open_client.put(key, array, replace=replace, timeout=DEADLINE)
        self.acknowledged[key] = array

    def persist(self, *keys: str) -> None:
        self.open_client.persist(*keys)
        self.persisted = {key: self.acknowledged[key] for key in keys}

    def holds(self, key: str, expected: numpy.ndarray[Any, Any]) -> bool:
        read = self.open_client.get(key, numpy.uint8, TENSOR, timeout=DEADLINE)
        return bool(numpy.array_equal(read, expected))

    def prepare(self) -> None:
        """Three tensors: "ssd" is on SSD alone and persisted, "both" in RAM too, "ram" in RAM alone."""
        client = self.connect()
        for key in ("ssd", "both"):
            self.put(key)
        client.flush("ssd", "both")
        self.persist("ssd")
        client.drop("ssd")
        self.put("ram")
        on_ssd = {key: client.tensor(key).ssd_bytes for key in self.acknowledged}
        if client.tensor("ssd").ram_bytes or on_ssd != {"ssd": TENSOR, "both": TENSOR, "ram": 0}:
            raise RuntimeError(f"the tensors do not lie where they should: {on_ssd}")

    # ---- The daemon from outside ----

    def tierctl(self, *words: str) -> Any:
        """Its answer. Also where what it did leaves tierd degraded (exit status 6)."""
        command = [str(BUILD / "tools/tierctl/tierctl"), "--socket", str(self.sockets / "admin.sock"), "--json", *words]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
        except subprocess.TimeoutExpired as error:
            raise TierctlError(str(error)) from error
        if result.returncode not in (0, 6):
            raise TierctlError(f"tierctl {' '.join(words)}: {result.returncode}: {result.stderr.strip()}")
        return json.loads(result.stdout or "null")

    def devices(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = self.tierctl("device", "list")["devices"]
        return listed

    def states(self) -> list[str]:
        return [device["state"] for device in self.devices()]

    def bytes_of(self, *names: str) -> int:
        """The sum of these figures, such as "free", over all devices."""
        return sum(int(device[f"{name}_bytes"]) for device in self.devices() for name in names)

    def find_on_device(self, key: str, offset: int) -> tuple[pathlib.Path, int]:
        """The file and the place in it of a byte of a tensor."""
        sought = self.acknowledged[key][offset : offset + 64].tobytes()
        for path in [device.backing for device in self.faulty] + self.files:
            with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                place = mapped.find(sought)
            if place >= 0:
                return path, place
        raise RuntimeError(f"{key} is on no device")


class TierctlError(Exception):
    """tierctl ended with another status than 0."""


def within(seconds: float, holds: Any, pause: float = 0.05) -> bool:
    """Whether it holds before the time has passed."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True
