"""A process of the training bench: it does a step when it is told to, and answers in JSON lines."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any


class Ended(SystemExit):
    """A process has ended before its time: the reason is what it printed last."""


class Process:
    """One that runs ``script``, with an ``environment`` beside what is the same for all. ``name``: for errors."""

    def __init__(
        self, stack: contextlib.ExitStack, name: str, script: str, words: Sequence[str],
        environment: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        self._name = name
        self._log = stack.enter_context(tempfile.TemporaryFile("w+"))
        self._process = subprocess.Popen(
            [sys.executable, str(pathlib.Path(__file__).parent / script), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE"} | (environment or {}),
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
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise Ended(f"bench: the {self._name} ended: {self._log.read()[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        assert answer["event"] == event, answer
        return answer
