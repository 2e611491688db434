"""The Debian package under a real systemd: an overlay of this machine's root is booted in a container, the package is
installed there, another user swaps through it, it is killed, stopped and purged. drill.sh holds the steps."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from surroundings import ROOT, UNPACKED, find_tool, need_root

HERE = pathlib.Path(__file__).resolve().parent

TARGET = """
[Unit]
Requires=basic.target
After=basic.target
Wants=drill.service
AllowIsolate=yes
"""
DRILL = """
[Unit]
After=basic.target
[Service]
Type=oneshot
Environment=PYTHON={python} SOURCE={source}
ExecStart=/bin/bash /drill/drill.sh
"""
# A quarter of what the client puts in.
CONFIGURATION = """
[arena]
maximum = "256MiB"
[ssd]
file_size = "3GiB"
"""
NEWER = ("99.1", "99.2", "99.3")  # As drill.sh names them.
STEPS = 25


def newer(deb: pathlib.Path, version: str, folder: pathlib.Path) -> None:
    """The same package under a higher version."""
    tree = folder / "tree"
    subprocess.run(["dpkg-deb", "-R", str(deb), str(tree)], check=True)
    control = tree / "DEBIAN/control"
    control.write_text(re.sub(r"^Version: .*$", f"Version: {version}", control.read_text(), flags=re.MULTILINE))
    package = folder / f"tierd-{version}.deb"
    subprocess.run(["dpkg-deb", "-Znone", "-b", str(tree), str(package)], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(tree)


@pytest.fixture
def container(disk: pathlib.Path, deb: pathlib.Path) -> Iterator[pathlib.Path]:
    """The root of an overlay over /, with the drill in it. /var/lib/tierd is a folder of the real disk: the daemon
    refuses an SSD tier on an overlay."""
    merged = disk / "merged"
    for folder in (merged, disk / "upper", disk / "work", disk / "drill", disk / "state"):
        folder.mkdir()
    mounted = subprocess.run(
        [
            "mount",
            "-t",
            "overlay",
            "overlay",
            "-o",
            f"lowerdir=/,upperdir={disk / 'upper'},workdir={disk / 'work'}",
            str(merged),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"needs overlay mounts: {mounted.stderr.strip()}")
    try:
        units = merged / "etc/systemd/system"
        units.mkdir(parents=True, exist_ok=True)
        (units / "drill.target").write_text(TARGET)
        (units / "drill.service").write_text(DRILL.format(python=ROOT / ".venv/bin/python", source=ROOT))
        shutil.copy(HERE / "drill.sh", disk / "drill")
        shutil.copy(HERE / "swap_script.py", disk / "drill")
        shutil.copy(HERE / "attached_script.py", disk / "drill")
        shutil.copytree(ROOT / "bindings/python/tierd", disk / "drill/tierd")
        shutil.copy(deb, disk / "drill/tierd.deb")
        for version in NEWER:
            newer(deb, version, disk / "drill")
        (disk / "drill/tierd.toml").write_text(CONFIGURATION)
        subprocess.run(["chmod", "-R", "a+rX", str(disk / "drill")], check=True)
        disk.chmod(0o755)
        yield merged
    finally:
        subprocess.run(["umount", str(merged)], check=False)


def boot(disk: pathlib.Path, container: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Boots until the drill powers off. nspawn may have been unpacked rather than installed: so may its library."""
    environment = dict(os.environ, SYSTEMD_LOG_LEVEL="warning")
    unpacked = UNPACKED / "usr/lib/x86_64-linux-gnu/systemd"
    if unpacked.exists():
        environment["LD_LIBRARY_PATH"] = str(unpacked)
    return subprocess.run(
        [
            "timeout",
            "--kill-after=10",
            "600",
            find_tool("systemd-nspawn"),
            "-D",
            str(container),
            "--boot",
            "--register=no",
            "--keep-unit",
            "--private-network",
            f"--bind={disk / 'drill'}:/drill",
            f"--bind={disk / 'state'}:/var/lib/tierd",
            f"--bind-ro={ROOT}",
            "--",
            "systemd.unit=drill.target",
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env=environment,
        check=False,
    )


def test_the_package_serves_survives_and_leaves_nothing(disk: pathlib.Path, container: pathlib.Path) -> None:
    console = boot(disk, container)
    log = disk / "drill/log"
    lines = log.read_text().splitlines() if log.exists() else []
    failed = [line for line in lines if not line.startswith("ok ")]
    if failed or len(lines) != STEPS:
        output = disk / "drill/output"
        tail = (
            output.read_text(errors="replace")[-12000:] if output.exists() else console.stdout[-4000:] + console.stderr
        )
        pytest.fail("\n".join([*lines, f"{len(lines)} of {STEPS} steps", tail]), pytrace=False)


@pytest.fixture(autouse=True)
def capabilities() -> None:
    need_root()
    find_tool("systemd-nspawn")
    if not pathlib.Path("/lib/systemd/systemd").exists():
        pytest.skip("needs systemd: the package of that name")
