"""OffloadableOptimizer: what ``offload`` and ``resume`` ask of an optimizer."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..client import Client
from ..states import Key
from .discarded_update import DiscardedUpdate
from .dynamo import untraced
from .look_ahead import LookAhead
from .memory_report import MemoryReport, State, measure
from .parameter_state import Stored
from .stored_parameter import StoredParameter

if TYPE_CHECKING:
    from .backward_update import BackwardUpdate


class NotTrained(Exception):
    """The parameter is in no group of the optimizer."""


class Agreement:
    """What the ranks that train one model agree on before and behind a step (``reduction``). Of one rank: nothing."""

    def before_step(self, stepped: Sequence[torch.Tensor], optimizer: torch.optim.Optimizer) -> None:
        """The parameters ``stepped`` are about to be updated by ``optimizer``. Raises, on all ranks, where one of them
        is not to be."""

    def after_step(self) -> None:
        """They are updated, or certain to be."""

    def after_discard(self, consistent: bool) -> None:
        """What was left of the last update was dropped."""

    def after_load(self) -> None:
        """The state is another one."""


class OffloadableOptimizer(torch.optim.Optimizer):
    """An optimizer that can update parameters in tierd."""

    _client: Client
    agreement = Agreement()
    # What the offloaded model does behind each step. Where it fails, the next step() by the same gradients is the rest.
    behind_step: Callable[[], object] | None = None
    # That of the offloaded model which it trains.
    model_report: weakref.WeakMethod[Callable[[], MemoryReport]] | None = None

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch's."""
        untraced(super().add_param_group)(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As torch's."""
        untraced(super().zero_grad)(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """As torch's."""
        state: dict[str, Any] = untraced(super().state_dict)()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's."""
        untraced(super().load_state_dict)(state_dict)

    def memory_report(self) -> MemoryReport:
        """Where parameters, gradients, state and activations lie at this moment, and what the processes take: print it,
        let a notebook show it, or ``plot`` it. Of an offloaded model it counts all; else the optimizer's parameters."""
        of_model = None if self.model_report is None else self.model_report()
        if of_model is not None:
            return of_model()
        return measure(self._client, (p for group in self.param_groups for p in group["params"]), self.own_state())

    def own_state(self) -> State:
        """The state as it lies now, for a report: no update is carried out for it."""
        keys: list[Key] = []
        whole = 0
        for group in self.param_groups:
            for parameter in group["params"]:
                keys += [of.key for of in self.stored_state(parameter).values()]
                options = {**group, **self.state_options()}
                if parameter.requires_grad:
                    whole += parameter.numel() * self.state_bytes_per_element(parameter.dtype, options)
        values = [value for state in self.state.values() for value in state.values()]
        in_process = sum(value.nbytes for value in values if isinstance(value, torch.Tensor))
        return State(keys, in_process, whole)

    def state_options(self) -> dict[str, Any]:
        """Options of :meth:`state_bytes_per_element` that are not in the parameter groups."""
        return {}

    def tiered_keys(self, parameter: torch.Tensor) -> dict[str, str]:
        """The keys of a parameter's state in tierd, by kind; none before the first step."""
        raise NotImplementedError

    def update_by(self, stored: StoredParameter, gradient: torch.Tensor) -> BackwardUpdate:
        """The update of one parameter that lies in tierd by a gradient of the process: the whole of its step, which is
        pending now. ``NotTrained`` if it is not the optimizer's."""
        raise NotImplementedError

    def follow(self, look_ahead: LookAhead, deferred: bool, beside_backward: bool) -> None:
        """What the update needs is used by way of ``look_ahead`` from now on. With ``deferred``, ``step()`` decides,
        and parameters in tierd are updated when they are needed next; with ``beside_backward``, in the middle of
        backward, which has much in RAM itself."""
        raise NotImplementedError

    def settle(self) -> None:
        """Carries out what ``step()`` has put off."""
        raise NotImplementedError

    def discard_update(self, accept: bool = False) -> DiscardedUpdate:
        """Drops what is left of the last step, and says for each parameter what became of it."""
        raise NotImplementedError

    @staticmethod
    def state_bytes_per_element(dtype: torch.dtype, options: dict[str, Any]) -> int:
        """Bytes of state for each element of a parameter, with these options of the optimizer."""
        raise NotImplementedError

    def light_state(self) -> dict[str, Any]:
        """What belongs to the state beside its tensors in tierd: groups and step counts, in plain torch's format."""
        raise NotImplementedError

    @property
    def client(self) -> Client:
        """The session that has the state."""
        return self._client

    def stored_state(self, parameter: torch.Tensor) -> dict[str, Stored]:
        """The tensors of the parameter's state in tierd (``exp_avg``, …); none before its first update."""
        raise NotImplementedError

    def leave_state(self) -> None:
        """Lets go of what :meth:`adopt_state` has taken over: it stays in tierd when the optimizer is gone."""
        raise NotImplementedError

    def require_adoptable(self, light: dict[str, Any]) -> None:
        """``Invalid`` or ``NotFound``, and nothing has changed, unless :meth:`adopt_state` can go on with ``light``."""
        raise NotImplementedError

    def adopt_state(self, light: dict[str, Any]) -> None:
        """Goes on with the tensors that an optimizer of this name has left in tierd, and with its ``light_state``.
        ``Invalid`` or ``NotFound``, and nothing has changed, where they do not fit the parameters."""
        raise NotImplementedError
