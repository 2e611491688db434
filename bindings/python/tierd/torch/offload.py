"""offload: a model trained with its parameters, gradients, optimizer state and activations in tierd.

The idea: hooks on the modules bring each parameter for its module's forward and take it back behind it
(``stored_parameter``). The outermost forward packs what autograd saves: places in parameters, and activations
(``activations``). A hook on each parameter takes its gradient when autograd has finished it: into tierd
(``stored_gradient``), or straight into the optimizer's update. So the process holds a few tensors at any time, whatever
the size of the model, and a plain training loop goes on as it was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from ..client import Client
from ..connecting import connect
from ..errors import Invalid
from ..quantity import byte_count
from . import parameter_state
from .activations import Kept, offload_activations
from .arguments import checked_client
from .optimizer import OffloadableOptimizer
from .placeholder import Placeholder, drop_raw_gradient, raw_gradient
from .stored_gradient import GradientWindow
from .stored_parameter import Packed, ParameterStore, StoredParameter, stored_of

PLACES = ("auto", "ram", "ssd", "device")
UPDATES = ("step", "backward")
GRADIENT_WINDOW_BYTES = 16 << 20
LOOK_AHEAD_BYTES = 24 << 20
SLICE_BYTES = 4 << 20
_numbers = itertools.count(1)


@dataclasses.dataclass(frozen=True, slots=True)
class Placement:
    """Where the parts of a training run lie."""

    parameters: str = "auto"
    gradients: str = "auto"
    optimizer_state: str = "auto"
    activations: str = "auto"

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            place = getattr(self, field.name)
            if place not in PLACES:
                raise Invalid(f"{field.name} is {place!r}: one of {', '.join(PLACES)}")
        if self.optimizer_state == "device":
            raise Invalid("optimizer_state is 'device': that is an optimizer of torch.optim; leave offload() out of it")

    def in_tierd(self, part: str) -> bool:
        return bool(getattr(self, part) != "device")


def offload(
    model: torch.nn.Module,
    optimizer: type[OffloadableOptimizer],
    *,
    client: Client | None = None,
    groups: Callable[[torch.nn.Module], Iterable[Any]] | None = None,
    update: str = "step",
    parameters: str = "auto",
    gradients: str = "auto",
    optimizer_state: str = "auto",
    activations: str = "auto",
    min_bytes: int | str = "64KiB",
    exact_norm: bool = False,
    ram: int | str | None = None,
    ssd: int | str | None = None,
    name: str | None = None,
    **options: Any,
) -> tuple[torch.nn.Module, OffloadableOptimizer]:
    """Moves ``model`` into tierd and returns it with its optimizer. A plain training loop goes on unchanged::

        model, optimizer = tierd.torch.offload(model, tierd.torch.AdamW, lr=3e-4)
        loss = model(batch); loss.backward(); optimizer.step(); optimizer.zero_grad()

    The losses and the parameters have the bits of ``torch.optim``'s fused optimizer. ``options`` are those of
    ``optimizer``; ``groups(model)`` returns its parameter groups (none: all parameters).

    ``update`` says when parameters change. ``"step"``: gradients go into tierd as autograd finishes them, and
    ``step()`` updates; accumulation, clipping and ``GradScaler`` work as usual, with norms within 1e-5 of torch's, or
    with ``exact_norm`` with its bits. ``"backward"``: each parameter is updated as soon as its gradient is there, which
    moves fewer bytes; for loops with one backward to each step, without clipping and scaler. Call ``step()`` in either
    case.

    ``parameters``, ``gradients``, ``optimizer_state`` and ``activations`` are each in tierd (``"auto"``; ``"ram"``
    where a private daemon is to have RAM for all of them, ``"ssd"``) or stay in the process (``"device"``; not the
    state). Parameters below ``min_bytes`` stay too. Without ``client``, the call connects, with a private daemon of
    ``ram`` and ``ssd`` bytes if none runs (default: what this model needs).

    Outside of forward and backward a parameter has no values: see :func:`gathered`. One thread at a time runs the
    model. ``Invalid``: a parameter that cannot be stored, or an option that does not fit.
    """
    placement = Placement(parameters, gradients, optimizer_state, activations)
    if update not in UPDATES:
        raise Invalid(f"update is {update!r}: one of {', '.join(UPDATES)}")
    if not (isinstance(optimizer, type) and issubclass(optimizer, OffloadableOptimizer)):
        raise TypeError(f"optimizer is {optimizer!r}: a class of tierd.torch, such as AdamW")
    if runtime_of(model) is not None:
        raise Invalid("this model is offloaded already")
    chosen = _chosen(model, byte_count(min_bytes, "min_bytes"), placement)
    if client is None:
        need = required(chosen, optimizer, placement, update, options)
        client = connect(ram=need.ram if ram is None else ram, ssd=need.ssd if ssd is None else ssd)
    checked_client(client)
    name = name or f"offload-{next(_numbers)}"
    options.setdefault("slice_bytes", SLICE_BYTES)
    store = ParameterStore(client, name, LOOK_AHEAD_BYTES)
    runtime = Runtime(model, store, placement, update, exact_norm)
    try:
        for path, parameter in chosen:
            store.adopt(path, parameter)
        runtime.attach()
        make: Any = optimizer
        made: OffloadableOptimizer = make(
            model.parameters() if groups is None else groups(model), client=client, name=f"{name}/state", **options
        )
    except BaseException:
        runtime.detach()
        raise
    runtime.serve(made)
    return model, made


class Runtime:
    """What is attached to an offloaded model."""

    def __init__(
        self, model: torch.nn.Module, store: ParameterStore, placement: Placement, update: str, exact_norm: bool
    ) -> None:
        self.store = store
        self.placement = placement
        self.optimizer: weakref.ref[OffloadableOptimizer] | None = None
        self._model = weakref.ref(model)
        self._in_backward = update == "backward"
        self._window = GradientWindow(store.client, GRADIENT_WINDOW_BYTES, exact_norm)
        self._activations = offload_activations(store.client) if placement.in_tierd("activations") else None
        self._entered: dict[torch.nn.Module, list[list[StoredParameter]]] = {}
        self._saved_hooks: Any = None
        self._removable: list[Any] = []

    # ---- Hooks ----

    def attach(self) -> None:
        model = self._model()
        assert model is not None
        model.__dict__["_tierd_runtime"] = self
        inside: set[int] = set()  # Modules of one that is a scope as a whole.
        for module in model.modules():
            if id(module) in inside:
                continue
            whole = _is_one_scope(module)
            if whole:
                inside.update(id(each) for each in module.modules())
            self._entered[module] = []
            untyped: Any = module
            own = list(_stored_in(module.parameters(recurse=whole)))
            self._removable += [
                module.register_forward_pre_hook(self._before(module, own), prepend=True),
                module.register_forward_hook(self._after(module), always_call=True),
                untyped.register_state_dict_pre_hook(lambda *_: self._count_saving(1)),
                untyped.register_state_dict_post_hook(lambda *_: self._count_saving(-1)),
            ]
        model.forward = self._guarded(model.forward)
        for stored in self.store.parameters:
            if stored.parameter.requires_grad:
                self._watch(stored)

    def detach(self) -> None:
        """Removes the hooks and gives the values back to the parameters."""
        for handle in self._removable:
            handle.remove()
        self._removable.clear()
        for stored in self.store.parameters:
            Placeholder.fill(stored.parameter, stored.copy())
            del stored.parameter._tierd_stored  # type: ignore[attr-defined]
        model = self._model()
        if model is not None:
            model.__dict__.pop("_tierd_runtime", None)
            model.__dict__.pop("forward", None)
        self.store.free()

    def serve(self, optimizer: OffloadableOptimizer) -> None:
        self.optimizer = weakref.ref(optimizer)
        optimizer.follow(self.store.look_ahead)
        optimizer.register_step_post_hook(self._after_step)

    def _watch(self, stored: StoredParameter) -> None:
        # Weakly: autograd holds the hook, where the collector does not see it.
        runtime, watched = weakref.ref(self), weakref.ref(stored)

        def finished(parameter: torch.Tensor) -> None:
            attached, of = runtime(), watched()
            if attached is not None and of is not None:
                attached._take_gradient(of)

        Placeholder.on_gradient(stored.parameter, finished)

    def _before(self, module: torch.nn.Module, own: list[StoredParameter]) -> Callable[..., None]:
        def before(_: torch.nn.Module, args: object) -> None:
            if self.store.open_scopes and module is self._model() and not _in_backward():
                self._unwind()  # Left by an interrupt.
            entered: list[StoredParameter] = []
            self._entered[module].append(entered)
            if self.store.open_scope():
                self._open()
            for stored in own:
                stored.enter()
                entered.append(stored)

        return _opaque(before)

    def _after(self, module: torch.nn.Module) -> Callable[..., None]:
        def after(_: torch.nn.Module, args: object, output: object) -> None:
            for stored in self._entered[module].pop():
                stored.leave()
            if self.store.close_scope():
                self._close()

        return _opaque(after)

    def _guarded(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """``forward``, and an interrupt in it ends all scopes: torch calls hooks only for an ``Exception``."""

        @functools.wraps(forward)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            try:
                return forward(*args, **kwargs)
            except Exception:
                raise
            except BaseException:
                self._unwind()
                raise

        return guarded

    def _unwind(self) -> None:
        for scopes in self._entered.values():
            while scopes:
                for stored in scopes.pop():
                    stored.leave()
                if self.store.close_scope():
                    self._close()

    def _open(self) -> None:
        """The outermost forward begins. One that runs in backward recomputes what checkpointing left out: there, what
        autograd saves is for the hooks of the checkpoint, if it has any."""
        in_checkpoint = _in_backward() and torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
        if torch.is_grad_enabled() and not in_checkpoint:
            self._saved_hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack)
            self._saved_hooks.__enter__()

    def _close(self) -> None:
        hooks, self._saved_hooks = self._saved_hooks, None
        if hooks is not None:
            hooks.__exit__(None, None, None)

    def _count_saving(self, change: int) -> None:
        self.store.saving += change

    # ---- What autograd saves, and what it finishes ----

    def _pack(self, value: torch.Tensor) -> Any:
        packed = self.store.pack(value)
        if packed is not None:
            return packed
        if self._activations is not None:
            return _Activation(self._activations, self._activations.pack(value))
        return value if value.is_inference() or not _counts_versions(value) else Kept(value)

    def _take_gradient(self, stored: StoredParameter) -> None:
        if not self.placement.in_tierd("gradients") and not self._in_backward:
            return
        gradient = raw_gradient(stored.parameter)
        assert gradient is not None
        if gradient.layout is not torch.strided:
            raise Invalid(f"the gradient of {stored.name!r} is sparse: make it dense, as torch's fused AdamW demands")
        drop_raw_gradient(stored.parameter)
        with self.store.lock, torch.no_grad():
            if not self._in_backward:
                self._window.take(stored, gradient.detach())
                return
            optimizer = None if self.optimizer is None else self.optimizer()
            if optimizer is None:
                raise Invalid("the optimizer that offload() returned is gone: keep it while the model is trained")
            optimizer.update_offloaded(stored, gradient.detach())

    def _after_step(self, *_: object) -> None:
        self.store.client.step()
        self.store.look_ahead.end_step()


@dataclasses.dataclass(frozen=True, slots=True)
class _Activation:
    owner: offload_activations
    packed: Any


def _unpack(packed: Any) -> torch.Tensor:
    if isinstance(packed, Packed):
        return packed.unpack()
    if isinstance(packed, _Activation):
        return packed.owner.unpack(packed.packed)
    if isinstance(packed, Kept):
        return packed.unchanged()
    value: torch.Tensor = packed
    return value


@dataclasses.dataclass(frozen=True, slots=True)
class Need:
    """What a private daemon needs for a model, in bytes."""

    ram: int
    ssd: int


def required(
    chosen: list[tuple[str, torch.nn.Parameter]],
    optimizer: type[OffloadableOptimizer],
    placement: Placement,
    update: str,
    options: dict[str, Any],
) -> Need:
    """RAM for the largest tensor and what is read ahead and updated beside it, or for all of what is to lie there; SSD
    for everything."""
    trained = [parameter for _, parameter in chosen if parameter.requires_grad]
    parts = {
        "parameters": sum(parameter.nbytes for _, parameter in chosen),
        "gradients": 0 if update == "backward" else sum(parameter.nbytes for parameter in trained),
        "optimizer_state": sum(
            parameter.numel() * optimizer.state_bytes_per_element(parameter.dtype, options) for parameter in trained
        ),
    }
    held = {part: size for part, size in parts.items() if placement.in_tierd(part)}
    largest = max((parameter.nbytes for _, parameter in chosen), default=0)
    window = max(128 << 20, 2 * largest + (48 << 20))
    ram = window + sum(size for part, size in held.items() if getattr(placement, part) == "ram")
    return Need(ram=_whole_mib(ram), ssd=_whole_mib(sum(held.values()) * 33 // 32 + (1 << 30)))


@contextlib.contextmanager
def gathered(*of: torch.nn.Module | torch.Tensor, write: bool = False) -> Iterator[None]:
    """A context in which parameters of an offloaded model have their values, in memory of the process: those of the
    modules and the parameters given. With ``write``, what was changed in them is in tierd when it ends; without, they
    must not be changed."""
    found: dict[StoredParameter, int] = {}
    for each in of:
        parameters = each.parameters() if isinstance(each, torch.nn.Module) else [each]
        for stored in _stored_in(parameters):
            found.setdefault(stored, 0)
    entered: list[StoredParameter] = []
    try:
        for stored in found:
            stored.enter(stored.copy())
            entered.append(stored)
            found[stored] = stored.parameter._version
        yield
        if write:
            for stored in entered:
                if stored.parameter._version != found[stored]:
                    stored.write_back()
        elif changed := [stored.name for stored in entered if stored.parameter._version != found[stored]]:
            raise Invalid(f"{changed[0]!r} was changed in gathered(): pass write=True to keep that")
    finally:
        for stored in entered:
            stored.leave()


def gradient_of(parameter: torch.Tensor) -> torch.Tensor | None:
    """A copy of a parameter's gradient, wherever it lies; ``None`` if there is none."""
    stored = stored_of(parameter)
    if stored is not None and stored.gradient is not None:
        return stored.gradient.copy()
    gradient = raw_gradient(parameter)
    return None if gradient is None else gradient.clone()


def runtime_of(model: torch.nn.Module) -> Runtime | None:
    found: Runtime | None = model.__dict__.get("_tierd_runtime")
    return found


def _chosen(model: torch.nn.Module, min_bytes: int, placement: Placement) -> list[tuple[str, torch.nn.Parameter]]:
    """The parameters that go into tierd, with their names. ``Invalid`` where one cannot."""
    chosen = []
    for path, parameter in model.named_parameters():
        if stored_of(parameter) is not None:
            raise Invalid(f"parameter {path!r} belongs to a model that is offloaded already")
        if not placement.in_tierd("parameters") or parameter.numel() == 0 or parameter.nbytes < min_bytes:
            continue
        if parameter.layout is not torch.strided or parameter.is_meta or parameter.device.type != "cpu":
            raise Invalid(f"parameter {path!r} ({parameter.layout}, {parameter.device}) cannot be stored in tierd")
        if parameter.untyped_storage().nbytes() and parameter.data_ptr() == 0:
            raise Invalid(f"parameter {path!r} of type {type(parameter).__name__} has no bytes of its own")
        parameter_state.flat(parameter.detach())
        chosen.append((path, parameter))
    return chosen


def _stored_in(parameters: Iterable[torch.Tensor]) -> Iterator[StoredParameter]:
    for parameter in parameters:
        stored = stored_of(parameter)
        if stored is not None:
            yield stored


def _is_one_scope(module: torch.nn.Module) -> bool:
    """Whether the module's forward uses the parameters of modules inside it: it is compiled, or has a kernel for them
    all, which it would not use with a placeholder."""
    compiled = isinstance(module, torch._dynamo.OptimizedModule) or module._compiled_call_impl is not None
    return compiled or isinstance(module, (torch.nn.MultiheadAttention, torch.nn.TransformerEncoderLayer))


def _opaque(hook: Callable[..., None]) -> Callable[..., None]:
    """``hook``, into which torch.compile does not look."""
    disable: Any = torch._dynamo.disable
    disabled: Callable[..., None] = disable(hook)
    return disabled


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


def _counts_versions(value: torch.Tensor) -> bool:
    return type(value) in (torch.Tensor, torch.nn.Parameter) and not torch._C._functorch.is_functorch_wrapped_tensor(
        value
    )


def _whole_mib(size: int) -> int:
    return -(-size // (1 << 20)) * (1 << 20)
