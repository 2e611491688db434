"""CompletedStep: a step whose update is complete, while what an offloaded model does behind it is not.

An interrupt or an error there leaves ``step()`` too. It may be called again, as after one that came half-way; the
gradients are still there, and must not update a second time. Others may: they are known by what they are, and not from
a mark that each way to change them would have to take away.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TypeAlias

import torch

_Gradients: TypeAlias = "list[tuple[torch.Tensor, int]]"


class CompletedStep:
    def __init__(self) -> None:
        self._gradients: _Gradients | None = None

    def note_of(self, parameters: Iterable[torch.Tensor]) -> Callable[[], object]:
        """For ``uninterrupted``: the step by the gradients that the parameters have is complete."""
        return functools.partial(setattr, self, "_gradients", _gradients_of(parameters))

    def is_by(self, parameters: Iterable[torch.Tensor]) -> bool:
        """Whether the gradients that the parameters have are those of a complete step behind which something failed."""
        noted = self._gradients
        if noted is None:
            return False
        found = _gradients_of(parameters)
        same = len(found) == len(noted) and all(a is b and x == y for (a, x), (b, y) in zip(found, noted, strict=True))
        if not same:  # Else what follows may fail again.
            self.end()
        return same

    def end(self) -> None:
        """All that follows the step is done, or its gradients have no use any more."""
        self._gradients = None


def _gradients_of(parameters: Iterable[torch.Tensor]) -> _Gradients:
    found = [parameter.grad for parameter in parameters]
    return [(each, 0 if each.is_inference() else each._version) for each in found if each is not None]
