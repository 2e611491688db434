"""What the maintainer scripts do where no systemd runs, with every path of theirs in a folder of the test's."""

from __future__ import annotations

import os
import pathlib
import subprocess

from surroundings import ROOT

# Commands that would change this machine: each says that there is nothing of the name.
CHANGES = ("getent", "userdel", "groupdel", "systemctl", "mountpoint")


def purge(root: pathlib.Path) -> None:
    script = (ROOT / "deploy/deb/postrm").read_text()
    for folder in ("/etc/", "/run/", "/var/"):
        script = script.replace(folder, f"{root}{folder}")
    stubs = root / "stubs"
    stubs.mkdir()
    for name in CHANGES:
        (stubs / name).write_text("#!/bin/sh\nexit 1\n")
        (stubs / name).chmod(0o755)
    path = f"{stubs}:{os.environ['PATH']}"
    subprocess.run(["sh", "-s", "purge"], input=script, text=True, check=True, env={**os.environ, "PATH": path})


def test_a_purge_leaves_no_link_of_an_enabled_unit_that_is_gone(tmp_path: pathlib.Path) -> None:
    system = tmp_path / "etc/systemd/system"
    links = {
        "multi-user.target.wants/tierd.service": "/nowhere/tierd.service",
        "sockets.target.wants/tierd.socket": "/nowhere/tierd.socket",
        "timers.target.wants/tierd-smart.timer": "/nowhere/tierd-smart.timer",
        "multi-user.target.wants/other.service": "/nowhere/other.service",
        "graphical.target.wants/tierd.service": str(tmp_path / "own.service"),
    }
    (tmp_path / "own.service").write_text("[Service]\n")
    for name, target in links.items():
        (system / name).parent.mkdir(parents=True, exist_ok=True)
        (system / name).symlink_to(target)
    data = tmp_path / "var/lib/tierd"
    data.mkdir(parents=True)
    (data / "tier.ssd").write_text("x")
    purge(tmp_path)
    left = {str(path.relative_to(system)) for path in system.rglob("*") if path.is_symlink()}
    assert left == {"multi-user.target.wants/other.service", "graphical.target.wants/tierd.service"}
    assert not data.exists()


def test_a_purge_of_what_was_never_enabled_goes_well(tmp_path: pathlib.Path) -> None:
    purge(tmp_path)
