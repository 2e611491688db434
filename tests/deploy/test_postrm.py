"""What the postrm of the package deletes and what it leaves, with all paths of its in a folder of the test."""

from __future__ import annotations

import pathlib
import re
import shlex
import subprocess

import pytest
from surroundings import ROOT, need_root

# Commands that would change this machine: each writes down that it was called.
STUBS = ("systemctl", "getent", "userdel", "groupdel")


def script_in(root: pathlib.Path) -> str:
    """The script, and before it the stubs as functions of the shell."""
    text = (ROOT / "deploy/deb/postrm").read_text()
    for folder in ("/etc", "/run", "/var/lib"):
        text = text.replace(f"{folder}/", f"{root}{folder}/")
    (root / "run/systemd/system").mkdir(parents=True)
    calls = shlex.quote(str(root / "calls"))
    return "".join(f'{name}() {{ echo "{name} $*" >>{calls}; return 1; }}\n' for name in STUBS) + text


def run(root: pathlib.Path, reason: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """`before` is done in a mount namespace of its own; what is mounted there is gone behind it."""
    command = ["unshare", "--mount"] if before else []
    script = f"set -e\n{before}\nset -- {reason}\n{script_in(root)}"
    return subprocess.run([*command, "sh"], input=script, text=True, capture_output=True, check=False)


def made(root: pathlib.Path) -> pathlib.Path:
    data = root / "var/lib/tierd"
    data.mkdir(parents=True)
    (data / "tier.ssd").write_text("x")
    return data


def test_a_purge_leaves_nothing(tmp_path: pathlib.Path) -> None:
    data = made(tmp_path)
    done = run(tmp_path, "purge")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "") and not data.exists()


@pytest.mark.parametrize("place", ["disk", "deeper/disk"])
def test_a_purge_empties_no_disk_that_is_mounted_below_and_goes_on(tmp_path: pathlib.Path, place: str) -> None:
    need_root()
    data = made(tmp_path)
    (data / place).mkdir(parents=True)
    (tmp_path / "etc/tierd").mkdir(parents=True)
    other = tmp_path / "other"
    mount = f"mount -t tmpfs tmpfs {shlex.quote(str(data / place))}\necho x >{shlex.quote(str(data / place))}/kept\n"
    show = f"trap 'cp -r {shlex.quote(str(data / place))} {shlex.quote(str(other))}' EXIT"
    done = run(tmp_path, "purge", mount + show)
    if "permission denied" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip(f"needs a right to mount: {done.stderr.strip()}")
    assert (done.returncode, done.stderr) == (0, "")
    assert (other / "kept").read_text() == "x\n"
    assert "another disk" in done.stdout and str(data / place) in done.stdout, done.stdout
    assert not (data / "tier.ssd").exists()
    assert not (tmp_path / "etc/tierd").exists(), "what comes after it is deleted all the same"
    assert "getent passwd tierd" in (tmp_path / "calls").read_text()


def test_a_purge_empties_a_disk_that_is_mounted_for_the_data(tmp_path: pathlib.Path) -> None:
    need_root()
    data = made(tmp_path)
    quoted = shlex.quote(str(data))
    show = f"trap 'ls -A {quoted} >{shlex.quote(str(tmp_path / 'left'))}' EXIT"
    done = run(tmp_path, "purge", f"mount -t tmpfs tmpfs {quoted}\necho x >{quoted}/tier.ssd\n{show}")
    if "permission denied" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip(f"needs a right to mount: {done.stderr.strip()}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "left").read_text() == ""


@pytest.mark.parametrize(
    ("reason", "is_reset"), [("upgrade 0.2.0", False), ("remove", True), ("purge", True), ("abort-upgrade", False)]
)
def test_an_upgrade_leaves_the_state_of_the_units(tmp_path: pathlib.Path, reason: str, is_reset: bool) -> None:
    """A unit that has failed stays so: who watches it would not see it any more."""
    data = made(tmp_path)
    done = run(tmp_path, reason)
    assert done.returncode == 0, done.stderr
    calls = (tmp_path / "calls").read_text() if (tmp_path / "calls").exists() else ""
    for unit in ("tierd.service", "tierd.socket", "tierd-smart.service"):
        was_reset = re.search(rf"^systemctl reset-failed .*\b{re.escape(unit)}\b", calls, re.M) is not None
        assert was_reset == is_reset, unit
    assert data.exists() == (reason != "purge")
