"""A Python program of another user, which tells its test how far it is, line by line, and goes on when it is told.

    with other_user.running(61234, "client = tierd.connect(...); say('full'); wait(); ...") as child:
        assert child.line() == "full"
        child.go_on()

The program has numpy, tierd, `say` and `wait`. Needs root; `launcher.need_user` skips without it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import launcher
import pytest

PRELUDE = """
import sys
import numpy, tierd

def say(word):
    print(word, flush=True)

def wait():
    sys.stdin.readline()
"""


@dataclasses.dataclass(frozen=True)
class Child:
    process: subprocess.Popen[str]

    def line(self) -> str:
        """The next one that it says; the test fails with its last words where it ends instead."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            pytest.fail(f"the other user's program said nothing: {self.process.communicate()[1]}")
        return line

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        """Its program must end by itself, and well."""
        self.go_on()
        _, error = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, error

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def windows(self) -> set[str]:
        """Inodes of the windows that it maps."""
        maps = pathlib.Path(f"/proc/{self.process.pid}/maps").read_text()
        return set(re.findall(r" (\d+) +/memfd:tierd-window", maps))


@contextlib.contextmanager
def running(uid: int, source: str) -> Iterator[Child]:
    with subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(source)], env=launcher.environment(), cwd="/",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        user=uid, group=uid, extra_groups=[],
    ) as process:  # fmt: skip
        try:
            yield Child(process)
        finally:
            process.kill()
