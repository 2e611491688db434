"""Quotas of users, by real processes of two uids: in the file, by the command, after a reload and after a restart."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import launcher
import pytest

import tierd

control = pytest.importorskip("tierd.control")

GAMES = 5  # "games", with the group of that name (60): every Debian has it.
OTHER = 12345  # A user whom the system does not know.

PUT = """import sys, tierd
try:
    client = tierd.connect(job=sys.argv[2], socket=sys.argv[1], guarantee=sys.argv[4] or None)
    for key in range(int(sys.argv[3])):
        client.put(key, bytes([key]) * (1 << 20))
    bad = [key for key in range(int(sys.argv[3])) if bytes(client.get(key)) != bytes([key]) * (1 << 20)]
    print("wrong" if bad else "ok", flush=True)
except tierd.Error as error:
    print(type(error).__name__, error, flush=True)
sys.stdin.read()"""


@pytest.fixture
def node(socket_folder: pathlib.Path) -> Iterator[launcher.Running]:
    """A daemon for several users, with an arena of 64 MiB."""
    launcher.need_user(GAMES)
    launcher.need_user(OTHER)
    settings = {"quota.default": {"guarantee": "4MiB"}, 'quota.group."games"': {"jobs": 1}}
    with launcher.start(socket_folder, arena="64MiB", tier="256MiB", settings=settings) as running:
        os.chmod(running.directory, 0o755)
        yield running


def trainer(node: launcher.Running, uid: int, job: str, tensors: int, guarantee: str = "") -> subprocess.Popen[str]:
    """A process of that user, which puts so many tensors of 1 MiB and then waits. It prints what came of it."""
    return subprocess.Popen(
        [sys.executable, "-c", PUT, node.socket, job, str(tensors), guarantee], env=launcher.environment(), cwd="/",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, user=uid, group=uid, extra_groups=[],
    )  # fmt: skip


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    with process:
        assert process.stdin
        process.stdin.close()


def admin(
    node: launcher.Running, *words: str, socket: str = "admin.sock", uid: int = 0
) -> subprocess.CompletedProcess[str]:
    return launcher.run_tierctl(node.directory / socket, *words, user=uid, cwd="/")


def uses(node: launcher.Running) -> dict[int, dict[str, dict[str, object]]]:
    answer = admin(node, "--json", "quota")
    assert answer.returncode == 0, answer.stderr
    return {use["uid"]: use for use in json.loads(answer.stdout)["uses"]}


def test_ram_of_a_user_stays_within_the_quota_and_the_other_user_has_the_rest(node: launcher.Running) -> None:
    done = admin(node, "quota", "set", "user", "games", "--ram", "16MiB")
    assert done.returncode == 0 and done.stdout == "set the quota of user games: RAM 16.0 MiB\n", done
    capped, free = trainer(node, GAMES, "a", 40), trainer(node, OTHER, "b", 40)
    assert said(capped) == "ok", "what does not fit is on SSD, and right"
    assert said(free) == "ok"
    now = uses(node)
    assert 0 < int(str(now[GAMES]["ram"]["used"])) <= 16 << 20, now
    assert now[GAMES]["ram"]["origin"] == f"the quota of user {GAMES}, set at run time"
    assert int(str(now[OTHER]["ram"]["used"])) == 40 << 20, now
    assert now[OTHER]["ram"]["limit"] == {"unlimited": True, "most": 0}
    end(capped)
    end(free)


def test_guarantees_and_jobs_beyond_a_quota_are_refused_with_its_name(node: launcher.Running) -> None:
    refused = trainer(node, OTHER, "greedy", 1, "60MiB")
    answer = said(refused)
    end(refused)
    assert answer.startswith("NoMemory") and "the default quota, in the configuration" in answer, answer
    first = trainer(node, GAMES, "one", 1)
    assert said(first) == "ok"
    second = trainer(node, GAMES, "two", 1)
    answer = said(second)
    assert answer.startswith("Denied") and "the quota of group 60, in the configuration" in answer, answer
    end(second)
    assert admin(node, "quota", "set", "group", "games", "--jobs", "2").returncode == 0
    second = trainer(node, GAMES, "two", 1)
    assert said(second) == "ok"
    end(first)
    end(second)


@pytest.mark.parametrize(
    "word, answer",
    [
        ("--ram", f"NoMemory .*user {GAMES} may have 0 bytes of RAM"),
        ("--ssd", f"NoSpace .*user {GAMES} may have 0 bytes on SSD"),
        ("--jobs", "Denied .*the quota of user 5"),
    ],
)
def test_a_quota_of_zero_is_nothing_at_all_and_unlimited_no_bound(
    node: launcher.Running, word: str, answer: str
) -> None:
    assert admin(node, "quota", "set", "user", "games", word, "0").returncode == 0
    refused = trainer(node, GAMES, "a", 1)
    told = said(refused)
    end(refused)
    assert re.match(answer, told), told
    assert admin(node, "quota", "set", "user", "games", word, "unlimited").returncode == 0
    served = trainer(node, GAMES, "b", 1)
    assert said(served) == "ok"
    end(served)


def test_a_number_without_its_unit_sets_nothing(node: launcher.Running) -> None:
    for words in (["quota", "set", "user", "games", "--ram"], ["job", "open", "train", "--limit"],
                  ["job", "open", "train", "--guarantee"]):  # fmt: skip
        refused = admin(node, *words, "64")
        assert refused.returncode == 2, refused
        assert f"{words[-1]} 64 is 64 bytes; write 64GiB, or 64B if bytes are meant" in refused.stderr, refused
    refused = admin(node, "config", "set", "jobs.max_ssd_per_uid", "64")
    assert refused.returncode == 2 and "jobs.max_ssd_per_uid 64 is 64 bytes" in refused.stderr, refused
    assert "user games" not in admin(node, "quota", "list").stdout
    assert not json.loads(admin(node, "--json", "job", "list").stdout)["jobs"]


def test_only_administrators_change_quotas_and_users_see_their_own(node: launcher.Running) -> None:
    for words in (["set", "default", "--ram", "1GiB"], ["clear", "default"]):
        refused = admin(node, "quota", *words, socket="control.sock", uid=OTHER)
        assert refused.returncode == 5 and "only an administrator may" in refused.stderr, refused
        refused = admin(node, "quota", *words, socket="control.sock")
        assert refused.returncode == 5, "root by control.sock is a user like any other"
    own = json.loads(admin(node, "quota", "--json", socket="control.sock", uid=OTHER).stdout)
    assert [use["uid"] for use in own["uses"]] == [OTHER] and own["quotas"] == []
    for words, who in ((["quota", "list"], OTHER), (["--json", "quota", "list"], OTHER), (["quota", "list"], 0)):
        refused = admin(node, *words, socket="control.sock", uid=who)
        assert (refused.returncode, refused.stdout) == (5, ""), refused
        assert "only an administrator may list" in refused.stderr and "'tierctl quota' shows" in refused.stderr, refused
    table = admin(node, "quota", "list").stdout
    assert "group games" in table and "in the configuration" in table, table
    assert admin(node, "quota", "set", "user", "games", "--jobs", "3").returncode == 0
    assert f"user games ({GAMES})" in admin(node, "quota", "list").stdout, "as it was typed"


def test_a_job_that_root_reserves_is_joined_by_its_owner_alone_and_without_a_token(node: launcher.Running) -> None:
    reserve = ["job", "open", "step", "--uid", str(OTHER), "--guarantee", "4MiB"]
    assert admin(node, *reserve, socket="control.sock", uid=GAMES).returncode == 5
    done = admin(node, *reserve)
    assert done.returncode == 0 and f"uid {OTHER}" in done.stdout, done
    stranger = trainer(node, GAMES, "step", 1)
    assert said(stranger) == "ok", "a job of its own"
    end(stranger)
    owner = trainer(node, OTHER, "step", 1)
    assert said(owner) == "ok"
    jobs = json.loads(admin(node, "--json", "job", "list").stdout)["jobs"]
    mine = [job for job in jobs if job["uid"] == OTHER]
    assert len(mine) == 1 and mine[0]["guarantee_bytes"] == 4 << 20 and mine[0]["session_count"] == 1, jobs
    end(owner)


def test_python_reserves_a_job_for_a_user(node: launcher.Running) -> None:
    with control.connect(node.directory / "admin.sock") as admins, control.connect(node.directory) as users:
        with pytest.raises(tierd.Denied, match="only an administrator may"):
            users.open_job("step", uid=OTHER)
        job = admins.open_job("step", uid=OTHER, guarantee="4MiB")
        assert (job.uid, job.guarantee_bytes, job.session_count) == (OTHER, 4 << 20, 0)
        owner = trainer(node, OTHER, "step", 1)
        assert said(owner) == "ok"
        (mine,) = [job for job in admins.list_jobs() if job.uid == OTHER]
        assert (mine.id, mine.session_count) == (job.id, 1)
        end(owner)


def test_python_sets_lists_and_clears_quotas(node: launcher.Running) -> None:
    with control.connect(node.directory / "admin.sock") as admins, control.connect(node.directory) as users:
        for refused in (lambda: users.set_quota(user=OTHER, ram="8MiB"), lambda: users.clear_quota(user=OTHER)):
            with pytest.raises(tierd.Denied, match="only an administrator may"):
                refused()
        admins.set_quota(user=OTHER, ram="8MiB", jobs="unlimited")
        admins.set_quota(group="games", ssd=0)
        process = trainer(node, OTHER, "a", 1)
        assert said(process) == "ok"
        told = admins.quotas()
        assert {
            (quota.level, quota.name, quota.at_run_time, quota.ram, quota.ssd, quota.jobs) for quota in told.quotas
        } == {
            ("default", "", False, None, None, None),
            ("group", "games", False, None, None, 1),
            ("group", str(60), True, None, 0, None),
            ("user", str(OTHER), True, 8 << 20, None, "unlimited"),
        }
        (use,) = [use for use in told.uses if use.uid == OTHER]
        assert (use.ram.most, use.ram.origin) == (8 << 20, f"the quota of user {OTHER}, set at run time")
        assert use.ram.used == 1 << 20 and (use.jobs.used, use.jobs.most) == (1, "unlimited")
        assert users.quotas().quotas == () and [use.uid for use in users.quotas().uses] == [0]
        admins.clear_quota(user=OTHER)
        with pytest.raises(tierd.NotFound):
            admins.clear_quota(user=OTHER)
        with pytest.raises(tierd.NotFound):
            admins.set_quota(user="no-such-user-anywhere", ram=0)
        with pytest.raises(tierd.Invalid, match="above that of RAM"):
            admins.set_quota(user=OTHER, ram="1MiB", guarantee="2MiB")
        (use,) = [use for use in admins.quotas().uses if use.uid == OTHER]
        assert (use.ram.most, use.ram.origin) == ("unlimited", "")
        end(process)


def test_a_reload_takes_over_the_quotas_of_the_file(node: launcher.Running) -> None:
    greedy = trainer(node, OTHER, "b", 40)
    assert said(greedy) == "ok"
    config = node.directory / "tierd.toml"
    config.write_text(config.read_text() + '\n[quota.user.12345]\nram = "8MiB"\n')
    os.kill(node.pid, signal.SIGHUP)
    launcher.wait_for("less RAM", lambda: int(str(uses(node)[OTHER]["ram"]["used"])) <= 8 << 20)
    assert uses(node)[OTHER]["ram"]["origin"] == "the quota of user 12345, in the configuration"
    config.write_text(config.read_text() + "ram = 5\n")
    os.kill(node.pid, signal.SIGHUP)
    with tierd.connect(job="later", socket=node.socket) as client:
        client.put(1, b"x")
    assert uses(node)[OTHER]["ram"]["limit"] == {"unlimited": False, "most": 8 << 20}, "a broken file changes nothing"
    end(greedy)


def test_what_is_set_at_run_time_outlives_the_daemon_and_a_broken_file_stops_it(socket_folder: pathlib.Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs to be root")
    with launcher.disk_folder() as data:
        settings = {"daemon": {"socket_directory": str(socket_folder), "data_directory": str(data)}}
        with launcher.start(socket_folder, arena="32MiB", tier="64MiB", settings=settings) as first:
            assert admin(first, "quota", "set", "user", "root", "--ssd", "8MiB", "--jobs", "unlimited").returncode == 0
        with launcher.start(socket_folder, arena="32MiB", tier="64MiB", settings=settings) as second:
            listed = json.loads(admin(second, "--json", "quota", "list").stdout)["quotas"]
            assert [(quota["name"], quota["ssd"]["most"]) for quota in listed] == [("0", 8 << 20)]
            with tierd.connect(job="a", socket=second.socket) as client:
                client.put(1, bytes(6 << 20))
                with pytest.raises(tierd.NoSpace, match="the quota of user 0, set at run time"):
                    client.put(2, bytes(6 << 20))
        quotas = data / "quotas"
        quotas.write_text(quotas.read_text().replace("ssd=", "ssd=1"))
        with pytest.raises(tierd.Error, match="quotas that were set at run time cannot be read"):
            with launcher.start(socket_folder, arena="32MiB", tier="64MiB", settings=settings):
                pass
