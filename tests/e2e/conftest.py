"""Fixtures of the end-to-end tests: real daemons, and clients of them in jobs of their own."""

from __future__ import annotations

import itertools
import os
import tempfile
import pathlib
from collections.abc import Callable, Iterator

import launcher
import pytest

os.environ.setdefault("TIERD_BUILD", str(launcher.BUILD))
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # Before torch: tests share their cores with daemons.

import tierd  # noqa: E402

_jobs = itertools.count(1)


@pytest.fixture
def socket_folder() -> Iterator[pathlib.Path]:
    """A short path: socket names have at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="tier-") as folder:
        yield pathlib.Path(folder)


@pytest.fixture(scope="module")
def daemon() -> Iterator[launcher.Running]:
    """A daemon with 64 MiB of RAM and 1 GiB of SSD, shared by the tests of a file."""
    with tempfile.TemporaryDirectory(prefix="tier-") as folder:
        with launcher.start(pathlib.Path(folder), arena="64MiB", tier="1GiB") as running:
            yield running


@pytest.fixture
def own_daemon(socket_folder: pathlib.Path) -> Iterator[launcher.Running]:
    """A daemon for one test, which may kill it."""
    with launcher.start(socket_folder, arena="32MiB", tier="256MiB") as running:
        yield running


@pytest.fixture
def connect(daemon: launcher.Running) -> Iterator[Callable[..., tierd.Client]]:
    """Opens sessions with the file's daemon: of one new job unless told otherwise. All are closed at the end, and then
    nothing of them is left."""
    job = f"test-{next(_jobs)}"
    clients: list[tierd.Client] = []

    def opened(**options: object) -> tierd.Client:
        if clients and "token" not in options and "job" not in options:
            options["token"] = clients[0].session.token
        client = tierd.connect(**{"job": job, "socket": daemon.socket, **options})  # type: ignore[arg-type]
        clients.append(client)
        return client

    yield opened
    for client in clients:
        client.close()
    daemon.audit()


@pytest.fixture
def client(connect: Callable[..., tierd.Client]) -> tierd.Client:
    return connect()
