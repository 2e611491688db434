"""One of two SSD devices fails everything for a while: what the other does meanwhile, and what is lost by it.

The failing one is that of tools/faults.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

from node import BUILD, GIB, MIB, ROOT, Shell, command, daemon, scratch
from report import Report

sys.path.insert(0, str(ROOT / "tools/faults"))

from faulty_device import FaultyDevice, lacks  # noqa: E402

TENSOR = 16 * MIB
DATA = 512 * MIB  # Of the job that swaps, four times its arena.
SIZE = GIB  # Of the device that fails.
FAILS = 60.0  # Seconds.
BACK = 10.0  # Seconds within which it is online again.
KEEPS = 0.9  # Of the other device's rate.


@contextlib.contextmanager
def faulty_device() -> Iterator[FaultyDevice]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tier-bench-", dir=scratch()))
    try:
        device = FaultyDevice(folder, SIZE, in_memory=True)
        try:
            yield device
        finally:
            device.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def writing(swapper: Shell) -> Iterator[list[float]]:
    """Everything out until it is on the devices, again and again; how many seconds each time took."""
    ended = threading.Event()
    took: list[float] = []

    def write() -> None:
        while not ended.is_set():
            begin = time.monotonic()
            swapper("write")
            took.append(time.monotonic() - begin)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield took
    finally:
        ended.set()
        thread.join()


def failing_device(report: Report, quick: bool) -> None:
    if missing := lacks():
        print(f"  a failing device: skipped, needs {', '.join(missing)}", flush=True)
        return
    seconds = 5.0 if quick else FAILS
    with faulty_device() as faulty, daemon(arena=DATA // 4, tier=2 * GIB, devices=[faulty.path]) as (process, _):
        socket = str(process.directory / "admin.sock")

        def look() -> list[dict[str, Any]]:
            words = [str(BUILD / "tools/tierctl/tierctl"), "--socket", socket, "--json", "device", "list"]
            answer = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
            devices: list[dict[str, Any]] = answer["devices"]
            return devices

        def rate(length: float) -> float:
            """Bytes a second that the healthy device is written."""
            before, begin = int(look()[0]["written_bytes_total"]), time.monotonic()
            time.sleep(length)
            return (int(look()[0]["written_bytes_total"]) - before) / (time.monotonic() - begin)

        swapper = Shell(command(process, "ssd", bytes=TENSOR, total=DATA))
        with writing(swapper) as took:
            rate(2.0)
            whole = rate(seconds)
            calm = len(took)
            faulty.fail()
            alone = rate(seconds)
            state = look()[1]["state"]
            faulty.heal()
            begin = time.monotonic()
            while look()[1]["state"] != "online" and time.monotonic() < begin + BACK:
                time.sleep(0.05)
            back = time.monotonic() - begin
        swapper("free")
        swapper.close()
        end = time.monotonic() + 10
        while any(int(device["live_bytes"]) for device in look()) and time.monotonic() < end:
            time.sleep(0.05)
        lost = sum(int(d["capacity_bytes"]) - int(d["free_bytes"]) for d in look())
    note = f"{whole / 1e6:.0f} MB/s with both, {alone / 1e6:.0f} MB/s while the other is {state} for {seconds:.0f} s"
    report.add("one of two devices fails: rate of the other", alone / whole, "of before", at_least=KEEPS, ceiling=note)
    report.add("one of two devices fails: online again after", back, "s", at_most=BACK)
    report.add("one of two devices fails: bytes not free afterwards", lost, "bytes", at_most=0)
    report.add(
        "one of two devices fails: longest swap_out of 512 MiB until on the devices",
        max(took[calm:]),
        "s",
        ceiling=f"{max(took[:calm]):.2f} s before",
    )
