"""OffloadableOptimizer: what ``offload`` and ``resume`` ask of an optimizer."""

from __future__ import annotations

from typing import Any

import torch

from .look_ahead import LookAhead
from .stored_parameter import StoredParameter


class NotTrained(Exception):
    """The parameter is in no group of the optimizer."""


class OffloadableOptimizer(torch.optim.Optimizer):
    """An optimizer that can update parameters in tierd."""

    def update_offloaded(self, stored: StoredParameter, gradient: torch.Tensor) -> None:
        """Updates one parameter that lies in tierd by a gradient of the process: the whole of its step. ``NotTrained``
        if it is not the optimizer's."""
        raise NotImplementedError

    def follow(self, look_ahead: LookAhead) -> None:
        """What the update needs is used by way of ``look_ahead`` from now on."""
        raise NotImplementedError

    @staticmethod
    def state_bytes_per_element(dtype: torch.dtype, options: dict[str, Any]) -> int:
        """Bytes of state for each element of a parameter, with these options of the optimizer."""
        raise NotImplementedError

    def light_state(self) -> dict[str, Any]:
        """What belongs to the state beside its tensors in tierd: groups and step counts, in plain torch's format."""
        raise NotImplementedError

    def adopt_state(self, light: dict[str, Any]) -> None:
        """Goes on with the tensors that an optimizer of this name has left in tierd, and with its ``light_state``.
        ``Invalid`` or ``NotFound``, and nothing has changed, where they do not fit the parameters."""
        raise NotImplementedError
