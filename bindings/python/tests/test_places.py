"""Where sockets are looked for, and which directories are not trusted: the rule of proto/socket_places.h in Python."""

from __future__ import annotations

import os
import pathlib
import re
import socket
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from fake_library import NOT_FOUND, FakeLibrary

import tierd
from tierd import autostart, connecting, control, library, places

HEADER = pathlib.Path(__file__).resolve().parents[3] / "proto/socket_places.cc"


@pytest.fixture
def own(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A user's own directory that is a test's: it is there, and of this user alone."""
    directory = tmp_path / "own"
    directory.mkdir(mode=0o700)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.delenv("TIERD_SOCKET", raising=False)
    monkeypatch.setattr(places, "user_directory", lambda: directory)
    monkeypatch.setattr(places, "SYSTEM", tmp_path / "system")
    return directory


def listen(path: pathlib.Path, kind: int) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, kind)
    listening.bind(str(path))
    listening.listen()
    return listening


@pytest.mark.parametrize("uid", [0, 4321])
def test_the_order_is_that_of_the_c_library(monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    text = HEADER.read_text()
    (of_root, of_others) = re.findall(r'uid == 0 \? "([^"]+)" : "([^"]+)"', text)[0]
    expected = pathlib.Path(of_root if uid == 0 else f"{of_others}{uid}")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    assert places.directories() == [expected, pathlib.Path("/run/tierd")]
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/4321")
    assert places.directories() == [pathlib.Path("/run/user/4321/tierd"), expected, pathlib.Path("/run/tierd")]


def test_the_own_directory_does_not_depend_on_tmpdir(monkeypatch: pytest.MonkeyPatch) -> None:
    """The C library and tierctl look into /tmp, whatever a batch system says."""
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    monkeypatch.setenv("TMPDIR", "/scratch")
    assert places.user_directory() == pathlib.Path("/tmp/tierd-4321")


def test_a_directory_of_this_user_alone_is_trusted(own: pathlib.Path) -> None:
    assert places.refusal(own) is None
    assert places.refusal(own.parent) is None, "only the own directory is asked about"
    with listen(own / "tierd.sock", socket.SOCK_SEQPACKET), listen(own / "control.sock", socket.SOCK_STREAM):
        assert autostart.is_running()
        assert control.socket_path() == str(own / "control.sock")


def squat_by_mode(own: pathlib.Path) -> str:
    own.chmod(0o755)
    return rf"open to other users \(mode 755\): chmod 700 {own}"


def squat_by_owner(own: pathlib.Path) -> str:
    if os.geteuid() != 0:
        pytest.skip("needs root: gives a directory to another user")
    os.chown(own, 65534, 65534)
    return rf"belongs to uid 65534, .*sudo rm -r {own}.*XDG_RUNTIME_DIR"


def squat_by_link(own: pathlib.Path) -> str:
    own.rename(own.with_name("elsewhere"))
    own.symlink_to(own.with_name("elsewhere"))
    return "is no directory and belongs to uid"


@pytest.mark.parametrize("squat", [squat_by_mode, squat_by_owner, squat_by_link])
def test_a_directory_that_others_may_have_filled_is_refused(
    own: pathlib.Path, squat: Callable[[pathlib.Path], str]
) -> None:
    with listen(own / "tierd.sock", socket.SOCK_SEQPACKET), listen(own / "control.sock", socket.SOCK_STREAM):
        sentence = squat(own)
        assert not autostart.is_running()
        with pytest.raises(tierd.Disconnected, match=sentence):
            control.socket_path()
        with pytest.raises(tierd.Denied, match=f"no private daemon can be started: .*{sentence}"):
            autostart.connect_or_start(library.ConnectOptions(), lambda: None)


def test_where_a_file_is_in_the_way_the_refusal_says_so(own: pathlib.Path) -> None:
    own.rmdir()
    own.write_text("x")
    with pytest.raises(tierd.Denied, match="File exists.*set XDG_RUNTIME_DIR"):
        autostart.connect_or_start(library.ConnectOptions(), lambda: None)


def test_a_failed_start_is_one_error(own: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the second of two, after one which says that no daemon was there before."""

    class Absent(FakeLibrary):
        def tier_connect(self, options: object, handle: object) -> int:
            self._error = b"no tierd daemon could be reached"
            return NOT_FOUND

    monkeypatch.setattr(library, "load", Absent)
    monkeypatch.setenv("TIERD_BINARY", "/bin/false")
    with pytest.raises(tierd.Disconnected, match="ended with status 1") as failure:
        tierd.connect(job="x")
    told = "".join(traceback.format_exception(failure.value))
    assert told.count("Traceback") == 1 and "could be reached" not in told


def test_the_directory_of_the_sockets_may_be_named_for_the_data_socket(
    own: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes | None] = []

    class Absent(FakeLibrary):
        def tier_connect(self, options: Any, handle: object) -> int:
            asked.append(options._obj.socket)
            self._error = b"no tierd daemon could be reached"
            return NOT_FOUND

    monkeypatch.setattr(library, "load", Absent)
    expected = os.fsencode(own / "tierd.sock")
    for named in (own, own / "tierd.sock"):
        monkeypatch.delenv("TIERD_SOCKET", raising=False)
        with pytest.raises(tierd.NotFound):
            tierd.connect(socket=named)
        monkeypatch.setenv("TIERD_SOCKET", str(named))
        with pytest.raises(tierd.NotFound):
            tierd.connect()
        with pytest.raises(tierd.NotFound):
            connecting.connect_sized(autostart.Resources())
    assert asked == [expected] * 6
