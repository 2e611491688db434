"""A job gets what it is guaranteed from a job of another user whose process is stopped, which then goes on."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Iterator

import launcher
import pytest

import tierd

DEADLINE_S = 3.0
# Beyond it: windows are asked for, punched, made again and filled, on a machine that does other things too.
MARGIN_S = 5.0
MIB = 1 << 20

PRELUDE = """
import os, sys
os.setgid(61234); os.setgroups([]); os.setuid(61234)
import numpy, tierd

def data(number):
    return numpy.random.default_rng(number).integers(0, 256, 2 << 20, dtype=numpy.uint8)

def say(word):
    print(word, flush=True)
"""


@pytest.fixture
def running(socket_folder: pathlib.Path) -> Iterator[launcher.Running]:
    if os.geteuid() != 0:
        pytest.skip("needs root: becomes another user")
    settings = {"jobs": {"reclaim_deadline": f"{DEADLINE_S:g}s"}}
    with launcher.start(socket_folder, arena="32MiB", tier="256MiB", settings=settings) as daemon:
        socket_folder.chmod(0o755)
        yield daemon


@contextlib.contextmanager
def nobody(source: str) -> Iterator[subprocess.Popen[str]]:
    """A program of another user."""
    with subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(source)], env=launcher.environment(),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        said = process.communicate()[1]
        if "Permission denied" in said or "ModuleNotFound" in said:
            pytest.skip("needs a checkout that uid 61234 can read")
        pytest.fail(f"the child said nothing: {said}")
    return line


@contextlib.contextmanager
def stopped(process: subprocess.Popen[str]) -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def forced(daemon: launcher.Running) -> dict[str, float]:
    """What was taken by force so far, by kind."""
    with urllib.request.urlopen(daemon.metrics_url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    found = [line for line in lines if line.startswith("tier_forced_return_total{")]
    return {line.split('"')[1]: float(line.split()[-1]) for line in found}


def test_a_stopped_process_that_leases_nothing_loses_nothing(running: launcher.Running) -> None:
    with nobody(
        f"""
        client = tierd.connect(job="borrower", socket={running.socket!r})
        for number in range(15):
            client.put(f"tensor/{{number}}", data(number))
        client.flush(*(f"tensor/{{number}}" for number in range(15)))
        say("full")
        sys.stdin.readline()
        for number in range(15):
            assert (client.get(f"tensor/{{number}}") == data(number)).all(), number
        say("whole")
        """
    ) as borrower:
        assert line_of(borrower) == "full"
        with tierd.connect(job="owed", socket=running.socket, guarantee="14MiB") as owed:
            with stopped(borrower):
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
            go_on(borrower)
            assert line_of(borrower) == "whole"
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
        sys.stdin.readline()
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
        assert line_of(hog) == "full"
        with tierd.connect(job="owed", socket=running.socket, guarantee="14MiB") as owed:
            with stopped(hog):
                begin = time.monotonic()
                owed.put("mine", bytes(12 * MIB), timeout=60)
                assert time.monotonic() - begin < DEADLINE_S + MARGIN_S
                assert forced(running)["session"] == 1
            go_on(hog)
            told = line_of(hog)
            assert "job 0/owed has been owed" in told and "jobs.reclaim_deadline is 3.0 s" in told, told
            assert line_of(hog) == "whole"
            assert owed.get("mine") == bytes(12 * MIB)
