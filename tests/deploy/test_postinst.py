"""What an upgrade of the package does to a daemon that runs, by the postinst with a daemon of a few lines of shell.

tests/deploy/test_systemd.py has the same of a real one; here a job comes at the moment that is to be tried.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess

from surroundings import ROOT

# Its state is files: draining, sessions, jobs; `coming` is how many sessions it has got when a drain reaches it.
TIERCTL = """#!/bin/sh
cd {state}
for verb; do :; done
echo "$verb" >>calls
case $verb in
  status)
    printf '{{\\n  "json_version": 3,\\n  "draining": %s,\\n' "$(cat draining)"
    printf '  "job_count": %s,\\n  "session_count": %s,\\n  "x": 0\\n}}\\n' "$(cat jobs)" "$(cat sessions)"
    exit 6 ;;
  drain)
    [ ! -e refuses ] || exit 4
    if [ -e coming ]; then cat coming >sessions; cat coming >jobs; fi
    echo true >draining ;;
  undrain)
    echo false >draining ;;
esac
"""
SYSTEMCTL = """#!/bin/sh
cd {state}
case $1 in
  try-restart)
    echo restart >>calls
    [ ! -e restarts-badly ] || touch refuses
    echo false >draining ;;
esac
"""


@dataclasses.dataclass(frozen=True)
class Node:
    root: pathlib.Path
    draining: bool = False
    sessions: int = 0
    jobs: int = 0

    def upgrade(self, **files: int) -> str:
        """What the postinst says. `files` are more of the daemon's state."""
        state, programs = self.root / "state", self.root / "programs"
        for folder in (state, programs, self.root / "run/systemd/system"):
            folder.mkdir(parents=True)
        self._write(draining=str(self.draining).lower(), sessions=self.sessions, jobs=self.jobs, **files)
        for name, text in (("tierctl", TIERCTL), ("systemctl", SYSTEMCTL)):
            (programs / name).write_text(text.format(state=state))
        for name in ("systemd-sysusers", "systemd-tmpfiles"):
            (programs / name).write_text("#!/bin/sh\n")
        for program in programs.iterdir():
            program.chmod(0o755)
        script = (ROOT / "deploy/deb/postinst").read_text().replace("/run/systemd", f"{self.root}/run/systemd")
        done = subprocess.run(
            ["sh", "-s", "configure", "0.0.9"], input=script, text=True, capture_output=True, check=True,
            env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        )  # fmt: skip
        assert done.stderr == ""
        return done.stdout

    def _write(self, **files: object) -> None:
        for name, value in files.items():
            (self.root / "state" / name.replace("_", "-")).write_text(f"{value}\n")

    def calls(self) -> list[str]:
        return (self.root / "state/calls").read_text().split()

    def is_drained(self) -> bool:
        return (self.root / "state/draining").read_text() == "true\n"


def test_a_daemon_without_jobs_is_closed_to_them_before_it_is_restarted(tmp_path: pathlib.Path) -> None:
    node = Node(tmp_path)
    assert node.upgrade() == ""
    assert node.calls() == ["status", "drain", "status", "restart"]
    assert not node.is_drained()


def test_a_job_that_comes_between_the_question_and_the_restart_lives_on(tmp_path: pathlib.Path) -> None:
    node = Node(tmp_path)
    said = node.upgrade(coming=1)
    assert "restart" not in node.calls()
    assert "the old version keeps running: a restart would end 1 open job(s) with 1 session(s)" in said
    assert not node.is_drained(), "others may come as before"


def test_no_job_is_refused_for_an_upgrade_that_restarts_nothing(tmp_path: pathlib.Path) -> None:
    node = Node(tmp_path, sessions=2, jobs=1)
    assert "keeps running" in node.upgrade()
    assert node.calls() == ["status"]


def test_a_drained_daemon_stays_drained(tmp_path: pathlib.Path) -> None:
    node = Node(tmp_path, draining=True)
    said = node.upgrade()
    assert node.calls() == ["status", "drain", "status", "restart", "drain"]
    assert node.is_drained() and "is drained as the old one was" in said


def test_a_drained_daemon_with_jobs_keeps_both(tmp_path: pathlib.Path) -> None:
    node = Node(tmp_path, draining=True, sessions=1, jobs=1)
    assert "keeps running" in node.upgrade()
    assert node.calls() == ["status"] and node.is_drained()


def test_an_administrator_is_told_of_a_drain_that_is_lost(tmp_path: pathlib.Path) -> None:
    node = Node(tmp_path, draining=True)
    assert "the new one is not" in node.upgrade(restarts_badly=1)


def test_a_daemon_that_cannot_be_drained_keeps_running(tmp_path: pathlib.Path) -> None:
    node = Node(tmp_path)
    assert "keeps running: it could not be kept from taking jobs" in node.upgrade(refuses=1)
    assert "restart" not in node.calls()
