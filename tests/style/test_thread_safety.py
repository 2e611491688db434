"""The thread-safety pass of tools/dev check passes guarded accesses, and fails on planted ones without the lock."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLANG = shutil.which("clang++-19")

needs_clang = pytest.mark.skipif(CLANG is None, reason="needs clang 19: clang++-19")

GUARDED = """
#include "proto/mutex.h"
class Counter {
 public:
  int Next() {
    const tier::MutexLock lock(mutex_);
    while (!open_) opened_.Wait(mutex_);
    return NextLocked();
  }
  int NextLocked() TIER_REQUIRES(mutex_) { return ++count_; }
 private:
  tier::Mutex mutex_;
  tier::CondVar opened_;
  bool open_ TIER_GUARDED_BY(mutex_) = true;
  int count_ TIER_GUARDED_BY(mutex_) = 0;
};
"""
FLAGS = "-O2 -g1 -DNDEBUG -fPIC -fno-tree-vectorize -Wall -Wno-psabi -Werror -std=c++23"


class Tree:
    """One source, compiled by g++ as the commands say, beside the real header."""

    def __init__(self, root: pathlib.Path, source: str = "planted.cc") -> None:
        self.root = root
        self.source = root / source
        self.source.parent.mkdir(exist_ok=True)
        (root / "proto").mkdir()
        shutil.copy(ROOT / "proto/mutex.h", root / "proto/mutex.h")
        command = f"/usr/bin/g++-12 -I{root} {FLAGS} -o planted.cc.o -c {self.source}"
        entry = {"directory": str(root), "command": command, "file": str(self.source)}
        (root / "commands.json").write_text(json.dumps([entry]))

    def check(self, source: str) -> subprocess.CompletedProcess[str]:
        self.source.write_text(source)
        script = ROOT / "tools/dev.d/thread_safety.py"
        files = ("--commands", self.root / "commands.json", "--passed", self.root / "passed.json")
        return subprocess.run(
            [sys.executable, script, "--root", self.root, *files], capture_output=True, text=True, check=False
        )


@needs_clang
def test_state_under_its_lock_passes_once(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path)
    first, again = tree.check(GUARDED), tree.check(GUARDED)
    assert first.returncode == 0, first.stderr
    assert "1 sources, 1 analysed, 0 failed" in first.stdout and "1 sources, 0 analysed, 0 failed" in again.stdout


@needs_clang
def test_each_planted_access_without_the_lock_is_found(tmp_path: pathlib.Path) -> None:
    planted = {
        "int count() const { return count_; }": "reading variable 'count_' requires holding mutex 'mutex_'",
        "int Twice() { return NextLocked(); }": "calling function 'NextLocked' requires holding mutex 'mutex_'",
        "void Await() { while (true) opened_.Wait(mutex_); }": "calling function 'Wait' requires holding mutex",
        "void Late() { tier::MutexLock a(mutex_); tier::MutexUnlock b(mutex_); count_ = 1; }": (
            "writing variable 'count_' requires holding mutex 'mutex_'"
        ),
        "void Twofold() { tier::MutexLock a(mutex_), b(mutex_); }": "acquiring mutex 'mutex_' that is already held",
    }
    answer = Tree(tmp_path).check(GUARDED.replace(" private:", "  " + "\n  ".join(planted) + "\n private:"))
    assert answer.returncode == 1 and "1 failed" in answer.stdout
    assert answer.stderr.count(": error: ") == len(planted), answer.stderr
    for complaint in planted.values():
        assert complaint in answer.stderr


@needs_clang
def test_a_source_that_does_not_parse_fails(tmp_path: pathlib.Path) -> None:
    answer = Tree(tmp_path).check(GUARDED + '#include "missing.h"\n')
    assert answer.returncode == 1 and "missing.h" in answer.stderr


@needs_clang
def test_what_clang_refuses_by_itself_fails(tmp_path: pathlib.Path) -> None:
    shadowed = "class Table {\n  template <typename Change>\n  void Change(Change change);\n};\n"
    tree = Tree(tmp_path, "daemon/planted.cc")
    answer = tree.check(shadowed)
    assert answer.returncode == 1 and "shadows template parameter" in answer.stderr
