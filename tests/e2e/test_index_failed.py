"""The index of what jobs persist fails under a running daemon: all who look at the node are told, not jobs alone."""

from __future__ import annotations

import json
import os
import pathlib
import urllib.request

import launcher
import pytest
import tierd
from launcher import run_tierctl as tierctl

CAUSE = 'tierd_degraded{cause="index"}'
SAID = "nothing can be persisted or resumed until tierd is restarted"


def cut_short(daemon: launcher.Running) -> None:
    """In the half that is not used yet: what is persisted stays whole."""
    folder = json.loads(tierctl(daemon, "status", "--json").stdout)["data_directory"]
    index = pathlib.Path(folder) / "index.mdb"
    os.truncate(index, index.stat().st_size // 2)


def fail(daemon: launcher.Running, client: tierd.Client) -> None:
    """Its job finds out."""
    cut_short(daemon)
    client.put("another", b"x")
    with pytest.raises(tierd.IoError, match="index.mdb was cut short"):
        client.persist()
    launcher.wait_for("the metric", lambda: launcher.metrics(daemon)[CAUSE] == 1)


def health(daemon: launcher.Running) -> str:
    with urllib.request.urlopen(daemon.metrics_url.replace("/metrics", "/healthz"), timeout=10) as answer:
        return str(answer.read().decode())


def test_all_who_look_at_the_node_are_told(socket_folder: pathlib.Path) -> None:
    """Also before a job persists: nobody does, until all have told of it."""
    with launcher.start(socket_folder, arena="64MiB", tier="256MiB") as daemon:
        with tierd.connect(job="named", socket=daemon.socket, named=True) as client:
            client.put("weights", os.urandom(2 << 20))
            client.persist()
            assert launcher.metrics(daemon)[CAUSE] == 0
            assert "index" not in health(daemon)
            cut_short(daemon)
            launcher.wait_for("the metric", lambda: launcher.metrics(daemon)[CAUSE] == 1)
            for verb in ("status", "doctor"):
                found = tierctl(daemon, verb)
                assert found.returncode == launcher.DEGRADED, found
                assert SAID in " ".join(found.stdout.split()), found.stdout
            status = json.loads(tierctl(daemon, "status", "--json").stdout)
            assert status["degraded"] and "index.mdb was cut short" in status["index_failure"]
            assert health(daemon).startswith("degraded: ") and "index" in health(daemon)
            log = daemon.directory / "tierd.log"
            launcher.wait_for("a line of the log", lambda: f"{SAID}: the index" in log.read_text())
            for _ in range(2):
                with pytest.raises(tierd.IoError, match="index.mdb was cut short"):
                    client.persist()
            assert len(client.get("weights")) == 2 << 20, "tensors can still be used"
        events = json.loads(tierctl(daemon, "events", "--json").stdout)["events"]
        told = [event for event in events if SAID in event["message"]]
        assert [event["kind"] for event in told] == ["degraded"], told
        assert log.read_text().count(SAID) == 1, "one line, whatever jobs try"
        launcher.tierctl(daemon, "job", "remove", "named")


def test_a_file_that_was_moved_under_the_daemon_takes_no_manifest(socket_folder: pathlib.Path) -> None:
    with launcher.start(socket_folder, arena="64MiB", tier="256MiB") as daemon:
        path = pathlib.Path(json.loads(tierctl(daemon, "status", "--json").stdout)["devices"][0]["path"])
        with tierd.connect(job="named", socket=daemon.socket, named=True) as client:
            client.put("weights", os.urandom(2 << 20))
            client.persist()
            away = path.with_name("away")
            path.rename(away)
            with pytest.raises(tierd.IoError, match="was moved, and the next start would not find what is on it"):
                client.persist()
            assert launcher.metrics(daemon)[CAUSE] == 1
            assert tierctl(daemon, "status").returncode == launcher.DEGRADED
            away.rename(path)
            client.persist()
            launcher.wait_for("the end of it", lambda: launcher.metrics(daemon)[CAUSE] == 0)
            path.rename(away)
            launcher.wait_for("the metric, without a job", lambda: launcher.metrics(daemon)[CAUSE] == 1)
            assert len(client.get("weights")) == 2 << 20, "tensors can still be used"
            away.rename(path)


def test_a_drain_says_that_what_was_persisted_last_cannot_be_relied_upon(socket_folder: pathlib.Path) -> None:
    with launcher.start(socket_folder, arena="64MiB", tier="256MiB") as daemon:
        with tierd.connect(job="named", socket=daemon.socket, named=True) as client:
            fail(daemon, client)
        launcher.tierctl(daemon, "job", "remove", "named")
        drained = tierctl(daemon, "drain")
        assert drained.returncode == 0 and "cannot be relied upon" in drained.stderr, drained
        waited = tierctl(daemon, "drain", "--wait")
        assert waited.returncode == 1, "no restart follows behind &&"
        assert "the node stays drained" in waited.stderr and "cannot be relied upon" in waited.stderr, waited.stderr


def test_a_restart_finds_what_was_persisted_before(socket_folder: pathlib.Path) -> None:
    weights = os.urandom(2 << 20)
    with launcher.disk_folder() as disk:
        settings = {
            "daemon": {"socket_directory": str(socket_folder), "data_directory": str(disk)},
            "ssd": {"file_size": "256MiB"},
        }
        with launcher.start(socket_folder, arena="64MiB", settings=settings) as daemon:
            with tierd.connect(job="named", socket=daemon.socket, named=True) as client:
                client.put("weights", weights)
                client.persist()
                fail(daemon, client)
            launcher.tierctl(daemon, "job", "remove", "named")
        with launcher.start(socket_folder, arena="64MiB", settings=settings) as daemon:
            assert launcher.metrics(daemon)[CAUSE] == 0
            with tierd.connect(job="named", socket=daemon.socket, mode="resume") as client:
                assert bytes(client.get("weights")) == weights
            launcher.tierctl(daemon, "job", "remove", "named")
