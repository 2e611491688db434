"""Updates in backward: a parameter is updated by another thread as soon as its gradient is complete, while backward
goes on with the layers before it.

The idea: what an update reads, computes and writes is then beside backward's own computing and not between two parts of
it. A gradient stays in the process until its update is done, and at most a few of them do: who brings one more waits.

What holds: from the moment its gradient is taken, the parameter has the update as its ``deferred`` one: a reader of
its values or its state waits for it, or carries it out. The other thread carries out one after the other, in the order
of the gradients. It never takes the store's lock, which the thread that waits for it may have, and waits for RAM only
for a short time: what it cannot carry out stays as it is, and the thread that runs backward goes on with it, and raises
what keeps it from it. All are done when backward returns; each inner backward of a reentrant checkpoint is one.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..errors import NoMemory, Timeout, WouldDeadlock
from .other_thread import OtherThread, Work
from .pending_update import PendingUpdate

if TYPE_CHECKING:
    from .parameter_state import ParameterState
    from .stored_parameter import StoredParameter
    from .tiered_optimizer import TieredOptimizer

# How long the other thread waits for RAM, in seconds.
PATIENCE = 2.0
# How many steps in a row go without it, at most, where there was too little.
_PAUSE_MAX = 64


class BackwardUpdate(PendingUpdate):
    """The parameter's step by ``gradient``, of its shape and of the process."""

    __slots__ = ("_lock", "_stopped", "nbytes")
    gradient: torch.Tensor

    def __init__(
        self, optimizer: TieredOptimizer, stored: StoredParameter, group: dict[str, Any], gradient: torch.Tensor
    ) -> None:
        super().__init__(optimizer, stored, group, gradient, gradient)
        self.nbytes = gradient.nbytes
        self._lock = threading.Lock()  # Taken by the thread that carries it out; behind the store's.
        self._stopped = False

    def _run(self) -> None:
        with self._lock:
            if self.is_due():
                self._carry_out()
                self.drop_gradient()

    def run_beside(self) -> None:
        """For a thread that has nothing of the model under way. Waits for RAM for ``PATIENCE``."""
        with self._lock, torch.no_grad():
            if self.is_due() and not self._stopped:
                self.optimizer.carry_out(self, PATIENCE)
                self.drop_gradient()

    def notes_of_end(self, state: ParameterState) -> list[Callable[[], object]]:
        return [functools.partial(setattr, state, "gradient", None)]  # It is finished until step() ends.

    def stop(self) -> None:
        super().stop()
        with self._lock:
            self._stopped = True

    def drop_gradient(self) -> None:
        self.gradient = self.elements = torch.empty(0, device="cpu")


class BackwardUpdates:
    """Those of one model: at most ``bytes_max`` bytes of gradients, or one gradient, wait. Its methods are called by
    the threads that run backward, one at a time."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._begun: list[tuple[BackwardUpdate, Work]] = []
        self._beside = OtherThread("tierd-update")
        self._process = os.getpid()
        self._backward = -1  # At whose end they are waited for.
        self._pause = 0  # How many steps were to go without the other thread, when there was too little RAM …
        self._paused = 0  # … and how many are left of them.
        self._lacked_memory = False  # In this step.

    def add(self, update: BackwardUpdate) -> None:
        """Begins to carry out an update that its parameter has. Raises what an earlier one has failed with, where there
        is no room for this one before that is done."""
        self._make_room(update.nbytes)
        backward = torch._C._current_graph_task_id()
        if backward not in (-1, self._backward):
            torch.autograd.Variable._execution_engine.queue_callback(self.finish)
            self._backward = backward
        work = self._begin(update)
        if work is None:
            update.run()
            return
        self._begun.append((update, work))
        if backward == -1:
            self.finish()

    def _begin(self, update: BackwardUpdate) -> Work | None:
        """Nothing where it is to be carried out without the other thread."""
        if self._paused or self._lacked_memory or self._process != os.getpid():  # A fork has no other thread.
            return None
        try:
            return self._beside.begin(functools.partial(self._run, update))
        except RuntimeError:  # No thread can be started.
            return None

    def finish(self) -> None:
        """Returns when all are done."""
        self._backward = -1
        while self._begun:
            self._finish_first()

    def _finish_first(self) -> None:
        update, work = self._begun[0]
        work.wait()
        self._begun.pop(0)
        update.run()

    def _make_room(self, nbytes: int) -> None:
        self._begun = [(update, work) for update, work in self._begun if update.is_due()]
        while self._begun and sum(update.nbytes for update, _ in self._begun) + nbytes > self._bytes_max:
            self._finish_first()

    def _run(self, update: BackwardUpdate) -> None:
        """In the other thread. What it cannot carry out stays as it is, for the one that waits for it."""
        try:
            if not self._lacked_memory:  # Else each would wait for its time.
                update.run_beside()
        except (NoMemory, Timeout, WouldDeadlock):
            self._lacked_memory = True
        except Exception:
            pass

    def end_step(self) -> None:
        """Where two threads have too little RAM, the next steps go without the other one: twice as many each time."""
        if self._lacked_memory:
            self._pause = self._paused = min(_PAUSE_MAX, 2 * self._pause + 1)
            self._lacked_memory = False
        elif self._paused:
            self._paused -= 1
        else:
            self._pause = 0
