"""AppliedGradient: the gradient of a parameter that backward has updated by it, with ``offload(update="backward")``.

Nothing of the gradient is left. Code that measures, scales, clips or drops gradients between backward and ``step()``
comes too late: it finds ``parameter.grad`` to be a tensor without bytes, each use of which raises a sentence, where it
would find no gradient otherwise and go on. It stays until ``zero_grad()``, which may follow ``step()`` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from ..errors import Invalid
from .autograd_guard import autograd_guard, stop_recording
from .offloaded_gradient import METADATA, UNCHANGED, function_name, undispatched
from .tensor_views import no_values

if TYPE_CHECKING:
    from .parameter_state import ParameterState
    from .stored_parameter import StoredParameter

_INSTEAD = "offload with update='deferred', whose gradients can be clipped, scaled, read and dropped"


class AppliedGradient:
    """``state`` is that of the parameter in its optimizer."""

    __slots__ = ("_handle", "_state", "_stored")

    def __init__(self, stored: StoredParameter, state: ParameterState) -> None:
        self._stored = stored
        self._state = state
        self._handle: _Handle | None = None

    @property
    def handle(self) -> torch.Tensor:
        """What ``parameter.grad`` is."""
        if self._handle is None:
            self._handle = _Handle.of(self._stored.name, self._stored.shape, self._stored.dtype)
        return self._handle

    @property
    def is_stepped(self) -> bool:
        """Whether ``step()`` has ended the step to which it belongs, or the update was discarded."""
        return not self._state.finished and self._stored.deferred is None

    def require_stepped(self, what: str) -> None:
        """``Invalid`` where ``what`` would drop the gradient and not the update, which plain torch would not make."""
        if not self.is_stepped:
            raise Invalid(
                f"{what} would drop a gradient by which backward has updated parameter {self._stored.name!r} already "
                "(update='backward'): call step() after each backward, or discard_update(), which says what became of "
                "the step. Where a loss only passes through a model, set requires_grad_(False) on it meanwhile, or "
                f"{_INSTEAD}"
            )

    def require_dropped(self) -> None:
        """``Invalid`` where another gradient arrives, which plain torch would add to this one."""
        if self.is_stepped:
            raise Invalid(
                f"a gradient of parameter {self._stored.name!r}, which still has that of the last step: call "
                f"zero_grad() before backward, or, to accumulate gradients, {_INSTEAD}"
            )
        raise Invalid(
            f"a second gradient of parameter {self._stored.name!r} in one step, which has updated it: call "
            f"optimizer.step() after each backward, or {_INSTEAD}"
        )


def require_stepped(parameters: Iterable[StoredParameter], what: str) -> None:
    """``Invalid`` unless ``step()`` was called since backward has updated the parameters."""
    for stored in parameters:
        if stored.applied is not None:
            stored.applied.require_stepped(what)


def require_none_given(parameters: Iterable[StoredParameter]) -> None:
    """``Invalid`` where one that is trained has a gradient of the caller's."""
    for stored in parameters:
        if stored.given and stored.parameter.requires_grad:
            raise Invalid(
                f"{stored.name!r} was given a gradient, and backward updates parameters at once: offload with "
                "update='deferred', which leaves such a gradient in the process"
            )


class _Handle(torch.Tensor):
    _tierd_name: str

    @staticmethod
    def of(name: str, shape: torch.Size, dtype: torch.dtype) -> _Handle:
        with autograd_guard():
            stop_recording()
            handle = no_values(shape, dtype).as_subclass(_Handle)
        handle._tierd_name = name
        return handle

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in METADATA:
            return undispatched(func, *args, **(kwargs or {}))
        if func in UNCHANGED:
            return args[0]
        raise Invalid(_sentence(func, next(_handles([*args, *(kwargs or {}).values()]))))

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"gradient by which backward has updated {self._tierd_name!r} ({tuple(self.shape)}, {self.dtype})"


def _handles(values: Iterable[Any]) -> Any:
    for value in values:
        if isinstance(value, _Handle):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _handles(value)


def _sentence(func: object, handle: _Handle) -> str:
    begin = f"backward has updated parameter {handle._tierd_name!r} by this gradient already (update='backward')"
    if func is torch._amp_foreach_non_finite_check_and_unscale_:
        return (
            f"{begin}, so no GradScaler can take its scale out, nor leave the step out: if the loss was scaled, go on "
            f"from what was saved last, and {_INSTEAD}"
        )
    if func in (torch.Tensor.zero_, torch._foreach_zero_):
        return f"{begin}: leave zero_grad() its set_to_none=True"
    return f"{begin}, and {function_name(func)} comes too late: {_INSTEAD}"
