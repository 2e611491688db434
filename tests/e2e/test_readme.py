"""The README's snippets, as a reader would use them: pasted into files, compiled, run."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

import launcher
import pytest
from launcher import BUILD, ROOT
from page_blocks import texts


PYTHON_ANSWERS = [r"the same bytes\n", r"loss \d+\.\d+\n"]


def snippets(language: str, count: int) -> list[str]:
    found = texts("README.md", language)
    assert len(found) == count, f"README.md has {len(found)} {language} blocks"
    return found


@pytest.fixture
def daemon(tmp_path: pathlib.Path) -> Iterator[launcher.Running]:
    with launcher.start(tmp_path, arena="64MiB", tier="1GiB") as running:
        yield running


def environment(daemon: launcher.Running) -> dict[str, str]:
    return launcher.environment(TIERD_SOCKET=daemon.socket)


@pytest.mark.parametrize(("number", "answer"), list(enumerate(PYTHON_ANSWERS)))
def test_the_python_lines_work_as_pasted(
    tmp_path: pathlib.Path, daemon: launcher.Running, number: int, answer: str
) -> None:
    script = tmp_path / "pasted.py"
    script.write_text(snippets("python", len(PYTHON_ANSWERS))[number])
    found = subprocess.run(
        [sys.executable, script], env=environment(daemon), capture_output=True, text=True, check=False, timeout=60
    )
    assert found.returncode == 0 and re.fullmatch(answer, found.stdout), found.stdout + found.stderr


def test_the_c_lines_work_as_pasted(tmp_path: pathlib.Path, daemon: launcher.Running) -> None:
    (tmp_path / "pasted.c").write_text(snippets("c", 1)[0])
    library = BUILD / "libclient"
    subprocess.run(
        [
            "gcc-12",
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Wno-missing-field-initializers",
            "-Werror",
            f"-I{ROOT / 'libclient/include'}",
            "pasted.c",
            f"-L{library}",
            "-ltier",
            f"-Wl,-rpath,{library}",
            "-o",
            "pasted",
        ],
        cwd=tmp_path,
        check=True,
    )
    found = subprocess.run(
        [tmp_path / "pasted"], env=environment(daemon), capture_output=True, text=True, check=False, timeout=60
    )
    assert (found.returncode, found.stdout) == (0, f"OK, {8 << 20} bytes\n"), found.stdout + found.stderr
