"""`tierctl report`: the bundle has what helps, none of the tokens that exist, and no byte of a tensor."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
from typing import Any

import launcher
import pytest

import tierd

FILES = {
    "README.txt", "version.json", "status.json", "devices.json", "config-running.json", "config-file.toml", "jobs.json",
    "stalls.json", "pool.json", "quotas.json", "events.json", "metrics.txt", "doctor.json", "kernel/version",
    "kernel/meminfo", "kernel/settings", "kernel/mounts", "kernel/limits", "kernel/cgroup",
}  # fmt: skip
MAY_LACK = {"log.txt", "kernel/pressure-memory", "kernel/pressure-io"}
SECRET = b"these bytes are of a tensor and of nobody else"
OTHER = 12345
PLAIN: dict[str, Any] = {"cwd": "/", "user": OTHER, "group": OTHER, "extra_groups": []}


def report(socket: pathlib.Path, path: pathlib.Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return launcher.run_tierctl(socket, "report", "-o", path, **options)


def unpacked(path: pathlib.Path) -> dict[str, bytes]:
    """The files of the bundle by their names in its one folder."""
    found = {}
    with tarfile.open(path, "r:gz") as bundle:
        for member in bundle.getmembers():
            assert member.uid == member.gid == 0 and member.name.startswith("tierd-report-"), member
            if not member.isfile():
                assert member.isdir(), member
                continue
            file = bundle.extractfile(member)
            assert file
            found[member.name.split("/", 1)[1]] = file.read()
    return found


def test_a_bundle_has_what_helps_and_no_secret(own_daemon: launcher.Running, tmp_path: pathlib.Path) -> None:
    config = own_daemon.directory / "tierd.toml"
    planted = os.urandom(32).hex()
    with (
        tierd.connect(job="one", socket=own_daemon.socket) as one,
        tierd.connect(job="two", socket=own_daemon.socket, named=True) as two,
    ):
        one.put("weights", SECRET * 1000)
        two.put("other", SECRET)
        tokens = [one.session.token, two.session.token, planted]
        config.write_text(f'{config.read_text()}\n# password = "hunter2"\n# was {planted}\n')
        path = tmp_path / "report.tar.gz"
        done = report(own_daemon.directory, path)
        assert done.returncode == 0 and str(path) in done.stdout, done
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    files = unpacked(path)
    assert files.keys() - MAY_LACK == FILES, files.keys() ^ FILES
    whole = b"\n".join(files.values())
    for token in tokens:
        assert token and token.encode() not in whole and token.upper().encode() not in whole
    assert b"hunter2" not in whole and SECRET not in whole

    status, jobs = json.loads(files["status.json"]), json.loads(files["jobs.json"])
    assert status["status"]["pid"] == own_daemon.pid and status["status"]["devices"]
    assert {job["name"] for job in jobs["jobs"]} == {"one", "two"} and "token" not in jobs["jobs"][0]
    options = json.loads(files["config-running.json"])
    assert options["file"] == str(config) and len(options["options"]) > 30
    assert b"[arena]" in files["config-file.toml"] and b"<masked>" in files["config-file.toml"]
    assert any(event["kind"] == "job_opened" for event in json.loads(files["events.json"])["events"])
    assert b"tierd_arena_bytes" in files["metrics.txt"] and json.loads(files["pool.json"])["owners"]
    assert json.loads(files["doctor.json"])["findings"] and len(json.loads(files["stalls.json"])) == 3
    assert b"MemTotal" in files["kernel/meminfo"] and b"Max locked memory" in files["kernel/limits"]
    assert str(status["status"]["devices"][0]["path"]).encode() in files["kernel/mounts"]
    assert files["README.txt"].count(b" bytes)") == len(files) - 1


def test_a_file_that_is_there_is_not_replaced(own_daemon: launcher.Running, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "report.tar.gz"
    path.write_text("mine")
    done = report(own_daemon.directory, path)
    assert done.returncode == 5 and "ALREADY_EXISTS" in done.stderr, done
    assert path.read_text() == "mine"
    missing = report(own_daemon.directory, tmp_path / "no/such/folder.tar.gz")
    assert missing.returncode != 0 and "cannot write" in missing.stderr


def test_without_a_daemon_it_says_what_is_missing(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "report.tar.gz"
    done = report(tmp_path, path)
    assert done.returncode == 0 and "missing: status.json, devices.json, " in done.stdout, done
    assert done.stdout.count("no tierd answers") == 1, "one reason, one line"
    files = unpacked(path)
    assert {"README.txt", "version.json", "doctor.json", "kernel/meminfo", "kernel/settings"} <= files.keys()
    readme = files["README.txt"].decode()
    for name in ("status.json", "jobs.json", "events.json", "metrics.txt", "kernel/cgroup"):
        assert name not in files and re.search(rf"^  (.*, )?{re.escape(name)}(, .*)?: ", readme, re.MULTILINE)
    assert json.loads(files["version.json"])["tierd"] is None


@pytest.mark.parametrize("journal", [None, "exit 1", "echo '-- No entries --'", "echo a line of tierd"])
def test_the_log_is_the_journals_or_it_says_where_another_may_be(tmp_path: pathlib.Path, journal: str | None) -> None:
    programs, path = tmp_path / "programs", tmp_path / "report.tar.gz"
    programs.mkdir()
    for name in ("tar", "gzip"):
        (programs / name).symlink_to(shutil.which(name) or pytest.skip(f"{name} is not here"))
    if journal is not None:
        (programs / "journalctl").write_text(f"#!/bin/sh\n{journal}\n")
        (programs / "journalctl").chmod(0o755)
    done = report(tmp_path, path, env=os.environ | {"PATH": str(programs)})
    assert done.returncode == 0, done
    log = unpacked(path).get("log.txt")
    if journal == "echo a line of tierd":
        assert log == b"a line of tierd\n" and "log.txt" not in done.stdout
    else:
        assert log is None
        assert re.search(r"log\.txt.*may log to its standard error: attach that", done.stdout, re.DOTALL), done.stdout


def test_a_plain_users_bundle_has_the_stalls_of_its_jobs(socket_folder: pathlib.Path) -> None:
    launcher.need_user(OTHER)
    settings = {"jobs": {"stall_threshold": "0s"}}
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tier-"))
    os.chown(folder, OTHER, OTHER)
    code = """import sys, tierd
with tierd.connect(job="mine", socket=sys.argv[1]) as client:
    for key in range(16):
        client.put(key, bytes(2 << 20))
    for key in range(16):
        client.get(key)
    print("there", flush=True)
    sys.stdin.read()"""
    try:
        with launcher.start(socket_folder, arena="16MiB", tier="256MiB", settings=settings) as node:
            os.chmod(node.directory, 0o755)
            process = subprocess.Popen(
                [sys.executable, "-c", code, node.socket], env=launcher.environment(), stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, text=True, **PLAIN,
            )  # fmt: skip
            with (
                process,
                tierd.connect(job="mine", socket=node.socket),  # An administrator sees two of that name,
                tierd.connect(job=f"{OTHER}/mine", socket=node.socket),  # and one that looks like another user's.
            ):
                assert process.stdin and process.stdout and process.stdout.readline() == "there\n"
                own = report(node.directory / "control.sock", folder / "own.tar.gz", **PLAIN)
                admins = report(node.directory / "admin.sock", folder / "all.tar.gz")
                process.stdin.close()
        assert own.returncode == admins.returncode == 0, (own, admins)
        mine = json.loads(unpacked(folder / "own.tar.gz")["stalls.json"])
        assert mine.keys() == {"json_version", f"{OTHER}/mine"} and mine[f"{OTHER}/mine"]["stalls"], mine
        assert "stalls.json" not in own.stdout
        every = json.loads(unpacked(folder / "all.tar.gz")["stalls.json"])
        uid = os.geteuid()
        assert every.keys() == {"json_version", f"{OTHER}/mine", f"{uid}/mine", f"{uid}/{OTHER}/mine"}
        assert every[f"{OTHER}/mine"]["stalls"] and not every[f"{uid}/{OTHER}/mine"].get("stalls")
    finally:
        shutil.rmtree(folder)


def test_root_reads_nothing_that_a_foreign_daemon_names(socket_folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    launcher.need_user(OTHER)
    program = launcher.need_build()
    os.chown(socket_folder, OTHER, OTHER)
    code = """import sys
from tierd.daemon import Daemon
folder, program = sys.argv[1:]
places = {"socket_directory": folder, "data_directory": folder + "/data"}
sections = {"daemon": places, "arena": {"maximum": "64MiB"}, "ssd": {"devices": ["none"]},
            "metrics": {"listen": "127.0.0.1:0"}}
with Daemon(folder, sections, program=program):
    print("there", flush=True)
    sys.stdin.read()"""
    foreign = subprocess.Popen(
        [sys.executable, "-c", code, str(socket_folder), str(program)], env=launcher.environment(),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **PLAIN,
    )  # fmt: skip
    with foreign:
        assert foreign.stdin and foreign.stdout and foreign.stdout.readline() == "there\n"
        done = report(socket_folder / "control.sock", tmp_path / "report.tar.gz")
        foreign.stdin.close()
    assert done.returncode == 0, done
    files = unpacked(tmp_path / "report.tar.gz")
    assert json.loads(files["config-running.json"])["file"] == f"{socket_folder}/tierd.toml"
    readme = files["README.txt"].decode()
    for name in ("config-file.toml", "metrics.txt", "kernel/limits", "kernel/cgroup"):
        assert name not in files
        assert re.search(rf"^  (.*, )?{re.escape(name)}(, .*)?: uid {OTHER} answers here", readme, re.MULTILINE), readme


def test_a_folder_that_is_not_there_is_told_so(own_daemon: launcher.Running, tmp_path: pathlib.Path) -> None:
    done = report(own_daemon.directory, tmp_path / "absent" / "report.tar.gz")
    assert done.returncode == 3 and f"the folder {tmp_path}/absent does not exist" in done.stderr, done


def test_a_configuration_that_is_a_link_of_the_caller_is_there(
    own_daemon: launcher.Running, tmp_path: pathlib.Path
) -> None:
    config = own_daemon.directory / "tierd.toml"
    config.rename(tmp_path / "real.toml")
    config.symlink_to(tmp_path / "real.toml")
    done = report(own_daemon.directory, tmp_path / "report.tar.gz")
    assert done.returncode == 0, done
    assert b"[arena]" in unpacked(tmp_path / "report.tar.gz")["config-file.toml"]


def test_root_follows_no_link_of_another_user(own_daemon: launcher.Running, tmp_path: pathlib.Path) -> None:
    launcher.need_user(OTHER)
    config = own_daemon.directory / "tierd.toml"
    config.rename(tmp_path / "real.toml")
    config.symlink_to(tmp_path / "real.toml")
    os.chown(config, OTHER, OTHER, follow_symlinks=False)
    done = report(own_daemon.directory, tmp_path / "report.tar.gz")
    assert done.returncode == 0, done
    assert f"cannot read {config}: tierd.toml is a symbolic link of uid {OTHER}" in done.stdout
    assert "config-file.toml" not in unpacked(tmp_path / "report.tar.gz")
