"""Daemon and autostart against a stand-in for the tierd program: readiness, failures, one start for many ranks."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import socket
import stat
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator

import pytest
from fake_library import NOT_FOUND, FakeLibrary

import tierd
from tierd import allocator, autostart, library, places, private_daemons
from tierd.connecting import connect_beside, connect_sized
from tierd.daemon import Daemon, find_program, toml
from tierd.private_daemons import PrivateDaemon

READY = """\
import os, signal, socket, sys, tomllib
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("listening", flush=True)
with open(sys.argv[2], "rb") as config:
    directory = tomllib.load(config).get("daemon", {}).get("socket_directory")
if directory:
    data = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    data.bind(directory + "/tierd.sock")
    data.listen()
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.sendto(b"STATUS=starting", os.environ["NOTIFY_SOCKET"])
notify.sendto(b"READY=1\\nSTATUS=serving", os.environ["NOTIFY_SOCKET"])
signal.sigwait([signal.SIGTERM])
sys.exit(0)
"""


@pytest.fixture
def program(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "tierd-stand-in"
    path.write_text(f"#!{sys.executable}\n{READY}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_daemon_is_not_given_the_allocator_of_what_trains(
    tmp_path: pathlib.Path, program: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.write_text(
        program.read_text().replace(
            '"listening"', '*(os.environ.get(name, "no") for name in ("LD_PRELOAD", "MALLOC_CONF"))'
        )
    )
    for name, value in allocator.prepared({}, "libjemalloc.so.2").items():
        monkeypatch.setenv(name, value)
    with Daemon(tmp_path / "run", {}, program=str(program)) as process:
        assert process.log.read_text() == "no no\n"


def test_a_configuration_survives_toml() -> None:
    settings = {
        "private": True,
        "path": 'a "quoted" \\ path',
        "arena": {"maximum": "64MiB", "numa_node": -1},
        "ssd": {"devices": ["one", "two"], "share": 0.5},
    }
    assert tomllib.loads(toml(settings)) == settings


@pytest.mark.parametrize("uid", [0, 4321])
def test_a_private_daemon_leaves_the_systems_directory_alone(monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert autostart.socket_directory() != places.SYSTEM
    assert autostart.socket_directory() == places.directories()[0]


def test_a_daemon_is_there_when_it_said_ready_and_gone_when_stopped(
    tmp_path: pathlib.Path, program: pathlib.Path
) -> None:
    with Daemon(tmp_path / "d", {"private": True}, program=str(program)) as daemon:
        assert daemon.process.poll() is None
        assert daemon.log_tail() == "listening"
        assert tomllib.loads((tmp_path / "d" / "tierd.toml").read_text()) == {"private": True}
    assert daemon.process.returncode == 0


def test_a_daemon_that_ends_instead_is_reported_with_its_words(tmp_path: pathlib.Path, program: pathlib.Path) -> None:
    program.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('arena.maximum is larger than the memory')\n")
    with pytest.raises(tierd.Disconnected, match=r"status 1 .*arena.maximum is larger"):
        Daemon(tmp_path / "d", {}, program=str(program))


def test_a_refused_configuration_is_invalid_and_not_worth_another_try(
    runtime: pathlib.Path, program: pathlib.Path
) -> None:
    words = "arena.maximum of 1 TiB is larger than the memory"
    program.write_text(f"#!{sys.executable}\nimport sys\nprint({words!r}, file=sys.stderr)\nsys.exit(78)\n")
    with pytest.raises(tierd.Invalid, match=f"status 78 .*{words}; for a private daemon, tierd.connect takes ram="):
        autostart.connect_or_start(library.ConnectOptions(), lambda: None)


def test_the_words_of_an_earlier_daemon_in_the_directory_are_not_reported(
    tmp_path: pathlib.Path, program: pathlib.Path
) -> None:
    with Daemon(tmp_path / "d", {}, program=str(program)):
        pass
    program.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('arena.maximum is larger than the memory')\n")
    with pytest.raises(tierd.Disconnected, match="ready: arena.maximum is larger than the memory$"):
        Daemon(tmp_path / "d", {}, program=str(program))


def test_a_daemon_that_does_not_stop_is_killed(tmp_path: pathlib.Path, program: pathlib.Path) -> None:
    program.write_text(program.read_text().replace("sigwait([signal.SIGTERM])", "sigwait([signal.SIGUSR1])"))
    daemon = Daemon(tmp_path / "d", {}, program=str(program))
    assert daemon.stop(timeout=0.05) == -9


def test_programs_are_found_by_name_tree_and_path(monkeypatch: pytest.MonkeyPatch, program: pathlib.Path) -> None:
    monkeypatch.setenv("TIERD_BINARY", str(program))
    assert find_program() == str(program)
    monkeypatch.delenv("TIERD_BINARY")
    monkeypatch.delenv("TIERD_BUILD", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(tierd.NotFound, match="TIERD_BINARY"):
        find_program()
    monkeypatch.setenv("PATH", str(program.parent))
    assert find_program(program.name) == str(program)


@pytest.fixture
def runtime(tmp_path: pathlib.Path, program: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TIERD_BINARY", str(program))
    return tmp_path / "tierd"


def test_ranks_that_come_at_once_start_one_daemon(
    runtime: pathlib.Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Daemon] = []
    monkeypatch.setattr(autostart, "_started", started)
    connected: list[int] = []

    def attempt() -> None:
        if not autostart.answers(runtime / "tierd.sock"):
            raise tierd.NotFound("nobody there")
        connected.append(5)

    def rank() -> None:
        autostart.connect_or_start(library.ConnectOptions(), attempt)

    threads = [threading.Thread(target=rank) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert connected == [5] * 4 and len(started) == 1
    assert capfd.readouterr().err.count("started a private one") == 1
    settings = tomllib.loads((runtime / "tierd.toml").read_text())["daemon"]
    assert settings["private"] is True and settings["starter_pid"] == os.getpid()
    started[0].stop()


def test_what_a_private_daemon_may_take_is_in_its_configuration(tmp_path: pathlib.Path) -> None:
    def settings(ssd: int | str | None, ram: int | str | None, data: pathlib.Path | None) -> dict[str, object]:
        found = autostart.private_settings(tmp_path, autostart.Resources.of(ssd, ram, data))
        assert tomllib.loads(toml(found)) == found
        return found

    own = {"private": True, "starter_pid": os.getpid(), "socket_directory": str(tmp_path)}
    assert settings(None, None, None) == {"daemon": own}
    assert settings("64GiB", 1 << 30, tmp_path / "data") == {
        "daemon": {**own, "data_directory": str(tmp_path / "data")},
        "arena": {"maximum": 1 << 30},
        "ssd": {"file_size": 64 << 30},
    }
    assert settings(0, "1.5GiB", None) == {
        "daemon": own,
        "arena": {"maximum": 3 << 29},
        "ssd": {"devices": ["none"]},
    }
    relative = autostart.Resources.of(None, None, "data")
    assert relative.data_directory == os.path.abspath("data")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"ssd": "64 Gigs"}, 'ssd is "64 Gigs"'),
        ({"ssd": -1}, "ssd is -1 bytes"),
        ({"ram": True}, "ram is True"),
        ({"ram": "0"}, "ram is 0"),
        ({"data_directory": ""}, "data_directory is ''"),
        ({"data_directory": "a\0b"}, "data_directory is"),
        ({"data_directory": 5}, "data_directory is 5"),
        ({"ssd": "1GiB", "socket": "/run/x/tierd.sock"}, "are for a private daemon"),
        ({"ram": "1GiB", "autostart": False}, "are for a private daemon"),
    ],
)
def test_a_wrong_resource_is_refused_before_anything_starts(
    refusing: list[int], arguments: dict[str, object], sentence: str
) -> None:
    with pytest.raises(tierd.Invalid, match=sentence):
        tierd.connect(**arguments)  # type: ignore[arg-type]
    assert not refusing


def test_connect_starts_the_daemon_with_what_it_was_given(
    runtime: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Daemon] = []
    monkeypatch.setattr(autostart, "_started", started)
    resources = autostart.Resources.of("2GiB", "256MiB", runtime / "data")
    autostart.connect_or_start(library.ConnectOptions(), lambda: None, resources)
    started[0].stop()
    settings = tomllib.loads((runtime / "tierd.toml").read_text())
    assert settings["ssd"] == {"file_size": 2 << 30} and settings["arena"] == {"maximum": 256 << 20}
    assert settings["daemon"]["data_directory"] == str(runtime / "data")


@pytest.mark.parametrize(("ssd", "told"), [("1GiB", 0), ("2GiB", 1), (None, 0)])
def test_resources_that_a_running_private_daemon_does_not_have_are_reported(
    runtime: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    ssd: str | None,
    told: int,
) -> None:
    started: list[Daemon] = []
    monkeypatch.setattr(autostart, "_started", started)
    first = autostart.Resources.of("1GiB", None, None)
    autostart.connect_or_start(library.ConnectOptions(), lambda: None, first)
    monkeypatch.setattr(library, "load", FakeLibrary)
    monkeypatch.delenv("TIERD_SOCKET", raising=False)
    tierd.connect(ssd=ssd).close()
    monkeypatch.setattr(autostart, "default_sockets", list)  # As for a rank that finds it under the lock only.
    autostart.connect_or_start(library.ConnectOptions(), lambda: None, autostart.Resources.of(ssd, None, None))
    started[0].stop()
    assert len(started) == 1
    assert capfd.readouterr().err.count("was started with another ssd, ram or data_directory") == 2 * told


@pytest.mark.parametrize(("sessions", "starts"), [(0, 2), (1, 1)])
def test_a_private_daemon_of_other_resources_is_waited_for_where_it_is_about_to_end(
    runtime: pathlib.Path,
    started: list[Daemon],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    sessions: int,
    starts: int,
) -> None:
    autostart.connect_or_start(library.ConnectOptions(), lambda: None, autostart.Resources.of("1GiB", "256MiB", None))
    first = started[0]
    found = PrivateDaemon(runtime, first.process.pid, sessions, 256 << 20, 1 << 30)
    monkeypatch.setattr(private_daemons, "found_in", lambda directory: found)

    def end(pid: int) -> None:
        assert pid == found.pid and first.stop() == 0
        (runtime / "tierd.sock").unlink()

    monkeypatch.setattr(private_daemons, "wait_for_end", end)

    def attempt() -> None:
        if not autostart.answers(runtime / "tierd.sock"):
            raise tierd.NotFound("nobody there")

    pid, room = f"(pid {found.pid}", "256 MiB of RAM and 1 GiB of SSD space"
    for ssd in ("1GiB", None):
        autostart.connect(library.ConnectOptions(), attempt, autostart.Resources.of(ssd, None, None))
        assert first.process.poll() is None and room not in capfd.readouterr().err, "nothing else was asked for"
    autostart.connect(library.ConnectOptions(), attempt, autostart.Resources.of("2GiB", None, None))
    told = capfd.readouterr().err
    assert len(list((runtime / "tierd.log").read_text().splitlines())) == starts
    assert pid in told and room in told and "5 s after its last" in told and "ssd=2 GiB" in told
    assert ("waiting for its end" in told) == (starts == 2)


def test_the_holder_of_a_directorys_lock_is_waited_for(tmp_path: pathlib.Path) -> None:
    assert private_daemons.holder_of(tmp_path) is None
    holds = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); input()"
    command = [sys.executable, "-c", holds, str(tmp_path / "tierd.lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        assert private_daemons.holder_of(tmp_path) == process.pid
        assert not private_daemons.wait_for_end(process.pid, 0.01)
        process.communicate(b"\n")
        assert private_daemons.wait_for_end(process.pid)
    assert private_daemons.holder_of(tmp_path) is None


@pytest.mark.parametrize(("ram", "told"), [(None, 0), ("256MiB", 0), ("512MiB", 1)])
def test_resources_that_were_computed_are_not_reported(
    runtime: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    ram: str | None,
    told: int,
) -> None:
    started: list[Daemon] = []
    monkeypatch.setattr(autostart, "_started", started)
    monkeypatch.setattr(library, "load", FakeLibrary)
    monkeypatch.delenv("TIERD_SOCKET", raising=False)
    first = autostart.Resources(ssd=1 << 30, ram=256 << 20, computed=frozenset({"ssd"}))
    autostart.connect_or_start(library.ConnectOptions(), lambda: None, first)
    assert tomllib.loads((runtime / "tierd.toml").read_text())["ssd"] == {"file_size": 1 << 30}
    other = autostart.Resources.of("2GiB", ram or "1GiB", None)
    computed = frozenset({"ssd"} if ram else {"ssd", "ram"})
    connect_sized(dataclasses.replace(other, computed=computed)).close()
    started[0].stop()
    assert capfd.readouterr().err.count("was started with another ssd, ram or data_directory") == told


@pytest.fixture
def started(runtime: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Daemon]]:
    """The private daemons of a test, stopped at its end. Clients of them are those of the fake library."""
    monkeypatch.setattr(library, "load", FakeLibrary)
    monkeypatch.delenv("TIERD_SOCKET", raising=False)
    started: list[Daemon] = []
    monkeypatch.setattr(autostart, "_started", started)
    yield started
    for daemon in started:
        daemon.stop()


def test_beside_a_daemon_without_room_one_is_started_and_then_found(
    runtime: pathlib.Path, started: list[Daemon], capfd: pytest.CaptureFixture[str]
) -> None:
    smaller = autostart.Resources.of("1GiB", None, None)
    autostart.connect_or_start(library.ConnectOptions(), lambda: None, smaller)
    asked: list[tierd.Client] = []

    def has_room(client: tierd.Client, answer: bool) -> bool:
        asked.append(client)
        return answer

    larger = autostart.Resources.of("4GiB", None, None)
    for answer, count in ((True, 2), (True, 2), (False, 3)):
        client = connect_beside(larger, functools.partial(has_room, answer=answer))
        assert client is not None and not client.closed and len(started) == count
        client.close()
    assert len(asked) == 2 and all(client.closed for client in asked)
    assert [daemon.directory for daemon in started] == [runtime, runtime / "2", runtime / "3"]
    assert tomllib.loads((runtime / "2/tierd.toml").read_text())["ssd"] == {"file_size": 4 << 30}
    assert tomllib.loads((runtime / "tierd.toml").read_text())["ssd"] == {"file_size": 1 << 30}
    assert capfd.readouterr().err.count("no room; started another one") == 2


def test_private_daemons_of_a_user_are_bounded(
    runtime: pathlib.Path, started: list[Daemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autostart, "_FURTHER_MAX", 1)
    for there in (True, False):
        assert (connect_beside(autostart.Resources(), lambda client: False) is not None) == there
    assert len(started) == 1


def test_a_refused_start_names_the_arguments_of_connect(runtime: pathlib.Path, program: pathlib.Path) -> None:
    words = "an SSD file of 1 TiB does not fit: lower ssd.file_size, or set daemon.data_directory"
    program.write_text(f"#!{sys.executable}\nimport sys\nsys.exit({words!r})\n")
    with pytest.raises(
        tierd.Disconnected,
        match="ssd= for ssd.file_size and data_directory= for daemon.data.*XDG_STATE_HOME.*ssd=0 makes none",
    ) as refused:
        autostart.connect_or_start(library.ConnectOptions(), lambda: None)
    assert refused.value.__suppress_context__


def test_a_daemon_without_an_ssd_tier_says_so_at_the_start(
    runtime: pathlib.Path, program: pathlib.Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Daemon] = []
    monkeypatch.setattr(autostart, "_started", started)
    status = "STATUS=serving at x; io_uring; no SSD tier, tensors stay in RAM: the disk is full"
    program.write_text(program.read_text().replace("STATUS=serving", status))
    autostart.connect_or_start(library.ConnectOptions(), lambda: None)
    started[0].stop()
    told = capfd.readouterr().err
    assert "no SSD tier, tensors stay in RAM: the disk is full (tierd.connect takes ssd= and data_directory=)" in told
    assert "serving at x" not in told


def test_a_daemon_that_was_to_have_no_ssd_tier_does_not_complain(
    runtime: pathlib.Path, program: pathlib.Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Daemon] = []
    monkeypatch.setattr(autostart, "_started", started)
    program.write_text(program.read_text().replace("STATUS=serving", "STATUS=x; no SSD tier, tensors stay in RAM"))
    autostart.connect_or_start(library.ConnectOptions(), lambda: None, autostart.Resources.of(0, None, None))
    started[0].stop()
    assert "no SSD tier" not in capfd.readouterr().err


@pytest.mark.parametrize("mode", ["resume", "resume_or_create"])
@pytest.mark.parametrize(("keeps", "attempts"), [(True, 1), (False, 0)])
def test_resume_starts_a_daemon_only_where_one_keeps_tensors(
    runtime: pathlib.Path, monkeypatch: pytest.MonkeyPatch, keeps: bool, attempts: int, mode: str
) -> None:
    starts: list[autostart.Resources] = []

    class Absent(FakeLibrary):
        def tier_connect(self, options: object, handle: object) -> int:
            self._error = b"nobody there"
            return NOT_FOUND

    def start(options: object, attempt: object, resources: autostart.Resources) -> None:
        starts.append(resources)
        raise tierd.NotFound("started")

    monkeypatch.setattr(library, "load", Absent)
    monkeypatch.setattr(autostart, "connect_or_start", start)
    with pytest.raises(tierd.NotFound):
        tierd.connect(job="x", named=True, mode=mode, data_directory=runtime if keeps else None)
    assert len(starts) == attempts


def test_a_daemon_that_has_ended_is_reaped_at_the_next_start(
    runtime: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Daemon] = []
    monkeypatch.setattr(autostart, "_started", started)
    for _ in range(2):
        autostart.connect_or_start(library.ConnectOptions(), lambda: None)
        process = started[-1].process
        process.terminate()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # It has ended, and nobody has taken note.
        (runtime / "tierd.sock").unlink()
    assert [daemon.process for daemon in started] == [process]
    process.wait()


@pytest.fixture
def refusing(runtime: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A library whose daemon knows no such job; the attempts made. Starting a daemon fails the test."""
    attempts: list[int] = []

    class Refusing(FakeLibrary):
        def tier_connect(self, options: object, handle: object) -> int:
            attempts.append(1)
            self._error = b"no job named x"
            return NOT_FOUND

    monkeypatch.setattr(library, "load", Refusing)
    monkeypatch.setattr(autostart, "Daemon", lambda *_, **__: pytest.fail("started a private daemon"))
    return attempts


@pytest.mark.parametrize("mode", ["join", "resume"])
def test_a_mode_that_wants_a_job_that_is_there_starts_no_daemon(refusing: list[int], mode: str) -> None:
    with pytest.raises(tierd.NotFound, match="no job named x"):
        tierd.connect(job="x", mode=mode)
    assert len(refusing) == 1


def test_the_refusal_of_a_running_daemon_is_the_answer(runtime: pathlib.Path, refusing: list[int]) -> None:
    runtime.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as running:
        running.bind(str(runtime / "tierd.sock"))
        running.listen()
        with pytest.raises(tierd.NotFound, match="no job named x"):
            tierd.connect(job="x")


def test_the_socket_of_a_crashed_daemon_is_no_running_one(runtime: pathlib.Path) -> None:
    runtime.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as crashed:
        crashed.bind(str(runtime / "tierd.sock"))
    assert not autostart.answers(runtime / "tierd.sock")
    assert not autostart.answers(runtime / "nobody.sock")


def test_a_directory_of_another_user_is_not_used(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: gives a directory to another user")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "tierd").mkdir()
    os.chown(tmp_path / "tierd", 65534, 65534)
    with pytest.raises(tierd.Denied, match="65534"):
        autostart.connect_or_start(library.ConnectOptions(), lambda: None)


def test_importing_the_package_loads_neither_numpy_nor_torch_nor_grpc() -> None:
    code = "import sys, tierd; print([name for name in ('numpy', 'torch', 'grpc') if name in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(tierd.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "[]"
