"""Free pages that lie scattered serve large tensors: pieces move in RAM, and no request waits for its deadline."""

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
BLOCKS = 28  # Of 2 MiB: most of what one job may have of 64 MiB.


def moved(daemon: launcher.Running) -> dict[str, float]:
    """Pieces moved in RAM, by cause."""
    moves = {name: n for name, n in launcher.metrics(daemon).items() if name.startswith("tierd_compaction_moves_total")}
    return {name.split('"')[1]: n for name, n in moves.items()}


def scatter(client: tierd.Client) -> None:
    """One page in each of the blocks, and nothing beside it."""
    for number in range(BLOCKS):
        client.put(f"page {number}", numpy.full(PAGE, number, "u1"))
        client.put(f"rest {number}", numpy.zeros(2 * MIB - PAGE, "u1"))
    for number in range(BLOCKS):
        client.delete(f"rest {number}")


def check_pages(client: tierd.Client) -> None:
    for number in range(BLOCKS):
        assert (client.get(f"page {number}") == number).all()


@pytest.mark.parametrize("ssd", [{"devices": ["none"]}, {"file_size": "1GiB"}], ids=["ram alone", "with an SSD file"])
def test_scattered_pages_become_blocks(socket_folder: pathlib.Path, ssd: dict[str, object]) -> None:
    with launcher.start(socket_folder, settings={"ssd": ssd}) as daemon:
        with tierd.connect(job="scattered", socket=daemon.socket) as client:
            scatter(client)
            started = time.monotonic()
            for number in range(BLOCKS - 1):
                client.put(f"large {number}", numpy.full(2 * MIB, number, "u1"))
            assert time.monotonic() - started < 20, "each of them would have waited for 60 s"
            for number in range(BLOCKS - 1):
                assert (client.get(f"large {number}") == number).all()
            check_pages(client)
            assert moved(daemon)["block"] > 0
            status = launcher.tierctl(daemon, "status")
            assert re.search(r"compaction +[1-9]\d* pieces moved in RAM", status), status


def test_what_moves_can_be_read_all_the_time(socket_folder: pathlib.Path) -> None:
    with launcher.start(socket_folder, settings={"ssd": {"devices": ["none"]}}) as daemon:
        with (
            tierd.connect(job="read", socket=daemon.socket) as client,
            tierd.connect(job="read", socket=daemon.socket, token=client.session.token) as writer,
        ):
            for number in range(BLOCKS):
                client.put(f"page {number}", numpy.full(PAGE, number, "u1"), shared=True)
                client.put(f"rest {number}", numpy.zeros(2 * MIB - PAGE, "u1"))
            for number in range(BLOCKS):
                client.delete(f"rest {number}")
            for number in range(BLOCKS - 1):
                writer.put(f"large {number}", numpy.full(2 * MIB, number, "u1"))
                for page in range(BLOCKS):
                    with client.lease(f"page {page}", shared=True) as lease:
                        assert bytes(lease.memoryview()) == bytes([page]) * PAGE


def mappings() -> int:
    """Of this process."""
    return pathlib.Path("/proc/self/maps").read_bytes().count(b"\n")


def test_blocks_move_side_by_side_where_mappings_run_short(socket_folder: pathlib.Path) -> None:
    """Linux allows a process so many mappings; a quarter of them may be for leases of scattered blocks."""
    most = int(pathlib.Path("/proc/sys/vm/max_map_count").read_text()) // 4
    if most > 20_000:
        pytest.skip(f"needs a small vm.max_map_count: a quarter of it is {most}, and half of that would be made")
    content = numpy.arange(6 * 2 * MIB // 8, dtype="u8")
    with launcher.start(socket_folder, settings={"ssd": {"devices": ["none"]}}) as daemon:
        with tierd.connect(job="mappings", socket=daemon.socket) as client:
            for number in range(BLOCKS):
                client.put(number, numpy.full(2 * MIB, number, "u1"))
            for number in range(0, BLOCKS, 2):
                client.delete(number)
            for name in ("leased", "wanted"):  # Both in the gaps.
                with client.create(name, content.shape, "u8") as lease:
                    lease.numpy()[:] = content
            for number in range(1, BLOCKS, 2):
                client.delete(number)
            before, views = mappings(), []
            while mappings() - before < most * 3 // 4:  # With the reservations around them.
                assert len(views) < most, "the tensor does not lie scattered"
                for _ in range(64):  # Each view begins at another page, and is a mapping for each block.
                    views.append(client.lease("leased", offset=len(views) * PAGE))
                    assert len(views[-1].memoryview()) == content.nbytes - (len(views) - 1) * PAGE
            assert moved(daemon)["run"] == 0
            with client.lease("wanted") as lease:
                assert (lease.numpy("u8") == content).all()
            assert moved(daemon)["run"] >= 6
            for view in views:
                view.release()
            assert (client.get("leased") == content).all()
