"""A session without libtier that keeps a mapping, with its descriptor, of each window that it is asked to return.

For programs of another user, which `other_user.running` starts: `keeping_client.PRELUDE` comes before their own source.
"""

from __future__ import annotations

import mmap
import os
import pathlib
import struct
import sys
import threading
import time
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools/bench"))

from raw_session import (  # noqa: E402
    ACQUIRE,
    CREATE,
    FLUSH,
    RELEASE,
    SESSION_END,
    WINDOW,
    WINDOW_RETURN,
    RawSession,
    Span,
)

PRELUDE = f"import sys; sys.path.append({str(ROOT / 'tests/e2e')!r}); import keeping_client\n"

INDEX, SIZE = (struct.Struct("=I"), 16), (struct.Struct("=Q"), 32)  # Of the packets of windows, and where they stand.
REASON = 24  # Offset in SessionEnd.
PAGE = 4096
FILLING = 0xB5  # What it puts into windows that it has returned.
DEADLINE_S = 30


def field(packet: bytes, place: tuple[struct.Struct, int]) -> int:
    value: int = place[0].unpack_from(packet, place[1])[0]
    return value


def wait_for(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {DEADLINE_S:g} s")
        time.sleep(0.001)


class Window:
    """Mapped, and open."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.descriptor, self.size = descriptor, size
        self.mapping = mmap.mmap(descriptor, size)

    def is_empty(self) -> bool:
        """No memory is allocated for it. To read it by the mapping would allocate some."""
        return os.fstat(self.descriptor).st_blocks == 0

    def close(self) -> None:
        self.mapping.close()
        os.close(self.descriptor)


class KeepingSession(RawSession):
    """`answers`: it says of each window that it is asked for, at once, that it has returned it. Else only when it is
    told to (`answer`)."""

    def __init__(self, path: str, job: str, token: str = "", answers: bool = True) -> None:
        self._answers = answers
        self._lock = threading.Lock()
        self._unanswered: list[bytes] = []
        self._windows: dict[int, Window] = {}
        self.kept: list[Window] = []  # That it was asked to return.
        self.told = ""  # Why its session ended.
        super().__init__(path, job, token)

    def take(self, kind: int, packet: bytes, descriptors: list[int]) -> None:
        if kind == WINDOW:
            self._windows[field(packet, INDEX)] = Window(descriptors[0], field(packet, SIZE))
        elif kind == WINDOW_RETURN:
            self.kept.append(self._windows.pop(field(packet, INDEX)))
            with self._lock:
                self._unanswered.append(packet)
            if self._answers:
                self.answer()
        elif kind == SESSION_END:
            self.told = packet[REASON:].split(b"\0")[0].decode()

    def answer(self) -> None:
        """For all windows that it was asked for and has not answered for, and for those to come."""
        self._answers = True
        with self._lock:
            while self._unanswered:
                self.give_back(self._unanswered.pop(0))

    def let_go(self) -> None:
        """Of what it keeps."""
        while self.kept:
            self.kept.pop().close()

    def put(self, tensor: int, content: bytes) -> None:
        spans = self.grant(CREATE, [(tensor, 0, len(content), len(content))])
        at = 0
        for _, index, _, offset, length in spans:
            self._window(index).mapping[offset : offset + length] = content[at : at + length]
            at += length
        self._release(spans)

    def get(self, tensor: int) -> bytes:
        self.ask_for(tensor)
        return self.take_granted()

    def ask_for(self, tensor: int) -> None:
        self.stage(ACQUIRE, [(tensor, 0, 0, 0)])
        self.publish()

    def take_granted(self) -> bytes:
        """What `ask_for` has asked for."""
        _, spans = self.next_answer()
        content = b"".join(
            self._window(index).mapping[offset : offset + length] for _, index, _, offset, length in spans
        )
        self._release(spans)
        return content

    def flush(self) -> None:
        self.call(FLUSH, [])

    def fill_a_page(self) -> int:
        """Of each window that it keeps, by the descriptor: a look finds it, or does not. How many windows."""
        for window in self.kept:
            os.pwrite(window.descriptor, bytes([FILLING]) * PAGE, 0)
        return len(self.kept)

    def wait_until_empty(self) -> None:
        """What it keeps has no memory."""
        wait_for(lambda: all(window.is_empty() for window in self.kept))

    def fill_all(self) -> None:
        """Of what it keeps, by the mappings."""
        for window in list(self.kept):
            window.mapping[:] = bytes([FILLING]) * window.size

    def fill_for_ever(self) -> None:
        """In a thread of its own, also when the daemon has ended the session."""

        def again() -> None:
            while True:
                self.fill_all()
                time.sleep(0.02)

        threading.Thread(target=again, daemon=True).start()

    def wait_for_end(self) -> str:
        """Why the daemon has ended it."""
        wait_for(lambda: not self._alive)
        return self.told

    def _window(self, index: int) -> Window:
        """The answer that names it may come before it does."""
        wait_for(lambda: index in self._windows)
        return self._windows[index]

    def _release(self, spans: list[Span]) -> None:
        self.call(RELEASE, [(0, 0, 0, lease) for lease in dict.fromkeys(span[0] for span in spans)])
