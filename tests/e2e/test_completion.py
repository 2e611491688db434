"""The scripts that complete what is typed, beside a `tierctl` that says what no daemon should."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import launcher
import pytest

CATCH = "compdef() { :; }; compadd() { shift; print -rl -- $@; }; _files() { :; }; "
SCRIPTS = {
    "bash": "source completion; COMP_WORDS=(tierctl job show ''); COMP_CWORD=3; _tierctl; "
    "printf '%s\\n' \"${COMPREPLY[@]}\"",
    "zsh": CATCH + "source completion; words=(tierctl job show ''); CURRENT=4; _tierctl",
    "fish": "source completion; complete -C 'tierctl job show '",
}


@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_shell_runs_nothing_of_what_a_daemon_says(shell: str, tmp_path: pathlib.Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    command = [launcher.need_tierctl(), "completion", shell]
    (tmp_path / "completion").write_bytes(subprocess.run(command, capture_output=True, check=True).stdout)
    made = tmp_path / "made"
    names = ["train", f"$(touch {made})", f"`touch {made}`", f"$(touch${{IFS}}{made})", f"(touch {made})", "*"]
    stub = tmp_path / "bin/tierctl"
    stub.parent.mkdir()
    stub.write_text("#!/bin/sh\ncat <<'END'\n" + "".join(f"{name}\n" for name in names) + "END\n")
    stub.chmod(0o755)
    environment = {**os.environ, "PATH": f"{stub.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        [shell, "-c", SCRIPTS[shell]], capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not made.exists()
    offered = done.stdout.splitlines()
    assert "train" in offered and "completion" not in offered, "what a pattern matches is no name of a job"
