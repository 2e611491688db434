"""Which control socket is spoken to, where more than one is there."""

from __future__ import annotations

import pathlib
import socket

import pytest

import tierd
from tierd import quotas

control = pytest.importorskip("tierd.control")


def leave_behind(path: pathlib.Path) -> None:
    """A socket as a crashed daemon leaves it: nobody listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as crashed:
        crashed.bind(str(path))


def test_a_socket_that_nobody_listens_at_hides_no_other(tmp_path: pathlib.Path) -> None:
    stale, missing, running = (tmp_path / name for name in ("stale", "missing", "running"))
    leave_behind(stale)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon:
        daemon.bind(str(running))
        daemon.listen()
        assert control._first_listening([str(stale), str(missing), str(running)]) == str(running)


def test_the_source_of_the_messages_lies_where_protoc_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "package tier.v1;" in (control.proto_folder() / "tier/v1/control.proto").read_text()
    monkeypatch.setattr(control, "PACKAGE", pathlib.Path("/nowhere/at/all/tierd"))
    with pytest.raises(tierd.NotFound, match="control.proto is missing"):
        control.proto_folder()


def test_where_no_daemon_listens_every_place_is_named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tierd").mkdir()
    leave_behind(tmp_path / "tierd" / "control.sock")
    with pytest.raises(tierd.Disconnected) as failure:
        control._first_listening([str(tmp_path / "tierd" / "control.sock"), str(tmp_path / "missing")])
    assert "control.sock: Connection refused" in str(failure.value)
    assert "missing: No such file" in str(failure.value)


def test_a_socket_that_was_named_is_taken_as_it_is(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert control.socket_path(tmp_path) == str(tmp_path / "control.sock")
    assert control.socket_path(tmp_path / "other.sock") == str(tmp_path / "other.sock")
    assert control.socket_path(tmp_path / "tierd.sock") == str(tmp_path / "control.sock")
    monkeypatch.setenv("TIERD_SOCKET", str(tmp_path / "tierd.sock"))
    assert control.socket_path() == str(tmp_path / "control.sock")


def test_a_quota_is_for_a_user_or_a_group_or_by_default() -> None:
    assert quotas.target("alice", None) == {"level": "QUOTA_LEVEL_USER", "name": "alice"}
    assert quotas.target(0, None) == {"level": "QUOTA_LEVEL_USER", "name": "0"}
    assert quotas.target(None, 100) == {"level": "QUOTA_LEVEL_GROUP", "name": "100"}
    assert quotas.target(None, None) == {"level": "QUOTA_LEVEL_DEFAULT", "name": ""}
    with pytest.raises(tierd.Invalid, match="user 'alice' or for group 'phd', not for both"):
        quotas.target("alice", "phd")


def test_limits_of_a_quota_are_sizes_counts_or_unlimited() -> None:
    assert quotas.limits("1GiB", 0, None, "unlimited") == {
        "ram": {"most": 1 << 30},
        "ssd": {"most": 0},
        "jobs": {"unlimited": True},
    }
    assert quotas.limits(None, None, "unlimited", 0) == {"guarantee": {"unlimited": True}, "jobs": {"most": 0}}
    with pytest.raises(tierd.Invalid, match="nothing to change: give one of ram, ssd, guarantee, jobs"):
        quotas.limits(None, None, None, None)
    for wrong in (-1, True, 1.5, "8"):
        with pytest.raises(tierd.Invalid, match="jobs is .*: write a number of jobs, 0 for none"):
            quotas.limits(None, None, None, wrong)  # type: ignore[arg-type]
    with pytest.raises(tierd.Invalid, match='ram is "much"'):
        quotas.limits("much", None, None, None)


@pytest.mark.parametrize("uid", [-1, 4294967295, "alice", True])
def test_a_job_is_reserved_for_the_number_of_a_user(uid: object, tmp_path: pathlib.Path) -> None:
    try:
        channel = control.connect(tmp_path)
    except tierd.NotFound as missing:
        pytest.skip(f"needs a build: {missing}")
    with channel, pytest.raises(tierd.Invalid, match="the number of a user lies between 0 and 4294967294"):
        channel.open_job("reserved", uid=uid)
