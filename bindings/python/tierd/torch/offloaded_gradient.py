"""OffloadedGradient: what ``parameter.grad`` is while the gradient lies in tierd.

A tensor without bytes, for the code that training loops have between backward and step: clipping, ``GradScaler``,
checks for infinite values. A norm is answered from the figures of the pass that moved the gradient; a factor is kept
and applied when the optimizer reads the gradient. Every other call raises a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..errors import Invalid
from .autograd_guard import autograd_guard, stop_recording
from .tensor_views import no_values

if TYPE_CHECKING:
    from .stored_gradient import StoredGradient

_Tensor: Any = torch.Tensor
_no_dispatch = torch._C.DisableTorchFunctionSubclass


class OffloadedGradient(torch.Tensor):
    _tierd_gradient: StoredGradient

    @staticmethod
    def of(gradient: StoredGradient, shape: torch.Size, dtype: torch.dtype) -> OffloadedGradient:
        with autograd_guard():
            stop_recording()
            handle = no_values(shape, dtype).as_subclass(OffloadedGradient)
        handle._tierd_gradient = gradient
        return handle

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in METADATA:
            return undispatched(func, *args, **(kwargs or {}))
        special = _SPECIAL.get(func)
        if special is None:
            raise Invalid(_sentence(function_name(func)))
        return special(*args, **(kwargs or {}))

    # torch calls __torch_function__ for all methods but these two.

    def set_(self, *args: Any, **kwargs: Any) -> Any:
        raise Invalid(_sentence("set_()"))

    def as_subclass(self, cls: Any) -> Any:
        raise Invalid(_sentence("as_subclass()"))

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"gradient in tierd ({tuple(self.shape)}, {self.dtype})"


def _sentence(name: str) -> str:
    return (
        f"this gradient is in tierd: {name} cannot use it. Norms, clip_grad_norm_, GradScaler and a factor (mul_, "
        "div_) work; tierd.torch.gradient_of(parameter) is a copy in memory"
    )


def function_name(func: object) -> str:
    """What the caller has written: ``norm()``, or ``.data`` of a property."""
    name = getattr(func, "__name__", str(func))
    if name in ("__get__", "__set__", "__delete__"):
        return f".{getattr(getattr(func, '__self__', None), '__name__', name)}"
    return f"{name}()"


def undispatched(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``func`` of torch, without the dispatch to subclasses."""
    with _no_dispatch():
        result = func(*args, **kwargs)
    return result  # Not inside: an interrupt between the two would leave the dispatch off.


def _norm(value: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> torch.Tensor:
    if dim is not None or keepdim:
        raise Invalid("a norm of a gradient in tierd is that of all its elements: leave out dim and keepdim")
    found: torch.Tensor = value._tierd_gradient.norm(float(ord), dtype)
    return found


def _method_norm(value: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, **more: Any) -> torch.Tensor:
    """``Tensor.norm`` and ``torch.norm``: over all elements, the Frobenius norm is that of order 2."""
    return _norm(value, 2 if p in ("fro", None) else p, dim, keepdim, dtype=more.get("dtype"))


def _foreach_norm(values: Sequence[torch.Tensor], ord: Any = 2, dtype: Any = None) -> list[torch.Tensor]:
    return [
        _norm(value, ord, dtype=dtype)
        if isinstance(value, OffloadedGradient)
        else torch._foreach_norm([value], ord, dtype=dtype)[0]
        for value in values
    ]


def _multiply(value: Any, factor: Any) -> Any:
    return _scaled(value, "mul_", factor)


def _divide(value: Any, divisor: Any) -> Any:
    return _scaled(value, "div_", divisor)


def _scaled(value: Any, operation: str, factor: Any) -> Any:
    if isinstance(factor, torch.Tensor) and (isinstance(factor, OffloadedGradient) or factor.numel() != 1):
        raise Invalid(
            f"{_sentence(f'{operation}()')}. The tensor here, of shape {tuple(factor.shape)}, is no single factor"
        )
    value._tierd_gradient.apply(operation, factor)
    return value


def _foreach_multiply(values: Sequence[torch.Tensor], factor: Any) -> None:
    factors = factor if isinstance(factor, (list, tuple)) else [factor] * len(values)
    for value, each in zip(values, factors, strict=True):
        value.mul_(each)


def _foreach_zero(values: Sequence[torch.Tensor]) -> None:
    for value in values:
        value.zero_()


def _unscale(values: Sequence[torch.Tensor], found_inf: torch.Tensor, inverse_scale: torch.Tensor) -> None:
    plain = [value for value in values if not isinstance(value, OffloadedGradient)]
    stored = [value._tierd_gradient for value in values if isinstance(value, OffloadedGradient)]
    for gradient in stored[:1]:  # What could be refused is refused before any is unscaled, also of another type.
        gradient.finish_all()
    finite = [gradient.is_finite() for gradient in stored]
    if plain:
        torch._amp_foreach_non_finite_check_and_unscale_(plain, found_inf, inverse_scale)
    if not all(finite):
        found_inf.fill_(1.0)
    for gradient in stored:
        gradient.apply("mul_", inverse_scale)


def _to(value: Any, *args: Any, **kwargs: Any) -> Any:
    with _no_dispatch():
        probe = torch.empty(0, dtype=value.dtype, device=value.device).to(*args, **kwargs)
    if probe.dtype != value.dtype or probe.device != value.device:
        raise Invalid("this gradient is in tierd and stays in its dtype and on its device")
    return value


def _zero(value: Any) -> Any:
    value._tierd_gradient.zero()
    return value


def _unchanged(value: Any, *args: object) -> Any:
    return value


def getters(*names: str) -> list[Any]:
    """The getters of those properties of a tensor that this torch has."""
    return [getattr(torch.Tensor, name).__get__ for name in names if hasattr(torch.Tensor, name)]


def methods(*names: str) -> list[Any]:
    return [getattr(torch.Tensor, name) for name in names if hasattr(torch.Tensor, name)]


METADATA: set[Any] = {
    *getters(
        "shape", "dtype", "device", "layout", "requires_grad", "is_leaf", "grad_fn", "ndim", "is_sparse",
        "is_sparse_csr", "is_cuda", "is_cpu", "is_meta", "is_quantized", "is_mkldnn", "is_nested", "grad", "_version",
    ),
    *methods(
        "size", "dim", "numel", "element_size", "is_floating_point", "is_complex", "is_inference", "__len__",
        "__hash__",
    ),
    torch.is_floating_point, torch.is_complex, torch.numel,
}  # fmt: skip

# They give back what they are called with.
UNCHANGED = {_Tensor.detach, _Tensor.data.__get__, _Tensor.requires_grad_}

_SPECIAL: dict[Any, Callable[..., Any]] = {
    torch.linalg.vector_norm: _norm,
    torch._foreach_norm: _foreach_norm,
    torch._foreach_mul_: _foreach_multiply,
    torch._foreach_zero_: _foreach_zero,
    torch._amp_foreach_non_finite_check_and_unscale_: _unscale,
    _Tensor.mul_: _multiply,
    _Tensor.__imul__: _multiply,
    _Tensor.div_: _divide,
    _Tensor.norm: _method_norm,
    torch.norm: _method_norm,
    **dict.fromkeys(UNCHANGED, _unchanged),
    _Tensor.zero_: _zero,
    _Tensor.to: _to,
}
