"""A session with tierd as bytes on its socket and in its rings, without libtier: for clients that misbehave.

The layouts are those of docs/formats.md and proto/. One thread uses a session; another one answers what comes on the
socket.
"""

from __future__ import annotations

import array
import contextlib
import mmap
import os
import pathlib
import re
import socket
import struct
import threading
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = struct.Struct("<QHHI")  # Of a packet: magic, kind, version, size.
HELLO = struct.Struct("<QHHI HHHH iiiI QQ 128s65s63s512s")
MAGIC = 0x4F4C4C4548524554
VERSION = int(re.findall(r"kProtocolVersion = (\d+);", (ROOT / "proto/handshake.h").read_text())[0])
HELLO_KIND, WELCOME, WINDOW, WINDOW_RETURN, WINDOW_RETURNED, SESSION_END, CHALLENGE, PROOF = 1, 2, 3, 4, 5, 6, 8, 9
WELCOME_CODE, WELCOME_MESSAGE, WELCOME_TOKEN = 16, 24, 1232  # Offsets in Welcome.
TOKEN_SIZE = 65

REQUEST = struct.Struct("=QHHIIIQ")  # Sequence, op, entries, flags, items, timeout, argument.
ITEM = struct.Struct("=QQQQ")  # Tensor, offset, length, value.
COMPLETION = struct.Struct("=QHHIIIQ")  # Sequence, code, entries, flags, records, detail, value.
SPAN = struct.Struct("=QIIQQ")  # Lease, window, item, offset, length.
Span = tuple[int, int, int, int, int]
CREATE, ACQUIRE, RELEASE, FREE, FLUSH, STAT = 1, 2, 3, 4, 8, 11
WRITE, SHARED = 1 << 0, 1 << 1
ENTRY = 64
REQUEST_ENTRIES, COMPLETION_ENTRIES = 1024, 8192
REQUESTS, COMPLETIONS = 8192, 8192 + REQUEST_ENTRIES * ENTRY
# Words of eight bytes in the region: positions of the two rings.
REQUEST_TAIL, REQUEST_HEAD, COMPLETION_TAIL, COMPLETION_HEAD = (offset // 8 for offset in (4096, 4160, 4288, 4352))
# Words of four bytes: whether the daemon waits to be rung, and whether its engine sleeps.
DAEMON_WAITS, ENGINE_SLEEPS = (4096 + 132) // 4, 64 // 4


class Ended(Exception):
    """The daemon refused the session, or has ended it."""


def hello(job: str, token: str = "") -> bytes:
    return HELLO.pack(
        *(MAGIC, HELLO_KIND, VERSION, HELLO.size, VERSION, 0, 0, 0, -1, 0, os.getpid(), 0, 0, 0),
        *(job.encode(), token.encode(), b"raw", b""),
    )


def connected(path: str) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.settimeout(20)
    peer.connect(path)
    return peer


def received(peer: socket.socket) -> tuple[bytes, list[int]]:
    """One packet with its descriptors."""
    packet, descriptors, _, _ = socket.recv_fds(peer, 4096, 4)
    return packet, descriptors


def attach(peer: socket.socket, packet: bytes) -> tuple[bytes, list[int]]:
    """Says hello. Welcome, or the refusal, with what descriptors it has; empty where the daemon hung up."""
    peer.send(packet)
    answer, descriptors = received(peer)
    if answer and HEADER.unpack_from(answer)[1] == CHALLENGE:
        peer.send(HEADER.pack(MAGIC, PROOF, VERSION, len(answer)) + answer[HEADER.size :])
        answer, descriptors = received(peer)
    return answer, descriptors


class RawSession:
    """Attached, with its rings mapped."""

    def __init__(self, path: str, job: str, token: str = "") -> None:
        self._peer = connected(path)
        welcome, descriptors = attach(self._peer, hello(job, token))
        if len(descriptors) != 3:
            raise Ended(welcome[WELCOME_MESSAGE:].split(b"\0")[0].decode())
        region, page, self.doorbell = descriptors
        self.token = welcome[WELCOME_TOKEN : WELCOME_TOKEN + TOKEN_SIZE].split(b"\0")[0].decode()
        self._region = memoryview(mmap.mmap(region, 0))
        self._positions, self._flags = self._region.cast("Q"), self._region.cast("I")
        self._engine = memoryview(mmap.mmap(page, 4096, prot=mmap.PROT_READ)).cast("I")
        os.close(region)
        os.close(page)
        self._tail = self._head = self._sequence = 0
        self._alive = True
        self._peer.settimeout(None)
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                packet, descriptors = received(self._peer)
                if not packet:
                    break
                self.take(HEADER.unpack_from(packet)[1], packet, descriptors)
        self._alive = False

    def take(self, kind: int, packet: bytes, descriptors: list[int]) -> None:
        """What came on the socket, in the other thread: takes windows without mapping them, and gives them back when
        asked."""
        for descriptor in descriptors:
            os.close(descriptor)
        if kind == WINDOW_RETURN:
            self.give_back(packet)

    def give_back(self, packet: bytes) -> None:
        """Says that the window that this packet asks for is returned."""
        self._peer.send(HEADER.pack(MAGIC, WINDOW_RETURNED, VERSION, len(packet)) + packet[HEADER.size :])

    def stage(self, op: int, items: Sequence[tuple[int, int, int, int]], flags: int = 0) -> None:
        """Puts a request behind the last one. It is the caller's part to keep within the ring."""
        self._sequence += 1
        entries = 1 + len(items) // 2
        message = bytearray(entries * ENTRY)
        REQUEST.pack_into(message, 0, self._sequence, op, entries, flags, len(items), 0, 0)
        message[REQUEST.size : REQUEST.size + len(items) * ITEM.size] = array.array(
            "Q", [field for item in items for field in item]
        ).tobytes()
        self._write(message)

    def stage_often(self, op: int, item: tuple[int, int, int, int], count: int, flags: int = 0) -> None:
        """The same request of one item, so many times."""
        words = array.array("Q")
        for sequence in range(self._sequence + 1, self._sequence + 1 + count):
            words.extend((sequence, op | 1 << 16 | flags << 32, 1, 0, *item))
        self._sequence += count
        self._write(words.tobytes())

    def _write(self, message: bytes | bytearray) -> None:
        begin = self._tail % REQUEST_ENTRIES * ENTRY
        first = min(len(message), REQUEST_ENTRIES * ENTRY - begin)
        self._region[REQUESTS + begin : REQUESTS + begin + first] = message[:first]
        self._region[REQUESTS : REQUESTS + len(message) - first] = message[first:]
        self._tail += len(message) // ENTRY

    def publish(self) -> None:
        self._positions[REQUEST_TAIL] = self._tail
        self.ring_if_needed()

    def ring_if_needed(self) -> None:
        if self._flags[DAEMON_WAITS] or self._engine[ENGINE_SLEEPS]:
            os.write(self.doorbell, b"\1\0\0\0\0\0\0\0")

    def wait(self, entries: int = 1) -> None:
        """Until answers take so many entries. The bell is rung again: Python has no fence between publishing and
        looking."""
        while self._positions[COMPLETION_TAIL] < self._head + entries:
            if not self._alive:
                raise Ended("the session has ended")
            self.ring_if_needed()
            os.sched_yield()

    def skip(self, entries: int) -> None:
        """Waits for so many entries of answers, and gives them back unread."""
        self.wait(entries)
        self._head += entries
        self._positions[COMPLETION_HEAD] = self._head

    @property
    def answered(self) -> bool:
        """An answer is there and was not taken."""
        return bool(self._positions[COMPLETION_TAIL] > self._head)

    def next_answer(self) -> tuple[int, list[Span]]:
        """Its code, and the spans that it grants."""
        self.wait()
        _, code, entries, _, records, detail, _ = COMPLETION.unpack(self._entries(self._head, 1)[: COMPLETION.size])
        body = self._entries(self._head, entries)[COMPLETION.size :]
        count = 0 if code or detail else records
        self._head += entries
        self._positions[COMPLETION_HEAD] = self._head
        return code, [SPAN.unpack_from(body, number * SPAN.size) for number in range(count)]

    def answers(self, count: int) -> list[tuple[int, list[int]]]:
        """Code and leases of each of the next answers."""
        found = (self.next_answer() for _ in range(count))
        return [(code, [span[0] for span in spans]) for code, spans in found]

    def grant(self, op: int, items: Sequence[tuple[int, int, int, int]], flags: int = 0) -> list[Span]:
        """One request and its answer: the spans that it grants. `Ended` where it is refused."""
        self.stage(op, items, flags)
        self.publish()
        code, spans = self.next_answer()
        if code:
            raise Ended(f"request {op} was answered with code {code}")
        return spans

    def call(self, op: int, items: Sequence[tuple[int, int, int, int]], flags: int = 0) -> list[int]:
        """The same: the leases that it grants."""
        return list(dict.fromkeys(span[0] for span in self.grant(op, items, flags)))

    def _entries(self, position: int, count: int) -> bytes:
        begin = position % COMPLETION_ENTRIES
        first = min(count, COMPLETION_ENTRIES - begin)
        at = COMPLETIONS + begin * ENTRY
        whole = bytes(self._region[at : at + first * ENTRY])
        return whole + bytes(self._region[COMPLETIONS : COMPLETIONS + (count - first) * ENTRY])

    def close(self) -> None:
        self._peer.close()
        os.close(self.doorbell)
