"""A daemon in a control group whose limit is lowered gives memory back, is not killed, and loses no byte."""

from __future__ import annotations

import pathlib
import re
import sys
import time
from collections.abc import Iterator

import launcher
import numpy
import pytest

import tierd

sys.path.insert(0, str(launcher.ROOT / "tools/bench"))
from memory_group import MemoryGroup, Unavailable, memory_group  # noqa: E402

MIB = 1 << 20
TENSORS = 20
SIZE = 8 * MIB
DEADLINE_S = 30.0  # The machine does other things too.


@pytest.fixture
def group() -> Iterator[MemoryGroup]:
    try:
        with memory_group() as made:
            yield made
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def running(socket_folder: pathlib.Path, group: MemoryGroup) -> Iterator[launcher.Running]:
    assert group.set_limit(512 * MIB)
    program = group.program(socket_folder / "program", launcher.need_build())
    # Pages of the kernel's pool count in no memory.current.
    settings = {"arena": {"maximum": "256MiB", "minimum": "16MiB", "huge_pages": "never"}}
    with launcher.start(socket_folder, tier="512MiB", settings=settings, program=program) as daemon:
        yield daemon


def content(number: int) -> numpy.ndarray:
    return numpy.random.default_rng(number).integers(0, 256, SIZE, dtype=numpy.uint8)


def test_a_lowered_limit_takes_memory_and_no_byte(group: MemoryGroup, running: launcher.Running) -> None:
    with tierd.connect(job="pressed", socket=running.socket) as client:
        for number in range(TENSORS):
            client.put(f"tensor {number}", content(number))
        with client.lease("tensor 0") as lease:
            before = group.usage()
            assert before > TENSORS * SIZE
            assert group.lower(before - 80 * MIB, DEADLINE_S), f"{group.usage()} are used"
            end = time.monotonic() + DEADLINE_S
            while group.usage() > before - 80 * MIB or launcher.metrics(running)["tierd_arena_debt_bytes"] > 0:
                assert time.monotonic() < end, f"{group.usage()} of {before} are used"
                time.sleep(0.02)
            assert (lease.numpy() == content(0)).all(), "what is leased stays"
        assert launcher.metrics(running)["tierd_arena_given_back_bytes_total"] >= 80 * MIB
        assert launcher.metrics(running)["tierd_host_shortages_total"] == 1
        assert launcher.metrics(running)["tierd_host_memory_short"] == 1
        for number in range(TENSORS):
            assert (client.get(f"tensor {number}") == content(number)).all()
        client.put("another", content(99))
        assert (client.get("another") == content(99)).all()
    status = launcher.tierctl(running, "status")
    now = r"given back .* in 1 shortage of the host; now: memory\.(high|limit_in_bytes) of "
    assert re.search(now, status), status
    assert group.oom_kills() == 0
    assert running.process.poll() is None
