"""Python programs that find torch imported when they begin: each is a fork of one process that has imported it and done
nothing else. A program that imports torch itself takes more than a second of processor time for that.

    with TorchPrograms(launcher.environment()) as programs:
        done = programs.run(script, folder, environment)
"""

from __future__ import annotations

import json
import os
import pathlib
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping

SECONDS_MAX = 120


class TorchPrograms:
    def __init__(self, environment: Mapping[str, str]) -> None:
        """It has the PYTHONPATH of all of them."""
        self._parent = subprocess.Popen(
            [sys.executable, __file__], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> TorchPrograms:
        return self

    def __exit__(self, *_: object) -> None:
        self._parent.communicate()  # It ends with its input.

    def run(
        self, script: pathlib.Path, folder: pathlib.Path, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """The program's end, in this working directory. One that takes SECONDS_MAX is killed."""
        assert self._parent.stdin is not None and self._parent.stdout is not None
        output, errors = script.with_suffix(".out"), script.with_suffix(".err")
        asked = [str(script), str(folder), dict(environment), str(output), str(errors)]
        print(json.dumps(asked), file=self._parent.stdin, flush=True)
        status = int(self._parent.stdout.readline())
        return subprocess.CompletedProcess([str(script)], status, output.read_text(), errors.read_text())


def main() -> None:
    """Makes a process for each line of the input, one after the other, and writes its exit status."""
    import torch  # noqa: F401

    while line := sys.stdin.readline():
        if (process := os.fork()) == 0:
            become(*json.loads(line))
            return
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


def become(script: str, folder: str, environment: dict[str, str], output: str, errors: str) -> None:
    """The program, as Python runs a file."""
    signal.alarm(SECONDS_MAX)
    for number, (path, mode) in enumerate(((os.devnull, os.O_RDONLY), (output, os.O_WRONLY), (errors, os.O_WRONLY))):
        descriptor = os.open(path, mode | os.O_CREAT)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = [script]
    sys.path[0] = os.path.dirname(script)
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
