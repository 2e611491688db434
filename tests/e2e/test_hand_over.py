"""A job gets its guarantee from one that holds everything sparse: what lies there moves in RAM, without I/O."""

from __future__ import annotations

import pathlib
import re
import time

import launcher
import numpy
import pytest

import tierd

MIB = 1 << 20
PAGE = 4096
WINDOWS = 28  # Of 2 MiB: most of what one job may have of 64 MiB.
GUARANTEE = 28 * MIB


def fill_sparse(client: tierd.Client, clean: bool) -> None:
    """One page in each of its windows, and nothing beside it."""
    for number in range(WINDOWS):
        client.put(f"page {number}", numpy.full(PAGE, number, "u1"))
        client.put(f"rest {number}", numpy.zeros(2 * MIB - PAGE, "u1"))
    for number in range(WINDOWS):
        client.delete(f"rest {number}")
        if clean:
            client.flush(f"page {number}")


def settled(daemon: launcher.Running) -> dict[str, float]:
    """The metrics when no transfer is under way: what write-behind had begun has ended."""
    end = time.monotonic() + 20
    while True:
        now = launcher.metrics(daemon)
        if not any(n for name, n in now.items() if name.startswith("tierd_device_inflight_requests")):
            return now
        assert time.monotonic() < end, "transfers do not end"


@pytest.mark.parametrize(
    ("ssd", "clean"),
    [({"devices": ["none"]}, False), ({"file_size": "1GiB"}, False), ({"file_size": "1GiB"}, True)],
    ids=["ram alone", "dirty", "clean"],
)
def test_a_guarantee_comes_back_without_io(socket_folder: pathlib.Path, ssd: dict[str, object], clean: bool) -> None:
    with (
        launcher.start(socket_folder, settings={"ssd": ssd}) as daemon,
        tierd.connect(job="sparse", socket=daemon.socket) as borrower,
    ):
        fill_sparse(borrower, clean)
        before = settled(daemon)
        started = time.monotonic()
        with tierd.connect(job="owner", socket=daemon.socket, guarantee=GUARANTEE) as owner:
            # All at once, under leases: nothing of it can be written out or evicted meanwhile.
            leases = [owner.create(f"large {number}", 2 * MIB) for number in range(14)]
            assert time.monotonic() - started < 20, "without SSD it would have waited for 60 s, and been refused"
            after = settled(daemon)
            for number in range(WINDOWS):
                assert (borrower.get(f"page {number}") == number).all()
            last = launcher.metrics(daemon)
            for lease in leases:
                lease.release()
            status = launcher.tierctl(daemon, "status")
    assert after['tierd_compaction_moves_total{cause="window"}'] > 0
    assert after['tierd_hand_over_windows_total{how="moved"}'] > 0
    assert after['tierd_hand_over_windows_total{how="evicted"}'] == 0
    assert after["tierd_hand_over_evicted_bytes_total"] == 0
    assert after["tierd_evicted_bytes_total"] == before["tierd_evicted_bytes_total"]
    for name in before:
        if name.startswith("tierd_device_written_bytes_total"):
            assert after[name] == before[name]
        if name.startswith("tierd_device_read_bytes_total"):
            assert last[name] == before[name], "what moved is read in RAM"
    assert re.search(r"hand-over +[1-9]\d* of these pieces moved for other jobs", status), status
