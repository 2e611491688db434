"""Root's rights exist on admin.sock only: by control.sock and by the data socket uid 0 is a user like any other."""

from __future__ import annotations

import grp
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import launcher
import pytest

import tierd

OTHER = 12345


@pytest.fixture
def others_job(own_daemon: launcher.Running) -> Iterator[launcher.Running]:
    """A daemon with the job "train" of another uid, whose process lives as long as the test."""
    if os.geteuid() != 0:
        pytest.skip("needs to be root")
    launcher.need_user(OTHER)
    os.chmod(own_daemon.directory, 0o755)
    code = f"""import sys, tierd
client = tierd.connect(job="train", socket={own_daemon.socket!r})
client.put(1, b"x")
print("there", flush=True)
sys.stdin.read()"""
    other = subprocess.Popen(
        [sys.executable, "-c", code], env=launcher.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, cwd="/", user=OTHER, group=OTHER, extra_groups=[],
    )  # fmt: skip
    assert other.stdin and other.stdout and other.stdout.readline() == "there\n"
    with other:
        yield own_daemon
        other.stdin.close()


def run(daemon: launcher.Running, socket: str, *words: str) -> subprocess.CompletedProcess[str]:
    """tierctl as root, by one socket of this daemon."""
    return launcher.run_tierctl(daemon.directory / socket, *words)


def test_root_sees_other_users_jobs_by_the_admin_socket_alone(others_job: launcher.Running) -> None:
    assert json.loads(run(others_job, "admin.sock", "--json", "job", "show", f"{OTHER}/train").stdout)["uid"] == OTHER
    refused = run(others_job, "control.sock", "--json", "job", "show", f"{OTHER}/train")
    assert refused.returncode == 3 and not refused.stdout, refused
    assert run(others_job, "control.sock", "job", "names").stdout == ""


@pytest.mark.parametrize("words", [["job", "remove", "--force", f"{OTHER}/train"],
                                   ["job", "remove", "--force", "train"],
                                   ["job", "set", "train", "--limit", "4MiB"]])  # fmt: skip
def test_root_changes_no_other_users_job_by_the_control_socket(others_job: launcher.Running, words: list[str]) -> None:
    refused = run(others_job, "control.sock", *words)
    assert refused.returncode == 3 and "no job" in refused.stderr, refused
    done = run(others_job, "admin.sock", *words)
    assert done.returncode == 0, done.stderr


def test_root_drains_the_node_by_the_admin_socket_alone(others_job: launcher.Running) -> None:
    for words in (["drain"], ["undrain"]):
        refused = run(others_job, "control.sock", *words)
        assert refused.returncode == 5 and "only an administrator" in refused.stderr, refused
        done = run(others_job, "admin.sock", *words)
        assert done.returncode == 0, done.stderr


def test_a_process_in_the_group_administers_as_the_kernel_has_its_groups(socket_folder: pathlib.Path) -> None:
    """The user database, which knows no such user, is not asked: it may not answer."""
    if os.geteuid() != 0:
        pytest.skip("needs to be root")
    launcher.need_user(OTHER)
    group = next(each for each in grp.getgrall() if each.gr_gid not in (0, OTHER))
    socket_folder.chmod(0o755)
    sections = {"socket_directory": str(socket_folder), "admin_group": group.gr_name}
    with launcher.disk_folder() as disk:
        settings = {"daemon": {**sections, "data_directory": str(disk)}}
        with launcher.start(socket_folder, settings=settings) as daemon:
            admin = daemon.directory / "admin.sock"
            assert admin.stat().st_gid == group.gr_gid
            for groups, status in (([group.gr_gid], 0), ([], 4)):
                if not groups:
                    admin.chmod(0o666)  # What the daemon decides, and not the socket's mode.
                done = launcher.run_tierctl(admin, "undrain", cwd="/", user=OTHER, group=OTHER, extra_groups=groups)
                assert done.returncode == status, done


def test_root_joins_no_other_users_job_by_the_data_socket(others_job: launcher.Running) -> None:
    with pytest.raises(tierd.NotFound, match="uid 0 has no job 'train' to join"):
        tierd.connect(job="train", mode="join", socket=others_job.socket)
