"""A node is drained: no new job or process is taken, those that run go on, and all who ask can see it."""

from __future__ import annotations

import concurrent.futures
import json
import os

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
        assert json.loads(tierctl(own_daemon, "status", "--json").stdout)["draining"]

        with pytest.raises(tierd.Denied, match="tierctl undrain"):
            tierd.connect(job="new", socket=own_daemon.socket)
        with pytest.raises(tierd.Denied, match="being drained"):
            tierd.connect(job="running", socket=own_daemon.socket, token=client.session.token)

        client.put("more", weights)  # What runs is not touched.
        assert bytes(client.get("weights")) == bytes(client.get("more")) == weights

        waited = tierctl(own_daemon, "drain", "--wait", "--timeout", "1")
        assert waited.returncode != 0 and "1 process is still attached" in waited.stderr, waited.stderr

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


def test_undrain_is_for_administrators_and_needs_no_drain(own_daemon: launcher.Running) -> None:
    refused = tierctl(own_daemon.directory / "control.sock", "undrain")
    assert refused.returncode == 5 and "only an administrator" in refused.stderr, refused.stderr
    assert tierctl(own_daemon, "undrain").returncode == 0
