"""PendingPut: a tensor on its way into tierd."""

from __future__ import annotations

from .session import Session
from .states import CopyFigures
from .waiting import Operation


class PendingPut:
    """A tensor that is being stored; made by :meth:`Client.start_put`. Used by one thread."""

    def __init__(self, session: Session, operation: Operation, nbytes: int) -> None:
        self._session = session
        self._operation = operation
        self.nbytes = nbytes

    def wait(self) -> CopyFigures:
        """Returns when the daemon has the bytes. Raises as :meth:`Client.put` with ``replace`` does. Called once."""
        try:
            self._session.check(self._operation.wait())
        finally:
            self._operation.end()
        outcome = self._operation.outcome
        return CopyFigures(outcome.bytes, outcome.non_finite_count, outcome.sum_of_squares)
