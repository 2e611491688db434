"""What several scenes have in common: what clients do, once or as long as a scene goes on."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import threading
from collections.abc import Callable, Generator, Iterator

import tierd
from alert_node import MIB, Node, wait_for

Play = Generator[None, None, None]
BLOCK = 2 * MIB


def on_ssd_alone(client: tierd.Client, key: str, content: bytes) -> None:
    client.put(key, content)
    client.flush(key)
    leave_ram(client, key)


def leave_ram(client: tierd.Client, key: str) -> None:
    client.drop(key)
    wait_for(f"{key} leaves RAM", lambda: client.tensor(key).ram_bytes == 0)


def crowd(node: Node, others: int) -> list[tierd.Client]:
    """Processes of one job, to the daemon; the first has stored a tensor that all share."""
    first = node.connect()
    first.put("layer", bytes(4096), shared=True)
    return [first, *(node.connect(token=first.session.token) for _ in range(others))]


def read_once(client: tierd.Client) -> None:
    with client.lease("layer", shared=True, timeout=120):
        pass


def lease_all(client: tierd.Client, leases: contextlib.ExitStack) -> None:
    """Creates tensors and keeps their leases, until only these leases stand in the way of another."""
    with contextlib.suppress(tierd.WouldDeadlock):
        for number in itertools.count(1):
            leases.enter_context(client.create(number, BLOCK))


def create_once(client: tierd.Client) -> None:
    with client.create("room", BLOCK, timeout=120):
        pass


@contextlib.contextmanager
def repeated(work: Callable[[], None], pause: float = 0.5) -> Iterator[Callable[[], None]]:
    """Gives what begins the work on a thread; it ends with the block, which fails where the work failed."""
    ended = threading.Event()

    def run() -> None:
        while not ended.is_set():
            work()
            ended.wait(pause)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        started: list[concurrent.futures.Future[None]] = []
        try:
            yield lambda: started.append(pool.submit(run))
        finally:
            ended.set()
        for each in started:
            each.result(60)
