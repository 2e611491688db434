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


SET = ("LD_PRELOAD", "MALLOC_CONF", "OMP_WAIT_POLICY")


def python(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    bare = {name: value for name, value in os.environ.items() if name not in SET}
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True,
        env={**bare, "PYTHONPATH": str(PACKAGE), **environment},
    )  # fmt: skip


def started(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return python("-m", "tierd.run", *words, **environment)


def test_what_is_missing_is_set() -> None:
    assert allocator.prepared({"HOME": "/"}, LIBRARY) == {
        "HOME": "/", "OMP_WAIT_POLICY": "PASSIVE", "LD_PRELOAD": LIBRARY, "TIERD_PRELOADED": LIBRARY,
        "MALLOC_CONF": "narenas:1,oversize_threshold:0",
    }  # fmt: skip


@pytest.mark.parametrize("library", ["libtcmalloc.so.4", "/opt/lib/libmimalloc.so.2", "libjemalloc.so.2", "libasan.so"])
def test_an_allocator_of_the_callers_own_stays(library: str) -> None:
    given = {"LD_PRELOAD": f"libtrace.so:{library}"}
    assert allocator.prepared(given, LIBRARY) == given | {"OMP_WAIT_POLICY": "PASSIVE"}


def test_what_is_set_stays_before_what_is_added() -> None:
    given = {"OMP_WAIT_POLICY": "ACTIVE", "LD_PRELOAD": "/opt/jemalloc/libtrace.so", "MALLOC_CONF": "narenas:4"}
    assert allocator.prepared(given, LIBRARY) == {
        "OMP_WAIT_POLICY": "ACTIVE", "LD_PRELOAD": f"{LIBRARY}:/opt/jemalloc/libtrace.so", "TIERD_PRELOADED": LIBRARY,
        "MALLOC_CONF": "narenas:1,oversize_threshold:0,narenas:4",  # Its last word counts.
    }  # fmt: skip


@pytest.mark.parametrize("prefix", ["prefix", "base_prefix"])
def test_a_library_beside_python_goes_first(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    monkeypatch.setattr(sys, prefix, str(tmp_path))
    own = tmp_path / "lib/libjemalloc.so.2"
    own.parent.mkdir()
    own.touch()
    assert allocator.library() == str(own)


@pytest.mark.parametrize("given", [{}, {"LD_PRELOAD": "libtrace.so"}, {"MALLOC_CONF": "narenas:4"}])
def test_a_program_that_does_not_train_gets_none_of_it(given: dict[str, str]) -> None:
    environment = allocator.prepared(given, LIBRARY)
    allocator.leave_out(environment)
    assert environment == given | {"OMP_WAIT_POLICY": "PASSIVE"}


def test_what_the_caller_has_preloaded_stays() -> None:
    environment = {"LD_PRELOAD": LIBRARY, "MALLOC_CONF": "narenas:1,oversize_threshold:0"}
    before = dict(environment)
    allocator.leave_out(environment)
    assert environment == before


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


@pytest.mark.parametrize("way", [["-m", "tierd.run"], ["-mtierd.run"], ["-u", "-m", "tierd.run"], ["-um", "tierd.run"]])
def test_options_of_python_stay(way: list[str]) -> None:
    require_library()
    words = "import sys; print(sys.flags.optimize, '-u' in sys.orig_argv, sys.argv[1:])"
    ended = python("-O", *way, "-c", words, "x")
    assert ended.stdout == f"1 {'-u' in ''.join(way)} ['x']\n", ended.stderr


# Prints whether memory is kept that was freed, each time after something has changed.
_KEPT = """
import ctypes, os, torch
from tierd.torch import malloc
from tierd.torch.malloc import return_freed_memory, returned_at_once
SIZE = 64 << 20
call = ctypes.CDLL(None).mallctl

def kept():
    epoch, dirty, size = ctypes.c_uint64(1), ctypes.c_size_t(), ctypes.c_size_t(8)
    assert not call(b"epoch", None, None, ctypes.byref(epoch), ctypes.c_size_t(8))
    assert not call(b"stats.arenas.4096.pdirty", ctypes.byref(dirty), ctypes.byref(size), None, ctypes.c_size_t(0))
    return dirty.value * 4096 >= SIZE // 2

def decay():
    value, size = ctypes.c_ssize_t(), ctypes.c_size_t(8)
    assert not call(b"arenas.dirty_decay_ms", ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0))
    return value.value

def freed():
    torch.ones(SIZE // 4)
    return kept()

never = ctypes.c_ssize_t(-1)
for name in (b"arena.0", b"arenas"):
    assert not call(name + b".dirty_decay_ms", None, None, ctypes.byref(never), ctypes.c_size_t(8))
print(freed())
with returned_at_once():
    print(kept(), freed())
print(kept(), freed(), decay())
malloc.end_of_step()
early = kept()
malloc._next_return = malloc._next_return and 0.0
malloc.end_of_step()
print(early, kept())
child = os.fork()
if not child:
    print("child", decay(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(return_freed_memory(), decay())
with returned_at_once():
    pass
print(kept(), decay())
"""


def answers(options: str) -> list[str]:
    require_library()
    pytest.importorskip("torch")
    ended = started("-u", "-c", _KEPT, **({"MALLOC_CONF": options} if options else {}))
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_what_a_model_leaves_is_returned_and_what_steps_free_is_kept() -> None:
    found = ["True", "False False", "False True -1", "True False", "child 10000"]
    assert answers("") == [*found, "True 1000", "False 1000"]  # Who calls return_freed_memory() has it sooner.


@pytest.mark.parametrize(("options", "own"), [("narenas:2", 10_000), ("dirty_decay_ms:5000", 5_000)])
def test_other_options_of_jemalloc_decide_how_long_it_is_kept(options: str, own: int) -> None:
    found = answers(options)
    assert found[2].split()[2] == str(own) and found[4:] == [f"child {own}", "True 1000", f"False {own}"]


def test_jemalloc_that_nothing_is_allocated_with_is_left_alone() -> None:
    require_library()
    pytest.importorskip("torch")
    words = (
        "from tierd.torch import malloc; print(malloc._Jemalloc.loaded() is not None); "
        "malloc._Jemalloc.option = lambda *_: 7; print(malloc._Jemalloc.loaded())"
    )
    ended = started("-c", words)
    assert ended.stdout == "True\nNone\n", ended.stderr


def test_without_jemalloc_glibc_does_it() -> None:
    pytest.importorskip("torch")
    words = "from tierd.torch import malloc\nwith malloc.returned_at_once():\n    pass\n"
    ended = python("-c", f"{words}print(malloc.return_freed_memory(), malloc._Jemalloc.loaded())")
    assert ended.stdout == "True None\n", ended.stderr
