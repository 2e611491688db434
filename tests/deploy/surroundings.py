"""What surrounds the tests of deploy/: where tools and builds lie; a test skips by the name of what is missing."""

from __future__ import annotations

import os
import pathlib
import shutil

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNPACKED = ROOT / ".cache/tools"
BUILD = pathlib.Path(os.environ.get("TIERD_BUILD", ROOT / "build/release"))


def find_tool(name: str, hint: str = "tools/dev setup --full") -> str:
    """Path of a program, installed or unpacked by set-up; skips the test by the program's name where there is none."""
    search = os.pathsep.join([str(UNPACKED / "usr/bin"), os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    found = shutil.which(name, path=search)
    if found is None:
        pytest.skip(f"needs {name}: {hint}")
    return found


def need_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: mounts and boots a container")
