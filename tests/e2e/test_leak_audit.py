"""The audit that follows every daemon of these tests finds what a client has left, and nothing where it left none."""

from __future__ import annotations

import collections
import contextlib
import socket
from collections.abc import Iterator

import launcher
import leak_audit
import pytest

import tierd


@pytest.fixture
def audited(own_daemon: launcher.Running) -> tuple[launcher.Running, leak_audit.Baseline]:
    return own_daemon, leak_audit.Baseline(own_daemon.pid, lambda: launcher.state_of(own_daemon))


@contextlib.contextmanager
def found(baseline: leak_audit.Baseline, *kinds: str) -> Iterator[None]:
    """Within it each of these is left; afterwards nothing is."""
    launcher.wait_for(f"{kinds} in {baseline.left()}", lambda: all(kind in str(baseline.left()) for kind in kinds))
    yield
    baseline.check()


def test_a_session_with_its_leases_is_found(audited: tuple[launcher.Running, leak_audit.Baseline]) -> None:
    daemon, baseline = audited
    baseline.check()
    client = tierd.connect(job="left", socket=daemon.socket)
    client.put("tensor", bytes(2 << 20))
    lease = client.lease("tensor")
    with found(baseline, "in session_count", "in lease_count", "the job left of uid", 'kind="leases"'):
        lease.release()
        client.close()


def test_a_connection_that_never_becomes_a_session_is_found(
    audited: tuple[launcher.Running, leak_audit.Baseline],
) -> None:
    daemon, baseline = audited
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
        stranger.connect(daemon.socket)
        with found(baseline, "1 more socket"):
            stranger.close()


def test_a_named_job_may_stay(audited: tuple[launcher.Running, leak_audit.Baseline]) -> None:
    daemon, baseline = audited
    with tierd.connect(job="kept", socket=daemon.socket, named=True) as client:
        client.put("tensor", bytes(2 << 20))
        client.persist()
    baseline.check()
    assert launcher.state_of(daemon).jobs, "or there was nothing to find"


def test_what_a_job_has_left_in_the_kernel_is_found() -> None:
    """By kind; a window that the daemon does not know of any more too."""
    fewer = collections.Counter({"socket": 3, "memfd:tierd-window": 2})
    more = fewer + collections.Counter({"socket": 1, "anon_inode:[eventfd]": 5})
    assert leak_audit.more_than(more, fewer, {}) == ["1 more socket", "5 more anon_inode:[eventfd]"]
    assert leak_audit.more_than(more, fewer, {"anon_inode:[eventfd]": 5}) == ["1 more socket"]
    assert leak_audit.more_than(fewer, more, {}) == []


def test_it_says_what_is_left_when_it_gives_up(
    audited: tuple[launcher.Running, leak_audit.Baseline], monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, baseline = audited
    with tierd.connect(job="left", socket=daemon.socket):
        monkeypatch.setattr(leak_audit, "DEADLINE_S", 0.0)
        with pytest.raises(AssertionError, match="left 0 s after the last client's end: .*the job left of uid"):
            baseline.check()
    monkeypatch.undo()
    baseline.check()


def test_the_kernels_figures_are_of_the_process_that_is_asked_for(own_daemon: launcher.Running) -> None:
    kernel = leak_audit.kernel_of(own_daemon.pid)
    assert kernel.threads["tierd-engine"] == 1
    assert kernel.mapped["memfd:tierd-engine"] == 1
    assert kernel.descriptors["anon_inode:[eventfd]"] > 1
    assert kernel.window_bytes == 0
