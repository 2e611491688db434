"""A private daemon of one's own: started when none answers, once for all ranks, gone after its last client."""

from __future__ import annotations

import os
import pathlib
import re
import select
import signal
import subprocess
import sys

import launcher
import pytest

import tierd

RANK = """
import sys, tierd
client = tierd.connect(job="ranks", rank=int(sys.argv[1]), world_size=2, token="%s")
client.put("key", b"x")
print("attached", flush=True)
input()
""" % ("a" * 64)


@pytest.fixture
def environment(socket_folder: pathlib.Path) -> dict[str, str]:
    launcher.need_build()
    with launcher.disk_folder() as disk:
        settings = launcher.environment(XDG_RUNTIME_DIR=str(socket_folder), XDG_STATE_HOME=str(disk), HOME=str(disk))
        settings.pop("TIERD_SOCKET", None)
        yield settings


def test_two_ranks_start_one_daemon_that_ends_after_them(
    environment: dict[str, str], socket_folder: pathlib.Path
) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(number)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        for number in range(2)
    ]
    lines = [rank.stdout.readline().strip() for rank in ranks]  # type: ignore[union-attr]
    daemon = None
    try:
        pids = set()
        if lines == ["attached", "attached"]:
            daemon = os.pidfd_open(daemon_pid(socket_folder))
        errors = [rank.communicate("\n", timeout=60)[1] for rank in ranks]
        assert lines == ["attached", "attached"], errors
        pids = set(re.findall(r"started a private one \(pid (\d+)", "".join(errors)))
        assert len(pids) == 1 and "".join(errors).count("started a private one") == 1
        assert daemon is not None
        ended, _, _ = select.select([daemon], [], [], 30)
        assert ended, "the private daemon did not end after its last session"
    finally:
        for rank in ranks:
            rank.kill()
        if daemon is not None:
            os.close(daemon)


def daemon_pid(folder: pathlib.Path) -> int:
    control = pytest.importorskip("tierd.control")
    with control.connect(folder / "tierd") as channel:
        return int(channel.status().pid)


def test_without_autostart_it_is_not_found(environment: dict[str, str]) -> None:
    code = "import tierd\ntry: tierd.connect(autostart=False)\nexcept tierd.NotFound as error: print(error)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "tierd.sock" in done.stdout


def test_a_socket_that_was_named_is_not_replaced_by_a_private_daemon(socket_folder: pathlib.Path) -> None:
    launcher.need_build()
    with pytest.raises(tierd.NotFound, match=str(socket_folder)):
        tierd.connect(socket=socket_folder / "tierd.sock")


def test_a_directory_that_the_environment_names_has_the_sockets(
    socket_folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIERD_SOCKET", str(socket_folder))
    with launcher.start(socket_folder) as daemon, tierd.connect() as client:
        assert client.session.socket == daemon.socket
    with pytest.raises(tierd.Error, match=f"{socket_folder}/tierd.sock"):
        tierd.connect()


def test_a_private_daemon_promises_nothing_beyond_its_life(socket_folder: pathlib.Path) -> None:
    settings = {"daemon": {"private": True, "socket_directory": str(socket_folder)}}
    with launcher.start(socket_folder, settings=settings) as daemon:
        with tierd.connect(job="passing", socket=daemon.socket) as client:
            client.put("key", b"x")
            with pytest.raises(tierd.Denied, match="set daemon.data_directory"):
                client.persist()
        with pytest.raises(tierd.Denied, match="set daemon.data_directory"):
            tierd.connect(job="staying", named=True, socket=daemon.socket)


KEEP = """
import sys, tierd
resources = dict(ssd="256MiB", ram="64MiB", data_directory=sys.argv[2])
with tierd.connect(job="kept", named=True, mode=sys.argv[1], **resources) as client:
    if sys.argv[1] == "resume":
        assert bytes(client.get("key", shared=True)) == b"kept", "another content"
    else:
        client.put("key", b"kept", shared=True)
        client.persist()
"""


def test_a_private_daemon_with_a_data_directory_keeps_a_job_for_the_next_program(
    environment: dict[str, str], socket_folder: pathlib.Path
) -> None:
    """The first daemon is ended between the two programs: the second has only the directory to go by."""
    data = pathlib.Path(environment["HOME"]) / "data"
    for mode in ("create", "resume"):
        done = subprocess.run(
            [sys.executable, "-c", KEEP, mode, str(data)], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "started a private one" in done.stderr
        assert (data / "tier.ssd").stat().st_size == 256 << 20
        (pid,) = re.findall(r"\(pid (\d+)", done.stderr)
        daemon = os.pidfd_open(int(pid))
        try:
            os.kill(int(pid), signal.SIGTERM)
            ended, _, _ = select.select([daemon], [], [], 30)
            assert ended, "the private daemon did not stop"
        finally:
            os.close(daemon)


def test_a_size_that_does_not_fit_is_refused_with_the_argument_to_change(
    environment: dict[str, str], socket_folder: pathlib.Path
) -> None:
    code = "import tierd; tierd.connect(ssd='900TiB')"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "tierd.errors.Invalid: tierd ended with status 78" in done.stderr
    assert "ssd= for ssd.file_size" in done.stderr and "tierd.toml" not in done.stderr


def test_without_a_place_for_a_file_a_private_daemon_serves_from_ram(
    environment: dict[str, str], socket_folder: pathlib.Path
) -> None:
    environment = {**environment, "XDG_STATE_HOME": "/proc"}
    code = "import tierd\nwith tierd.connect() as client:\n client.put('key', b'x')\n print(bytes(client.get('key')))"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "b'x'\n", done.stderr
    assert "no SSD tier, tensors stay in RAM" in done.stderr


SIZED = "import sys, tierd; tierd.connect(ram=sys.argv[1], ssd='256MiB').close()"


def test_a_program_with_another_size_waits_for_the_end_of_the_idle_daemon_before_it(
    environment: dict[str, str],
) -> None:
    def run(ram: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", SIZED, ram], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stderr

    (first,) = re.findall(r"started a private one \(pid (\d+)", run("64MiB"))
    assert run("64MiB") == ""
    told = run("128MiB")
    assert f"(pid {first}) has 64 MiB of RAM" in told and "waiting for its end, 5 s after its last one" in told
    (second,) = re.findall(r"started a private one \(pid (\d+)", told)
    assert second != first and "was started with another" not in told


ASKED_FOR_A_DIRECTORY = """
import sys, tierd
try:
    tierd.connect(job="x", named=True)
except tierd.Denied as error:
    assert "data_directory=" in str(error), error
with tierd.connect(job="x", named=True, data_directory=sys.argv[1]) as client:
    client.put("key", b"x")
    client.persist()
print("persisted")
"""


def test_a_refusal_that_asks_for_a_data_directory_can_be_followed_in_the_same_program(
    environment: dict[str, str],
) -> None:
    """The daemon that was started for the first call ends with its refusal; 5 s after it would be too late."""
    command = [sys.executable, "-W", "error", "-c", ASKED_FOR_A_DIRECTORY, f"{environment['HOME']}/data"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "persisted\n", done.stderr
    (first, second) = re.findall(r"started a private one \(pid (\d+)", done.stderr)
    assert first != second and f"ended the private daemon (pid {first})" in done.stderr
    assert "waiting for its end" not in done.stderr


def test_a_daemon_that_another_client_found_stays_when_it_refuses_its_starter(
    environment: dict[str, str],
) -> None:
    """Between its start and the refusal, as a rank of the same launch may."""
    program = """
import tierd
from tierd import autostart
started, others = autostart.start, []

def start(*arguments):
    daemon = started(*arguments)
    others.append(tierd.connect(socket=daemon.directory))
    return daemon

autostart.start = start
try:
    tierd.connect(job="x", named=True)
except tierd.Denied:
    others[0].put("key", b"x")
    print(others[0].session.connected)
"""
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "True\n" and "ended the private daemon" not in done.stderr, done.stderr


def test_a_daemon_whose_first_client_is_interrupted_ends_and_the_next_one_may_ask_for_another(
    environment: dict[str, str],
) -> None:
    program = """
import tierd
from tierd import autostart, library
functions, started = library.load(), autostart.start
connect = functions.tier_connect

def interrupt(*_):
    functions.tier_connect = connect
    raise KeyboardInterrupt

def start(*arguments):
    daemon = started(*arguments)
    functions.tier_connect, autostart.start = interrupt, started
    return daemon

autostart.start = start
try:
    tierd.connect(ram="64MiB")
except KeyboardInterrupt:
    tierd.connect(ram="128MiB").close()
    print("connected")
"""
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "connected\n", done.stderr
    assert done.stderr.count("started a private one") == 2 and "waiting for its end" not in done.stderr
