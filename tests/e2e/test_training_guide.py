"""Each block of docs/training.md, pasted into a file and run."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

import launcher
import pytest
from page_blocks import texts
from torch_programs import TorchPrograms

from tierd import allocator

BLOCKS = texts("docs/training.md", "python")
ANSWERS = [
    "trained True", "clipped True", "trained True", "state in tierd True", "accumulated 4", "norm True",
    "created True", "loaded True 0.001", "tuned in steps: 8", "accelerated 2", "resumed at 1", "ranks 2",
]  # fmt: skip
# Of one rank alone: what both print at the same time comes piece by piece.
TORCHRUN = [
    sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--local-ranks-filter=0",
]  # fmt: skip


@pytest.fixture(scope="module")
def programs() -> Iterator[TorchPrograms]:
    with TorchPrograms(launcher.environment()) as running:
        yield running


@pytest.mark.parametrize("number", range(len(ANSWERS)))
def test_a_block_of_the_guide_works_as_pasted(tmp_path: pathlib.Path, programs: TorchPrograms, number: int) -> None:
    assert_works(tmp_path, programs, number, by_ranks="init_process_group" in BLOCKS[number])


@pytest.mark.parametrize("answer", ["tuned in steps: 8", "accelerated 2"])
def test_the_blocks_for_hugging_face_work_by_torchrun(
    tmp_path: pathlib.Path, programs: TorchPrograms, answer: str
) -> None:
    assert_works(tmp_path, programs, ANSWERS.index(answer), by_ranks=True)


@pytest.mark.parametrize("words", [[], TORCHRUN[1:]], ids=["alone", "by ranks"])
def test_a_script_is_started_by_tierd_run(tmp_path: pathlib.Path, words: list[str]) -> None:
    launcher.need_build()
    if allocator.library() is None:
        pytest.skip("libjemalloc2 is not installed")
    script = tmp_path / "train.py"
    script.write_text(f"{BLOCKS[0]}\nprint('jemalloc' in open('/proc/self/maps').read())\n")
    with launcher.disk_folder() as disk:
        places = {name: str(disk) for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "TMPDIR")}
        found = subprocess.run(
            [sys.executable, "-m", "tierd.run", *words, str(script)],
            cwd=disk, env=launcher.environment(**places), capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    assert found.stdout.splitlines()[:2] == ["trained True", "True"], found.stderr


def test_the_run_that_persists_goes_on_when_it_is_started_again(tmp_path: pathlib.Path) -> None:
    """Beside a daemon that goes on, as a service does: the job is still there, without a session."""
    launcher.need_build()
    (tmp_path / "pasted.py").write_text(BLOCKS[ANSWERS.index("resumed at 1")])
    runtime = tmp_path / "tierd"
    runtime.mkdir(mode=0o700)
    with launcher.disk_folder() as disk, launcher.start(runtime, arena="64MiB", tier="256MiB"):
        environment = launcher.environment(XDG_RUNTIME_DIR=str(tmp_path), TMPDIR=str(disk))
        environment.pop("TIERD_SOCKET", None)
        for last in ("resumed at 1\n", "resumed at 3\n"):
            command = [sys.executable, str(tmp_path / "pasted.py")]
            found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
            assert found.stdout == last, found.stderr


def assert_works(tmp_path: pathlib.Path, programs: TorchPrograms, number: int, by_ranks: bool) -> None:
    launcher.need_build()
    assert len(BLOCKS) == len(ANSWERS)
    for library in re.findall(r"^import (transformers|accelerate)$", BLOCKS[number], re.MULTILINE):
        pytest.importorskip(library, reason=f"{library} is not installed")
    script = tmp_path / "pasted.py"
    script.write_text(BLOCKS[number])
    places = {name: str(tmp_path) for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "TMPDIR")}
    with launcher.disk_folder() as disk:
        places["TMPDIR"] = places["XDG_STATE_HOME"] = str(disk)
        environment = launcher.environment(**places, HF_HUB_OFFLINE="1")
        if by_ranks:
            found = subprocess.run(
                [*TORCHRUN, script], cwd=disk, env=environment, capture_output=True, text=True, timeout=120
            )
        else:
            found = programs.run(script, disk, environment)
    if found.returncode != 0 and "no room for an SSD file" in found.stderr:
        pytest.skip("needs a disk with room for an SSD file of default size: what persists lies on one")
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.splitlines()[-1] == ANSWERS[number]  # Libraries may report before.
