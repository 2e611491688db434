"""A place of a device that fails twice is given up, also by the next daemon, until the operator has it retried."""

from __future__ import annotations

import itertools
import os
import pathlib
import signal
import sys
import time

import launcher
import pytest
import tierd
from test_device_drain import figure

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/faults"))

from faulty_device import FaultyDevice, lacks  # noqa: E402

MIB = 1 << 20
SIZE = 64 * MIB
BLOCKS = SIZE // (2 * MIB) - 1  # Of the data area.
BAD = range(9 * MIB, 9 * MIB + 4096)  # A page of the data area's fourth block.


def fill(client: tierd.Client) -> int:
    """Puts blocks on SSD until only the one that is kept for reads is left, and says how many there are."""
    for count in itertools.count():
        client.put(f"block-{count}", os.urandom(2 * MIB))
        try:
            client.flush(f"block-{count}")
        except (tierd.NoSpace, tierd.IoError):
            client.delete(f"block-{count}")
            return count
    raise AssertionError


def test_a_bad_place_is_remembered_until_it_is_retried(socket_folder: pathlib.Path) -> None:
    if missing := lacks():
        pytest.skip(f"needs {missing}: a device that fails")
    with launcher.disk_folder() as disk:
        device = FaultyDevice(disk, SIZE, bad_bytes=BAD)
        settings = {
            "daemon": {"socket_directory": str(socket_folder), "data_directory": str(disk)},
            "ssd": {"devices": [device.path]},
        }
        try:
            with launcher.start(socket_folder, arena="128MiB", settings=settings) as daemon:
                device.fail("writes")
                with tierd.connect(job="training", socket=daemon.socket) as client:
                    count = fill(client)
                    assert count == BLOCKS - 1, "the bad one, put aside, is the one that is left"
                    for number in range(count):  # It is free beside another one: sooner or later it is written again.
                        client.delete(f"block-{number}")
                        client.put(f"again-{number}", os.urandom(2 * MIB))
                        client.flush(f"again-{number}")  # It succeeds: the place is bad, not the device.
                        if figure(daemon, "quarantined_bytes") == [2 * MIB]:
                            break
                    assert figure(daemon, "quarantined_bytes") == [2 * MIB]
                time.sleep(1)  # The index is written behind everybody, in milliseconds.
                os.kill(daemon.pid, signal.SIGKILL)
            device.heal()
            with launcher.start(socket_folder, arena="128MiB", settings=settings) as daemon:
                assert figure(daemon, "quarantined_bytes") == [2 * MIB], "as the daemon before wrote it down"
                with tierd.connect(job="training", socket=daemon.socket) as client:
                    assert fill(client) == BLOCKS - 2
                    assert "used again" in launcher.tierctl(daemon, "device", "retry", "0")
                    assert figure(daemon, "quarantined_bytes") == [0]
                    client.put("one-more", os.urandom(2 * MIB))
                    client.flush("one-more")
            with launcher.start(socket_folder, arena="128MiB", settings=settings) as daemon:
                assert figure(daemon, "quarantined_bytes") == [0]
                with tierd.connect(job="training", socket=daemon.socket) as client:
                    assert fill(client) == BLOCKS - 1
        finally:
            device.close()
