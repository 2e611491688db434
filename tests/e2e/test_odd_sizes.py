"""Tensors of sizes of which no whole number fills a block of 2 MiB leave no RAM unused."""

from __future__ import annotations

import pathlib
import time

import launcher
import numpy
import pytest

import tierd

MIB = 1 << 20
PAGE = 4096
SHARE = 60 * MIB  # Of one job in an arena of 64 MiB: a sixteenth is promised to no job.


def content(number: int, size: int) -> numpy.ndarray:
    return numpy.resize(numpy.arange(number, number + 251, dtype="u1"), size)


@pytest.mark.parametrize(
    "size",
    [MIB + PAGE, 3 * MIB + PAGE, 704 * 1024, MIB * 11 // 10, 1680 * 1024],
    ids=["1 MiB + 4 KiB", "3 MiB + 4 KiB", "704 KiB", "1.1 MiB", "1680 KiB"],
)
def test_they_fill_the_ram(socket_folder: pathlib.Path, size: int) -> None:
    fit = SHARE // (-(-size // PAGE) * PAGE)
    with launcher.start(socket_folder, settings={"ssd": {"devices": ["none"]}}) as daemon:
        with tierd.connect(job="odd", socket=daemon.socket) as client:
            started = time.monotonic()
            for number in range(fit):
                client.put(number, content(number, size))
            for number in range(0, fit, 2):
                client.delete(number)
            for number in range(0, fit, 2):
                client.put(number, content(number + 7, size))
            assert time.monotonic() - started < 20, "none of them waits for its deadline of 60 s"
            for number in range(fit):
                expected = content(number + 7 if number % 2 == 0 else number, size)
                assert (client.get(number) == expected).all(), number
                with client.lease(number) as lease:  # One view, wherever its parts lie.
                    assert bytes(lease.memoryview()) == expected.tobytes()
            with pytest.raises(tierd.NoSpace, match="does not fit beside"):
                client.put(fit, content(0, size))


def test_large_tensors_find_room_among_them(socket_folder: pathlib.Path) -> None:
    size = MIB + PAGE
    with launcher.start(socket_folder, settings={"ssd": {"devices": ["none"]}}) as daemon:
        with tierd.connect(job="odd", socket=daemon.socket) as client:
            fit = SHARE // size
            for number in range(fit):
                client.put(number, content(number, size))
            kept = range(0, fit, 3)
            for number in range(fit):
                if number not in kept:
                    client.delete(number)
            large = (SHARE - len(kept) * size) // (2 * MIB)
            started = time.monotonic()
            for number in range(large):
                client.put(100 + number, content(number, 2 * MIB))
            assert time.monotonic() - started < 20, "none of them waits for its deadline of 60 s"
            for number in kept:
                assert (client.get(number) == content(number, size)).all(), number
            for number in range(large):
                assert (client.get(100 + number) == content(number, 2 * MIB)).all(), number
