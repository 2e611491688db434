"""Tensors through a real daemon: in RAM, on SSD, larger than either, by ranks and by jobs."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable

import launcher
import numpy
import pytest
import torch

import tierd
from tierd.states import Part

MIB = 1 << 20


def noise(size: int, seed: int = 1) -> numpy.ndarray:
    return numpy.random.default_rng(seed).integers(0, 256, size, dtype="u1")


@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 20 * MIB + 123])
def test_what_is_put_comes_back(client: tierd.Client, size: int) -> None:
    content = noise(size)
    client.put("key", content)
    assert (client.get("key") == content).all()
    state = client.tensor("key")
    assert state.size == size and state.sealed and not state.torn


def test_every_kind_of_array_comes_back(client: tierd.Client) -> None:
    client.put("numpy", numpy.arange(24.0).reshape(2, 3, 4))
    client.put("torch", torch.arange(24).reshape(4, 6).to(torch.bfloat16))
    client.put("bytes", b"twelve bytes")
    assert client.get("numpy").shape == (2, 3, 4)
    assert torch.equal(client.get("torch"), torch.arange(24).reshape(4, 6).to(torch.bfloat16))
    assert client.get("bytes") == b"twelve bytes"


def test_a_dropped_tensor_comes_back_from_ssd(client: tierd.Client) -> None:
    content = noise(5 * MIB + 77)
    client.put("key", content)
    client.flush("key")
    client.drop("key")
    state = client.tensor("key")
    assert state.ram_bytes == 0 and state.ssd_bytes >= content.size
    assert (client.get("key") == content).all()
    assert client.tensor("key").ram_bytes > 0


def test_a_prefetched_tensor_is_brought_into_ram(client: tierd.Client) -> None:
    content = noise(3 * MIB)
    client.put("key", content)
    client.flush()
    client.drop("key")
    client.prefetch(["key"])
    with client.lease("key") as lease:
        assert bytes(lease.memoryview()) == content.tobytes()


def test_a_tensor_larger_than_the_arena_goes_through(client: tierd.Client) -> None:
    content = noise(150 * MIB)
    client.put("large", content)
    assert hashlib.sha256(client.get("large")).digest() == hashlib.sha256(content).digest()
    with client.lease("large", write=True, offset=100 * MIB, length=4) as lease:
        lease.numpy()[:] = 9
    content[100 * MIB : 100 * MIB + 4] = 9
    client.put("large", content, replace=True)
    assert (client.get("large") == content).all()
    client.delete("large")


@pytest.mark.parametrize("mebibytes", [6, 10, 16, 24])
def test_a_tensor_larger_than_its_jobs_limit_comes_back(connect: Callable[..., tierd.Client], mebibytes: int) -> None:
    limited = connect(job=f"limited-{mebibytes}", limit="4MiB")
    content = noise(mebibytes * MIB - 3)
    limited.put("key", content)
    assert (limited.get("key") == content).all()


def test_more_tensors_than_ram_stay_what_they_were(client: tierd.Client) -> None:
    tensors = {number: noise(3 * MIB + number, number) for number in range(40)}
    for number, content in tensors.items():
        client.put(number, content)
    for number, content in tensors.items():
        assert (client.get(number) == content).all(), number
    client.delete(*tensors)


def test_a_tensor_larger_than_ram_and_ssd_is_refused_before_a_byte_is_written(
    client: tierd.Client, daemon: launcher.Running
) -> None:
    with pytest.raises(tierd.NoSpace, match=r"\d"):
        client.create("huge", 4 << 30)
    with pytest.raises(tierd.NotFound):
        client.tensor("huge")


def test_updates_by_ranges_touch_nothing_else(client: tierd.Client) -> None:
    content = noise(9 * MIB).view("u4")
    client.put("key", content)
    leases = client.lease_many([Part("key", offset, 4096) for offset in (0, 2 * MIB, 8 * MIB)], write=True)
    for number, lease in enumerate(leases):
        lease.numpy("u4")[:] = number
    for lease in leases:
        lease.release()
    for number, offset in enumerate((0, 2 * MIB, 8 * MIB)):
        content[offset // 4 : offset // 4 + 1024] = number
    client.flush()
    client.drop("key")
    assert (client.get("key") == content).all()


def test_unknown_and_taken_keys_and_no_bytes_have_their_errors(client: tierd.Client) -> None:
    with pytest.raises(tierd.NotFound, match="no tensor 'nobody' in the session's namespace"):
        client.get("nobody")
    with pytest.raises(tierd.NotFound, match="no tensor 1000 in the session's namespace"):
        client.get(1000)
    client.put("common", b"x", shared=True)
    with pytest.raises(tierd.NotFound, match="no tensor 'common' in .*; its job has a shared one .*pass shared=True"):
        client.get_into("common", bytearray(1))
    client.put("key", b"x")
    with pytest.raises(tierd.NotFound, match="no tensor 'key' in .*; the session has one of its own"):
        client.get("key", shared=True)
    with pytest.raises(tierd.AlreadyExists):
        client.put("key", b"y")
    with pytest.raises(tierd.AlreadyExists):
        client.create("key", 10)
    with pytest.raises(tierd.Invalid, match="do not lie in tensor 'key' of 1 bytes"):
        client.lease("key", offset=5)
    with pytest.raises(tierd.Invalid):
        client.put("none", b"")
    assert client.get("key") == b"x"


def test_an_unsealed_tensor_is_not_to_be_had(connect: Callable[..., tierd.Client]) -> None:
    first, second = connect(), connect()
    with first.create("slow", 100, shared=True) as lease:
        with pytest.raises(tierd.Error):
            second.lease("slow", shared=True, timeout=0.05)
        lease.numpy()[:] = 1
    assert second.get("slow", dtype="u1", shared=True).sum() == 100


def test_two_ranks_with_the_same_key_do_not_meet(connect: Callable[..., tierd.Client]) -> None:
    ranks = [connect(rank=number, world_size=2) for number in range(2)]
    for number, rank in enumerate(ranks):
        rank.put("weights", numpy.full(1000, number))
    assert [rank.get("weights")[0] for rank in ranks] == [0, 1]
    ranks[0].put("common", numpy.arange(10), shared=True)
    with pytest.raises(tierd.AlreadyExists):
        ranks[1].put("common", numpy.zeros(10), shared=True)
    assert (ranks[1].get("common", dtype="i8", shared=True) == numpy.arange(10)).all()
    assert ranks[0].tensor_id("common") == ranks[1].tensor_id("common")


def test_a_process_that_connects_again_joins_its_own_job(daemon: launcher.Running) -> None:
    """As a notebook cell that is run again, while the first run's client is still bound to its name."""
    first = tierd.connect(job="cell", socket=daemon.socket)
    first.put("common", b"seen by both", shared=True)
    second = tierd.connect(job="cell", socket=daemon.socket)
    assert second.get("common", shared=True) == b"seen by both"
    assert second.session.session != first.session.session
    with pytest.raises(tierd.AlreadyExists, match="a client of this process has the job open: use that one, or close"):
        tierd.connect(job="cell", socket=daemon.socket, mode="create")
    program = f"import tierd; tierd.connect(job='cell', socket={daemon.socket!r})"
    stranger = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "AlreadyExists" in stranger.stderr and "pass its token" in stranger.stderr
    first.close()
    second.close()


def test_two_jobs_do_not_see_each_other(connect: Callable[..., tierd.Client]) -> None:
    one, two = connect(job="isolated-one"), connect(job="isolated-two")
    one.put("secret", b"of one", shared=True)
    with pytest.raises(tierd.NotFound):
        two.get("secret", shared=True)
    two.put("secret", b"of two", shared=True)
    assert one.get("secret", shared=True) == b"of one"
    with pytest.raises(tierd.Error):
        connect(job="isolated-one", token="0" * 64, mode="join")


def test_a_job_that_ended_leaves_no_tensor(connect: Callable[..., tierd.Client]) -> None:
    first = connect(job="short-lived")
    first.put("key", noise(MIB), shared=True)
    first.close()
    second = connect(job="short-lived")
    with pytest.raises(tierd.NotFound):
        second.get("key", shared=True)


def test_threads_read_while_one_writes(client: tierd.Client) -> None:
    client.put("key", numpy.zeros(1000))
    failures: list[BaseException] = []

    def read() -> None:
        try:
            for _ in range(100):
                with client.lease("key") as lease:
                    values = lease.numpy()
                    assert (values == values[0]).all()
                    del values
        except BaseException as failure:
            failures.append(failure)

    def write() -> None:
        try:
            for number in range(50):
                with client.lease("key", write=True) as lease:
                    lease.numpy()[:] = number
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work) for work in (read, read, read, write)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert client.stats().leases_open == 0


def test_stats_count_every_copy_and_nothing_else(client: tierd.Client) -> None:
    sizes = [100, 3 << 20, 20 << 20]
    for number, size in enumerate(sizes):
        client.put(number, bytes(size))
        client.put(number, bytes(size), replace=True)
        client.get_into(number, bytearray(size))
    with client.lease(0, write=True) as lease:
        lease.numpy()[:] = 1  # In place.
    stats = client.stats()
    assert stats.copied_to_tensors_bytes == 2 * sum(sizes)
    assert stats.copied_from_tensors_bytes == sum(sizes)


def test_waiting_for_ones_own_lease_is_told_at_once(client: tierd.Client) -> None:
    client.put("key", b"x" * 100)
    with client.lease("key"):
        with pytest.raises(tierd.WouldDeadlock):
            client.lease("key", write=True)
        with pytest.raises(tierd.WouldDeadlock):
            client.delete("key")
    client.delete("key")


def test_another_threads_lease_is_waited_for(client: tierd.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.put("key", b"x" * 100)
    held: list[tierd.Lease] = []
    holder = threading.Thread(target=lambda: held.append(client.lease("key")))
    holder.start()
    holder.join()
    poll = client._session.library.tier_poll

    def ending(operation: object, timeout: int) -> object:
        while held:
            held.pop().release()
        return poll(operation, timeout)

    monkeypatch.setattr(client._session.library, "tier_poll", ending)
    with client.lease("key", write=True, timeout=30) as lease:
        assert lease.nbytes == 100 and held == []


def test_a_deadline_passes_in_time(connect: Callable[..., tierd.Client]) -> None:
    holder, waiter = connect(), connect()
    holder.put("key", b"x" * 100, shared=True)
    with holder.lease("key", shared=True):
        with pytest.raises(tierd.Timeout):
            waiter.lease("key", write=True, shared=True, timeout=0.3)
        with pytest.raises(tierd.Timeout):
            waiter.lease("key", write=True, shared=True, timeout=0)


def test_metrics_are_served(client: tierd.Client, daemon: launcher.Running) -> None:
    client.put("key", b"x")
    text = urllib.request.urlopen(daemon.metrics_url, timeout=10).read().decode()
    assert "\ntierd_job_ram_bytes{" in text
