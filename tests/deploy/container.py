"""A container with a real systemd over this machine's root, in which a drill runs: a bash script of this folder.

The drill's steps (drill_steps.sh) write a line each to a log that is read here.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from surroundings import ROOT, UNPACKED, find_tool, need_root

HERE = pathlib.Path(__file__).resolve().parent
# What a drill may need of this folder.
PARTS = ("drill_steps.sh", "swap_script.py", "attached_script.py", "load_script.py")

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


@dataclasses.dataclass(frozen=True)
class Container:
    disk: pathlib.Path
    binds: tuple[str, ...] = ()  # What else of this machine is seen inside: OUTSIDE:INSIDE.

    @property
    def root(self) -> pathlib.Path:
        return self.disk / "merged"

    @property
    def drill(self) -> pathlib.Path:
        """/drill inside; what lies there may be read by all users."""
        return self.disk / "drill"

    def add_newer(self, deb: pathlib.Path, *versions: str) -> None:
        """The same package under higher versions, each as tierd-VERSION.deb."""
        tree = self.drill / "tree"
        subprocess.run(["dpkg-deb", "-R", str(deb), str(tree)], check=True)
        control = tree / "DEBIAN/control"
        for version in versions:
            control.write_text(re.sub(r"^Version: .*$", f"Version: {version}", control.read_text(), flags=re.MULTILINE))
            package = self.drill / f"tierd-{version}.deb"
            subprocess.run(["dpkg-deb", "-Znone", "-b", str(tree), str(package)], check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(tree)

    def run(self, script: str, steps: int) -> None:
        """Boots, runs the script, powers off. Fails unless there were so many steps, and all succeeded."""
        shutil.copy(HERE / script, self.drill / "drill.sh")
        subprocess.run(["chmod", "-R", "a+rX", str(self.drill)], check=True)
        console = self._boot()
        self._keep_journal(script)
        log = self.drill / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        failed = [line for line in lines if not line.startswith("ok ")]
        if failed or len(lines) != steps:
            output = self.drill / "output"
            tail = output.read_text(errors="replace")[-12000:] if output.exists() else console[-4000:]
            pytest.fail("\n".join([*lines, f"{len(lines)} of {steps} steps", tail]), pytrace=False)

    def _keep_journal(self, script: str) -> None:
        """What the service logged in each step, in build/reports/journal-SCRIPT.txt."""
        journal = self.drill / "journal"
        if journal.exists():
            (ROOT / "build/reports").mkdir(parents=True, exist_ok=True)
            shutil.copy(journal, ROOT / f"build/reports/journal-{pathlib.Path(script).stem}.txt")

    def _boot(self) -> str:
        """What the console said. nspawn may have been unpacked rather than installed: so may its library."""
        environment = dict(os.environ, SYSTEMD_LOG_LEVEL="warning")
        unpacked = UNPACKED / "usr/lib/x86_64-linux-gnu/systemd"
        if unpacked.exists():
            environment["LD_LIBRARY_PATH"] = str(unpacked)
        command = ["timeout", "--kill-after=10", "600", find_tool("systemd-nspawn"), "-D", str(self.root), "--boot"]
        command += ["--register=no", "--keep-unit", "--private-network", f"--bind={self.drill}:/drill"]
        command += [f"--bind={self.disk / 'state'}:/var/lib/tierd", f"--bind-ro={ROOT}", *self._links()]
        command += [f"--bind={bind}" for bind in self.binds]
        booted = subprocess.run(
            [*command, "--", "systemd.unit=drill.target"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=environment,
            check=False,
        )
        return booted.stdout[-4000:] + booted.stderr

    @staticmethod
    def _links() -> list[str]:
        """A worktree may share the virtual environment of another checkout."""
        shared = (ROOT / ".venv").resolve()
        return [] if shared.is_relative_to(ROOT) else [f"--bind-ro={shared}"]


def need() -> None:
    """Skips where no container can be booted."""
    need_root()
    find_tool("systemd-nspawn")
    if not pathlib.Path("/lib/systemd/systemd").exists():
        pytest.skip("needs systemd: the package of that name")


def made(disk: pathlib.Path, deb: pathlib.Path) -> Iterator[Container]:
    """An overlay over /. /var/lib/tierd is a folder of the real disk: the daemon refuses an SSD tier on an overlay."""
    container = Container(disk)
    for folder in (container.root, disk / "upper", disk / "work", container.drill, disk / "state"):
        folder.mkdir()
    layers = f"lowerdir=/,upperdir={disk / 'upper'},workdir={disk / 'work'}"
    mount = ["mount", "-t", "overlay", "overlay", "-o", layers, str(container.root)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"needs overlay mounts: {mounted.stderr.strip()}")
    try:
        units = container.root / "etc/systemd/system"
        units.mkdir(parents=True, exist_ok=True)
        (units / "drill.target").write_text(TARGET)
        (units / "drill.service").write_text(DRILL.format(python=ROOT / ".venv/bin/python", source=ROOT))
        for part in PARTS:
            shutil.copy(HERE / part, container.drill)
        shutil.copytree(ROOT / "bindings/python/tierd", container.drill / "tierd")
        shutil.copy(deb, container.drill / "tierd.deb")
        disk.chmod(0o755)
        yield container
    finally:
        subprocess.run(["umount", str(container.root)], check=False)
