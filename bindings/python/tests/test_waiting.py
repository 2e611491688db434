"""Waiting: signals reach a main thread that waits, and what an abandoned wait brings is given back."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest
from fake_library import TIMEOUT, WOULD_DEADLOCK, FakeLibrary, Refusal

import tierd
from tierd.session import Session


class WaitingLibrary(FakeLibrary):
    """Leases and operations that are to be waited for until the test opens the gate; the deadline counts, as in
    libtier."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.polled = threading.Event()  # Someone waits where signals are handled.
        self.threads: list[int] = []
        self.timeouts: list[int] = []  # Of what was started.
        self.cancelled = 0

    def tier_acquire_batch(self, handle: int, ranges: Any, count: int, flags: int, timeout: int, leases: Any) -> int:
        self.threads.append(threading.get_ident())
        if not self.gate.wait(timeout / 1000):
            self._error = b"the deadline passed"
            return WOULD_DEADLOCK if self.leases else TIMEOUT
        return super().tier_acquire_batch(handle, ranges, count, flags, timeout, leases)

    def tier_acquire_start(
        self, handle: int, ranges: Any, count: int, flags: int, timeout: int, leases: Any, operation: Any
    ) -> int:
        self.timeouts.append(timeout)
        return super().tier_acquire_start(handle, ranges, count, flags, timeout, leases, operation)

    def tier_flush(self, handle: int, tensors: Any, count: int, flags: int) -> int:
        self.polled.set()
        self.gate.wait()
        return 0

    def tier_poll(self, operation: Any, timeout: int) -> int:
        self.polled.set()
        return int(self.gate.wait(timeout / 1000))

    def tier_cancel(self, operation: Any) -> None:
        self.cancelled += 1
        super().tier_cancel(operation)


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


def open_when(event: threading.Event, fake: WaitingLibrary) -> threading.Thread:
    def run() -> None:
        event.wait()
        fake.gate.set()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_an_interrupted_wait_is_given_up(client: tierd.Client, fake: WaitingLibrary) -> None:
    sender = interrupt_when(fake.polled)
    with pytest.raises(KeyboardInterrupt):
        client.lease("key")
    sender.join()
    assert fake.cancelled == 1 and fake.operations == {} and fake.leases == {}
    client.close()
    assert fake.closed == [1]


def test_a_lease_that_came_in_spite_of_the_cancelling_is_given_back(
    client: tierd.Client, fake: WaitingLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake, "tier_cancel", lambda operation: None)  # Too late.
    sender = interrupt_when(fake.polled)
    with pytest.raises(KeyboardInterrupt):
        client.lease("key", write=True)
    sender.join()
    assert fake.operations == {} and fake.leases == {} and fake.abandoned == 1


def test_a_wait_longer_than_a_slice_ends_with_its_lease(client: tierd.Client, fake: WaitingLibrary) -> None:
    opener = open_when(fake.polled, fake)
    with client.lease("key") as lease:
        assert lease.nbytes == 100
    opener.join()
    assert len(fake.threads) == 1 and fake.operations == {}


def test_another_threads_lease_of_the_same_client_is_waited_for(client: tierd.Client, fake: WaitingLibrary) -> None:
    fake.gate.set()
    held: list[tierd.Lease] = []
    holder = threading.Thread(target=lambda: held.append(client.lease("key")))
    holder.start()
    holder.join()
    fake.gate.clear()

    def end_it() -> None:
        fake.polled.wait()
        held.pop().release()
        fake.gate.set()

    ender = threading.Thread(target=end_it)
    ender.start()
    with client.lease("key", write=True) as lease:
        assert lease.nbytes == 100
    ender.join()
    assert fake.operations == {} and fake.leases == {}


def test_the_threads_own_lease_is_not_waited_for(client: tierd.Client, fake: WaitingLibrary) -> None:
    fake.gate.set()
    with client.lease("key"):
        fake.gate.clear()
        with pytest.raises(tierd.WouldDeadlock):
            client.lease("key", write=True)
    assert fake.timeouts == []


def test_the_deadline_is_the_callers_not_the_slices(
    client: tierd.Client, fake: WaitingLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late() -> None:
        raise Refusal(TIMEOUT, "the deadline passed")

    monkeypatch.setattr(
        fake, "tier_poll", lambda operation, timeout: fake.operations.update({operation.value: late}) or 1
    )
    with pytest.raises(tierd.Timeout, match="deadline"):
        client.lease("key", timeout=3)
    (rest_ms,) = fake.timeouts
    assert 0 < rest_ms <= 2820


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
    assert len(errors) == 1 and len(fake.threads) == 1 and fake.timeouts == []


def test_a_refusal_that_came_early_is_final(client: tierd.Client, fake: WaitingLibrary) -> None:
    fake.gate.set()
    fake.lease_bytes_max = 10
    with pytest.raises(tierd.NoMemory):
        client.lease("key")
    assert len(fake.threads) == 1 and fake.timeouts == []


def test_a_free_that_waits_can_be_interrupted(client: tierd.Client, fake: WaitingLibrary) -> None:
    sender = interrupt_when(fake.polled)
    with pytest.raises(KeyboardInterrupt):
        client.delete("key")
    sender.join()
    assert fake.operations == {} and fake.tensors == {}


def test_waiting_for_everything_can_be_interrupted(client: tierd.Client, fake: WaitingLibrary) -> None:
    sender = interrupt_when(fake.polled)
    with pytest.raises(KeyboardInterrupt):
        client.flush()
    sender.join()
    client.close()
    assert fake.closed == []  # The wait goes on, so the handle stays.
    fake.gate.set()
    for thread in threading.enumerate():
        if thread.name == "tierd-wait":
            thread.join()
    assert fake.closed == [1]


def test_an_interrupted_copy_is_cancelled_before_the_exception_goes_on(
    client: tierd.Client, fake: WaitingLibrary
) -> None:
    sender = interrupt_when(fake.polled)
    with pytest.raises(KeyboardInterrupt):
        client.put("key", b"y" * 100, replace=True)
    sender.join()
    assert fake.cancelled == 1 and fake.operations == {}


@pytest.mark.parametrize("function", ["tier_swap_out", "tier_poll", "tier_wait"])
def test_a_signal_right_after_a_call_frees_the_operation_once(
    client: tierd.Client, fake: WaitingLibrary, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    original = getattr(fake, function)

    def interrupted(*arguments: Any) -> None:
        original(*arguments)
        signal.raise_signal(signal.SIGINT)

    fake.gate.set()
    monkeypatch.setattr(fake, function, interrupted)
    with pytest.raises(KeyboardInterrupt):
        client.put("key", b"y" * 100, replace=True)
    monkeypatch.undo()
    assert fake.operations == {}  # The fake itself refuses a second tier_wait.
    client.close()
    assert fake.closed == [1]


@pytest.mark.parametrize("function", ["tier_acquire_batch", "tier_acquire_start", "tier_wait", "tier_lease_data"])
def test_a_signal_right_after_the_granting_loses_no_lease(
    client: tierd.Client, fake: WaitingLibrary, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    original = getattr(fake, function)

    def interrupted(*arguments: Any) -> None:
        original(*arguments)
        signal.raise_signal(signal.SIGINT)

    if function in ("tier_acquire_start", "tier_wait"):
        opener = open_when(fake.polled, fake)
        monkeypatch.setattr("tierd.session.SLICE_MS", 1)
    else:
        opener = None
        fake.gate.set()
    monkeypatch.setattr(fake, function, interrupted)
    with pytest.raises(KeyboardInterrupt):
        client.lease("key", write=True)
    monkeypatch.undo()
    fake.polled.set()
    if opener is not None:
        opener.join()
    assert fake.leases == {} and fake.operations == {}
    assert fake.abandoned == (0 if function == "tier_acquire_start" else 1)
    client.close()
    assert fake.closed == [1]


def test_a_copy_that_ends_with_its_deadline_is_not_waited_for_again(
    client: tierd.Client, fake: WaitingLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(operation: Any, timeout: int, outcome: Any) -> int:
        fake.operations.pop(operation.value)
        fake._error = b"range 0 of tensor 1 was leased for longer than 60 s"
        return TIMEOUT

    fake.gate.set()
    monkeypatch.setattr(fake, "tier_wait", ended)
    with pytest.raises(tierd.Timeout, match="60 s"):
        client.put("key", b"y" * 100, replace=True)
    assert fake.operations == {} and fake.cancelled == 0


def test_an_error_of_what_is_waited_for_keeps_its_class(client: tierd.Client, fake: WaitingLibrary) -> None:
    fake.gate.set()
    with pytest.raises(tierd.NotFound):
        client.delete("nobody")
