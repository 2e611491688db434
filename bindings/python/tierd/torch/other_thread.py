"""OtherThread: one thread that does work in turn, for a thread that an interrupt may come to at any point.

``concurrent.futures`` and ``threading.Event`` are written in Python: an interrupt at the end of one of their
``__enter__`` leaves a lock held for good, and both threads wait for it. Here all that two threads share is an object of
C: a queue, and a lock for each piece of work.
"""

from __future__ import annotations

import _thread
import atexit
import functools
import os
import queue
import threading
from collections.abc import Callable

from .. import finalizers
from .uninterrupted import uninterrupted


class Work:
    """``call`` is to be called by the other thread, and raises nothing."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call
        self.under_way = threading.Lock()
        self.under_way.acquire()

    def wait(self) -> None:
        """Returns when it is done."""
        with self.under_way:
            pass


_Queue = queue.SimpleQueue["Work | None"]
_running: dict[_Queue, threading.Lock] = {}  # By their queues: the lock that a thread releases when it ends.
os.register_at_fork(after_in_child=_running.clear)


class OtherThread:
    """It starts with the first work, and ends when this object is gone. Used by one thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: _Queue = queue.SimpleQueue()
        finalizers.attach(self, functools.partial(self._queue.put, None))

    @property
    def is_running(self) -> bool:
        return self._queue in _running

    def begin(self, call: Callable[[], object]) -> Work:
        """Has ``call`` called behind what was begun before. ``RuntimeError`` where no thread can be started."""
        work = Work(call)
        if not self.is_running:
            ended = threading.Lock()
            ended.acquire()
            start = functools.partial(_thread.start_new_thread, _serve, (self._name, self._queue, ended))
            uninterrupted([start, functools.partial(_running.setdefault, self._queue, ended)])
        self._queue.put(work)
        return work


def _serve(name: str, works: _Queue, ended: threading.Lock) -> None:
    threading.current_thread().name = name
    try:
        while (work := works.get()) is not None:
            try:
                work.call()
            finally:
                work.under_way.release()
                del work  # What it refers to does not wait for the next one.
    finally:
        _running.pop(works, None)
        ended.release()


def _end_all() -> None:
    """At exit: a thread that ends in the middle of a kernel, as Python would end it, takes the process with it."""
    for works, ended in list(_running.items()):
        works.put(None)
        with ended:
            pass


atexit.register(_end_all)
