"""A job gets what it is guaranteed from a job of another user whose process is stopped, which then goes on."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import textwrap
import time
from collections.abc import Iterator

import launcher
import other_user
import pytest
import reclaiming

import tierd
from reclaiming import DEADLINE_S, MARGIN_S, kept
from reclaiming import OTHER_USER as NOBODY

MIB = 1 << 20

DATA = """
def data(number):
    return numpy.random.default_rng(number).integers(0, 256, 2 << 20, dtype=numpy.uint8)
"""


@pytest.fixture
def jobs() -> dict[str, str]:
    return {}


@pytest.fixture
def running(socket_folder: pathlib.Path, jobs: dict[str, str]) -> Iterator[launcher.Running]:
    """A daemon with these further settings of `jobs`."""
    with reclaiming.daemon(socket_folder, jobs) as daemon:
        yield daemon


def nobody(source: str) -> contextlib.AbstractContextManager[other_user.Child]:
    """A program of another user."""
    return other_user.running(NOBODY, DATA + textwrap.dedent(source))


@contextlib.contextmanager
def borrowing(daemon: launcher.Running) -> Iterator[other_user.Child]:
    """A program of another user that has filled most of the arena, which is on SSD as well, and leases nothing. Told to
    go on, it looks at its tensors."""
    with nobody(
        f"""
        client = tierd.connect(job="borrower", socket={daemon.socket!r})
        for number in range(15):
            client.put(f"tensor/{{number}}", data(number))
        client.flush(*(f"tensor/{{number}}" for number in range(15)))
        say("full")
        wait()
        for number in range(15):
            assert (client.get(f"tensor/{{number}}") == data(number)).all(), number
        say("whole")
        """
    ) as borrower:
        assert borrower.line() == "full"
        yield borrower


def forced(daemon: launcher.Running) -> dict[str, float]:
    """What was taken by force so far, by kind."""
    return {
        name.split('"')[1]: n
        for name, n in launcher.metrics(daemon).items()
        if name.startswith("tierd_forced_returns_total")
    }


def test_a_stopped_process_that_leases_nothing_loses_nothing(running: launcher.Running) -> None:
    with borrowing(running) as borrower:
        with tierd.connect(job="owed", socket=running.socket, guarantee="14MiB") as owed:
            with borrower.stopped():
                begin = time.monotonic()
                owed.put("mine", bytes(6 * MIB), timeout=60)
                first = time.monotonic() - begin
                begin = time.monotonic()
                owed.put("more", bytes(6 * MIB), timeout=60)
                second = time.monotonic() - begin
                assert first < DEADLINE_S + MARGIN_S
                assert second < MARGIN_S, "the stopped process is known by now"
                counts = forced(running)
                assert counts["window"] >= 1 and counts["session"] == 0
                launcher.wait_for("windows are kept", lambda: kept(running) > 0, MARGIN_S)
                now = launcher.metrics(running)
                of_borrower = [n for name, n in now.items() if "tierd_job_kept" in name and "borrower" in name]
                assert of_borrower == [now["tierd_arena_kept_bytes"]], now
            borrower.go_on()
            assert borrower.line() == "whole"
            launcher.wait_for("none is kept", lambda: kept(running) == 0, MARGIN_S)
            assert owed.get("mine") == bytes(6 * MIB)


def test_a_stopped_process_that_leases_all_is_revoked_and_told_why(running: launcher.Running) -> None:
    with nobody(
        f"""
        client = tierd.connect(job="hog", guarantee="8MiB", socket={running.socket!r})
        client.put("kept", data(1), shared=True)
        client.flush("kept", shared=True)
        hog = tierd.connect(job="hog", token=client.session.token, socket={running.socket!r})
        leases = [hog.create(number, 2 << 20) for number in range(1, 14)]
        say("full")
        wait()
        try:
            hog.put("another", b"x")
        except tierd.Revoked as error:
            say(str(error))
        back = numpy.empty_like(data(1))
        client.get_into("kept", back, shared=True)
        assert (back == data(1)).all()
        say("whole")
        """
    ) as hog:
        assert hog.line() == "full"
        with tierd.connect(job="owed", socket=running.socket, guarantee="14MiB") as owed:
            with hog.stopped():
                begin = time.monotonic()
                owed.put("mine", bytes(12 * MIB), timeout=60)
                assert time.monotonic() - begin < DEADLINE_S + MARGIN_S
                assert forced(running)["session"] == 1
            hog.go_on()
            told = hog.line()
            assert "job 0/owed has been owed" in told and "jobs.reclaim_deadline is 3.0 s" in told, told
            log = (running.directory / "tierd.log").read_text()
            assert re.search(r"^\S+ \S+ warning session_revoked: .* has been owed", log, re.MULTILINE), log
            assert hog.line() == "whole"
            assert owed.get("mine") == bytes(12 * MIB)


SCATTERED = """
client = tierd.connect(job="scattered", socket={socket!r})
for number in range({windows} * 16):  # Sixteen fill a window of 2 MiB.
    client.put(number + 1, data(number)[: 128 << 10])
client.flush(*range(1, {windows} * 16 + 1))
leases = [client.lease(16 * window + 1) for window in range({windows})]
say("leased")
wait()
try:
    del leases
    client.put("another", b"x")
    say("whole")
except tierd.Revoked as error:
    say(str(error))
"""


def test_one_leased_page_in_each_window_does_not_keep_a_guarantee(running: launcher.Running) -> None:
    """A window goes only whole. A neighbour whose leases keep no more than its own part goes on."""
    with (
        tierd.connect(job="owed", socket=running.socket, guarantee="22MiB") as owed,
        tierd.connect(job="fair", socket=running.socket) as fair,
        nobody(SCATTERED.format(socket=running.socket, windows=11)) as hostile,
    ):
        assert hostile.line() == "leased"
        fair.put("mine", bytes(MIB))
        with fair.lease("mine") as lease:
            begin = time.monotonic()
            with owed.create("guaranteed", 20 * MIB, timeout=60):
                assert DEADLINE_S / 2 < time.monotonic() - begin < DEADLINE_S + MARGIN_S
            assert forced(running)["session"] == 1
            assert bytes(lease.memoryview()) == bytes(MIB)
        fair.put("more", bytes(MIB))
        hostile.go_on()
        told = hostile.line()
        assert "job 0/owed has been owed" in told and "lies in windows of" in told, told


@pytest.mark.parametrize("jobs", [{"on_unreturned": "kill"}])
def test_a_stopped_process_that_keeps_windows_is_killed_where_the_operator_wants_it(running: launcher.Running) -> None:
    with borrowing(running) as borrower:
        with tierd.connect(job="owed", socket=running.socket, guarantee="14MiB") as owed, borrower.stopped():
            owed.put("mine", bytes(6 * MIB), timeout=60)
            begin = time.monotonic()
            assert borrower.process.wait(2 * DEADLINE_S + MARGIN_S) == -signal.SIGKILL
            assert time.monotonic() - begin > DEADLINE_S / 2, "it had another deadline to return them"
            assert forced(running)["process"] == 1
            launcher.wait_for("none is kept", lambda: kept(running) == 0, MARGIN_S)
            assert owed.get("mine") == bytes(6 * MIB)


def test_what_becomes_of_who_keeps_windows_changes_while_the_daemon_runs(running: launcher.Running) -> None:
    with borrowing(running) as borrower:
        with tierd.connect(job="owed", socket=running.socket, guarantee="14MiB") as owed, borrower.stopped():
            owed.put("mine", bytes(6 * MIB), timeout=60)
            launcher.wait_for("windows are kept", lambda: kept(running) > 0, MARGIN_S)
            done = launcher.run_tierctl(running.directory / "admin.sock", "config", "set", "jobs.on_unreturned", "kill")
            assert done.returncode == 0, done.stderr
            assert borrower.process.wait(2 * DEADLINE_S + MARGIN_S) == -signal.SIGKILL
            assert forced(running)["process"] == 1


@pytest.mark.parametrize("more", [[], ["--check-config"]], ids=["start", "check"])
def test_a_daemon_without_the_right_to_kill_does_not_start(more: list[str], tmp_path: pathlib.Path) -> None:
    """And the check, which `systemctl reload` makes first, says so."""
    if os.geteuid() != 0:
        pytest.skip("needs root: becomes another user")
    program = launcher.BUILD / "daemon/tierd"
    run = tmp_path / "run"
    run.mkdir()
    tmp_path.chmod(0o755)
    os.chown(run, NOBODY, NOBODY)
    told = subprocess.run(
        ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", program,
         "--set", "jobs.on_unreturned=kill", "--set", f"daemon.socket_directory={run}",
         "--set", f"daemon.data_directory={run}", *more],
        capture_output=True, text=True, env=launcher.environment(), timeout=60, check=False,
    )  # fmt: skip
    if "Permission denied" in told.stderr and "setpriv" in told.stderr:
        pytest.skip("needs a build that uid 61234 can read")
    assert told.returncode == os.EX_CONFIG, told.stderr
    assert "it needs CAP_KILL" in told.stderr and "kill.conf" in told.stderr
