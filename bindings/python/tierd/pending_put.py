"""PendingPut: a tensor on its way into tierd."""

from __future__ import annotations

from .errors import Stale
from .layout import UNCERTAIN, Layout
from .session import Session
from .states import CopyFigures
from .waiting import Operation


class Settling:
    """What a client knows of a tensor's layout while a put of it is under way: nothing certain."""

    def __init__(self, known: dict[tuple[int, bool], Layout], tensor: int, layout: Layout) -> None:
        self._known = known
        self._key = tensor, False
        self._before = known.get(self._key)
        self._layout = layout
        known[self._key] = UNCERTAIN

    def end(self, is_put: bool) -> None:
        """The put has ended, and the tensor holds what was put, or what it held before."""
        after = self._layout if is_put else self._before
        if after is None:
            self._known.pop(self._key, None)
        else:
            self._known[self._key] = after


class PendingPut:
    """A tensor that is being stored; made by :meth:`Client.start_put`. Used by one thread."""

    def __init__(self, session: Session, operation: Operation, nbytes: int, settling: Settling) -> None:
        self._session = session
        self._operation = operation
        self._settling: Settling | None = settling
        self.nbytes = nbytes

    def wait(self) -> CopyFigures:
        """Returns when the daemon has the bytes. Raises as :meth:`Client.put` with ``replace`` does. Called once:
        ``Stale`` after that. Until then ``get`` needs dtype and shape of what the tensor holds."""
        settling, self._settling = self._settling, None
        if settling is None:
            raise Stale("this put was waited for before")
        is_put = False
        try:
            self._session.check(self._operation.wait())
            is_put = True
        finally:
            self._operation.end()
            settling.end(is_put)
        outcome = self._operation.outcome
        return CopyFigures(outcome.bytes, outcome.non_finite_count, outcome.sum_of_squares)
