"""Sockets with an owner: who connects there is the owner, and no more than that, whatever its uid to the kernel."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

import launcher
import pytest

import tierd

OTHER = 12345  # A user whom the system does not know.
FIRST_UID = 4026531840

# Puts a tensor into a job, and waits. Prints what came of it.
PUT = """import sys, tierd
try:
    client = tierd.connect(job=sys.argv[2], socket=sys.argv[1], mode=(sys.argv[3:] or ["attach"])[0])
    client.put(1, b"of " + sys.argv[2].encode())
    print("ok", bytes(client.get(1)).decode(), flush=True)
except tierd.Error as error:
    print(type(error).__name__, error, flush=True)
sys.stdin.read()"""


@pytest.fixture
def node(socket_folder: pathlib.Path) -> Iterator[launcher.Running]:
    launcher.need_user(OTHER)
    with launcher.start(socket_folder, arena="32MiB", tier="64MiB") as running:
        os.chmod(running.directory, 0o755)
        yield running


def process(socket: str, job: str, *mode: str, uid: int = 0, inside: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*inside, sys.executable, "-c", PUT, socket, job, *mode], env=launcher.environment(), cwd="/",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, user=uid, group=uid, extra_groups=[],
    )  # fmt: skip


def said(one: subprocess.Popen[str]) -> str:
    assert one.stdout
    return one.stdout.readline().strip()


def end(one: subprocess.Popen[str]) -> None:
    with one:
        assert one.stdin
        one.stdin.close()


def ask(socket: object, *words: str, uid: int = 0) -> subprocess.CompletedProcess[str]:
    command = [str(launcher.BUILD / "tools/tierctl/tierctl"), "--socket", str(socket), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, user=uid, cwd="/")


def admin(node: launcher.Running, *words: str) -> subprocess.CompletedProcess[str]:
    return ask(node.directory / "admin.sock", *words)


def open_socket(node: launcher.Running, owner: str) -> dict[str, object]:
    answer = admin(node, "--json", "socket", "open", "--owner", owner)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)  # type: ignore[no-any-return]


def jobs(socket: object) -> dict[str, tuple[int, str]]:
    answer = ask(socket, "--json", "job", "list")
    assert answer.returncode == 0, answer.stderr
    return {job["name"]: (job["uid"], job["owner"]) for job in json.loads(answer.stdout)["jobs"]}


def keeping(folder: pathlib.Path, data: pathlib.Path) -> contextlib.AbstractContextManager[launcher.Running]:
    """A daemon that keeps its data there."""
    settings = {"daemon": {"socket_directory": str(folder), "data_directory": str(data)}}
    return launcher.start(folder, arena="32MiB", tier="64MiB", settings=settings)


def test_root_in_its_socket_is_the_owner_and_not_root(node: launcher.Running) -> None:
    a, b = open_socket(node, "pod-a"), open_socket(node, "pod-b")
    assert (a["uid"], b["uid"], a["open"]) == (FIRST_UID, FIRST_UID + 1, True)
    everyone = [process(f"{a['directory']}/tierd.sock", "of-a"), process(f"{b['directory']}/tierd.sock", "of-b"),
                process(node.socket, "of-root"), process(node.socket, "of-other", uid=OTHER)]  # fmt: skip
    assert [said(one) for one in everyone] == ["ok of of-a", "ok of of-b", "ok of of-root", "ok of of-other"]
    assert jobs(node.directory / "admin.sock") == {
        "of-a": (FIRST_UID, "pod-a"), "of-b": (FIRST_UID + 1, "pod-b"), "of-root": (0, ""), "of-other": (OTHER, ""),
    }  # fmt: skip
    control = pathlib.Path(str(a["directory"])) / "control.sock"
    assert list(jobs(control)) == ["of-a"], "the owner sees its own"
    assert list(jobs(node.directory / "control.sock")) == ["of-root"], "root by the ordinary socket is no owner"
    for words in (["job", "remove", "of-b"], ["job", "remove", f"{FIRST_UID + 1}/of-b"], ["job", "remove", "of-root"]):
        assert ask(control, *words).returncode == 3, words
    for words in (["drain"], ["quota", "set", "default", "--ram", "1GiB"], ["socket", "open", "--owner", "pod-c"],
                  ["socket", "list"], ["job", "open", "x", "--uid", "0"]):  # fmt: skip
        assert ask(control, *words).returncode == 5, words
    refused = process(f"{a['directory']}/tierd.sock", "of-b", "join")
    assert said(refused).startswith("NotFound"), "it joins no job of another owner"
    for one in [*everyone, refused]:
        end(one)


def test_owners_are_shown_by_name_and_have_quotas(node: launcher.Running) -> None:
    socket = open_socket(node, "pod-a")
    assert admin(node, "quota", "set", "user", "pod-a", "--jobs", "1", "--ram", "8MiB").returncode == 0
    first = process(f"{socket['directory']}/tierd.sock", "one")
    assert said(first).startswith("ok")
    second = process(f"{socket['directory']}/tierd.sock", "two")
    answer = said(second)
    assert answer.startswith("Denied") and "the quota of owner pod-a, set at run time" in answer, answer
    unknown = admin(node, "job", "open", "two", "--uid", "no-such-user")
    assert unknown.returncode == 3 and "is called 'no-such-user'" in unknown.stderr, unknown
    for words in (
        ["job", "open", "two", "--uid", str(FIRST_UID)],
        ["job", "open", "two", "--uid", "pod-a"],
        ["job", "set", "pod-a/one", "--guarantee", "9MiB"],
    ):
        refused = admin(node, *words)
        assert refused.returncode == 5 and "the quota of owner pod-a" in refused.stderr, refused
        assert str(FIRST_UID) not in refused.stderr, refused
    assert "pod-a" in admin(node, "job", "list").stdout
    shown = admin(node, "job", "show", "one").stdout
    assert "pod-a" in shown and re.search(rf"^processes +{first.pid}\b", shown, re.M), shown
    for words in (["job", "show"], ["job", "stalls"], ["tensor", "list"], ["drain"]):
        named = admin(node, *words, "pod-a/one")
        assert named.returncode == 0, named.stderr
    assert admin(node, "job", "set", "pod-a/one", "--limit", "4MiB").returncode == 0
    assert "no job 'pod-b/one'" in admin(node, "job", "stalls", "pod-b/one").stderr
    shown = admin(node, "quota").stdout
    assert "pod-a  RAM" in shown, shown
    assert "the quota of owner pod-a, set at run time" in shown and str(FIRST_UID) not in shown, shown
    listed = admin(node, "quota", "list").stdout
    assert "owner pod-a" in listed and str(FIRST_UID) not in listed, listed
    labels = [name for name in launcher.metrics(node) if 'tierd_job="one"' in name]
    assert labels and all(f'uid="{FIRST_UID}"' in name for name in labels), labels
    end(first)
    end(second)
    assert admin(node, "quota", "clear", "user", "pod-a").returncode == 0
    stray = admin(node, "quota", "set", "user", "4294967293", "--ram", "8MiB")
    assert stray.returncode == 3 and "no owner has 4294967293" in stray.stderr, stray
    assert open_socket(node, "pod-b")["uid"] == FIRST_UID + 1


def test_a_job_that_is_called_like_that_of_another_is_never_meant(node: launcher.Running) -> None:
    open_socket(node, "pod-a")
    names = ("1300/train", "root/train", "pod-a/train")
    called_so = [process(node.socket, name, uid=OTHER) for name in names]
    assert [said(one) for one in called_so] == [f"ok of {name}" for name in names]
    for name in names:
        for words in (["job", "set", "--guarantee", "1MiB"], ["job", "remove"], ["job", "remove", "--purge"],
                      ["job", "show"], ["job", "stalls"], ["tensor", "list"], ["drain"]):  # fmt: skip
            refused = admin(node, *words, name)
            assert refused.returncode == 3 and name in refused.stderr, (words, refused)
        own = ask(node.directory / "control.sock", "job", "set", name, "--limit", "8MiB", uid=OTHER)
        assert own.returncode == 0, own.stderr
        assert admin(node, "job", "remove", "--force", f"{OTHER}/{name}").returncode == 0
    for one in called_so:
        end(one)


def test_no_user_of_the_host_reaches_a_socket_that_it_was_not_given(node: launcher.Running) -> None:
    socket = open_socket(node, "pod-a")
    stranger = process(f"{socket['directory']}/tierd.sock", "stolen", uid=OTHER)
    assert said(stranger).startswith(("Denied", "Disconnected"))
    end(stranger)
    assert ask(f"{socket['directory']}/control.sock", "job", "list", uid=OTHER).returncode == 5
    for words in (["open", "--owner", "pod-b"], ["close", "--owner", "pod-a"], ["list"]):
        refused = ask(node.directory / "control.sock", "socket", *words)
        assert refused.returncode == 5 and "only an administrator may" in refused.stderr, refused
    for name in ("..", "../../etc", "a/b", "1001", "", "x" * 64, "root"):
        assert admin(node, "socket", "open", "--owner", name).returncode == 2, name


def test_an_owners_uid_is_no_user(node: launcher.Running) -> None:
    open_socket(node, "pod-a")
    stolen = process(node.socket, "stolen", uid=FIRST_UID)
    answer = said(stolen)
    assert answer.startswith("Denied") and "stand for owners of sockets" in answer, answer
    end(stolen)
    assert ask(node.directory / "control.sock", "job", "list", uid=FIRST_UID).returncode == 4


@pytest.mark.parametrize("uid", [0, OTHER])
def test_a_pod_that_has_the_folder_mounted_read_only_connects_with_any_uid(node: launcher.Running, uid: int) -> None:
    socket = open_socket(node, "pod-a")
    place = node.directory / "mounted"
    place.mkdir(mode=0o755)
    mount = f"mount --bind {socket['directory']} {place} && mount -o remount,bind,ro {place}"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount")
    become = f'exec setpriv --reuid {uid} --regid {uid} --clear-groups -- "$@"'
    pod = process(f"{place}/tierd.sock", "train", inside=("unshare", "-m", "sh", "-c", f"{mount} && {become}", "sh"))
    assert said(pod) == "ok of train"
    assert jobs(node.directory / "admin.sock") == {"train": (FIRST_UID, "pod-a")}
    end(pod)


def test_what_is_connected_goes_on_when_its_socket_is_closed(node: launcher.Running) -> None:
    socket = open_socket(node, "pod-a")
    data = f"{socket['directory']}/tierd.sock"
    with tierd.connect(job="train", socket=data) as client:
        client.put(1, b"before")
        assert admin(node, "socket", "close", "--owner", "pod-a").returncode == 0
        with pytest.raises(tierd.NotFound, match="no such socket"):
            tierd.connect(job="later", socket=data)
        client.put(2, b"after")
        assert bytes(client.get(1)) + bytes(client.get(2)) == b"beforeafter"
        used = admin(node, "socket", "close", "--owner", "pod-a", "--purge")
        assert used.returncode == 5 and "it has 1 job, open or reserved" in used.stderr, used
        assert open_socket(node, "pod-a")["uid"] == FIRST_UID
        tierd.connect(job="again", socket=data).close()
    launcher.wait_for("no job is left", lambda: jobs(node.directory / "admin.sock") == {})
    assert admin(node, "socket", "close", "--owner", "pod-a", "--purge").returncode == 0
    assert "pod-a" not in admin(node, "socket", "list").stdout
    assert open_socket(node, "pod-a")["uid"] == FIRST_UID + 1, "another owner of this name"
    assert admin(node, "socket", "close", "--owner", "absent").returncode == 3


def test_owners_and_their_sockets_outlive_the_daemon_and_a_damaged_file_stops_it(socket_folder: pathlib.Path) -> None:
    launcher.need_user(OTHER)
    with launcher.disk_folder() as data:
        with keeping(socket_folder, data) as first:
            socket = open_socket(first, "pod-a")
            folder = os.stat(str(socket["directory"])).st_ino
            open_socket(first, "pod-b")
            assert admin(first, "socket", "close", "--owner", "pod-b").returncode == 0
            kept = process(f"{socket['directory']}/tierd.sock", "train")
            assert said(kept) == "ok of train"
            end(kept)
            reserve = ["job", "open", "step", "--uid", str(OTHER), "--guarantee", "4MiB"]
            assert admin(first, *reserve).returncode == 0
            assert admin(first, "job", "open", "gone", "--uid", str(OTHER)).returncode == 0
            assert admin(first, "job", "remove", "gone").returncode == 0
        assert not os.path.exists(f"{socket['directory']}/tierd.sock"), "it is stopped in order"
        with keeping(socket_folder, data) as second:
            os.chmod(second.directory, 0o755)
            assert os.stat(str(socket["directory"])).st_ino == folder, "what a pod has mounted"
            listed = json.loads(admin(second, "--json", "socket", "list").stdout)["sockets"]
            assert [(each["owner"], each["uid"], each["open"]) for each in listed] == [
                ("pod-a", FIRST_UID, True), ("pod-b", FIRST_UID + 1, False)]  # fmt: skip
            again = process(f"{socket['directory']}/tierd.sock", "train")
            assert said(again) == "ok of train"
            found = json.loads(admin(second, "--json", "job", "list").stdout)["jobs"]
            shown = {job["name"]: (job["uid"], job["reserved"], job["guarantee_bytes"]) for job in found}
            assert shown == {"train": (FIRST_UID, False, 0), "step": (OTHER, True, 4 << 20)}, shown
            assert "reserved" in admin(second, "job", "list").stdout
            first_run = process(second.socket, "step", uid=OTHER)
            assert said(first_run) == "ok of step"
            found = json.loads(admin(second, "--json", "job", "show", "step").stdout)
            assert (found["reserved"], found["guarantee_bytes"], found["session_count"]) == (False, 4 << 20, 1)
            end(first_run)
            end(again)
        with keeping(socket_folder, data) as third:
            assert jobs(third.directory / "admin.sock") == {}, "its first run has come"
        owners = data / "owners"
        owners.write_text(owners.read_text().replace("pod-b", "pod-c"))
        with pytest.raises(tierd.Error, match="the owners of sockets cannot be read"):
            with keeping(socket_folder, data):
                pass


def test_a_daemon_starts_with_every_reservation_that_it_took_and_with_lines_that_are_none(
    socket_folder: pathlib.Path,
) -> None:
    with launcher.disk_folder() as data:
        file = data / "reservations"
        with keeping(socket_folder, data) as first:
            assert admin(first, "job", "open", "large", "--uid", "0").returncode == 0
            assert admin(first, "job", "set", "0/large", "--limit", str(1 << 61)).returncode == 0
            assert admin(first, "job", "open", "small", "--uid", "0", "--guarantee", "4MiB").returncode == 0
        assert f"limit={1 << 61}" in file.read_text()
        with keeping(socket_folder, data) as second:
            assert set(jobs(second.directory / "admin.sock")) == {"large", "small"}
        damaged = file.read_text().replace("job 0 small", "job 0 sm$ll")
        file.write_text(damaged)
        with keeping(socket_folder, data) as third:
            assert jobs(third.directory / "admin.sock") == {}, "without the checksum no line is what was written"
        assert (data / "reservations.refused").read_text() == damaged


def test_a_reservation_that_cannot_be_opened_stays_until_it_can_or_is_removed(socket_folder: pathlib.Path) -> None:
    with launcher.disk_folder() as data:
        with keeping(socket_folder, data) as first:
            assert admin(first, "job", "open", "train", "--uid", "0", "--guarantee", "4MiB").returncode == 0
            assert admin(first, "quota", "set", "user", "0", "--guarantee", "0").returncode == 0
        for _ in range(2):
            with keeping(socket_folder, data) as refusing:
                assert jobs(refusing.directory / "admin.sock") == {}
                (unopened,) = json.loads(admin(refusing, "--json", "job", "list").stdout)["unopened_reservations"]
                assert (unopened["name"], unopened["uid"], unopened["guarantee_bytes"]) == ("train", 0, 4 << 20)
                assert "quota" in unopened["reason"]
                assert "reserved, and not open" in admin(refusing, "job", "list").stdout
                shown = admin(refusing, "job", "show", "train")
                assert shown.returncode == 3 and "reserved for uid 0, and not open" in shown.stderr, shown
            assert "job 0 train guarantee=4194304" in (data / "reservations").read_text()
        with keeping(socket_folder, data) as able:
            assert admin(able, "quota", "clear", "user", "0").returncode == 0
        with keeping(socket_folder, data) as again:
            shown = json.loads(admin(again, "--json", "job", "show", "0/train").stdout)
            assert (shown["reserved"], shown["guarantee_bytes"]) == (True, 4 << 20)
            assert admin(again, "quota", "set", "user", "0", "--guarantee", "0").returncode == 0
        with keeping(socket_folder, data) as last:
            assert admin(last, "job", "remove", "0/train").returncode == 0
            assert admin(last, "job", "remove", "0/train").returncode == 3
        assert "train" not in (data / "reservations").read_text()


def test_a_lost_file_of_owners_gives_no_number_that_something_names(socket_folder: pathlib.Path) -> None:
    with launcher.disk_folder() as data:
        with keeping(socket_folder, data) as first:
            for owner in ("pod-a", "pod-b", "pod-c"):
                open_socket(first, owner)
            assert admin(first, "quota", "set", "user", "pod-b", "--ram", "8MiB").returncode == 0
            old = os.open(str(open_socket(first, "pod-c")["directory"]), os.O_PATH)
            pathlib.Path(f"/proc/self/fd/{old}/left").write_text("of the pod")
        (data / "owners").unlink()
        with keeping(socket_folder, data) as second:
            assert open_socket(second, "pod-d")["uid"] == FIRST_UID, "nothing names it"
            socket = open_socket(second, "pod-c")
            assert socket["uid"] == FIRST_UID + 2, "pod-b, which has a quota, had the one before"
            assert not os.path.exists(f"/proc/self/fd/{old}/tierd.sock"), "who had pod-c is not the new one"
            assert os.path.exists(f"{socket['directory']}/tierd.sock")
            os.close(old)
            assert admin(second, "socket", "close", "--owner", "pod-c", "--purge").returncode == 0
            assert str(FIRST_UID + 1) in admin(second, "quota", "list").stdout


@pytest.mark.parametrize("named", [[], ["--named"]])
def test_a_run_that_resumes_or_creates_gets_the_terms_of_its_reservation(
    node: launcher.Running, named: list[str]
) -> None:
    reserve = ["job", "open", "train", "--uid", "0", "--guarantee", "4MiB", *named]
    assert admin(node, *reserve).returncode == 0
    again = admin(node, *reserve)
    assert again.returncode == 5 and "uid 0 has a job 'train' already" in again.stderr, again
    with pytest.raises(tierd.NotFound, match="resume_or_create, or attach"):
        tierd.connect(job="train", socket=node.socket, mode="resume")
    for resumed in (False, True):
        with tierd.connect(job="train", socket=node.socket, mode="resume_or_create") as client:
            assert client.session.resumed is resumed
            shown = json.loads(admin(node, "--json", "job", "show", "train").stdout)
            assert (shown["named"], shown["guarantee_bytes"], shown["reserved"]) == (True, 4 << 20, False)
            if not resumed:
                client.put(1, b"step", shared=True)
                client.persist(1, shared=True)
