"""What becomes of windows that a client of another user keeps: it says that it has returned them and fills them again,
or it says nothing at all while it serves its rings."""

from __future__ import annotations

import contextlib
import pathlib
import re
import signal
import textwrap
import time
from collections.abc import Iterator

import keeping_client
import launcher
import numpy
import other_user
import pytest
import reclaiming

import tierd
from reclaiming import DEADLINE_S, MARGIN_S, kept
from reclaiming import OTHER_USER as STRANGER

MIB = 1 << 20
TENSORS = 14  # Of the stranger, each in a window of its own: most of the arena.
GUARANTEE = "14MiB"
ROUNDS = 3
LEAST = 0x80  # Of the bytes that the stranger writes, keeping_client.FILLING too.

DATA = f"""
import raw_session

def data(number):
    return numpy.random.default_rng(number).integers({LEAST}, 256, 2 << 20, dtype=numpy.uint8).tobytes()

def fill(session):
    for number in range(1, {TENSORS} + 1):
        session.put(number, data(number))
    session.flush()

def compare(session):
    for number in range(1, {TENSORS} + 1):
        assert session.get(number) == data(number), number
"""


@pytest.fixture
def jobs() -> dict[str, str]:
    return {}


@pytest.fixture
def running(socket_folder: pathlib.Path, jobs: dict[str, str]) -> Iterator[launcher.Running]:
    """A daemon with these further settings of `jobs`."""
    with reclaiming.daemon(socket_folder, jobs) as daemon:
        yield daemon


def stranger(source: str) -> contextlib.AbstractContextManager[other_user.Child]:
    """A program of another user, with the means of keeping_client.py."""
    return other_user.running(STRANGER, keeping_client.PRELUDE + DATA + textwrap.dedent(source))


def assert_charged(daemon: launcher.Running, job: str) -> None:
    """All that is kept counts as held by this job."""
    now = launcher.metrics(daemon)
    rows = {name: n for name, n in now.items() if name.startswith("tierd_job_kept_bytes") and n}
    assert [n for name, n in rows.items() if f'"{job}"' in name] == [now["tierd_arena_kept_bytes"]] and len(
        rows
    ) == 1, rows


def forced(daemon: launcher.Running, kind: str) -> float:
    return launcher.metrics(daemon)[f'tierd_forced_returns_total{{kind="{kind}"}}']


def refilled(daemon: launcher.Running) -> float:
    """What that look has found in them."""
    return launcher.metrics(daemon)["tierd_arena_refilled_bytes"]


def wait_for_refills(daemon: launcher.Running, count: int) -> None:
    launcher.wait_for(f"{count} sessions are ended", lambda: forced(daemon, "refill") == count)


def content(number: int, size: int) -> bytes:
    """All below the stranger's bytes, and none of it 0."""
    return numpy.random.default_rng(number).integers(1, LEAST, size, dtype=numpy.uint8).tobytes()


def take(owner: tierd.Client, number: int, size: int) -> None:
    """Memory that was another's: it is 0, or what this job itself had there before, and nothing of the stranger's."""
    with owner.create(number, size, timeout=60) as lease:
        found = numpy.frombuffer(bytes(lease.memoryview()), numpy.uint8)
        assert not (found >= LEAST).any(), f"{numpy.count_nonzero(found >= LEAST)} of {size} bytes are the stranger's"
        assert number > 1 or not found.any(), "the first memory that a job has is 0"
        lease.memoryview()[:] = content(number, size)


def test_what_is_filled_again_is_counted_and_taken_out_and_once_is_forgiven(running: launcher.Running) -> None:
    """Who does it again is ended, and what another session of its job has written stays."""
    with stranger(
        f"""
        client = tierd.connect(job="keeper", socket={running.socket!r})
        client.put("shared", numpy.frombuffer(data(99), "u1"), shared=True)
        session = keeping_client.KeepingSession({running.socket!r}, "keeper", client.session.token)
        fill(session)
        say("full")
        wait()
        compare(session)
        say("whole")
        wait()
        assert session.fill_a_page() > 0
        session.wait_until_empty()
        assert session.get(1) == data(1)
        say("goes on")
        wait()
        session.fill_for_ever()
        say(session.wait_for_end())
        wait()
        back = numpy.empty(2 << 20, "u1")
        client.get_into("shared", back, shared=True)
        assert back.tobytes() == data(99)
        say("kept")
        wait()
        """
    ) as keeper:
        assert keeper.line() == "full"
        with tierd.connect(job="owner", socket=running.socket, guarantee=GUARANTEE) as owner:
            take(owner, 1, 6 * MIB)
            launcher.wait_for("windows are kept", lambda: kept(running) > 0)
            assert_charged(running, "keeper")
            keeper.go_on()
            assert keeper.line() == "whole"
            keeper.go_on()
            assert keeper.line() == "goes on"
            assert forced(running, "refill") == 0
            keeper.go_on()
            told = keeper.line()
            assert "in an empty window that this session was asked to return, again after they had been taken" in told
            assert forced(running, "refill") == 1
            launcher.wait_for("what is filled is seen", lambda: refilled(running) > 0)
            take(owner, 2, 6 * MIB)
            for _ in range(10):
                assert bytes(owner.get(1)) == content(1, 6 * MIB)
                assert bytes(owner.get(2)) == content(2, 6 * MIB)
            assert_charged(running, "keeper")
            keeper.go_on()
            assert keeper.line() == "kept"
        keeper.end()
    launcher.wait_for("none is kept", lambda: kept(running) == 0)
    assert refilled(running) == 0


def test_who_fills_at_once_what_it_returns_writes_into_no_other_job(running: launcher.Running) -> None:
    """Again and again, with new sessions, and without a pause between its answer and the filling."""
    with stranger(
        f"""
        for number in range({ROUNDS}):
            session = keeping_client.KeepingSession({running.socket!r}, f"keeper-{{number}}")
            session.fill_for_ever()
            fill(session)
            say("full")
            wait()
        """
    ) as keeper:
        for number in range(ROUNDS):
            assert keeper.line() == "full"
            with tierd.connect(job="owner", socket=running.socket, guarantee=GUARANTEE) as owner:
                take(owner, 1, 6 * MIB)
                take(owner, 2, 6 * MIB)
                wait_for_refills(running, number + 1)
                assert bytes(owner.get(1)) == content(1, 6 * MIB)
                assert bytes(owner.get(2)) == content(2, 6 * MIB)
                if number < ROUNDS - 1:
                    keeper.go_on()
        assert refilled(running) > 0
        keeper.end()
    launcher.wait_for("none is kept", lambda: kept(running) == 0)


SILENT = """
session = keeping_client.KeepingSession({socket!r}, "silent", answers=False)
fill(session)
say("full")
while not session.kept:
    session.call(raw_session.STAT, [(1, 0, 0, 0)])
say("asked")
wait()
session.ask_for(1)
say("reads")
wait()
assert not session.answered, "it may take a new window for one that was taken from it"
session.answer()
assert session.take_granted() == data(1)
compare(session)
say("whole")
wait()
session.let_go()
wait()
"""


def owe(daemon: launcher.Running, silent: other_user.Child, owed: tierd.Client) -> None:
    """The job gets its guarantee from a client that serves its rings and says nothing of windows."""
    begin = time.monotonic()
    take(owed, 1, 6 * MIB)
    first = time.monotonic() - begin
    assert silent.line() == "asked"
    begin = time.monotonic()
    take(owed, 2, 6 * MIB)
    second = time.monotonic() - begin
    assert first < DEADLINE_S + MARGIN_S
    assert second < MARGIN_S, "it is known by now"
    assert forced(daemon, "window") >= 1 and forced(daemon, "session") == 0
    launcher.wait_for("windows are kept", lambda: kept(daemon) > 0)


def test_who_never_says_that_it_has_returned_a_window_is_charged_for_it(running: launcher.Running) -> None:
    """And reads what it had when it says so after all."""
    with stranger(SILENT.format(socket=running.socket)) as silent:
        assert silent.line() == "full"
        with tierd.connect(job="owed", socket=running.socket, guarantee=GUARANTEE) as owed:
            owe(running, silent, owed)
            assert_charged(running, "silent")
            log = (running.directory / "tierd.log").read_text()
            assert re.search(r"^\S+ \S+ warning forced_return: .*job 61234/silent has not answered for", log, re.M), log
            silent.go_on()
            assert silent.line() == "reads"
            launcher.wait_for(
                "it is told of, and lives",
                lambda: "processes of job 61234/silent have kept" in (running.directory / "tierd.log").read_text(),
                2 * DEADLINE_S + MARGIN_S,
            )
            assert silent.process.poll() is None
            silent.go_on()
            assert silent.line() == "whole"
            assert kept(running) > 0, "it has not unmapped them"
            assert bytes(owed.get(1)) == content(1, 6 * MIB)
            assert bytes(owed.get(2)) == content(2, 6 * MIB)
            silent.go_on()
            launcher.wait_for("none is kept", lambda: kept(running) == 0)
        silent.end()


@pytest.mark.parametrize("jobs", [{"on_unreturned": "kill"}])
def test_who_never_says_so_is_killed_where_the_operator_wants_it(running: launcher.Running) -> None:
    with stranger(SILENT.format(socket=running.socket)) as silent:
        assert silent.line() == "full"
        with tierd.connect(job="owed", socket=running.socket, guarantee=GUARANTEE) as owed:
            owe(running, silent, owed)
            assert silent.process.wait(2 * DEADLINE_S + MARGIN_S) == -signal.SIGKILL
            assert forced(running, "process") == 1
            launcher.wait_for("none is kept", lambda: kept(running) == 0)
            assert bytes(owed.get(1)) == content(1, 6 * MIB)
            assert bytes(owed.get(2)) == content(2, 6 * MIB)
