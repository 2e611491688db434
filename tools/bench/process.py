"""A process of the training bench: it does a step when it is told to, and answers in JSON lines."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import allocator


class Ended(SystemExit):
    """A process has ended before its time: the reason is what it printed last."""


class Hung(Ended):
    """A process has been silent for too long, and was killed."""


class Process:
    """One that runs ``script``, with an ``environment`` beside what is the same for all. ``name``: for errors.
    ``patience``: the seconds that it may take for an answer (none: as long as it lives). ``in_tierd``: its model is."""

    def __init__(
        self, stack: contextlib.ExitStack, name: str, script: str, words: Sequence[str],
        environment: dict[str, str] | None = None, patience: float | None = None, in_tierd: bool = False,
    ) -> None:  # fmt: skip
        self._name = name
        self._patience = patience
        self._unread = b""
        self._log = stack.enter_context(tempfile.TemporaryFile("w+"))
        self._process = subprocess.Popen(
            [sys.executable, str(pathlib.Path(__file__).parent / script), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=allocator.environment(in_tierd, environment),
        )
        stack.callback(self._process.wait)
        stack.callback(self._process.kill)

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # Then the next read tells why.
            print(word, file=self._process.stdin, flush=True)

    def read(self, event: str) -> dict[str, Any]:
        line = self._line(event)
        if not line:
            raise Ended(f"bench: the {self._name} ended: {self._printed()}")
        answer: dict[str, Any] = json.loads(line)
        assert answer["event"] == event, answer
        return answer

    def _line(self, event: str) -> bytes:
        """The next one; nothing at the end. Read below Python's buffers, in which a line could lie unseen by poll()."""
        assert self._process.stdout is not None
        source = self._process.stdout.fileno()
        silent = select.poll()
        silent.register(source, select.POLLIN)
        while b"\n" not in self._unread:
            if not silent.poll(None if self._patience is None else self._patience * 1000):
                self._process.kill()  # Its threads would take time from the others.
                raise Hung(f"{self._printed()}\nbench: the {self._name} gave no {event!r} in {self._patience:g} s")
            read = os.read(source, 1 << 16)
            if not read:
                return b""
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _printed(self) -> str:
        self._log.seek(0)
        return self._log.read()[-2000:]
