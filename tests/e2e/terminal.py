"""A terminal of a given size, and one program on it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def plain(text: str) -> str:
    """Without what moves the cursor or sets colours."""
    return _ESCAPE.sub("", text)


class Terminal:
    def __init__(
        self, command: Sequence[object], columns: int, lines: int, environment: Mapping[str, str] | None = None
    ) -> None:
        self._ours, theirs = pty.openpty()
        self._theirs = theirs
        self.resize(columns, lines, tell=False)
        self.child = subprocess.Popen(
            [str(word) for word in command], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            env={**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8", **(environment or {})},
        )  # fmt: skip
        self.text = ""

    def resize(self, columns: int, lines: int, tell: bool = True) -> None:
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        if tell:  # The kernel tells the foreground group of a controlling terminal, which this is not.
            self.child.send_signal(signal.SIGWINCH)

    def attributes(self) -> list[object]:
        return termios.tcgetattr(self._theirs)

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def read_until(self, holds: Callable[[str], bool], seconds: float = 30) -> str:
        """What has come since the last call, once it holds of that."""
        text, end = "", time.monotonic() + seconds
        while not holds(text):
            left = end - time.monotonic()
            assert left > 0, f"it did not come: {text!r}"
            if select.select([self._ours], [], [], min(left, 0.2))[0]:
                text += os.read(self._ours, 65536).decode()
            assert self.child.poll() is None or holds(text) or select.select([self._ours], [], [], 0)[0], text
        self.text += text
        return text

    def close(self) -> tuple[int, str]:
        """Waits for the end of the program: its status, and all that it has written."""
        deadline = time.monotonic() + 30
        while self.child.poll() is None or select.select([self._ours], [], [], 0)[0]:
            assert time.monotonic() < deadline, self.text
            if select.select([self._ours], [], [], 0.1)[0]:
                self.text += os.read(self._ours, 65536).decode()
        os.close(self._theirs)
        os.close(self._ours)
        return self.child.returncode, self.text.replace("\r\n", "\n")


def shown(command: Sequence[object], columns: int, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
    """What a program that ends by itself writes to a terminal of so many columns, and its status."""
    return Terminal(command, columns, 24, environment).close()
