"""What several scenes have in common: what clients do, once or as long as a scene goes on."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Generator, Iterator

import tierd
from alert_node import MIB, wait_for

Play = Generator[None, None, None]
BLOCK = 2 * MIB


def on_ssd_alone(client: tierd.Client, key: str, content: bytes) -> None:
    client.put(key, content)
    client.flush(key)
    leave_ram(client, key)


def leave_ram(client: tierd.Client, key: str) -> None:
    client.drop(key)
    wait_for(f"{key} leaves RAM", lambda: client.tensor(key).ram_bytes == 0)


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
