"""Waiting: signals reach a main thread that waits, and what an abandoned wait brings is given back."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest
from fake_library import TIMEOUT, FakeLibrary

import tierd
from tierd.session import Session


class WaitingLibrary(FakeLibrary):
    """Leases that are to be waited for until the test opens the gate; the deadline counts, as in libtier."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.long_wait = threading.Event()  # Someone waits for longer than a slice.
        self.threads: list[int] = []
        self.cancelled = 0

    def tier_acquire_batch(self, handle: int, ranges: Any, count: int, flags: int, timeout: int, leases: Any) -> int:
        self.threads.append(threading.get_ident())
        if timeout > 1000:
            self.long_wait.set()
        if not self.gate.wait(timeout / 1000):
            self._error = b"the deadline passed"
            return TIMEOUT
        return super().tier_acquire_batch(handle, ranges, count, flags, timeout, leases)

    def tier_free_batch(self, handle: int, tensors: Any, count: int, flags: int) -> int:
        self.long_wait.set()
        self.gate.wait()
        return super().tier_free_batch(handle, tensors, count, flags)

    def tier_wait(self, operation: Any, timeout: int, outcome: Any) -> int:
        if self.cancelled or self.gate.wait(timeout / 1000 if timeout else None):
            return 0
        self.long_wait.set()
        self._error = b"the operation did not end within 200 ms; it goes on"
        return TIMEOUT

    def tier_cancel(self, operation: Any) -> None:
        self.cancelled += 1


@pytest.fixture
def fake() -> WaitingLibrary:
    return WaitingLibrary()


@pytest.fixture
def client(fake: WaitingLibrary) -> tierd.Client:
    client = tierd.Client(Session(fake, 1))  # type: ignore[arg-type]
    client.put("key", b"x" * 100)
    return client


def interrupt_when(event: threading.Event) -> threading.Thread:
    def run() -> None:
        event.wait()
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def join_helpers() -> None:
    for thread in threading.enumerate():
        if thread.name == "tierd-wait":
            thread.join()


def test_an_interrupted_wait_gives_its_lease_back_when_it_comes(client: tierd.Client, fake: WaitingLibrary) -> None:
    sender = interrupt_when(fake.long_wait)
    with pytest.raises(KeyboardInterrupt):
        client.lease("key")
    sender.join()
    client.close()
    assert fake.closed == []  # The wait goes on, so the handle stays.
    fake.gate.set()
    join_helpers()
    assert fake.leases == {} and fake.closed == [1]


def test_a_wait_longer_than_a_slice_ends_with_its_lease(client: tierd.Client, fake: WaitingLibrary) -> None:
    opener = threading.Thread(target=lambda: fake.long_wait.wait() and fake.gate.set())
    opener.start()
    with client.lease("key") as lease:
        assert lease.nbytes == 100
    opener.join()
    assert len(set(fake.threads)) == 2


def test_the_deadline_is_the_callers_not_the_slices(client: tierd.Client, fake: WaitingLibrary) -> None:
    with pytest.raises(tierd.Timeout, match="deadline"):
        client.lease("key", timeout=0.4)
    assert len(fake.threads) == 2


def test_other_threads_wait_in_one_call(client: tierd.Client, fake: WaitingLibrary) -> None:
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            client.lease("key", timeout=0.3)
        except tierd.Timeout as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert len(errors) == 1 and len(fake.threads) == 1


def test_a_refusal_that_came_early_is_final(client: tierd.Client, fake: WaitingLibrary) -> None:
    fake.gate.set()
    fake.lease_bytes_max = 10
    with pytest.raises(tierd.NoMemory):
        client.lease("key")
    assert len(fake.threads) == 1


def test_a_free_that_waits_can_be_interrupted(client: tierd.Client, fake: WaitingLibrary) -> None:
    sender = interrupt_when(fake.long_wait)
    with pytest.raises(KeyboardInterrupt):
        client.delete("key")
    sender.join()
    fake.gate.set()
    join_helpers()
    assert fake.tensors == {}


def test_an_interrupted_copy_is_cancelled_before_the_exception_goes_on(
    client: tierd.Client, fake: WaitingLibrary
) -> None:
    sender = interrupt_when(fake.long_wait)
    with pytest.raises(KeyboardInterrupt):
        client.put("key", b"y" * 100, replace=True)
    sender.join()
    assert fake.cancelled == 1


def test_a_copy_that_ends_with_its_deadline_is_not_waited_for_again(
    client: tierd.Client, fake: WaitingLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[int] = []

    def ended(operation: Any, timeout: int, outcome: Any) -> int:
        waits.append(timeout)
        fake._error = b"range 0 of tensor 1 was leased for longer than 60 s"
        return TIMEOUT

    monkeypatch.setattr(fake, "tier_wait", ended)
    with pytest.raises(tierd.Timeout, match="60 s"):
        client.put("key", b"y" * 100, replace=True)
    assert len(waits) == 1


def test_an_error_of_a_helper_thread_keeps_its_class(client: tierd.Client, fake: WaitingLibrary) -> None:
    fake.gate.set()
    with pytest.raises(tierd.NotFound):
        client.delete("nobody")
