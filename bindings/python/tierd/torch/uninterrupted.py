"""uninterrupted: several small changes, of which an interrupt finds all done, or none; completed: one long call.

Python runs the handlers of signals between two instructions of its own, and none inside a call of C. So a list of calls
that are each one call of C, carried out by one more, has no place in between.
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Callable, Sequence


def uninterrupted(changes: Sequence[Callable[[], object]]) -> None:
    """Carries out ``changes`` in their order. Each is ``functools.partial`` over a function of C, or a kernel of it:
    one that is written in Python would let handlers run. An error of one leaves those behind it undone."""
    collections.deque(map(operator.call, changes), maxlen=0)


def completed(call: Callable[[], object]) -> None:
    """Makes a call that may be repeated: once more where an interrupt ended it, which is raised after that."""
    try:
        call()
    except Exception:
        raise
    except BaseException:
        call()
        raise
