"""A user without a runtime directory and without a home, as in a container: `tierd` just starts, and the C library,
tierctl and Python find it. What another user put in its place is refused."""

from __future__ import annotations

import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

import launcher
import pytest

# Not the other tests': they make no directory in /tmp.
UID = 51_234
OWN = pathlib.Path(f"/tmp/tierd-{UID}")
FIND = """
import subprocess
import tierd
from tierd import autostart, control, places
from tierd.daemon import Daemon, find_program

settings = {"arena": {"maximum": "64MiB"}, "ssd": {"devices": ["none"]}}
with Daemon(places.user_directory(), settings) as daemon:
    with tierd.connect(autostart=False) as client:
        print(client.session.socket)
    print(control.socket_path(), autostart.is_running())
    print(subprocess.run([find_program("tierctl"), "status"], check=True, capture_output=True, text=True).stdout)
    print(daemon.status)
"""


@pytest.fixture(autouse=True)
def own() -> Iterator[None]:
    launcher.need_build()
    launcher.need_user(UID)
    pytest.importorskip("grpc")
    if OWN.exists():
        pytest.skip(f"needs {OWN} for itself")
    try:
        yield
    finally:
        shutil.rmtree(OWN, ignore_errors=True)


def run_as_user(*command: str, **extra: str) -> subprocess.CompletedProcess[str]:
    known = launcher.environment()
    environment = {**{name: known[name] for name in ("PATH", "PYTHONPATH", "TIERD_BUILD")}, **extra}
    return subprocess.run(
        command, env=environment, cwd="/", user=UID, group=UID, extra_groups=[], capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip


def test_all_clients_find_the_daemon(own: None) -> None:
    found = run_as_user(sys.executable, "-c", FIND)
    assert found.returncode == 0, found.stderr
    lines = found.stdout.splitlines()
    assert lines[0] == f"{OWN}/tierd.sock"  # libtier's own search.
    assert lines[1] == f"{OWN}/control.sock True"
    assert any(line.split() == ["sockets", str(OWN)] for line in lines), found.stdout
    assert f"serving at {OWN}/tierd.sock" in lines[-1] and "metrics at 127.0.0.1:" in lines[-1]
    assert ":9464" not in found.stdout  # The system's daemon's.


PRIVATE = """
import tierd

with tierd.connect(ram="32MiB", ssd="64MiB") as client:
    client.put("key", bytes(1 << 20))
    client.flush()
    print(client.tensor("key").ssd_bytes >> 20, "MiB on SSD")
"""


def test_a_home_of_root_does_not_keep_a_user_from_a_private_daemon(own: None) -> None:
    """Such as that of `games`. The SSD file has no name, so any place serves."""
    named = run_as_user(sys.executable, "-c", PRIVATE, HOME="/usr/games", XDG_STATE_HOME="/usr")
    assert named.returncode == 1 and "cannot make the data directory /usr/tierd" in named.stderr
    assert "$XDG_STATE_HOME/tierd is the place of its SSD file, and ssd=0 makes none" in named.stderr
    served = run_as_user(sys.executable, "-c", PRIVATE, HOME="/usr/games")
    assert served.stdout == "1 MiB on SSD\n", served.stderr
    (pid,) = re.findall(r"started a private one \(pid (\d+)", served.stderr)
    end = os.pidfd_open(int(pid))
    try:
        signal.pidfd_send_signal(end, signal.SIGTERM)
        assert select.select([end], [], [], 30)[0], "the private daemon did not stop"
    finally:
        os.close(end)


def test_no_client_trusts_the_directory_of_another_user(own: None) -> None:
    OWN.mkdir(mode=0o755)
    os.chmod(OWN, 0o777)
    sentence = f"{OWN} belongs to uid 0, and uid {UID} does not use it: have it removed (sudo rm -r {OWN})"
    for code in ("tierd.connect()", "tierd.connect(autostart=False)"):
        refused = run_as_user(sys.executable, "-c", f"import tierd; {code}")
        assert refused.returncode == 1 and sentence in refused.stderr, refused.stderr
        assert "Denied" in refused.stderr.splitlines()[-1]
    daemon = run_as_user(str(launcher.need_build()), "--set", "metrics.listen=")
    assert daemon.returncode == os.EX_CONFIG and sentence in daemon.stderr
    asked = run_as_user(str(launcher.BUILD / "tools/tierctl/tierctl"), "status")
    assert asked.returncode == 5 and sentence in asked.stderr
    assert not any(OWN.iterdir())
