"""TieredOptimizer: an optimizer whose state lies in tierd, and is updated in place, slice by slice.

The idea: each kind of a parameter's state (such as Adam's ``exp_avg``) is a tensor of tierd. ``step()`` processes all
parameters in slices of whole blocks: it takes write leases, runs the kernel on the leased memory, and releases the
leases, while tierd reads the next slices. So only a few slices are in RAM at once.

Which kinds of state there are, and the kernel, are the subclass's (``adam``); the rest is here: slices, a step that is
continued, state in plain torch's format and from an earlier run. Not thread-safe, like those of torch.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from .. import finalizers
from ..client import Client
from ..errors import Invalid
from ..quantity import byte_count
from ..states import Part
from . import parameter_state
from .applied_gradient import AppliedGradient, require_stepped
from .arithmetic import Arithmetic
from .autograd_guard import autograd_guard, stop_recording
from .backward_update import BackwardUpdate
from .deferred_update import DeferredUpdate
from .completed_step import CompletedStep
from .discarded_update import DiscardedUpdate, discard, drop_unbegun, require_whole
from .loaded_state import fitting
from .look_ahead import LookAhead
from .offloaded_optimizer import NotTrained, OffloadableOptimizer
from .parameter_state import MASTER, Elements, ParameterState, Slice, Stored
from .pending_update import PendingUpdate, copied, is_pending, options_of
from .placeholder import detach_raw_gradient, raw_gradient
from .slice_update import Operands, SliceUpdate, drop_unfinished, free_state
from .state_name import hold_name, release_name
from .parameter_store import free_all
from .stored_parameter import StoredParameter, model_of, stored_in, stored_of, zeros_like
from .uninterrupted import uninterrupted
from .update_checks import require_steppable, require_updatable

_names = itertools.count(1)


class TieredOptimizer(OffloadableOptimizer):
    """The base. A subclass's constructor gives the parameters to ``torch.optim.Optimizer``'s, or to that of a class of
    torch between the two, and then calls :meth:`_keep_state_in`."""

    _kinds_of_state: tuple[str, ...]  # All that its parameters may have, without the master copy.
    _counts_steps = True  # Whether a parameter's state has a ``step``, the number of its updates.
    _arithmetic = Arithmetic()  # Set before the parameters are given to torch.
    _numbers: dict[torch.Tensor, int]  # Of each parameter, in the order of the groups, as in ``state_dict()``.

    def _kinds(self, group: dict[str, Any]) -> list[str]:
        """The kinds of state of a parameter in a group with these options, in the order of ``_kinds_of_state``."""
        raise NotImplementedError

    def _kernel_call(self, group: dict[str, Any], operands: Operands) -> Callable[[], object]:
        """The kernel over the operands, by one call of C that cannot fail."""
        raise NotImplementedError

    def _keep_state_in(
        self,
        client: Client,
        *,
        master_weights: bool = False,
        slice_bytes: int | str = "8MiB",
        name: str | None = None,
        **unknown: object,
    ) -> None:
        if unknown:
            raise TypeError(f"{type(self).__name__} has no option {next(iter(unknown))!r}")
        self._step_supports_amp_scaling = False  # torch.amp.GradScaler is then to unscale gradients by itself.
        self._client = client
        if master_weights != self._arithmetic.master_weights:
            self._arithmetic = dataclasses.replace(self._arithmetic, master_weights=bool(master_weights))
        self._name = name or f"{type(self).__name__.lower()}-{next(_names)}"
        self._deferred = False  # Parameters in tierd are updated when they are needed next.
        self._stepped: list[torch.Tensor] = []  # The parameters of the last step.
        self._under_way = False  # It has failed in step() itself.
        self._completed = CompletedStep()
        self._discarded = DiscardedUpdate()
        self._next_number = 0  # Of a state. None is used twice: what was asked for ahead goes by them.
        self._tiered: dict[torch.Tensor, ParameterState] = {}
        self._keys: dict[str, int] = {}  # Every tensor of this optimizer that may exist in tierd, and its id.
        self._updates = SliceUpdate(client, self._keys, byte_count(slice_bytes, "slice_bytes"))
        finalizers.attach(self, functools.partial(free_all, client, self._keys))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch's. ``Invalid``, and it is not added, where its parameters cannot be updated by these options."""
        super().add_param_group(param_group)
        try:
            for parameter in self.param_groups[-1]["params"]:
                self._check_parameter(parameter)
        except Invalid:
            self.param_groups.pop()
            raise
        self._numbers = {parameter: number for number, parameter in enumerate(self._parameters())}

    def _check_parameter(self, parameter: torch.Tensor) -> None:
        self._arithmetic.check(parameter)

    # ---- The step ----

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates all parameters once. ``Invalid``: gradients that it cannot use; nothing has changed then. Another
        error, or an interrupt, may leave the step half done; the next call then continues it with the same gradients:
        no slice of a parameter is updated twice, and the result has the same bits."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with autograd_guard():
            stop_recording()
            if not self._completed.is_by(self._parameters()):
                self._step()
            if self.behind_step is not None:
                self.behind_step()
            self._completed.end()
        return loss

    def _step(self) -> None:
        self.settle()
        gone = {stored.parameter for stored in stored_in(self._parameters()) if stored.applied is not None}
        stepped = [each for each in self._parameters() if each.grad is not None and each not in gone]
        self.agreement.before_step(stepped, self)
        for each in stepped:
            detach_raw_gradient(each)
        require_steppable(self, stepped)
        later: list[DeferredUpdate] = []
        work = [(group, self._slices(group, later)) for group in self.param_groups]
        self._stepped, self._under_way = stepped, True
        for group, slices in work:
            self._update_group(group, slices)
            self._update_empty(group)
        decided = [note for update in later for note in update.notes_of_decision()]
        self._end_step([*decided, self._completed.note_of(self._parameters())])
        self.agreement.after_step()

    def settle(self) -> None:
        """Carries out what the last ``step()`` has put off: see ``offload(update="deferred")``."""
        for stored in stored_in(self._parameters()):
            stored.settle()

    def carry_out(self, update: PendingUpdate, patience: float | None = None) -> None:
        """A pending one, or its rest. It waits ``patience`` seconds for RAM, or as long as a step does."""
        parameter, values = update.stored.parameter, Stored(update.stored.key, update.stored.dtype)
        slices = self._slices_of(parameter, update.group, values, update.elements, of=update.gradient, step=update.step)
        self._update_group(update.group, slices, patience)
        ended = functools.partial(setattr, update.stored, "deferred", None)
        uninterrupted([ended, *update.notes_of_end(self._tiered[parameter])])

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As torch's. ``Invalid`` where the last step() has failed half-way: it needs the gradients to go on. So it is
        where backward has updated parameters by them (``update="backward"``), and no step() has ended that."""
        if not self._deferred:
            drop_unbegun(self)
        require_stepped(stored_in(self._parameters()), "zero_grad()")
        require_whole(self, "zero_grad()")
        self._end_step()
        super().zero_grad(set_to_none)
        self._completed.end()

    def discard_update(self, accept: bool = False) -> DiscardedUpdate:
        """Drops what is left of the last step, where its update keeps failing, and its gradients, and says what became
        of each parameter. If ``is_consistent``, the model is what it was before the step; else load what was saved last
        into model and optimizer: until :meth:`load_state_dict` it is not saved, unless you ``accept`` it as it is. Of
        several ranks each calls it; they go on together only if all of them are consistent."""
        found = discard(self, self._stepped, self._under_way)
        self._stepped, self._under_way = [], False
        super().zero_grad()
        self._completed.end()
        self._discarded = found.unless(accept, self._discarded)
        self.agreement.after_discard(accept or found.is_consistent)
        return found

    def _require_savable(self, what: str) -> None:
        require_whole(self, what)
        self._discarded.require_consistent(what)

    def _end_step(self, notes: Sequence[Callable[[], object]] = ()) -> None:
        """By one call of C: an interrupt finds all of the step done, or none of its end."""
        work: list[Callable[[], object]] = [*notes, functools.partial(setattr, self, "_under_way", False)]
        for state in self._tiered.values():
            if not is_pending(state):
                work += state.step_ended()
        uninterrupted(work)

    def _slices(self, group: dict[str, Any], later: list[DeferredUpdate]) -> list[Slice]:
        slices: list[Slice] = []
        options = options_of(group) if self._deferred else {}
        for parameter in group["params"]:
            stored = stored_of(parameter)
            if self._deferred and stored is not None and stored.gradient is not None:
                later.append(self._put_off(stored, group, options))
            elif stored is not None:
                slices += self._stored_slices(stored, group)
            elif parameter.grad is not None:
                slices += self._slices_of(parameter, group, parameter_state.flat(parameter), parameter.grad)
        return slices

    def _put_off(self, stored: StoredParameter, group: dict[str, Any], options: dict[str, Any]) -> DeferredUpdate:
        assert stored.gradient is not None
        elements = stored.gradient.elements()
        self._state_of(stored.parameter, group)
        stored.changed()
        step = copied(self.step_of(stored.parameter))
        return DeferredUpdate(self, stored, options, stored.gradient, elements, step)

    def _stored_slices(self, stored: StoredParameter, group: dict[str, Any]) -> list[Slice]:
        """Those of a parameter in tierd, by its gradient in tierd or in the process."""
        gradient = raw_gradient(stored.parameter) if stored.gradient is None else stored.gradient.elements()
        if gradient is None:
            return []
        values = Stored(stored.key, stored.dtype)
        slices = self._slices_of(stored.parameter, group, values, gradient, of=stored.gradient)
        stored.changed()
        return slices

    def update_by(self, stored: StoredParameter, gradient: torch.Tensor) -> BackwardUpdate:
        groups = [each for each in self.param_groups if any(p is stored.parameter for p in each["params"])]
        if not groups:
            raise NotTrained
        if stored.applied is not None:
            stored.applied.require_dropped()
        require_updatable(self, stored.parameter, groups[0], gradient)
        update = BackwardUpdate(self, stored, options_of(groups[0]), gradient)
        applied = AppliedGradient(stored, self._state_of(stored.parameter, groups[0]))
        stored.changed()
        noted = {"deferred": update, "applied": applied}
        uninterrupted([functools.partial(setattr, stored, name, value) for name, value in noted.items()])
        return update

    def _slices_of(
        self,
        parameter: torch.Tensor,
        group: dict[str, Any],
        values: Elements,
        gradient: Elements,
        of: object = None,
        step: torch.Tensor | None = None,
    ) -> list[Slice]:
        """Its slices. ``of`` is the gradient as an object, by which a step that is continued is known. ``step`` counts
        instead of the state's own."""
        gradient_object = gradient if of is None else of
        tiered = self._state_of(parameter, group)
        if tiered.done and tiered.gradient is not gradient_object:
            raise Invalid(
                "the last step() failed half-way in a parameter, and its gradient is gone since: load a state"
            )
        if tiered.finished and tiered.gradient is gradient_object:
            return []
        tiered.finished, tiered.gradient = False, gradient_object
        if isinstance(gradient, torch.Tensor):
            gradient = parameter_state.flat_like(gradient.resolve_neg(), model_of(parameter))
        step = self.step_of(parameter) if step is None else step
        return parameter_state.slices_of(tiered, values, gradient, step)

    def _state_of(self, parameter: torch.Tensor, group: dict[str, Any]) -> ParameterState:
        """The parameter's state in tierd; made, and filled by the first update, when it has none."""
        tiered = self._tiered.get(parameter)
        if tiered is None:
            hold_name(self._client, self._name, self)
            tiered = self._tiered[parameter] = self._new_state(parameter, group, self._next_number)
            self._next_number += 1
        self.step_of(parameter)
        if tiered.keys:
            self.state.setdefault(parameter, {})  # As in torch, what has no state is not in state_dict().
        return tiered

    def step_of(self, parameter: torch.Tensor) -> torch.Tensor:
        """The counter of its updates, fp32 of no dimension; made with the state."""
        if not self._counts_steps:
            return torch.zeros((), dtype=torch.float32, device="cpu")  # Not kept.
        state = self.state[parameter]
        if "step" not in state:
            state["step"] = torch.zeros((), dtype=torch.float32, device="cpu")
        step: torch.Tensor = state["step"]
        return step

    def _new_state(self, parameter: torch.Tensor, group: dict[str, Any], number: int) -> ParameterState:
        kinds = self._kinds(group)
        if self._arithmetic.has_master(parameter):
            kinds.append(MASTER)
        keys = {kind: f"{self._name}/{number}/{kind}" for kind in kinds}
        dtype = self._arithmetic.state_of(parameter.dtype)
        return ParameterState(parameter, keys, dtype, number, created=not keys)

    def _update_group(self, group: dict[str, Any], slices: list[Slice], patience: float | None = None) -> None:
        drop_unfinished(self._client, self._keys, slices)  # Left by a step whose clean-up was interrupted.
        try:
            self._updates.run(functools.partial(self._kernel_call, group), slices, patience)
        except BaseException as error:
            # The frames that it passed through hold leases and views over them, for which the freeing would wait.
            traceback.clear_frames(error.__traceback__)
            drop_unfinished(self._client, self._keys, slices)
            raise

    def _update_empty(self, group: dict[str, Any]) -> None:
        """Parameters without elements are updated without a slice."""
        for parameter in group["params"]:
            if parameter.numel() == 0 and parameter.grad is not None and not self._tiered[parameter].finished:
                torch._foreach_add_([self.step_of(parameter)], 1)
                self._tiered[parameter].finished = True

    # ---- Plain torch's format ----

    def tiered_keys(self, parameter: torch.Tensor) -> dict[str, str]:
        """Returns the keys of the parameter's state in tierd, for AdamW ``{"exp_avg": "adamw-1/0/exp_avg", …}``."""
        if (stored := stored_of(parameter)) is not None:
            stored.settle()
        return {kind: str(of.key) for kind, of in self.stored_state(parameter).items()}

    def state_options(self) -> dict[str, Any]:
        return self._arithmetic.record()

    def stored_state(self, parameter: torch.Tensor) -> dict[str, Stored]:
        if (tiered := self._tiered.get(parameter)) is None or not (tiered.created and tiered.size):
            return {}
        return {kind: Stored(key, tiered.dtype) for kind, key in tiered.keys.items()}

    def state_dict(self) -> dict[str, Any]:
        """Returns the whole state in plain torch's format, as a copy that takes as much memory as torch.optim's."""
        self.settle()
        self._require_savable("state_dict()")

        def fetch(optimizer: torch.optim.Optimizer, packed: dict[str, Any]) -> None:
            self._fetch_state(packed)

        fetched = self.register_state_dict_post_hook(fetch, prepend=True)  # Before the caller's own.
        try:
            return super().state_dict()
        finally:
            fetched.remove()

    def _fetch_state(self, packed: dict[str, Any]) -> None:
        for index, parameter in enumerate(self._parameters()):
            if index not in packed["state"]:
                continue
            state = packed["state"][index] = dict(packed["state"][index])
            if "step" in state:
                state["step"] = state["step"].clone()
            if (tiered := self._tiered.get(parameter)) is None:
                continue
            for kind, key in tiered.keys.items():
                value = zeros_like(parameter, tiered.dtype)
                if tiered.created and tiered.size:
                    self._client.get_into(key, parameter_state.flat(value.detach()))
                state[kind] = value

    def light_state(self) -> dict[str, Any]:
        self.settle()
        self._require_savable("persist()")
        parameters = self._parameters()
        numbers = {
            index: tiered.number
            for index, parameter in enumerate(parameters)
            if (tiered := self._tiered.get(parameter)) is not None and tiered.created
        }
        # Beside what the options ask for now: what they asked for before goes on when they do again.
        kinds = {index: list(self._tiered[parameters[index]].keys) for index in numbers}
        packed, record = super().state_dict(), self._arithmetic.record()
        return {"packed": packed, "numbers": numbers, "kinds": kinds, "arithmetic": record}

    def require_adoptable(self, light: dict[str, Any]) -> None:
        self._found(light)

    def adopt_state(self, light: dict[str, Any]) -> None:
        found = self._found(light)
        super().load_state_dict(light["packed"])
        self._next_number = max(light["numbers"].values(), default=-1) + 1
        for parameter, tiered in found:
            self._tiered[parameter] = tiered
            self._keys.update({key: self._client.tensor_id(key) for key in tiered.keys.values()})

    def leave_state(self) -> None:
        self._keys.clear()
        release_name(self._client, self._name, self)

    def _found(self, light: dict[str, Any]) -> list[tuple[torch.Tensor, ParameterState]]:
        """The state of each parameter that had one, as an optimizer of this name has left it."""
        persisted = light.get("arithmetic", self._arithmetic.record())
        if persisted != self._arithmetic.record():
            given = ", ".join(f"{name}={value!r}" for name, value in persisted.items())
            raise Invalid(f"the run was persisted with {given}: resume it with the same")
        hold_name(self._client, self._name, self)
        return list(self._adoptable(light["packed"], light["numbers"], light.get("kinds", {})))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a ``state_dict()`` of this class, or of the one in ``torch.optim``, into tierd. ``Invalid``: the state
        does not fit the parameters, and nothing has changed. Another error of tierd leaves no state, as before the
        first step."""
        loaded: list[tuple[torch.Tensor, dict[str, Any]]] = []
        self.settle()
        hold_name(self._client, self._name, self)

        def split(optimizer: torch.optim.Optimizer, given: dict[str, Any]) -> dict[str, Any]:
            loaded.extend(fitting(self, given))
            states, kinds = given["state"].items(), (*self._kinds_of_state, MASTER)
            light = {
                index: {kind: value for kind, value in state.items() if kind not in kinds} for index, state in states
            }
            return {**given, "state": light}

        # After the caller's own hooks, which may correct the state first; before those that read it.
        before = self.register_load_state_dict_pre_hook(split)
        after = self.register_load_state_dict_post_hook(lambda optimizer: self._replace(loaded), prepend=True)
        try:
            super().load_state_dict(state_dict)
        finally:
            before.remove()
            after.remove()

    def _adoptable(
        self, packed: dict[str, Any], numbers: dict[int, int], kinds: dict[int, list[str]]
    ) -> Iterator[tuple[torch.Tensor, ParameterState]]:
        """The state of each parameter that had one, as it lies in tierd."""
        sizes = [[len(group["params"]) for group in groups] for groups in (self.param_groups, packed["param_groups"])]
        if sizes[0] != sizes[1]:
            raise Invalid(f"the parameter groups have {sizes[0]} parameters, those that were persisted {sizes[1]}")
        for group, saved in zip(self.param_groups, packed["param_groups"], strict=True):
            for parameter, index in zip(group["params"], saved["params"], strict=True):
                if index not in numbers:
                    continue
                tiered = self._new_state(parameter, saved, numbers[index])
                if index in kinds:
                    tiered.keys = {kind: f"{self._name}/{tiered.number}/{kind}" for kind in kinds[index]}
                for key in tiered.keys.values() if tiered.size else ():
                    size = self._client.tensor(key).size
                    if size != tiered.size:
                        raise Invalid(f"{key!r} has {size} bytes, the state of its parameter {tiered.size}")
                tiered.created = True
                yield parameter, tiered

    def _replace(self, loaded: list[tuple[torch.Tensor, dict[str, Any]]]) -> None:
        """Replaces the present state by one that fits."""
        states = dict(loaded)
        try:
            self._drop_state()
            self._completed.end()
            self._discarded = DiscardedUpdate()
            self.agreement.after_load()
            for group in self.param_groups:
                if "fused" in group:
                    group["fused"], group["foreach"] = True, None
                for parameter in group["params"]:
                    if parameter in states:
                        self._load(parameter, group, states[parameter])
        except BaseException:
            self._drop_state()  # A part of it with the step of the rest would look complete.
            self.state.clear()
            raise

    def _drop_state(self) -> None:
        for tiered in self._tiered.values():
            tiered.finished = False
            free_state(self._client, self._keys, tiered)
        self._tiered.clear()

    def _load(self, parameter: torch.Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        if self._counts_steps:
            step = self.state[parameter]["step"]
            self.state[parameter]["step"] = torch.as_tensor(step, dtype=torch.float32, device="cpu").clone()
        tiered = self._state_of(parameter, group)
        for kind, key in tiered.keys.items():
            value = (parameter if kind == MASTER and kind not in state else state[kind]).detach()
            if tiered.size:
                # Noted before it exists, and also if another made it: a load replaces that.
                self._keys[key] = self._client.tensor_id(key)
                self._client.put(
                    key, parameter_state.flat_like(value.to("cpu", tiered.dtype), model_of(parameter)), replace=True
                )
        tiered.created = True

    def _parameters(self) -> list[torch.Tensor]:
        return [parameter for group in self.param_groups for parameter in group["params"]]

    def follow(self, look_ahead: LookAhead, deferred: bool, beside_backward: bool) -> None:
        self._updates.look_ahead = look_ahead
        self._updates.beside_backward = beside_backward
        self._deferred = deferred

    @property
    def fetch_hook(self) -> Callable[[Sequence[Part]], None] | None:
        """Called with the ranges of a unit of slices before they are first asked for; for tests and measurements."""
        return self._updates.fetch_hook

    @fetch_hook.setter
    def fetch_hook(self, hook: Callable[[Sequence[Part]], None] | None) -> None:
        self._updates.watch_fetches(hook)

    def __reduce__(self) -> str:
        raise Invalid("an optimizer with state in tierd cannot be pickled or deep-copied: use its state_dict()")
