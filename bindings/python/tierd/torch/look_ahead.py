"""LookAhead: asks tierd for tensors before they are needed, in the order in which the last step used them.

The order is recorded in each step and checked, never trusted: a use that is not the next one expected is searched
for among the following ones; where it is not found, nothing is asked for until the order fits again.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..client import Client
from ..errors import Invalid, NotFound
from ..states import Key, Part

# How far a use is searched for in the recorded order, when others were left out.
_SEARCHED = 64

# How many uses a step records at most: those of a model of 1000 parameters in 16 micro-batches.
RECORDED_MAX = 32768


class _Use(NamedTuple):
    parts: tuple[Part, ...]
    nbytes: int


class LookAhead:
    """At most ``bytes_max`` bytes are requested ahead of the use under way, or as many as that use says. Any thread."""

    def __init__(self, client: Client, bytes_max: int) -> None:
        self._client = client
        self.bytes_max = bytes_max
        self._lock = threading.RLock()
        self.fetch_hook: Callable[[Sequence[Part]], None] | None = None  # Called before ranges are requested.
        self.absent: set[Key] = set()  # Tensors that do not exist in this part of the step, and are not asked for.
        self.whole_uses = False  # A use of an absent tensor will not come, and nothing of it is asked for.
        self.shared: set[Key] = set()  # Tensors of the job; the others are the session's.
        self._expected: list[_Use] = []
        self._recorded: list[_Use] = []
        self._position = 0  # The first expected use that has not come.
        self._asked = 0  # The first expected use that has not been requested.
        self._ahead = 0  # Bytes of the uses between the two.
        self._begun_by = 0  # What the first recorded use is of, for `begin_forward`.

    @property
    def recorded(self) -> int:
        """How many uses the step under way has recorded: ``RECORDED_MAX`` at most, its first ones."""
        return len(self._recorded)

    def use(self, parts: Sequence[Part], bytes_max: int = 0) -> None:
        """The ranges are needed now. Each states its length. ``bytes_max``: for this use, where it is more."""
        use = _Use(tuple(parts), sum(part.length for part in parts))
        with self._lock:
            if len(self._recorded) < RECORDED_MAX:
                self._recorded.append(use)
            if self._find(use):
                self._ask(max(bytes_max, self.bytes_max))

    def begin_forward(self, module: int, steps: Callable[[], bool]) -> None:
        """A forward of training begins, the outermost one: of the module with this id. Unless the model ``steps``,
        which ends the order, it ends when the module that has begun it comes again; in any case once it is full."""
        with self._lock:
            full = len(self._recorded) >= RECORDED_MAX
            if full or (self._recorded and module == self._begun_by and not steps()):
                self.end_step()
            if not self._recorded:
                self._begun_by = module

    def begin(self) -> None:
        """The first use comes soon: it is requested, and what follows it."""
        with self._lock:
            self._ask(self.bytes_max)

    def end_step(self, ask: bool = True) -> None:
        """Marks the end of a step: its uses are expected in the next one, whose first are requested now, or when it
        begins."""
        with self._lock:
            self._expected, self._recorded = self._recorded, []
            self._position = self._asked = self._ahead = 0
            if ask:
                self._ask(self.bytes_max)

    def _find(self, use: _Use) -> bool:
        """Moves the position behind the use. False if it is not expected soon."""
        for index in range(self._position, min(self._position + _SEARCHED, len(self._expected))):
            if self._expected[index].parts == use.parts:
                for passed in range(self._position, index + 1):
                    if passed < self._asked:
                        self._ahead -= self._expected[passed].nbytes
                self._position = index + 1
                self._asked = max(self._asked, self._position)
                return True
        return False

    def _ask(self, bytes_max: int) -> None:
        parts: list[Part] = []
        while self._asked < len(self._expected):
            use = self._expected[self._asked]
            if self.whole_uses and any(part.key in self.absent for part in use.parts):
                self._expected[self._asked] = use._replace(nbytes=0)  # Not asked for, and so not counted.
                self._asked += 1
                continue
            if self._ahead and self._ahead + use.nbytes > bytes_max:
                break
            self._ahead += use.nbytes
            self._asked += 1
            parts += _limited([part for part in use.parts if part.key not in self.absent], bytes_max)
        if parts:
            if self.fetch_hook is not None:
                self.fetch_hook(parts)
            self._prefetch(parts)

    def _prefetch(self, parts: list[Part]) -> None:
        """A hint: what was freed since the last step is left out, and what has another size since."""
        try:
            for shared, alike in itertools.groupby(parts, lambda part: part.key in self.shared):
                self._client.prefetch(list(alike), shared=shared)
        except (Invalid, NotFound):
            for part in parts if len(parts) > 1 else ():
                self._prefetch([part])


def _limited(parts: Sequence[Part], bytes_max: int) -> list[Part]:
    """The first ``bytes_max`` bytes of them."""
    limited: list[Part] = []
    for part in parts:
        length = min(part.length, bytes_max)
        if length:
            limited.append(Part(part.key, part.offset, length))
        bytes_max -= length
    return limited
