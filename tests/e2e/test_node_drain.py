"""A node is drained: no new job or process is taken, those that run go on, and all who ask can see it."""

from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import launcher
import pytest
import tierd
from launcher import run_tierctl as tierctl


def test_a_drained_node_lets_jobs_go_on_and_takes_none(own_daemon: launcher.Running) -> None:
    weights = os.urandom(3 << 20)
    with tierd.connect(job="running", socket=own_daemon.socket) as client:
        client.put("weights", weights)
        assert tierctl(own_daemon, "drain").returncode == 0
        assert launcher.metrics(own_daemon)["tierd_draining"] == 1
        status = tierctl(own_daemon, "status")
        assert status.returncode == 6 and "draining" in status.stdout, status.stdout
        said = " ".join(tierctl(own_daemon, "--help").stdout.split())
        assert "6 degraded or drained." in said
        page = (launcher.ROOT / "deploy/man/tierctl.1").read_text()
        assert "6 degraded or drained." in page
        assert json.loads(tierctl(own_daemon, "status", "--json").stdout)["draining"]

        with pytest.raises(tierd.Denied, match="tierctl undrain"):
            tierd.connect(job="new", socket=own_daemon.socket)
        with pytest.raises(tierd.Denied, match="being drained"):
            tierd.connect(job="running", socket=own_daemon.socket, token=client.session.token)

        client.put("more", weights)  # What runs is not touched.
        assert bytes(client.get("weights")) == bytes(client.get("more")) == weights

        waited = tierctl(own_daemon, "drain", "--wait", "--timeout", "1")
        running = f"{os.getuid()}/running: {os.getpid()}"
        assert waited.returncode != 0, waited.stdout
        assert f"1 process is still attached ({running}); the node stays" in waited.stderr
        assert f"waiting for 1 process to leave: {running}" in waited.stdout

        assert tierctl(own_daemon, "undrain").returncode == 0
        assert launcher.metrics(own_daemon)["tierd_draining"] == 0
        with tierd.connect(job="new", socket=own_daemon.socket) as other:
            other.put("x", b"1")
    assert tierctl(own_daemon, "status").returncode == 0


def test_a_drain_that_waits_returns_when_the_last_process_has_left(own_daemon: launcher.Running) -> None:
    client = tierd.connect(job="last", socket=own_daemon.socket)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        drained = pool.submit(tierctl, own_daemon, "drain", "--wait", "--timeout", "30")
        launcher.wait_for("the drain", lambda: launcher.metrics(own_daemon)["tierd_draining"] == 1)
        client.put("late", b"bytes")
        assert not drained.done()
        client.close()
        result = drained.result(30)
    assert result.returncode == 0, result.stderr
    assert "no process is attached any more" in result.stdout


def wait_until_drained(daemon: launcher.Running) -> None:
    launcher.wait_for("the drain", lambda: launcher.metrics(daemon)["tierd_draining"] == 1)


def test_a_drain_that_cannot_write_all_waits_all_the_same(socket_folder: pathlib.Path) -> None:
    with launcher.start(socket_folder, arena="256MiB", tier="64MiB") as daemon:
        with tierd.connect(job="large", socket=daemon.socket) as client:
            for number in range(12):  # More than the SSD tier holds.
                client.put(f"layer-{number}", os.urandom(8 << 20))
            refused = tierctl(daemon, "drain")
            assert refused.returncode == 5 and "the node is drained; not all is written" in refused.stderr
            launcher.tierctl(daemon, "undrain")
            words = [launcher.BUILD / "tools/tierctl/tierctl", "--socket", daemon.socket, "drain", "--wait"]
            drained = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert drained.stderr is not None
            told = drained.stderr.readline()  # Then the writes have failed: what it waits for is the client.
            client.put("late", b"bytes")
        output, errors = drained.communicate(timeout=30)
        assert drained.returncode == 0, "it waited, and what could not be written went with its job: " + errors
        assert "drained; not all written: NO_SPACE" in told
        assert "no process is attached any more" in output


def test_a_drain_that_waits_says_what_a_job_that_stays_has_not_written(socket_folder: pathlib.Path) -> None:
    with (
        launcher.start(socket_folder, arena="256MiB", tier="64MiB") as daemon,
        concurrent.futures.ThreadPoolExecutor() as pool,
    ):
        with tierd.connect(job="kept", socket=daemon.socket, named=True) as client:
            for number in range(12):
                client.put(f"layer-{number}", os.urandom(8 << 20), shared=True)
            drained = pool.submit(tierctl, daemon, "drain", "--wait")
            wait_until_drained(daemon)
        result = drained.result(30)
        assert result.returncode == 5 and "no process is attached any more" in result.stderr, result.stderr


def test_a_drain_that_waits_fails_where_a_restart_would_lose_all_of_a_job(own_daemon: launcher.Running) -> None:
    with tierd.connect(job="inactive", socket=own_daemon.socket, named=True) as client:
        client.put("weight", os.urandom(5 << 20), shared=True)
    result = tierctl(own_daemon, "drain", "--wait")
    assert result.returncode == 1 and "no process is attached any more" in result.stdout, result.stderr
    assert f"all tensors of {os.getuid()}/inactive (5 MiB), which persisted nothing" in result.stderr
    launcher.tierctl(own_daemon, "undrain")
    with tierd.connect(job="inactive", socket=own_daemon.socket, named=True) as client:
        client.persist()
    told = launcher.tierctl(own_daemon, "drain", "--wait")
    assert "a restart ends what jobs have not persisted" in told
    launcher.tierctl(own_daemon, "undrain")
    launcher.tierctl(own_daemon, "job", "remove", "inactive", "--purge")


def test_a_drain_that_waits_fails_when_somebody_undrains(own_daemon: launcher.Running) -> None:
    with (
        tierd.connect(job="stays", socket=own_daemon.socket),
        concurrent.futures.ThreadPoolExecutor() as pool,
    ):
        drained = pool.submit(tierctl, own_daemon, "drain", "--wait")
        wait_until_drained(own_daemon)
        launcher.tierctl(own_daemon, "undrain")
        result = drained.result(30)
    assert result.returncode == 1 and "was undrained meanwhile" in result.stderr, result.stderr


def test_a_drain_that_waits_fails_when_the_daemon_is_restarted(socket_folder: pathlib.Path) -> None:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        with launcher.start(socket_folder) as daemon:
            client = tierd.connect(job="ended", socket=daemon.socket)
            drained = pool.submit(tierctl, daemon, "drain", "--wait")
            wait_until_drained(daemon)
            daemon.process.kill()
        with launcher.start(socket_folder):
            result = drained.result(30)  # What it says depends on which of the two it found, or none.
        client.close()
    assert result.returncode in (1, 4) and not result.stdout.endswith("any more\n"), result


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_interrupts_a_drain_is_told_that_it_holds(own_daemon: launcher.Running, number: signal.Signals) -> None:
    program = launcher.BUILD / "tools/tierctl/tierctl"
    with tierd.connect(job="stays", socket=own_daemon.socket):
        waiting = subprocess.Popen(
            [program, "--socket", own_daemon.socket, "drain", "--wait"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A background job may have interrupts ignored, and its children too.
            preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
        )
        assert waiting.stdout is not None
        assert "takes no new job" in waiting.stdout.readline()
        waiting.send_signal(number)
        _, errors = waiting.communicate(timeout=30)
        assert waiting.returncode == -number, "a shell sees that the signal ended it, and ends its script"
        assert "tierctl: interrupted; the node stays drained (tierctl undrain)" in errors
        assert launcher.metrics(own_daemon)["tierd_draining"] == 1


def test_a_drain_says_which_process_is_stopped(own_daemon: launcher.Running) -> None:
    code = """import sys, tierd
client = tierd.connect(job="held", socket=sys.argv[1])
print("there", flush=True)
sys.stdin.read()"""
    held = subprocess.Popen(
        [sys.executable, "-c", code, own_daemon.socket], env=launcher.environment(), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with held:
        try:
            assert held.stdin and held.stdout and held.stdout.readline() == "there\n"
            waited = tierctl(own_daemon, "drain", "--wait", "--timeout", "1")
            assert f"({os.getuid()}/held: {held.pid}); the node stays" in waited.stderr, waited
            held.send_signal(signal.SIGSTOP)
            waited = tierctl(own_daemon, "drain", "--wait", "--timeout", "1")
            assert f"({os.getuid()}/held: {held.pid} (stopped)); the node stays" in waited.stderr, waited
        finally:
            held.send_signal(signal.SIGCONT)
            held.stdin.close()


def test_a_drain_waits_no_longer_than_it_may_for_a_daemon_that_hangs(own_daemon: launcher.Running) -> None:
    os.kill(own_daemon.pid, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        waited = tierctl(own_daemon, "drain", "--wait", "--timeout", "2")
        took = time.monotonic() - begun
    finally:
        os.kill(own_daemon.pid, signal.SIGCONT)
    assert waited.returncode == 1 and "does not answer in time" in waited.stderr, waited
    assert took < 5, "it took 20 s where each call had its own time"


def test_without_an_ssd_tier_a_drain_says_that_bytes_stay_in_ram(socket_folder: pathlib.Path) -> None:
    with (
        launcher.start(socket_folder, settings={"ssd": {"devices": ["none"]}}) as daemon,
        tierd.connect(job="training", socket=daemon.socket) as client,
    ):
        client.put("weights", os.urandom(3 << 20))
        for words in (["drain", "training"], ["drain"]):
            told = launcher.tierctl(daemon, *words)
            assert "no SSD tier: what is dirty stays in RAM" in told, told
        assert json.loads(launcher.tierctl(daemon, "drain", "--json"))["stays_in_ram"] is True


def test_only_a_drain_that_waits_has_more_than_an_hour(own_daemon: launcher.Running) -> None:
    refused = tierctl(own_daemon, "drain", "--timeout", "7200")
    assert refused.returncode == 2 and "only with --wait" in refused.stderr, refused.stderr
    for timeout in ("7200", "7200s", "2h"):
        assert "no process is attached" in launcher.tierctl(own_daemon, "drain", "--wait", "--timeout", timeout)
    for timeout in ("0", "10 elephants", "10ms"):
        refused = tierctl(own_daemon, "drain", "--timeout", timeout)
        assert refused.returncode == 2 and f'"{timeout}" is no time; write 90, 90s, 5min or 2h' in refused.stderr
    launcher.tierctl(own_daemon, "undrain")


def test_a_drain_of_a_job_without_a_name_is_no_drain_of_the_node(own_daemon: launcher.Running) -> None:
    refused = tierctl(own_daemon, "drain", "")
    assert refused.returncode == 2 and "the name of the job is empty" in refused.stderr, refused
    assert launcher.metrics(own_daemon)["tierd_draining"] == 0


def test_undrain_is_for_administrators_and_needs_no_drain(own_daemon: launcher.Running) -> None:
    refused = tierctl(own_daemon.directory / "control.sock", "undrain")
    assert refused.returncode == 5 and "only an administrator" in refused.stderr, refused.stderr
    assert tierctl(own_daemon, "undrain").returncode == 0


def test_a_crash_ends_no_drain_and_a_restart_does(socket_folder: pathlib.Path) -> None:
    with launcher.start(socket_folder) as daemon:
        launcher.tierctl(daemon, "drain")
        daemon.process.kill()
    with launcher.start(socket_folder) as daemon:
        assert launcher.metrics(daemon)["tierd_draining"] == 1
        with pytest.raises(tierd.Denied, match="tierctl undrain"):
            tierd.connect(job="new", socket=daemon.socket)
        assert "was drained when tierd crashed" in launcher.tierctl(daemon, "events")
    with launcher.start(socket_folder) as daemon:
        assert launcher.metrics(daemon)["tierd_draining"] == 0, "the last one was stopped in order"
        with tierd.connect(job="new", socket=daemon.socket) as client:
            client.put("x", b"1")
