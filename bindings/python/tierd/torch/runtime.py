"""Runtime: the hooks that bring an offloaded model's parameters, pack what autograd saves, and take its gradients."""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch

from ..errors import Error, Invalid
from . import cached_cast, malloc
from .activations import offload_activations
from .applied_gradient import require_none_given
from .autograd_guard import autograd_guard, stop_recording
from .backward_update import BackwardUpdates
from .counted_writes import watch_data
from .dynamo import opaque, tracer
from .frames import without_frames
from .gradient_watch import GradientWatch
from .look_ahead import LookAhead
from .memory_report import MemoryReport, State, measure
from .module_hooks import remove_hooks
from .offloaded_optimizer import NotTrained, OffloadableOptimizer
from .placeholder import MARKS, NO_COPY, Placeholder, raw_gradient, set_raw_gradient
from .ranks import Ranks
from .reduction import Reduction
from .saved_hooks import stored_behind, watch_hooks
from .saved_tensors import Activation, held, kept, unpack
from .stored_gradient import GradientWindow
from .parameter_store import ParameterStore
from .stored_parameter import StoredParameter, stored_in

PLACES = ("auto", "ram", "ssd", "device")
GRADIENT_WINDOW_BYTES = 16 << 20
ACTIVATIONS_AHEAD_BYTES = 8 << 20
UPDATE_AHEAD_BYTES = 24 << 20


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


class Runtime:
    """What is attached to an offloaded model. A copy of the model, which is made while its parameters are gathered, is
    a plain model: the hooks of the copy find no runtime."""

    def __init__(
        self, model: torch.nn.Module, store: ParameterStore, placement: Placement, update: str, exact_norm: bool
    ) -> None:
        self.store = store
        self.placement = placement
        self.resumed: dict[str, Any] = {}  # The record of the run that is resumed.
        self.optimizer: weakref.ref[OffloadableOptimizer] | None = None
        self.reduction: Reduction | None = None  # Where there are several ranks.
        self.unloaded: set[int] = set()  # Ids of parameters that had no values before, and get none by detach().
        self._model = weakref.ref(model)
        self._in_backward = update == "backward"
        self._checked_backward = -1  # That has found no given gradient.
        self._deferred = update == "deferred"
        self._window = GradientWindow(store.client, GRADIENT_WINDOW_BYTES, exact_norm)
        self._updates = BackwardUpdates(GRADIENT_WINDOW_BYTES)
        self._update_order = LookAhead(store.client, UPDATE_AHEAD_BYTES)  # Of the thread that updates in backward.
        self._activations = (
            offload_activations(store.client, prefetch=ACTIVATIONS_AHEAD_BYTES)
            if placement.in_tierd("activations")
            else None
        )
        self._evaluation_order = LookAhead(store.client, store.training_order.bytes_max)
        for order in (store.training_order, self._evaluation_order):
            order.whole_uses = self._deferred
        self._evaluation_order.shared = store.shared
        self._watch = GradientWatch(self._finished)
        self._forward: Any = None  # The model's own, where the object has one.
        self._own: dict[torch.nn.Module, list[StoredParameter]] = {}  # The parameters of each module with hooks.

    def __deepcopy__(self, memo: object) -> None:
        return None

    def __reduce_ex__(self, protocol: object) -> Any:
        raise Invalid(NO_COPY)

    @property
    def ranks(self) -> Ranks | None:
        """Those that train the model, where there are several."""
        return None if self.reduction is None else self.reduction.ranks

    @property
    def trains(self) -> bool:
        """Whether what the model has in tierd may still change."""
        has_optimizer = self.optimizer is not None and self.optimizer() is not None
        return has_optimizer and any(stored.parameter.requires_grad for stored in self.store.parameters)

    @property
    def activation_bytes(self) -> int:
        return 0 if self._activations is None else self._activations.offloaded_bytes

    def memory_report(self) -> MemoryReport:
        model = self._model()
        assert model is not None
        optimizer = None if self.optimizer is None else self.optimizer()
        state = State() if optimizer is None else optimizer.own_state()  # It is freed with its optimizer.
        activations = [] if self._activations is None else self._activations.tensors
        return measure(self.store.client, model.parameters(), state, model.buffers(), activations)

    @property
    def updates_in_backward(self) -> bool:
        return self._in_backward

    # ---- Hooks ----

    def attach(self) -> None:
        model = self._model()
        assert model is not None
        watch_hooks()
        watch_data()
        model.__dict__["_tierd_runtime"] = self
        runtimes.add(self)
        inside: set[int] = set()  # Modules of one that is a scope as a whole.
        for module in model.modules():
            if id(module) in inside:
                continue
            whole = is_one_scope(module)
            if whole:
                inside.update(id(each) for each in module.modules())
            untyped: Any = module
            self._own[module] = list(stored_in(module.parameters(recurse=whole)))
            module.register_forward_pre_hook(functools.partial(_before_forward, self, module), prepend=True)
            module.register_forward_hook(functools.partial(_after_forward, self, module), always_call=True)
            untyped.register_state_dict_pre_hook(functools.partial(_before_saving, self))
            untyped.register_state_dict_post_hook(functools.partial(_after_saving, self))
            untyped.register_load_state_dict_pre_hook(functools.partial(_before_loading, self))
        self._forward = model.__dict__.get("forward")
        forward = functools.partial(_guarded_forward, self, model.forward)
        model.forward = functools.update_wrapper(forward, model.forward)
        for stored in self.store.parameters:
            if stored.parameter.requires_grad:
                self._watch.begin(stored)
        if self.reduction is None:
            self.store.watch = self._watch.begin  # Parameters that are unfrozen later, which ranks refuse in step().
        else:
            self.reduction.watch_resident()

    def detach(self, resumed: bool) -> None:
        """Removes the hooks and gives the values back to the parameters."""
        model = self._model()
        if model is not None:
            remove_hooks(model, self)
            model.__dict__.pop("_tierd_runtime", None)
            if getattr(model.__dict__.get("forward"), "args", ())[:1] == (self,):
                del model.__dict__["forward"]
                model.__dict__.update({} if self._forward is None else {"forward": self._forward})
        self.store.watch = None
        self._watch.end()
        self._own.clear()
        for stored in self.store.parameters:
            give_back = self.store.give_back.get(stored)
            if give_back is not None:
                give_back()
            if give_back is not None or id(stored.parameter) in self.unloaded:
                continue
            Placeholder.fill(stored.parameter, stored.copy())
            stored.fill_cast(stored.parameter)
            for mark in MARKS:
                delattr(stored.parameter, mark)
        runtimes.discard(self)
        self.store.free(keep=resumed)

    def serve(self, optimizer: OffloadableOptimizer) -> None:
        self.optimizer = weakref.ref(optimizer)
        order = self._update_order if self._in_backward else self.store.training_order
        optimizer.follow(order, self._deferred, self._in_backward)
        optimizer.behind_step = self._after_step
        optimizer.model_report = weakref.WeakMethod(self.memory_report)
        if self.reduction is not None:
            optimizer.agreement = self.reduction
            self.reduction.updates_by = self.optimizer if self._in_backward else None

    def end_thread(self) -> None:
        """Takes back what this thread has left in the process: an interrupt, or a backward that failed."""
        self._unwind()
        self.store.release_all_on_demand()

    def _finished(self, stored: StoredParameter) -> None:
        """Autograd has finished a gradient in the process."""
        if self.reduction is None:
            self._take_gradient(stored)
        else:
            self.reduction.add(stored.parameter, functools.partial(self._take_gradient, stored))

    def before_forward(self, module: torch.nn.Module) -> None:
        try:
            self._enter(module)
        except Exception:
            raise
        except BaseException:
            self._unwind()
            raise

    @without_frames
    def _enter(self, module: torch.nn.Module) -> None:
        scopes = self.store.scopes
        if scopes.open and not scopes.calls and module is self._model() and not _in_backward():
            self._unwind()  # Left by an interrupt.
        self._open(module)
        entered: list[StoredParameter] = []
        scopes.entered.setdefault(module, []).append(entered)
        own = self._own[module]
        scopes.own.append(own)
        if not torch.is_grad_enabled():
            scopes.keep_no_casts()
        for stored in own:
            stored.settle()  # Before the first is in use: an update needs RAM of its own.
        for stored in own:
            stored.enter(entered)
        cached_cast.watch(self.store, module, own)

    def after_forward(self, module: torch.nn.Module) -> None:
        entered = self.store.scopes.entered.get(module)
        if not entered:
            return  # A hook before ours has failed.
        try:
            self._leave(entered)
        except Exception:
            raise
        except BaseException:
            self._unwind()
            raise

    @without_frames
    def _leave(self, entered: list[list[StoredParameter]]) -> None:
        _leave(entered)
        del self.store.scopes.own[-1:]
        self._close()

    def guarded(self, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """``forward``, and an interrupt in it ends all scopes: torch calls hooks only for an ``Exception``."""
        scopes = self.store.scopes
        scopes.calls += 1
        begun = False  # With the buffers of the first rank.
        try:
            if self.reduction is not None:
                self.reduction.begin_forward()
                begun = torch.is_grad_enabled()
            return forward(*args, **kwargs)
        except Error:
            if self.reduction is not None and begun:
                self.reduction.repeat_forward()
            raise
        except Exception:
            raise
        except BaseException:
            self._unwind()
            raise
        finally:
            scopes.calls -= 1

    def _unwind(self) -> None:
        scopes = self.store.scopes
        for entered in scopes.entered.values():
            while entered:
                _leave(entered)
        while scopes.open:
            self._close()

    def _open(self, module: torch.nn.Module) -> None:
        """Its forward begins. One that runs in backward recomputes what checkpointing left out: there, what autograd
        saves is for the hooks of the checkpoint, if it has any."""
        if self.store.scopes.open == 0:  # An evaluation has an order of its own.
            self.store.scopes.own.clear()
            evaluates = not torch.is_grad_enabled() and not _in_backward()
            self.store.scopes.order = self._evaluation_order if evaluates else None
            if torch.is_grad_enabled() and not _in_backward():
                self.store.training_order.begin_forward(id(module), self._steps)
        in_checkpoint = torch._C._autograd._top_saved_tensors_default_hooks(True) if _in_backward() else None
        # Also where no gradients are wanted: a part of the forward may want some.
        self.store.open_scope((self._pack, unpack) if in_checkpoint is None else in_checkpoint)

    def _steps(self) -> bool:
        """Whether the optimizer has something to train, and so makes steps."""
        optimizer = None if self.optimizer is None else self.optimizer()
        groups = [] if optimizer is None else optimizer.param_groups
        return any(parameter.requires_grad for group in groups for parameter in group["params"])

    def _close(self) -> None:
        if not self.store.close_scope():
            return
        scopes = self.store.scopes
        if scopes.order is not None:
            scopes.order = None
            self._evaluation_order.end_step(ask=False)
        elif self._in_backward and not _in_backward():
            self._update_order.begin()  # A backward is to follow.

    def before_saving(self, module: torch.nn.Module) -> None:
        if module is self._model():
            self.store.saving = 0  # A call that failed has left it.
        if self.store.saving == 0:
            for stored in stored_in(module.parameters()):
                stored.settle()  # Which may fail: so before it is counted.
        self.store.saving += 1

    def after_saving(self) -> None:
        self.store.saving = max(0, self.store.saving - 1)

    # ---- What autograd saves, and what it finishes ----

    @without_frames
    def _pack(self, value: torch.Tensor) -> Any:
        packed = self.store.pack(value) or cached_cast.pack(reversed(self.store.scopes.own), value)
        if packed is not None:
            return packed
        if stored_behind(value) is not None:
            return held(value)
        if self._activations is not None:
            return Activation(self._activations, self._activations.pack(value))
        return kept(value)

    @without_frames
    def _take_gradient(self, stored: StoredParameter) -> None:
        if not self.placement.in_tierd("gradients") and not self._in_backward:
            return
        gradient = raw_gradient(stored.parameter)
        if gradient is None or self._stays(stored, gradient):
            return
        if gradient.layout is not torch.strided:
            raise Invalid(f"the gradient of {stored.name!r} is sparse: make it dense, as torch's fused AdamW demands")
        set_raw_gradient(stored.parameter, None)
        with self.store.lock, autograd_guard():
            stop_recording()
            gradient = gradient.detach().resolve_neg()
            if not self._in_backward:
                self._window.take(stored, gradient)
                return
            optimizer = None if self.optimizer is None else self.optimizer()
            if optimizer is None:
                raise Invalid("the optimizer that offload() returned is gone: keep it while the model is trained")
            try:
                update = optimizer.update_by(stored, gradient)
            except NotTrained:  # By this optimizer: the gradient stays, as in plain torch.
                set_raw_gradient(stored.parameter, gradient)
                return
        del gradient
        self._updates.add(update)

    def _stays(self, stored: StoredParameter, gradient: torch.Tensor) -> bool:
        """Whether a gradient is left in the process: it is the caller's tensor, or has a graph of its own."""
        if gradient.requires_grad and (self._in_backward or stored.gradient is not None):
            raise Invalid(
                f"the gradient of {stored.name!r} has a graph of its own (create_graph=True), which it would lose in "
                "tierd: use torch.autograd.grad(), or update='step' and no gradient before it"
            )
        if self._in_backward and self._checked_backward != (backward := torch._C._current_graph_task_id()):
            require_none_given(self.store.parameters)  # By the first gradient, before anything is updated.
            self._checked_backward = backward
        return gradient.requires_grad or (stored.given and self.reduction is None)

    def _after_step(self) -> None:
        self.store.client.step()
        self.store.training_order.end_step()
        self._update_order.end_step(ask=False)
        self._updates.end_step()
        malloc.end_of_step()


# ---- The hooks. Each is a ``functools.partial``, which Python copies with what it is given, unlike a function ----


@opaque
def _before_forward(runtime: Runtime | None, module: torch.nn.Module, *_: object) -> None:
    if runtime is not None:
        runtime.before_forward(module)


@opaque
def _after_forward(runtime: Runtime | None, module: torch.nn.Module, *_: object) -> None:
    if runtime is not None:
        runtime.after_forward(module)


def _guarded_forward(runtime: Runtime | None, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return forward(*args, **kwargs) if runtime is None else runtime.guarded(forward, *args, **kwargs)


def _before_saving(runtime: Runtime | None, module: torch.nn.Module, *_: object) -> None:
    if runtime is not None:
        runtime.before_saving(module)


def _before_loading(
    runtime: Runtime | None, module: object, state: object, prefix: object, metadata: dict[str, Any], *_: object
) -> None:
    # Torch leaves its mark in the state: without it the state can be loaded again.
    if runtime is not None and metadata.pop("assign_to_params_buffers", False):
        raise Invalid("load_state_dict(assign=True) would take the place of parameters in tierd: leave out assign")


def _after_saving(runtime: Runtime | None, *_: object) -> None:
    if runtime is not None:
        runtime.after_saving()


def _leave(scopes: list[list[StoredParameter]]) -> None:
    """Ends the last scope. It stays until all is taken back: an interrupt may come in between."""
    while scopes[-1]:
        scopes[-1][-1].leave(scopes[-1])
    scopes.pop()


runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()  # Those that are attached to a model.


def runtime_of(model: torch.nn.Module) -> Runtime | None:
    found: Runtime | None = model.__dict__.get("_tierd_runtime")
    return found


def required_runtime(model: torch.nn.Module) -> Runtime:
    """``Invalid`` unless the model is offloaded."""
    runtime = runtime_of(model)
    if runtime is None:
        raise Invalid("this model is not offloaded: pass the model that tierd.torch.offload() returned")
    return runtime


def is_one_scope(module: torch.nn.Module) -> bool:
    """Whether the module's forward uses the parameters of modules inside it: it is compiled, or has a kernel for them
    all, which it would not use with a placeholder."""
    of_function = getattr(tracer(), "OptimizedModule", ())  # None is made before it is loaded whole.
    compiled = module._compiled_call_impl is not None or isinstance(module, of_function)
    return compiled or isinstance(module, (torch.nn.MultiheadAttention, torch.nn.TransformerEncoderLayer))


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1
