"""Placeholder: what a parameter is while its bytes are in tierd only.

It is the same object as before, by a change of its class (as torch's own uninitialised parameters do it), over one NaN
that is expanded to the parameter's shape, or over one 0 where its dtype has no NaN. Shape, dtype and the like are
right. Every other torch call on it either finds a forward or backward under way, and brings the values, or raises a
sentence that names ``gathered``. Code below Python that reads it finds NaN (0), never old bytes.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..errors import Invalid
from .autograd_guard import autograd_guard
from .frames import without_frames
from .offloaded_gradient import OffloadedGradient, function_name, getters, methods, undispatched
from .tensor_views import no_values
from .uninterrupted import uninterrupted

if TYPE_CHECKING:
    from .stored_parameter import StoredParameter

_Tensor: Any = torch.Tensor  # Its getters have no types.
_NEW_PARAMETER = torch.nn.Parameter.__new__.__code__
_no_dispatch = torch._C.DisableTorchFunctionSubclass
NO_COPY = (
    "a model in tierd cannot be pickled, and its copy would have no values: save its state_dict(), or copy the model "
    "in `with tierd.torch.gathered(model):`, as a plain one"
)
MARKS = ("_tierd_stored", "_tierd_class")  # The attributes by which a parameter is known to be in tierd.


class Placeholder(torch.nn.Parameter):
    """A parameter without its bytes. ``_tierd_stored`` says where they are."""

    _tierd_stored: StoredParameter
    _tierd_class: type

    @staticmethod
    def make(
        parameter: torch.nn.Parameter, stored: StoredParameter, notes: Sequence[Callable[[], object]] = ()
    ) -> None:
        """Makes a parameter, whose bytes are in tierd, a placeholder, and takes ``notes`` of that."""
        marks = {"_tierd_stored": stored, "_tierd_class": type(parameter)}
        marked = functools.partial(parameter.__dict__.update, marks)
        Placeholder.empty(parameter, stored.shape, stored.dtype, [marked, *notes])

    @staticmethod
    def empty(
        parameter: torch.Tensor, shape: torch.Size, dtype: torch.dtype, notes: Sequence[Callable[[], object]] = ()
    ) -> None:
        """Makes it one without values, and takes ``notes`` of that, for ``uninterrupted``."""
        with autograd_guard():
            nothing = no_values(shape, dtype)
        _become(parameter, Placeholder, nothing, notes)

    @staticmethod
    def fill(
        parameter: torch.Tensor,
        values: torch.Tensor,
        gathered: bool = False,
        notes: Sequence[Callable[[], object]] = (),
    ) -> None:
        """Makes a placeholder the parameter that it was, over ``values``, and takes ``notes`` of that; with
        ``gathered``, one whose ``grad`` may still lie in tierd."""
        kind: type = Gathered if gathered else parameter._tierd_class  # type: ignore[attr-defined]
        _become(parameter, kind, values, notes)

    @staticmethod
    def on_gradient(parameter: torch.Tensor, hook: Callable[[torch.Tensor], None]) -> Any:
        """Has ``hook`` called when backward has finished the parameter's gradient. Returns what removes it."""
        with _no_dispatch():
            register: Any = parameter.register_post_accumulate_grad_hook
            handle = register(hook)
        return handle

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _METADATA:
            return undispatched(func, *args, **kwargs)
        values = [*args, *kwargs.values()]
        used = list(_placeholders(values))
        special = _SPECIAL.get(func)
        if special is not None and (func in _WITHOUT_BYTES or not any(_is_created(each) for each in used)):
            return special(func, *args, **kwargs)
        for store in {each._tierd_stored.store for each in used}:
            store.begin_use(func, values)
        for placeholder in used:
            if isinstance(placeholder, Placeholder):  # It may be there twice.
                bring(placeholder, func)
        return func(*args, **kwargs)

    # torch calls __torch_function__ for all methods but these two, which would see the NaN.

    def set_(self, *args: Any, **kwargs: Any) -> Any:
        return self.__torch_function__(_Tensor.set_, (), (self, *args), kwargs)

    def as_subclass(self, cls: Any) -> Any:
        return self.__torch_function__(_Tensor.as_subclass, (), (self, cls))

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        stored = self._tierd_stored
        kind = f"{tuple(stored.shape)}, {stored.dtype}"
        return f"Parameter {stored.name!r} in tierd ({kind}, requires_grad={self.requires_grad})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._tierd_stored.store.deep_copy(self._tierd_stored, memo)

    def __reduce_ex__(self, protocol: object) -> Any:
        raise Invalid(NO_COPY)


class Gathered(torch.nn.Parameter):
    """A parameter that has its values in memory of the process, while its gradient lies in tierd. A copy of it is an
    ordinary parameter."""

    _tierd_stored: StoredParameter

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in (_GET_GRADIENT, _SET_GRADIENT):
            return _SPECIAL[func](func, *args, **(kwargs or {}))
        if func is _Tensor.detach and sys._getframe(1).f_code is _NEW_PARAMETER:
            name = args[0]._tierd_stored.name
            raise Invalid(f"Parameter({name!r}) would share what is gathered for a time: give it .detach().clone()")
        return undispatched(func, *args, **(kwargs or {}))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        with unmarked(self):
            return copy.deepcopy(self, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        with unmarked(self):
            return self.__reduce_ex__(protocol)


@contextlib.contextmanager
def unmarked(parameter: torch.nn.Parameter) -> Iterator[None]:
    """Within, a parameter that has its values is an ordinary one, and so is a copy of it."""
    untyped: Any = parameter
    present, marks = type(parameter), {mark: untyped.__dict__[mark] for mark in MARKS}
    try:
        parameter.__class__ = marks["_tierd_class"]
        for mark in MARKS:
            del untyped.__dict__[mark]
        yield
    finally:
        untyped.__dict__.update(marks)
        parameter.__class__ = present


@functools.cache
def can_be_placeholder(dtype: torch.dtype) -> bool:
    """Whether a parameter of this type can: torch fills none of its quantized types, nor those below a byte."""
    try:
        no_values(torch.Size(()), dtype)
    except RuntimeError:
        return False
    return True


def _become(
    parameter: torch.Tensor, kind: type, values: torch.Tensor, notes: Sequence[Callable[[], object]] = ()
) -> None:
    """An interrupt finds values, class and notes that belong together."""
    changes = [
        functools.partial(_Tensor.data.__set__, parameter, values),
        functools.partial(setattr, parameter, "__class__", kind),
    ]
    with autograd_guard(), _no_dispatch():
        uninterrupted([*changes, *notes])


@without_frames
def bring(placeholder: Placeholder, func: object) -> None:
    """Its values, for a call inside a forward or a backward. Else ``Invalid``."""
    stored = placeholder._tierd_stored
    if not stored.store.demand(stored):
        raise Invalid(_sentence(placeholder, f"used by {function_name(func)}"))


def bring_created(value: object, func: Callable[..., Any]) -> None:
    """The values of a placeholder that is being created, for ``func``, which torch does not dispatch."""
    if isinstance(value, Placeholder) and _is_created(value):
        value._tierd_stored.store.begin_use(func, [value])
        bring(value, func)


def on_incoming_gradient(parameter: torch.Tensor, hook: Callable[[torch.Tensor], None]) -> Any:
    """Has ``hook`` called when a backward is about to add to the parameter's gradient. Returns what removes it."""
    with _no_dispatch():
        register: Any = parameter.register_hook
        handle = register(hook)
    return handle


def raw_gradient(parameter: torch.Tensor) -> torch.Tensor | None:
    """The gradient that autograd has left in the process."""
    with _no_dispatch():
        gradient = parameter.grad
    return gradient


def set_raw_gradient(parameter: torch.Tensor, gradient: torch.Tensor | None) -> None:
    with _no_dispatch():
        parameter.grad = gradient


def detach_raw_gradient(parameter: torch.Tensor) -> None:
    """Ends the graph that the gradient has, which holds values of parameters."""
    gradient = raw_gradient(parameter)
    if gradient is not None and gradient.requires_grad:
        set_raw_gradient(parameter, gradient.detach())


def _sentence(placeholder: Placeholder, what: str) -> str:
    name = placeholder._tierd_stored.name
    if wrapper := _wrapper_under_way():
        return (
            f"parameter {name!r} is in tierd and cannot be sharded by {wrapper}: pass process_group= to "
            "tierd.torch.offload(), which reduces the gradients itself, and do not wrap the model"
        )
    return (
        f"parameter {name!r} is in tierd and cannot be {what} outside of the model's forward: "
        f"{placeholder._tierd_stored.store.advice}"
    )


def _wrapper_under_way() -> str:
    """The wrapper of torch.distributed that is using a parameter, for a sentence that says what to do instead."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("torch.distributed.fsdp"):
            return "FSDP"
        frame = frame.f_back
    return ""


def _is_created(placeholder: Placeholder) -> bool:
    """Whether it is being created: it is then used like an ordinary parameter."""
    return placeholder._tierd_stored.store.creating


def without_values(func: object) -> bool:
    """Whether a call gives the same whatever values a parameter has: it replaces them, refers to them, or asks for
    their shape and type."""
    name = getattr(func, "__name__", "")
    getter = getattr(func, "__self__", None)
    if name in ("__get__", "__set__"):
        return getattr(getter, "__name__", "") in ("data", "grad")
    return name in _SHAPED or (name.endswith("_") and not name.endswith("__"))


def _placeholders(values: Any) -> Iterator[Placeholder]:
    for value in values:
        if isinstance(value, Placeholder):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _placeholders(value)
        elif isinstance(value, dict):
            yield from _placeholders(value.values())


# ---- Calls with a meaning of their own ----


def _get_gradient(func: Any, placeholder: Placeholder | Gathered) -> torch.Tensor | None:
    stored = placeholder._tierd_stored
    if stored.gradient is not None:
        in_backward = torch._C._current_graph_task_id() != -1  # Else an interrupt has left the other one.
        if in_backward and raw_gradient(placeholder) is not None:  # In a hook: which is meant, none can tell.
            raise Invalid(f"{stored.name!r} has a gradient in tierd and another one that is being added to it")
        gradient: torch.Tensor = stored.gradient.handle
        return gradient
    raw = raw_gradient(placeholder)
    return raw if raw is not None or stored.applied is None else stored.applied.handle


def _set_gradient(func: Any, placeholder: Placeholder | Gathered, gradient: torch.Tensor | None) -> None:
    stored = placeholder._tierd_stored
    if isinstance(gradient, OffloadedGradient):
        if stored.gradient is None or stored.gradient.handle is not gradient:
            raise Invalid(f"the gradient of another parameter for {stored.name!r}")
        return
    if stored.applied is not None:
        if gradient is stored.applied.handle:
            return
        stored.applied.require_stepped("grad = None")
        stored.applied = None
    if stored.gradient is not None:
        stored.gradient.drop()
    with _no_dispatch():
        func(placeholder, gradient)
    stored.given = gradient is not None


def _set_data(func: Any, placeholder: Placeholder, values: torch.Tensor) -> None:
    if values is placeholder:  # Module.to() sets what it has not changed.
        return
    if not placeholder._tierd_stored.store.demand(placeholder._tierd_stored):
        raise Invalid(_sentence(placeholder, "given other .data"))
    func(placeholder, values)


def _get_data(func: Any, placeholder: Placeholder) -> torch.Tensor:
    bring(placeholder, func)
    return placeholder.data  # Counted (counted_writes).


def _convert(func: Any, placeholder: Any, *args: Any, **kwargs: Any) -> Any:
    """``to`` and its kin: the placeholder where nothing would change. Inside a forward or a backward as any other call,
    such as that of a layer that converts the weights of another one which it wraps."""
    if not isinstance(placeholder, Placeholder):
        for each in _placeholders(args):  # x.to(parameter)
            probe = torch.empty(0, dtype=each.dtype, device=each.device)
            return func(placeholder, *[probe if a is each else a for a in args], **kwargs)
    with _no_dispatch():
        probe = torch.empty(0, dtype=placeholder.dtype, device=placeholder.device)
        converted = func(probe, *args, **{k: v for k, v in kwargs.items() if k != "memory_format"})
    if converted.dtype == placeholder.dtype and converted.device == placeholder.device and not kwargs.get("copy"):
        return placeholder
    if placeholder._tierd_stored.store.demand(placeholder._tierd_stored):
        return func(placeholder, *args, **kwargs)
    raise Invalid(
        f"parameter {placeholder._tierd_stored.name!r} is in tierd as {placeholder.dtype} on {placeholder.device}: "
        f"convert the model before tierd.torch.offload(), not after it (asked for {converted.dtype} on "
        f"{converted.device})"
    )


def _detach(func: Any, placeholder: Placeholder) -> torch.Tensor:
    """For ``Module.state_dict``: a copy. Elsewhere as any other call."""
    stored = placeholder._tierd_stored
    if stored.store.saving:
        return stored.copy_to_save()
    bring(placeholder, func)
    detached: torch.Tensor = func(placeholder)
    return detached


def _of_shape(func: Any, input: Placeholder, *args: Any, **kwargs: Any) -> Any:
    """``zeros_like`` and its kin: of the shape, strides and type alone."""
    stored = input._tierd_stored
    like = torch.empty_strided(stored.shape, stored.strides, dtype=stored.dtype, device="meta")
    return func(like, *args, **{"device": "cpu", **kwargs})


def _of_type(func: Any, placeholder: Placeholder, *args: Any, **kwargs: Any) -> Any:
    """``new_zeros`` and its kin."""
    return func(torch.empty(0, dtype=placeholder.dtype, device=placeholder.device), *args, **kwargs)


def _copy(func: Any, target: Any, source: Any, non_blocking: bool = False) -> Any:
    if isinstance(source, Placeholder):
        bring(source, func)
    if not isinstance(target, Placeholder):
        return func(target, source)
    if torch.is_grad_enabled() and target.requires_grad:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    target._tierd_stored.write(source.detach())
    return target


def _require_grad(func: Any, placeholder: Placeholder, requires_grad: bool = True) -> Placeholder:
    with _no_dispatch():
        func(placeholder, requires_grad)
    return placeholder


def _gradients(func: Any, outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """``torch.autograd.grad``: autograd knows a parameter by its edge of the graph, which needs no values."""
    for output in list(_placeholders([outputs])):
        bring(output, func)
    return func(outputs, _edges(inputs), *args, **kwargs)


def _backward(func: Any, tensors: Any, *args: Any, inputs: Any = None, **kwargs: Any) -> Any:
    for root in list(_placeholders([tensors])):
        bring(root, func)
    return func(tensors, *args, inputs=None if inputs is None else _edges(inputs), **kwargs)


def _edges(inputs: Any) -> list[Any]:
    edge = torch.autograd.graph.get_gradient_edge
    return [undispatched(edge, each) if isinstance(each, Placeholder) else each for each in inputs]


_METADATA: set[Any] = {
    *getters(
        "shape", "dtype", "device", "layout", "requires_grad", "is_leaf", "grad_fn", "ndim", "itemsize", "nbytes",
        "_version", "names", "is_sparse", "is_sparse_csr", "is_cuda", "is_cpu", "is_meta", "is_quantized",
        "is_mkldnn", "is_xpu", "is_mps", "is_nested", "_backward_hooks", "_post_accumulate_grad_hooks", "retains_grad",
        "output_nr", "_base",
    ),
    *(getattr(torch.Tensor, name).__set__ for name in ("requires_grad", "_backward_hooks")),
    _Tensor._post_accumulate_grad_hooks.__set__,
    *methods(
        "size", "dim", "numel", "nelement", "ndimension", "element_size", "is_floating_point", "is_complex",
        "is_inference", "is_signed", "get_device", "has_names", "_is_view", "__len__", "__hash__", "register_hook",
        "register_post_accumulate_grad_hook",
    ),
    torch.is_floating_point, torch.is_complex, torch.numel, torch._has_compatible_shallow_copy_type,
}  # fmt: skip

_SHAPED = {
    *(
        "Parameter",
        "as_subclass",
        "view",
        "view_as",
        "reshape",
        "flatten",
        "t",
        "select",
        "narrow",
        "__getitem__",
        "__setitem__",
    ),
    "new_tensor",
    *("new_empty", "new_zeros", "new_ones", "new_full", "data_ptr", "untyped_storage", "stride", "is_contiguous"),
    *("empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like"),
    *("to", "float", "half", "bfloat16", "double", "cpu", "type"),
}

_GET_GRADIENT, _SET_GRADIENT = _Tensor.grad.__get__, _Tensor.grad.__set__
_SPECIAL: dict[Any, Callable[..., Any]] = {
    _GET_GRADIENT: _get_gradient,
    _SET_GRADIENT: _set_gradient,
    _Tensor.data.__get__: _get_data,
    _Tensor.data.__set__: _set_data,
    _Tensor.detach: _detach,
    _Tensor.copy_: _copy,
    _Tensor.requires_grad_: _require_grad,
    torch.autograd.grad: _gradients,
    torch.autograd.backward: _backward,
    **dict.fromkeys(
        [torch.empty_like, torch.zeros_like, torch.ones_like, torch.full_like, torch.rand_like, torch.randn_like],
        _of_shape,
    ),
    **dict.fromkeys([_Tensor.new_empty, _Tensor.new_zeros, _Tensor.new_ones, _Tensor.new_full], _of_type),
    **dict.fromkeys(
        [_Tensor.to, _Tensor.float, _Tensor.half, _Tensor.bfloat16, _Tensor.double, _Tensor.cpu, _Tensor.cuda], _convert
    ),
}
_WITHOUT_BYTES = {_GET_GRADIENT, _SET_GRADIENT, _Tensor.requires_grad_}
