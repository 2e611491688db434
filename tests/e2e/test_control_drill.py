"""libtier-control and libtier in one C program: a job is opened, limited, drained and closed while it swaps."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import time

import launcher
import pytest
import tierd
from tierd import control

DRILL = launcher.BUILD / "tests/e2e/control/control_drill"


def drill(daemon: launcher.Running, **options: object) -> subprocess.CompletedProcess[str]:
    if not DRILL.exists():
        pytest.skip(f"needs a build with tests: {DRILL} is not there")
    folder = pathlib.Path(daemon.socket).parent
    return subprocess.run(
        [DRILL, folder / "control.sock", daemon.socket], capture_output=True, text=True, timeout=90, **options
    )  # type: ignore[call-overload,no-any-return]


def test_a_c_launcher_steers_a_job_while_it_swaps(own_daemon: launcher.Running) -> None:
    result = drill(own_daemon)
    assert result.returncode == 0, result.stderr
    for step in (
        "event job_opened",
        "event session_attached",
        "wrong token",
        "event job_changed",
        "event job_closed",
        "drill done",
    ):
        assert step in result.stdout


def test_tierctl_finds_the_same_daemon(own_daemon: launcher.Running) -> None:
    program = launcher.need_tierctl()
    environment = dict(os.environ, TIERD_SOCKET=own_daemon.socket)
    status = subprocess.run([program, "status"], capture_output=True, text=True, env=environment, timeout=30)
    assert status.returncode == 0, status.stderr
    assert "tierd" in status.stdout and "arena" in status.stdout
    devices = launcher.run_tierctl(own_daemon, "device", "list")
    assert "ERRORS  CORRUPT  WINDOW FAULTS" in devices.stdout, devices.stderr
    listed = launcher.run_tierctl(own_daemon, "device", "list", "--json")
    (device,) = json.loads(listed.stdout)["devices"]
    assert [device[f"{name}_total"] for name in ("errors", "corrupt", "window_faults")] == [0, 0, 0]
    missing = launcher.run_tierctl(own_daemon, "job", "show", "absent")
    assert missing.returncode == 3, missing.stderr


def test_a_job_with_processes_is_removed_by_force_alone(own_daemon: launcher.Running) -> None:
    pid = os.getpid()
    with tierd.connect(job="train", socket=own_daemon.socket) as client:
        client.put("weights", bytes(5 << 20))
        refused = launcher.run_tierctl(own_daemon, "job", "remove", "train")
        assert refused.returncode == 5, refused
        assert f"job 'train' has 1 process attached: {pid}; removing it ends its run" in refused.stderr
        assert "tierctl job remove --force train" in refused.stderr
        other = launcher.run_tierctl(own_daemon, "job", "remove", f"0{os.getuid()}/train")
        assert other.returncode == 3 and "NOT_FOUND" in other.stderr, "a uid is written in one way"
        with control.connect(own_daemon.directory) as channel, pytest.raises(tierd.Denied, match="1 process attached"):
            channel.close_job("train", unless_attached=True)
        assert len(client.get("weights")) == 5 << 20, "nothing was done to it"
        removed = json.loads(launcher.tierctl(own_daemon, "job", "remove", "--force", "train", "--json"))
        assert [session["client_pid"] for session in removed["sessions"]] == [pid]
        assert removed["ram_bytes"] >= 5 << 20
        with pytest.raises(tierd.Revoked, match=r"of uid \d+ \(by tierctl job remove, or close_job\)"):
            client.get("weights")
    with tierd.connect(job="train", socket=own_daemon.socket, named=True) as client:
        client.put("weights", bytes(5 << 20))
    said = launcher.tierctl(own_daemon, "job", "remove", "train")
    assert said.startswith("removed job train; gave back windows of "), "its process has left"


def test_what_a_closed_job_persisted_is_listed_and_removed(own_daemon: launcher.Running) -> None:

    def tierctl(*words: str) -> subprocess.CompletedProcess[str]:
        return launcher.run_tierctl(own_daemon, "job", *words)

    with tierd.connect(job="finished", socket=own_daemon.socket, named=True) as client:
        client.put("weights", bytes(5 << 20))
        client.persist()
    assert "persisted by" not in tierctl("list").stdout
    assert tierctl("remove", "finished").returncode == 0
    give_up = time.monotonic() + 20
    while "persisted by" not in (listed := tierctl("list")).stdout and time.monotonic() < give_up:
        continue  # Its memory is being freed.
    assert "persisted by jobs that are not open" in listed.stdout and "can be resumed" in listed.stdout, listed
    (stored,) = json.loads(tierctl("list", "--json").stdout)["stored_manifests"]
    assert (stored["name"], stored["ssd_bytes"], stored["damage"]) == ("finished", 5 << 20, "")
    refused = tierctl("remove", "finished")
    assert refused.returncode == 3 and "--purge" in refused.stderr
    assert tierctl("remove", "--purge", "finished").returncode == 0
    assert "persisted by" not in tierctl("list").stdout
    with pytest.raises(tierd.NotFound):
        tierd.connect(job="finished", socket=own_daemon.socket, mode="resume")


def test_a_job_that_is_resumed_has_the_terms_that_an_operator_gave_it(own_daemon: launcher.Running) -> None:
    def tierctl(*words: str) -> str:
        return launcher.tierctl(own_daemon, "job", *words)

    given = {"guarantee": 4 << 20, "limit": 24 << 20, "ssd_guarantee": 16 << 20, "ssd_limit": 64 << 20}
    words = [word for name, size in given.items() for word in (f"--{name.replace('_', '-')}", str(size))]
    tierctl("open", "training", "--named", *words)
    for mode in ("attach", "resume", "resume"):
        with tierd.connect(job="training", socket=own_daemon.socket, named=True, mode=mode) as client:
            if mode == "attach":
                client.put("weights", bytes(5 << 20), shared=True)
                client.persist()
            assert bytes(client.get("weights", shared=True)) == bytes(5 << 20)
            shown = json.loads(tierctl("show", "training", "--json"))
        assert {name: int(shown[f"{name}_bytes"]) for name in given} == given, mode


def test_tierctl_without_a_daemon_says_what_it_tried(socket_folder: pathlib.Path) -> None:
    program = launcher.need_tierctl()
    environment = dict(os.environ, TIERD_SOCKET=str(socket_folder / "tierd.sock"))
    result = subprocess.run([program, "status"], capture_output=True, text=True, env=environment, timeout=30)
    assert result.returncode == 4
    assert (
        str(socket_folder / "control.sock") in result.stderr
        and "or name another socket (TIERD_SOCKET)" in result.stderr
    )


def test_the_manual_has_every_option_of_the_daemon_and_a_wrong_one_is_named() -> None:
    launcher.need_build()
    program = launcher.BUILD / "daemon/tierd"
    told = subprocess.run([program, "--help"], capture_output=True, text=True, check=True, timeout=30).stdout
    manual = (launcher.ROOT / "deploy/man/tierd.8").read_text().replace("\\-", "-")
    options = set(re.findall(r"--[a-z-]+", told)) - {"--help"}
    assert len(options) >= 6 and [option for option in options if option not in manual] == []
    wrong = subprocess.run([program, "--bogus"], capture_output=True, text=True, check=False, timeout=30)
    assert wrong.returncode == 2 and re.match("tierd: .*--bogus.*--help", wrong.stderr)
