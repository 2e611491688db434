"""Whole tensors that threads and ranks write at once: who reads gets what one of them has put, never a mixture."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Callable

import launcher
import numpy
import pytest

import tierd

MIB = 1 << 20
SECONDS = 3.0


def repeated(work: Callable[[int], None], until: float, failures: list[BaseException]) -> threading.Thread:
    def run() -> None:
        try:
            number = 0
            while time.monotonic() < until:
                work(number)
                number += 1
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def assert_of_one(found: numpy.ndarray) -> None:
    assert (found == found[0]).all(), f"{found[0]} and {found[-1]} in {found.size} bytes"


@pytest.mark.parametrize("sizes", [(4096, 7 * MIB), (5 * MIB, 7 * MIB)])
def test_ranks_that_replace_a_tensor_by_others_of_other_sizes(
    own_daemon: launcher.Running, sizes: tuple[int, int]
) -> None:
    values = [numpy.full(size, number + 1, numpy.uint8) for number, size in enumerate(sizes)]
    begin = threading.Barrier(2)

    def put(client: tierd.Client, value: numpy.ndarray) -> None:
        begin.wait()
        # The other one may have replaced the tensor while this one wrote it, or have begun to create another.
        with contextlib.suppress(tierd.Stale, tierd.AlreadyExists):
            client.put("key", value, shared=True, replace=True)

    with tierd.connect(job="ranks", socket=own_daemon.socket) as first:
        token = first.session.token
        with (
            tierd.connect(job="ranks", socket=own_daemon.socket, token=token) as second,
            concurrent.futures.ThreadPoolExecutor(2) as pool,
        ):
            rounds, until = 0, time.monotonic() + SECONDS
            while time.monotonic() < until or rounds < 10:
                with contextlib.suppress(tierd.Stale):
                    first.put("key", values[0], shared=True, replace=True)
                for work in [pool.submit(put, *pair) for pair in zip((first, second), values, strict=True)]:
                    work.result()
                with contextlib.suppress(tierd.Stale):  # Told of the put before it.
                    assert_of_one(first.get("key", "u1", shared=True))
                    rounds += 1


def test_a_tensor_that_ram_does_not_hold_at_once_is_read_as_it_was_put(own_daemon: launcher.Running) -> None:
    failures: list[BaseException] = []
    with tierd.connect(job="small", socket=own_daemon.socket, limit="6MiB") as client:
        client.put("key", numpy.zeros(12 * MIB, numpy.uint8))
        until = time.monotonic() + SECONDS
        writer = repeated(
            lambda number: client.put("key", numpy.full(12 * MIB, number % 251, numpy.uint8), replace=True),
            until,
            failures,
        )
        reads = 0
        while time.monotonic() < until:
            assert_of_one(client.get("key"))
            reads += 1
        writer.join()
        assert not failures and reads > 3
