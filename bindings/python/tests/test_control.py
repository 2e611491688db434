"""Which control socket is spoken to, where more than one is there."""

from __future__ import annotations

import pathlib
import socket
from typing import Any

import pytest

import tierd
from tierd import quotas

control = pytest.importorskip("tierd.control")
import grpc  # type: ignore[import-untyped]  # noqa: E402


class Refused(grpc.RpcError):  # type: ignore[misc]
    """A call that gRPC or, with its code beside it, tierd refused."""

    def __init__(self, code: Any, details: str, **trailing: str) -> None:
        self._said = (code, details, tuple((name.replace("_", "-"), value) for name, value in trailing.items()))

    def code(self) -> Any:
        return self._said[0]

    def details(self) -> str:
        return str(self._said[1])

    def trailing_metadata(self) -> Any:
        return self._said[2]


EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
TURNED_AWAY = Refused(EXHAUSTED, "Server Threadpool Exhausted")


class Calls:
    """Calls that fail so, one after the other, and then return; on a clock that only pauses move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *failures: Refused) -> None:
        self.failures = list(failures)
        self.pauses: list[float] = []
        self.left: list[float] = []
        monkeypatch.setattr(control.time, "monotonic", lambda: sum(self.pauses))
        monkeypatch.setattr(control.time, "sleep", self.pauses.append)
        monkeypatch.setattr(control.random, "uniform", lambda low, high: high)

    def __call__(self, left: float) -> str:
        self.left.append(left)
        if self.failures:
            raise self.failures.pop(0)
        return "served"


def test_a_call_that_was_turned_away_is_made_again_until_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch, *[TURNED_AWAY] * 7)
    assert control._repeat_while_crowded(calls, 10) == "served"
    assert calls.pauses == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 0.64])
    assert calls.left[:3] == pytest.approx([10, 9.98, 9.94])
    late = Calls(monkeypatch, *[TURNED_AWAY] * 9)
    with pytest.raises(Refused) as refused:
        control._repeat_while_crowded(late, 0.1)
    assert late.pauses == pytest.approx([0.02, 0.04]), "the next one would end behind it"
    told = control._translated(refused.value, "/run/tierd/admin.sock")
    assert isinstance(told, tierd.Timeout) and "too many calls of this user at once; try again" in str(told)


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        (Refused(EXHAUSTED, "the arena has 1 GiB", tier_code="NO_MEMORY"), tierd.NoMemory),
        (Refused(EXHAUSTED, "no room on SSD", tier_code="NO_SPACE"), tierd.NoSpace),
        (Refused(EXHAUSTED, "Received message larger than max (9 vs. 4)"), tierd.Error),
        (Refused(EXHAUSTED, "Bandwidth exhausted or memory limit exceeded"), tierd.Error),  # It may have run.
        (Refused(grpc.StatusCode.UNAVAILABLE, "gone"), tierd.Disconnected),
    ],
)
def test_what_tierd_refused_is_not_repeated(monkeypatch: pytest.MonkeyPatch, refusal: Refused, kind: type) -> None:
    calls = Calls(monkeypatch, refusal)
    with pytest.raises(Refused) as refused:
        control._repeat_while_crowded(calls, 10)
    assert len(calls.left) == 1 and not calls.pauses
    assert type(control._translated(refused.value, "here")) is kind


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
    monkeypatch.setenv("TIERD_SOCKET", str(tmp_path))
    assert control.socket_path() == str(tmp_path / "control.sock")
    monkeypatch.setenv("TIERD_SOCKET", str(tmp_path / "admin.sock"))
    assert control.socket_path() == str(tmp_path / "admin.sock")


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


def test_a_drain_of_a_job_without_a_name_is_no_drain_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    channel = object.__new__(control.Control)
    monkeypatch.setattr(channel, "_call", lambda *what, **message: asked.append((what[0], message.get("job"))))
    with pytest.raises(tierd.Invalid, match="the name of the job is empty"):
        channel.drain("")
    assert not asked
    channel.drain("train")
    channel.drain()
    channel.undrain()
    assert asked == [("Drain", "train"), ("Drain", ""), ("Undrain", None)]


@pytest.mark.parametrize("token", ["café", "line\n", "0" * 63, "g" * 64])
def test_what_is_no_token_is_refused_before_it_is_sent(token: str) -> None:
    with pytest.raises(tierd.Invalid, match="64 hexadecimal digits"):
        control.connect("/nowhere/control.sock", token=token)


def test_a_number_that_no_field_can_have_is_invalid() -> None:
    with control.connect("/nowhere/control.sock") as channel:
        for call in (lambda: channel.open_job(rank=1 << 40), lambda: channel.watch(since=-1)):
            with pytest.raises(tierd.Invalid):
                call()
        for seconds in (float("nan"), float("inf"), -1.0):
            with pytest.raises(tierd.Invalid):
                channel.drain(timeout=seconds)
