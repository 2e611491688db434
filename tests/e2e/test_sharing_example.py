"""The program of examples/sharing, which docs/sharing.md shows, does what it says."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import launcher

PROGRAM = launcher.ROOT / "examples/sharing/scattered.py"


def test_what_is_scattered_over_windows_is_moved_together_for_a_large_tensor(tmp_path: pathlib.Path) -> None:
    settings = {"arena": {"maximum": "96MiB", "huge_pages": "never"}, "ssd": {"devices": ["none"]}}
    with launcher.start(tmp_path, settings=settings) as daemon:
        found = subprocess.run(
            [sys.executable, PROGRAM, daemon.socket, launcher.need_tierctl()],
            env=launcher.environment(COLUMNS="80"), capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    assert found.returncode == 0, found.stderr
    before, after = found.stdout.split("alpha has put 14 MiB")
    assert "in use by blocks 0 B" in before
    assert re.search(r"in use by blocks\s14.0 MiB", after)
    assert found.stdout.endswith("42 tensors have their bytes: True\n")
