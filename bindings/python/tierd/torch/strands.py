"""Strands: threads of which exactly one runs at a time, each through the same places in turn.

The idea: a strand stops at each place that it comes to, and the strand that goes on is the one whose place is first; of
several at one place, the first by number. So all come by a place in the order of their numbers before any goes on to
the next. A strand that leaves places out is ahead of the others for a while, and waits.

What holds: when one fails, or the caller is interrupted, each of the others ends at the place where it stands, one
after the other; all threads have ended when ``run`` returns.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TypeAlias

from .thread_state import ThreadState

Place: TypeAlias = "tuple[int, ...]"


class Abandoned(BaseException):
    """Ends a strand whose result is no longer wanted. Never seen outside of this package."""


class Strand:
    """One of the threads: a subclass says what it does. Its methods are called in it."""

    def __init__(self) -> None:
        self.index = 0
        self.place: Place = ()
        self.ended = False
        self.passed: set[Hashable] = set()
        self._wanted: Hashable = None  # What strands before this one are to pass first.
        self._strands: Strands | None = None

    def work(self) -> None:
        raise NotImplementedError

    def suspended(self) -> None:
        """Another one may run from here on."""

    def resumed(self) -> None:
        """It is this one's turn, for the first time or again."""

    def copies_place(self) -> Place:
        """Where the copies of activations that are made now stand among those of all strands: backward needs the
        highest first."""
        return ()

    def join(self, strands: Strands, index: int) -> None:
        self._strands = strands
        self.index = index

    def come_to(self, place: Place) -> None:
        """Stops here until it is this strand's turn. A place that is not behind the last one is none to stop at."""
        if place > self.place:
            self.place = place
            self._pause()

    def pass_in_order(self, what: Hashable) -> bool:
        """Returns when all strands before this one have passed ``what``, or ended; then this one has passed it. False
        if it had done so before, and another that follows has too."""
        assert self._strands is not None
        if what in self.passed:
            return not any(what in other.passed for other in self._strands.all[self.index + 1 :])
        self._wanted = what
        if self.must_wait():
            self._pause()
        self._wanted = None
        self.passed.add(what)
        return True

    def must_wait(self) -> bool:
        """Whether it cannot run yet, wherever it stands."""
        assert self._strands is not None
        before = self._strands.all[: self.index]
        wanted = self._wanted
        return wanted is not None and any(not other.ended and wanted not in other.passed for other in before)

    def _pause(self) -> None:
        assert self._strands is not None
        self._strands.pause(self)


class Strands:
    """``moved`` is called when the one that is to run stands at another place than the last, and ``ending`` at the end
    of each, in its thread."""

    def __init__(self, strands: Sequence[Strand], moved: Callable[[], None], ending: Callable[[], None]) -> None:
        self.all = strands
        self._state = ThreadState()
        self._moved = moved
        self._ending = ending
        self._lock = threading.Lock()
        self._turns = [threading.Condition(self._lock) for _ in strands]
        self._changed = threading.Condition(self._lock)  # A strand has ended.
        self._running: Strand | None = None
        self._place: Place = ()
        self._failure: BaseException | None = None
        for index, strand in enumerate(strands):
            strand.join(self, index)

    def run(self) -> None:
        """Runs them all. Raises the first error of any, or an interrupt of the caller, when all have ended."""
        threads: list[threading.Thread] = []
        try:
            with self._failing():
                for strand in self.all:
                    threads.append(self._start(strand))
                with self._lock:
                    self._hand_on()
                self._wait(len(threads))
            while not self._all_ended(len(threads)):
                with self._failing():
                    self._wait(len(threads))
            for thread in threads:  # Not before: interrupted, join() takes a thread that runs for one that has ended.
                thread.join()
            if self._failure is not None:
                raise self._failure
        finally:
            self._fail(Abandoned())  # Where another interrupt has come in between: they end by themselves.
            self._failure = None

    def pause(self, strand: Strand) -> None:
        """Another may run; returns when it is this one's turn again."""
        strand.suspended()
        with self._lock:
            self._hand_on()
            while self._running is not strand:
                self._turns[strand.index].wait()
        strand.resumed()
        if self._failure is not None:
            raise Abandoned

    # ---- Threads ----

    def _start(self, strand: Strand) -> threading.Thread:
        run = functools.partial(contextvars.copy_context().run, self._run, strand)
        thread = threading.Thread(target=run, name=f"tierd-strand-{strand.index}", daemon=True)
        thread.start()
        return thread

    def _run(self, strand: Strand) -> None:
        _thread.strand = strand
        try:
            with self._lock:
                while self._running is not strand and self._failure is None:
                    self._turns[strand.index].wait()
            if self._failure is None:
                self._state.apply()
                strand.resumed()
                try:
                    strand.work()
                finally:
                    strand.suspended()
        except BaseException as error:
            self._fail(error)
        finally:
            self._end(strand)

    def _end(self, strand: Strand) -> None:
        try:
            self._ending()
        except BaseException as error:
            self._fail(error)
        finally:
            with self._lock:
                strand.ended = True
                if self._running is strand:
                    self._hand_on()
                self._changed.notify()

    def _wait(self, started: int) -> None:
        with self._lock:
            while not self._all_ended(started):
                self._changed.wait()

    def _all_ended(self, started: int) -> bool:
        return all(strand.ended for strand in self.all[:started])

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            if self._failure is None:
                self._failure = error
                for turn in self._turns:  # Some may wait for their first turn.
                    turn.notify()

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """An error of the caller ends the strands, each at the next place that it comes to."""
        try:
            yield
        except BaseException as error:
            self._fail(error)

    # ---- Turns ----

    def _hand_on(self) -> None:
        """Of the strands that can run, the first in the order of places is to. Where any is left, one can."""
        able = [strand for strand in self.all if not (strand.ended or strand.must_wait())]
        self._running = min(able, key=lambda strand: (strand.place, strand.index), default=None)
        if self._running is None:
            return
        if self._running.place != self._place:
            self._place = self._running.place
            self._moved()
        self._turns[self._running.index].notify()


class _Thread(threading.local):
    strand: Strand | None = None


_thread = _Thread()


def current() -> Strand | None:
    """The strand that runs in this thread."""
    return _thread.strand
