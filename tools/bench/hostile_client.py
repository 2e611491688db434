#!/usr/bin/env python3
"""A client that does one thing against its daemon, over and over, until its stdin ends: one of hostile.py's."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import sys
import threading
from collections.abc import Callable

from raw_session import (
    ACQUIRE,
    CREATE,
    FREE,
    RELEASE,
    REQUEST_ENTRIES,
    SHARED,
    STAT,
    WRITE,
    Ended,
    RawSession,
    attach,
    connected,
    hello,
)

SIZE = 4096  # Of its tensors, bytes.
ITEMS_MAX = 1023  # In one request.
WAITERS = 1024
LARGE = 480 << 20  # Bytes of a tensor: all of the bench's arena but the part that is promised to no job.
ATTACHING = 16
# Bytes of a hello in which every change is a fault: magic, kind and size of its header, and reserved fields.
CHECKED = (*range(10), *range(12, 16), *range(36, 40))
JOB = "hostile"


def item(tensor: int) -> tuple[int, int, int, int]:
    return tensor, 0, SIZE, SIZE


def released(leases: list[int]) -> list[tuple[int, int, int, int]]:
    return [(0, 0, 0, lease) for lease in leases]


def greet(socket: str, packet: bytes) -> bytes:
    """What the daemon answers; empty where it hangs up."""
    with connected(socket) as peer:
        answer, descriptors = attach(peer, packet)
        for descriptor in descriptors:
            os.close(descriptor)
    return answer


def attach_and_leave(socket: str) -> None:
    """Many at once: the daemon makes those wait that come too often."""

    def again() -> None:
        while True:
            with contextlib.suppress(OSError):
                greet(socket, hello(JOB))

    threads = [threading.Thread(target=again) for _ in range(ATTACHING)]
    for thread in threads:
        thread.start()
    threads[0].join()


def garbage() -> bytes:
    """Never a hello that is right: it would wait as the others do that come too often."""
    packet = bytearray(hello(JOB))
    for _ in range(random.randint(0, 8)):
        packet[random.randrange(len(packet))] = random.randrange(256)
    packet[random.choice(CHECKED)] ^= random.randint(1, 255)
    return bytes(packet[: random.choice((len(packet), random.randint(1, len(packet))))])


def handshake_garbage(socket: str) -> None:
    greet(socket, garbage())


def doorbell(socket: str) -> None:
    session = RawSession(socket, JOB)
    while True:
        os.write(session.doorbell, b"\1\0\0\0\0\0\0\0")


def churn(socket: str) -> None:
    session = RawSession(socket, JOB)
    for first in itertools.count(1, 256):
        items = [item(tensor) for tensor in range(first, first + 256)]
        leases = session.call(CREATE, items)
        session.call(RELEASE, released(leases))
        session.call(FREE, [(tensor, 0, 0, 0) for tensor, *_ in items])


def stat_flood(socket: str) -> None:
    session = RawSession(socket, JOB)
    session.call(RELEASE, released(session.call(CREATE, [item(1)])))
    half = REQUEST_ENTRIES // 2  # Each answer takes one entry.
    for number in itertools.count():
        session.stage_often(STAT, (1, 0, 0, 0), half)
        session.publish()
        if number:
            session.skip(half)


def long_requests(socket: str) -> None:
    session = RawSession(socket, JOB)
    items = [item(tensor) for tensor in range(1, ITEMS_MAX + 1)]
    session.call(RELEASE, released(session.call(CREATE, items)))
    whole = [(tensor, 0, 0, 0) for tensor, *_ in items]
    while True:
        session.call(RELEASE, released(session.call(ACQUIRE, whole)))


def waiters(socket: str) -> None:
    holder = RawSession(socket, JOB)
    others = RawSession(socket, JOB, holder.token)
    lease = holder.call(CREATE, [item(1)], SHARED)
    while True:
        others.stage_often(ACQUIRE, (1, 0, 0, 0), WAITERS, SHARED)
        others.publish()
        holder.call(RELEASE, released(lease))
        leases = [lease for _, granted in others.answers(WAITERS) for lease in granted]
        for first in range(0, WAITERS, ITEMS_MAX):
            others.call(RELEASE, released(leases[first : first + ITEMS_MAX]))
        lease = holder.call(ACQUIRE, [(1, 0, 0, 0)], SHARED | WRITE)


def large_tensor(socket: str) -> None:
    """Leases it in a loop. Where that is refused, at the deadline of the request, it asks again."""
    session = RawSession(socket, JOB)
    operation, whole = CREATE, (1, 0, LARGE, LARGE)
    while True:
        session.stage(operation, [whole])
        session.publish()
        ((_, leases),) = session.answers(1)
        if leases:
            session.call(RELEASE, released(leases[:1]))
            operation, whole = ACQUIRE, (1, 0, 0, 0)


KINDS: dict[str, Callable[[str], None]] = {
    "attach and leave": attach_and_leave,
    "doorbell writes": doorbell,
    "create/free churn": churn,
    "STAT flood": stat_flood,
    "1,023-item requests": long_requests,
    "1,024 waiters on one tensor": waiters,
    "handshake garbage": handshake_garbage,
    "one tensor of nearly all": large_tensor,
}
# The neighbour beside these has no guarantee: it works within its equal part, which only other users leave it.
BESIDE_EQUAL_PARTS = ("one tensor of nearly all",)


def main() -> None:
    socket, kind = sys.argv[1:]
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    print('{"ready": 1}', flush=True)
    while True:
        with contextlib.suppress(Ended, OSError):
            KINDS[kind](socket)


if __name__ == "__main__":
    main()
