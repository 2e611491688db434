"""The systemd units as systemd itself reads them, and the reason that every line of them must have."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNITS = ROOT / "deploy/systemd"
NAMES = ("tierd.service", "tierd.socket", "tierd-smart.service", "tierd-smart.timer")
# In tenths: 100 is an unhardened unit, 15 what this one reached on 2026-11-21.
EXPOSURE_MAX = 20

pytestmark = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze: Debian's systemd"
)


@pytest.fixture
def units(tmp_path: pathlib.Path) -> pathlib.Path:
    """The units with a program that exists: `verify` looks for it."""
    for name in NAMES:
        text = (UNITS / name).read_text()
        (tmp_path / name).write_text(re.sub(r"/usr/s?bin/tierd(-smart)?\b", "/bin/true", text))
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_systemd_reads_the_unit_without_a_word(units: pathlib.Path, name: str) -> None:
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(units / name)], capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stderr) == (0, "")


def test_a_mistyped_unit_is_not_read_without_a_word(units: pathlib.Path) -> None:
    """`verify` says 0 to a wrong value; only its stderr tells: why the test above looks there."""
    unit = units / "tierd.service"
    unit.write_text(unit.read_text().replace("WatchdogSec=30s", "WatchdogSec=thirty"))
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert "Failed to parse" in found.stderr


def test_the_drop_in_for_rarer_restarts_is_read_where_systemd_knows_it(units: pathlib.Path) -> None:
    """Before 254 systemd must do no more than warn: that is why the package ships it as an example."""
    drop_ins = units / "tierd.service.d"
    drop_ins.mkdir()
    shutil.copy(UNITS / "restart-steps.conf", drop_ins)
    named = re.search(r"systemd (\d+)", subprocess.check_output(["systemd-analyze", "--version"], text=True))
    assert named is not None
    version = int(named[1])
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(units / "tierd.service")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    told = found.stderr.splitlines()
    if version >= 254:
        assert not told
    else:
        assert len(told) == 2 and all("Unknown key" in line and "ignoring" in line for line in told), told


@pytest.mark.parametrize(("name", "exposure"), [("tierd.service", EXPOSURE_MAX), ("tierd-smart.service", 30)])
def test_the_service_is_hardened(name: str, exposure: int) -> None:
    found = subprocess.run(
        [
            "systemd-analyze",
            "security",
            "--offline=yes",
            f"--threshold={exposure}",
            "--json=short",
            str(UNITS / name),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    weak = [row["name"] for row in json.loads(found.stdout) if float(row.get("exposure") or 0) >= 0.3]
    assert found.returncode == 0, f"above {exposure}: {weak}"


@pytest.mark.parametrize("name", NAMES)
def test_every_line_of_a_unit_stands_under_a_reason(name: str) -> None:
    self_explaining = ("Description=", "Documentation=", "WantedBy=")
    reason = False
    for number, line in enumerate((UNITS / name).read_text().splitlines(), 1):
        if line.startswith("#"):
            reason = True
        elif not line or line.startswith("["):
            reason = False
        elif not line.startswith(self_explaining):
            assert reason, f"{name}:{number}: {line}"


@pytest.mark.parametrize("name", NAMES)
def test_a_unit_names_only_options_of_the_daemon(name: str) -> None:
    known = set(re.findall(r'\{"([a-z]+\.[a-z_]+)"', (ROOT / "daemon/config/options.cc").read_text()))
    assert "daemon.socket_directory" in known
    named = re.findall(r"^#.*?`([a-z_.]+)(?: ?=[^`]*)?`", (UNITS / name).read_text(), re.MULTILINE)
    assert set(named) <= known


def test_the_service_keeps_the_promises_of_a_restart() -> None:
    lines = (UNITS / "tierd.service").read_text().splitlines()
    for needed in ("Type=notify", "StartLimitIntervalSec=0", "Restart=always", "WatchdogSec=30s", "NotifyAccess=main"):
        assert needed in lines
    # A command line or configuration that is to blame leaves the unit failed; a crash is answered at once.
    usage = re.search(r"kExitUsage = (\d+);", (ROOT / "daemon/exit_status.h").read_text())
    assert usage is not None
    assert f"RestartPreventExitStatus={usage[1]} {os.EX_CONFIG}" in lines and "RestartSec=250ms" in lines
    reload = [line for line in lines if line.startswith("ExecReload=")]
    # First: the daemon tells of a mistake only if it hears of the reload.
    assert "kill -HUP" in reload[0] and "--check-config" in reload[1]
    # No device is looked at: one that is lost must not fail a reload.
    assert shlex.split(reload[1])[-2:] == ["--set", 'ssd.devices=["none"]']
    # It would hide the uids of clients.
    assert not any(line.startswith("PrivateUsers=") for line in lines)


def test_the_descriptor_store_holds_every_window_and_session() -> None:
    text = (UNITS / "tierd.service").read_text()
    limits = {
        name: int(re.search(rf"^{name}=(\d+)$", text, re.MULTILINE)[1])  # type: ignore[index]
        for name in ("FileDescriptorStoreMax", "LimitNOFILE")
    }
    windows = re.search(r"kWindowsMax = (\d+);", (ROOT / "proto/units.h").read_text())
    options = (ROOT / "daemon/config/options.cc").read_text()
    sessions = re.search(r'"jobs.max_sessions".*?"(\d+)"', options, re.DOTALL)
    assert windows is not None and sessions is not None
    # A session has its ring region and its process; a dozen more are sockets, the state, the SSD files.
    assert int(windows[1]) + 2 * int(sessions[1]) + 64 <= limits["FileDescriptorStoreMax"]
    assert limits["FileDescriptorStoreMax"] >= limits["LimitNOFILE"], "the daemon never has more than that"
