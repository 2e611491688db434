"""What a job that does nothing holds in RAM goes to one that could use it, and comes back."""

from __future__ import annotations

import pathlib
import re

import launcher
import numpy

import tierd

MIB = 1 << 20
TENSOR = 2 * MIB
IDLE = 14  # Tensors of the job that does nothing: within its promise, 30 of 64 MiB.
BUSY = 22  # Of the other one: more than its promise, and less than both promises.
GIVE_UP = 60.0


def fill(client: tierd.Client, count: int, offset: int) -> None:
    for number in range(count):
        client.put(number, numpy.full(TENSOR, number + offset, "u1"))
    client.flush()


def read_all(client: tierd.Client, count: int, offset: int) -> None:
    back = numpy.empty(TENSOR, "u1")
    for number in range(count):
        client.get_into(number, back)
        assert (back == number + offset).all(), number


def stays_in_ram(daemon: launcher.Running, client: tierd.Client, count: int, offset: int) -> bool:
    """Reads all of its tensors: whether none of them came from SSD."""

    def from_ssd() -> float:
        figures = launcher.metrics(daemon)
        return sum(n for name, n in figures.items() if name.startswith("tierd_device_read_bytes_total"))

    before = from_ssd()
    read_all(client, count, offset)
    return from_ssd() == before


def test_idle_memory_is_lent_and_comes_back(socket_folder: pathlib.Path) -> None:
    settings = {"jobs": {"idle_after": "1s"}, "ssd": {"file_size": "1GiB"}}
    with (
        launcher.start(socket_folder, arena="64MiB", settings=settings) as daemon,
        tierd.connect(job="notebook", socket=daemon.socket) as notebook,
        tierd.connect(job="tune", socket=daemon.socket) as tune,
    ):
        fill(notebook, IDLE, 1)
        fill(tune, BUSY, 101)
        launcher.wait_for("all that it has stays", lambda: stays_in_ram(daemon, tune, BUSY, 101), GIVE_UP)
        lent = launcher.metrics(daemon)["tierd_lent_bytes_total"]
        assert lent >= (IDLE + BUSY) * TENSOR - 64 * MIB
        assert re.search(r"[1-9][\d.]* MiB lent by idle jobs", launcher.tierctl(daemon, "status"))

        launcher.wait_for("its promise is back", lambda: stays_in_ram(daemon, notebook, IDLE, 1), GIVE_UP)
        read_all(tune, BUSY, 101)
        assert (notebook.get(0) == 1).all()
