"""What `tierctl --json` really prints, beside docs/tierctl-json.md and the shapes that it is made from."""

from __future__ import annotations

import contextlib
import functools
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import launcher
import pytest

import tierd

sys.path.insert(0, str(launcher.ROOT / "tools/tierctl"))

import json_page  # noqa: E402

PROGRAM = launcher.BUILD / "tools/tierctl/tierctl"


@pytest.fixture(scope="module")
def busy() -> Iterator[dict[str, Any]]:
    """Every verb's document, of a daemon with jobs, tensors, a manifest that is kept, and two devices."""
    if not PROGRAM.exists():
        pytest.skip(f"needs a build: {PROGRAM} is not there")
    documents: dict[str, Any] = {}

    def ask(verb: str, *words: object) -> None:
        done = launcher.run_tierctl(running, "--json", *words)
        assert done.returncode in (0, 1, 6) and done.stdout, (verb, done.stderr)
        documents[verb] = json.loads(done.stdout)

    with (
        launcher.disk_folder() as disk,
        tempfile.TemporaryDirectory(prefix="tier-") as folder,
        contextlib.ExitStack() as stack,
    ):
        with (disk / "spare").open("wb") as spare:
            spare.truncate(64 << 20)
        settings = {
            "daemon": {"socket_directory": folder, "data_directory": str(disk / "data")},
            "ssd": {"devices": [str(disk / "one"), str(disk / "two")], "file_size": "64MiB"},
        }
        start = functools.partial(launcher.start, pathlib.Path(folder), arena="32MiB", settings=settings)
        running = stack.enter_context(start())
        with tierd.connect(job="past", socket=running.socket, named=True) as past:
            past.put("kept", bytes(12 << 20))
            past.persist()
        launcher.tierctl(running, "job", "remove", "past")
        with tierd.connect(job="train", socket=running.socket) as client:
            client.put("weights", bytes(3 << 20))
            client.put(7, b"x", shared=True)
            ask("status", "status")
            ask("doctor", "doctor")
            ask("version", "version")
            ask("report", "report", "-o", disk / "report.tar.gz")
            ask("top --once", "top", "--once", "--interval", "0.1")
            ask("events", "events")
            ask("job list", "job", "list")
            ask("job names", "job", "names")
            ask("job show JOB", "job", "show", "train")
            ask("job set JOB", "job", "set", "train", "--limit", "16MiB")
            ask("job stalls JOB", "job", "stalls", "train")
            ask("job open JOB", "job", "open", "opened")
            ask("job remove JOB", "job", "remove", "opened")
            ask("tensor list JOB", "tensor", "list", "train")
            ask("tensor show JOB TENSOR", "tensor", "show", "train", "weights")
            ask("device list", "device", "list")
            ask("device format PATH", "device", "format", disk / "spare")
            ask("device show PATH", "device", "show", disk / "spare")
            ask("device drain DEVICE", "device", "drain", 1)
            ask("device drain DEVICE --undo", "device", "drain", 1, "--undo")
            with tierd.connect(job="lost", socket=running.socket, named=True) as lost:
                lost.put("kept", bytes(12 << 20))  # On both devices, whatever the emptying has moved before it ended.
                lost.persist()
            launcher.tierctl(running, "job", "remove", "lost")
            ask("device retry DEVICE", "device", "retry", 0)
            ask("pool map", "pool", "map")
            ask("socket open", "socket", "open", "--owner", "pod-a")
            ask("socket list", "socket", "list")
            ask("socket close", "socket", "close", "--owner", "pod-a")
            ask("quota set", "quota", "set", "default", "--jobs", "50", "--ssd", "unlimited")
            ask("quota show", "quota")
            ask("quota list", "quota", "list")
            ask("quota clear", "quota", "clear", "default")
            ask("config set OPTION VALUE", "config", "set", "engine.deadline", "50s")
            ask("config get", "config", "get")
            ask("config get OPTION", "config", "get", "engine.deadline")
            ask("config diff", "config", "diff")
            ask("drain JOB", "drain", "train")
            followed = subprocess.Popen(
                [str(PROGRAM), "--socket", str(running.directory), "--json", "events", "--follow", "--since", "1"],
                stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            assert followed.stdout
            documents["events --follow"] = json.loads(followed.stdout.readline())
            followed.terminate()
            followed.communicate()
            ask("drain", "drain")
            ask("undrain", "undrain")
        ask("drain --wait", "drain", "--wait")
        stack.close()
        (disk / "two").rename(disk / "away")
        running = stack.enter_context(start())
        ask("job list --lost", "job", "list", "--lost")
        ask("device list with one missing", "device", "list")
        (missing,) = documents["device list with one missing"]["missing"]
        ask("device purge UUID", "device", "purge", "--force", missing["uuid"])
    yield documents


@pytest.mark.parametrize("verb", json_page.verbs())
def test_each_verb_prints_what_is_described(busy: dict[str, Any], verb: str) -> None:
    document = busy[verb]
    assert next(iter(document)) == "json_version" and document.pop("json_version") == json_page.VERSION
    assert json_page.shape_faults(document, json_page.verbs()[verb]) == []


def test_every_part_was_really_there(busy: dict[str, Any]) -> None:
    assert busy["job list"]["jobs"] and busy["job list"]["stored_manifests"] and busy["events"]["events"]
    assert busy["tensor list JOB"]["tensors"] and busy["pool map"]["owners"] and busy["pool map"]["windows"]
    assert busy["job list --lost"]["stored_manifests"] and busy["device purge UUID"]["jobs"]
    (deadline,) = busy["config get OPTION"]["options"]
    assert deadline["value"] == '"50s"' and deadline in busy["config diff"]["options"]
    assert (
        busy["device list with one missing"]["missing"]
        and len(busy["device list"]["devices"]) == 2
        and busy["top --once"]["devices"]
        and busy["doctor"]["findings"]
    )


def test_an_id_is_the_same_everywhere(busy: dict[str, Any]) -> None:
    (listed,) = (tensor for tensor in busy["tensor list JOB"]["tensors"] if tensor["key"] == "weights")
    assert listed["id"] == busy["tensor show JOB TENSOR"]["tensors"][0]["id"]
    assert int(listed["id"]) > 1 << 53, "no double holds it"
    assert busy["status"]["epoch"] == busy["top --once"]["epoch"]


def test_the_epoch_is_told_alike_in_table_and_document(own_daemon: launcher.Running) -> None:
    epoch = json.loads(launcher.tierctl(own_daemon, "--json", "status"))["epoch"]
    assert f"epoch {epoch}" in launcher.tierctl(own_daemon, "status")
    with tierd.connect(socket=own_daemon.socket) as client:
        assert client.session.epoch == int(epoch)
