"""The bench's hostile clients do what they are named for, and a neighbour's tensors stay right meanwhile."""

from __future__ import annotations

import contextlib
import os
import pathlib
import struct
import sys
import tempfile
from collections.abc import Iterator

import launcher
import numpy
import pytest

import tierd

sys.path.insert(0, str(launcher.ROOT / "tools/bench"))

import hostile  # noqa: E402
import hostile_client  # noqa: E402
import raw_session  # noqa: E402

# How what a client does shows in the daemon: requests of this kind, this many; else sessions that attach.
REQUESTS = {
    "create/free churn": ("free", 5),
    "STAT flood": ("stat", 2000),
    "1,023-item requests": ("acquire", 5),
    "1,024 waiters on one tensor": ("acquire", 2000),
    "one tensor of nearly all": ("create", 2),  # The neighbour creates one.
}
SESSIONS = {"attach and leave": 5, "doorbell writes": 1, "handshake garbage": 0}


@pytest.fixture(scope="module")
def daemon() -> Iterator[launcher.Running]:
    """As large as the bench's: a client leases a tensor of nearly all of it."""
    with tempfile.TemporaryDirectory(prefix="tier-") as folder:
        with launcher.start(pathlib.Path(folder), arena="512MiB", tier="1GiB") as running:
            yield running


def shown(daemon: launcher.Running, kind: str) -> float:
    """How often it has done it so far."""
    if kind in SESSIONS:
        return (daemon.directory / "tierd.log").read_text().count("attached to job 'hostile'")
    return launcher.metrics(daemon).get(f'tierd_requests_total{{op="{REQUESTS[kind][0]}",code="OK"}}', 0.0)


@pytest.mark.parametrize("kind", hostile.KINDS)
def test_a_neighbour_keeps_its_bytes_beside(daemon: launcher.Running, kind: str) -> None:
    if os.geteuid() == 0:
        launcher.need_user(hostile.HOSTILE_USER)
    daemon.directory.chmod(0o755)
    content = numpy.random.default_rng(1).integers(0, 256, 3 << 20, numpy.uint8)
    least = shown(daemon, kind) + (SESSIONS[kind] if kind in SESSIONS else REQUESTS[kind][1])
    with (
        tierd.connect(job="neighbour", socket=daemon.socket) as ours,
        contextlib.closing(hostile.start_hostile(daemon.socket, kind)),
    ):
        for number in range(20):
            ours.put("tensor", content, replace=True)
            assert numpy.array_equal(ours.get("tensor"), content), number
        launcher.wait_for("the client at work", lambda: shown(daemon, kind) >= least)
    daemon.audit()


def test_garbage_is_refused(daemon: launcher.Running) -> None:
    for _ in range(300):
        answer = hostile_client.greet(daemon.socket, hostile_client.garbage())
        code = struct.unpack_from("<H", answer, raw_session.WELCOME_CODE)[0] if answer else None
        assert code != 0
