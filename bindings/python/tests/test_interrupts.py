"""Interrupts at every point of every call: nothing is lost, nothing is freed twice, the client stays usable.

Two ways. Step by step: a trace raises KeyboardInterrupt at the n-th point of a call where the interpreter looks for
signals (when a function is entered, after a call, at a jump backward), for n = 0, 1, … until the call gets through.
And with a timer's real signals, at whatever points they come to.

Python reports what a handler raises inside a finalizer, and goes on: what such an interrupt has left is gone with the
next call.
"""

from __future__ import annotations

import contextlib
import dis
import gc
import pathlib
import random
import signal
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fake_library import FakeLibrary

import tierd
from tierd.ranges import RANGE_BYTES
from tierd.session import Session

PACKAGE = str(pathlib.Path(tierd.__file__).parent)
TESTS = str(pathlib.Path(__file__).parent)
MIB = 1 << 20

Call = Callable[[tierd.Client], object]


def get_into_large(client: tierd.Client) -> None:
    client.get_into("large", bytearray(RANGE_BYTES + 1))


def lease_many(client: tierd.Client) -> None:
    for lease in client.lease_many([tierd.Part("key")] * 3):
        lease.release()


# Python reports what is raised in a finalizer.
pytestmark = pytest.mark.usefixtures("reported")

CALLS: dict[str, Call] = {
    "put": lambda client: client.put("new", b"n" * 100),
    "put by ranges": lambda client: client.put("new", bytes(3 * MIB)),
    "replace": lambda client: client.put("key", b"n" * 100, replace=True),
    "get": lambda client: client.get("key"),
    "get by ranges": lambda client: client.get("ranges"),
    "get large": get_into_large,
    "lease": lambda client: client.lease("key", write=True).release(),
    "lease many": lease_many,
    "create": lambda client: client.create("new", 100).release(),
    "delete": lambda client: client.delete("key"),
    "step": lambda client: client.step(),
}


class Interrupter:
    """Raises KeyboardInterrupt at point number ``at`` of what runs while it is installed: in the files ``within`` a
    folder, the package's, or, with ``everywhere``, in all code but the tests'. The collector does not run meanwhile:
    where it calls finalizers as Python makes the frame of an event, an exception frees the trace function that is about
    to be called."""

    def __init__(self, at: int, everywhere: bool = False, within: str = PACKAGE) -> None:
        self._left = at
        self.passed = 0  # Points.
        self._everywhere, self._within = everywhere, within
        self.raised = False
        self._called: dict[int, bool] = {}  # By identity: a frame that is kept keeps its variables.

    def __enter__(self) -> Interrupter:
        gc.disable()
        sys.settrace(self._enter)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        gc.enable()

    def _enter(self, frame: types.FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(self._within) and not (self._everywhere and not in_tests(frame)):
            return None
        frame.f_trace_opcodes = True
        self._called[id(frame)] = False
        return self._step

    def _step(self, frame: types.FrameType, event: str, argument: Any) -> Any:
        if event == "exception":
            self._called[id(frame)] = False  # A call that raises is followed by no look.
        if event != "opcode" or self.raised:
            return self._step
        name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
        looks = self._called[id(frame)] or name in ("RESUME", "JUMP_BACKWARD")
        self._called[id(frame)] = name in ("CALL", "CALL_FUNCTION_EX")
        if looks:
            if self._left == 0:
                self.raised = True
                raise KeyboardInterrupt
            self._left -= 1
            self.passed += 1
        return self._step


def in_tests(frame: types.FrameType) -> bool:
    return frame.f_code.co_filename.startswith(TESTS) or in_library(frame)


def in_library(frame: types.FrameType | None) -> bool:
    """Whether this would be in C, where no handler runs."""
    while frame is not None:
        if frame.f_code.co_filename.endswith("fake_library.py"):
            return True
        frame = frame.f_back
    return False


def prepared() -> tuple[FakeLibrary, tierd.Client]:
    fake = FakeLibrary()
    client = tierd.Client(Session(fake, 1))  # type: ignore[arg-type]
    client.put("key", b"k" * 100)
    client.put("ranges", bytes(3 * MIB))
    client.tensor_id("new")
    client.put("large", bytes(RANGE_BYTES + 1))
    fake.lease_bytes_max = 2 * MIB
    return fake, client


def assert_nothing_is_left(fake: FakeLibrary, client: tierd.Client) -> None:
    if not client.closed:
        client.stats()
    assert fake.leases == {} and fake.operations == {}
    assert client._session.grants == {} and client._session._calls == {}
    assert all(tensor.sealed and not tensor.torn for tensor in fake.tensors.values())


@pytest.mark.parametrize("name", CALLS)
def test_an_interrupt_at_any_point_of_a_call_leaves_nothing(name: str) -> None:
    fake, client = prepared()
    at = 0
    while True:
        with Interrupter(at) as interrupter:
            try:
                CALLS[name](client)
            except KeyboardInterrupt:
                pass
        if not interrupter.raised:
            break
        assert_nothing_is_left(fake, client)
        for key in ("new", "key"):
            fake.tensors.pop((client.tensor_id(key), 0), None)
        client.put("key", b"k" * 100)
        at += 1
    assert at >= 5
    client.close()
    assert fake.closed == [1]


class InterruptedLibrary(FakeLibrary):
    """As an acquire returns, another thread closes the client and a signal comes."""

    def __init__(self) -> None:
        super().__init__()
        self.session: Session | None = None  # Once the test is ready.
        self.released_late = 0

    def tier_acquire_batch(self, handle: int, ranges: Any, count: int, flags: int, timeout: int, leases: Any) -> int:
        code = super().tier_acquire_batch(handle, ranges, count, flags, timeout, leases)
        if self.session is None:
            return code
        self.session.close()
        raise KeyboardInterrupt

    def tier_release(self, lease: Any, flags: int) -> int:
        self.released_late += len(self.closed)
        return super().tier_release(lease, flags)


def test_a_second_interrupt_releases_nothing_of_a_closed_client() -> None:
    at = 0
    while True:
        fake = InterruptedLibrary()
        client = tierd.Client(Session(fake, 1))  # type: ignore[arg-type]
        client.put("key", b"k" * 100)
        fake.session = client._session
        with Interrupter(at) as interrupter, contextlib.suppress(KeyboardInterrupt):
            client.lease_many([tierd.states.Part("key")] * 3)
        client.close()
        assert_nothing_is_left(fake, client)
        assert fake.closed == [1] and fake.released_late == 0
        if not interrupter.raised:
            break
        at += 1
    assert at >= 5


@pytest.fixture
def alarms() -> Iterator[Callable[[float], None]]:
    """Sets the timer; its signal raises KeyboardInterrupt, but in the library, where no handler would run."""

    def handler(number: int, frame: types.FrameType | None) -> None:
        if not in_library(frame):
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handler)
    yield lambda seconds: (signal.setitimer(signal.ITIMER_REAL, seconds), None)[1]
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_storm_of_signals_leaves_nothing(alarms: Callable[[float], None]) -> None:
    fake, client = prepared()
    order = random.Random(7)
    gc.disable()
    try:
        for _ in range(1500):
            call = order.choice([CALLS["put"], CALLS["replace"], CALLS["get"], CALLS["lease"], CALLS["delete"]])
            try:
                try:
                    alarms(order.uniform(1e-6, 2e-4))
                    call(client)
                finally:
                    alarms(0)
            except (KeyboardInterrupt, tierd.NotFound, tierd.AlreadyExists):
                pass
            assert_nothing_is_left(fake, client)
            if client.tensor_id("key") not in [tensor for tensor, _ in fake.tensors]:
                client.put("key", b"k" * 100)
            fake.tensors.pop((client.tensor_id("new"), 0), None)
    finally:
        gc.enable()
    client.close()
    assert fake.closed == [1]
