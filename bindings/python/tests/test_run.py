"""tierd.run: what a script's environment says, and what of it reaches other programs; the allocator that it brings."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from tierd import allocator, run

PACKAGE = pathlib.Path(run.__file__).resolve().parents[1]
LIBRARY = "/lib/libjemalloc.so.2"


def started(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    bare = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "MALLOC_CONF")}
    bare.pop("OMP_WAIT_POLICY", None)
    return subprocess.run(
        [sys.executable, "-m", "tierd.run", *words], capture_output=True, text=True,
        env={**bare, "PYTHONPATH": str(PACKAGE), **environment},
    )  # fmt: skip


def test_what_is_missing_is_set() -> None:
    assert allocator.prepared({"HOME": "/"}, LIBRARY) == {
        "HOME": "/", "OMP_WAIT_POLICY": "PASSIVE", "LD_PRELOAD": LIBRARY,
        "MALLOC_CONF": "narenas:1,oversize_threshold:0",
    }  # fmt: skip


@pytest.mark.parametrize("library", ["libtcmalloc.so.4", "/opt/lib/libmimalloc.so.2", "libjemalloc.so.2"])
def test_an_allocator_of_the_callers_own_stays(library: str) -> None:
    given = {"LD_PRELOAD": f"libtrace.so:{library}"}
    assert allocator.prepared(given, LIBRARY) == given | {"OMP_WAIT_POLICY": "PASSIVE"}


def test_what_is_set_stays() -> None:
    given = {"OMP_WAIT_POLICY": "ACTIVE", "LD_PRELOAD": "libtrace.so", "MALLOC_CONF": "narenas:4"}
    assert allocator.prepared(given, LIBRARY) == given | {"LD_PRELOAD": f"{LIBRARY}:libtrace.so"}


def test_a_library_of_its_own_directory_goes_first(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    own = tmp_path / "lib/libjemalloc.so.2"
    own.parent.mkdir()
    own.touch()
    assert allocator.library() == str(own)


@pytest.mark.parametrize("given", [{}, {"LD_PRELOAD": "libtrace.so"}, {"MALLOC_CONF": "narenas:4"}])
def test_a_program_that_does_not_train_gets_none_of_it(given: dict[str, str]) -> None:
    environment = allocator.prepared(given, LIBRARY)
    allocator.leave_out(environment)
    assert environment == given | {"OMP_WAIT_POLICY": "PASSIVE"}


def test_an_empty_preload_is_left_out() -> None:
    environment = {"LD_PRELOAD": ""}
    allocator.leave_out(environment)
    assert environment == {}


@pytest.mark.parametrize("words", [["--help"], ["-h"], []])
def test_the_usage_is_printed(words: list[str]) -> None:
    ended = started(*words)
    assert ended.returncode == (0 if words else 2)
    assert "python -m tierd.run SCRIPT" in (ended.stdout if words else ended.stderr)


def test_without_the_library_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(allocator, "library", lambda: None)
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    assert run.main(["train.py"]) == 1
    assert "apt install libjemalloc2" in capsys.readouterr().err


def require_library() -> None:
    if allocator.library() is None:
        pytest.skip("libjemalloc2 is not installed")


def test_words_and_status_are_those_of_python() -> None:
    require_library()
    ended = started("-c", "import sys; print(sys.argv[1:], flush=True); sys.exit(7)", "--epochs", "3")
    assert (ended.stdout, ended.stderr, ended.returncode) == ("['--epochs', '3']\n", "", 7)


# Prints the pages that are kept where a model has left the process, and where it has freed something since.
_KEPT = """
import ctypes, torch
from tierd.torch.malloc import return_freed_memory, reuse_freed_memory
SIZE = 64 << 20

def kept():
    call = ctypes.CDLL(None).mallctl
    epoch, dirty = ctypes.c_uint64(1), ctypes.c_size_t()
    size = ctypes.c_size_t(8)
    assert not call(b"epoch", None, None, ctypes.byref(epoch), 8)
    assert not call(b"stats.arenas.4096.pdirty", ctypes.byref(dirty), ctypes.byref(size), None, 0)
    return dirty.value * 4096

def freed():
    before = kept()
    torch.ones(SIZE // 4)
    return kept() - before >= SIZE // 2

print(return_freed_memory(), freed())
freed()
print(reuse_freed_memory(), kept() < SIZE // 2, freed())
print(return_freed_memory(), kept() < SIZE // 2)
"""


def test_what_a_model_leaves_is_returned_and_what_steps_free_is_kept() -> None:
    require_library()
    pytest.importorskip("torch")
    ended = started("-c", _KEPT)
    assert ended.stdout.split("\n")[:3] == ["True False", "True True True", "True True"], ended.stderr


def test_another_allocator_keeps_nothing_more() -> None:
    pytest.importorskip("torch")
    words = "from tierd.torch.malloc import reuse_freed_memory as reuse; print(reuse())"
    bare = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    ended = subprocess.run(
        [sys.executable, "-c", words], capture_output=True, text=True, env={**bare, "PYTHONPATH": str(PACKAGE)}
    )
    assert ended.stdout == "False\n", ended.stderr
