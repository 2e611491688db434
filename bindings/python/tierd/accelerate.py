"""tierd for Hugging Face Accelerate, by one line::

    accelerator = tierd.accelerate.offload(Accelerator())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

``prepare`` moves the model into tierd, and gives back an optimizer in tierd with the groups and options of the
``torch.optim`` one. The rest of the script stays as it is; losses and parameters have the bits of the fused optimizer.
``save_state`` writes plain Accelerate's files, tensor by tensor, and ``load_state`` reads its own and plain ones.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from .errors import Invalid

try:
    import accelerate as _accelerate
except ModuleNotFoundError as missing:
    if missing.name != "accelerate":
        raise
    raise ModuleNotFoundError("tierd.accelerate needs accelerate: pip install accelerate", name="accelerate") from None

import torch

from .torch.accelerated_ranks import (
    AcceleratedRanks,
    follow_handler,
    group_options,
    require_plain_steps,
    require_supported,
)
from .torch.checkpoint_file import load_optimizer, load_weights, save_optimizer
from .torch.offloaded_optimizer import OffloadableOptimizer
from .torch.plain_optimizer import follow, offload_as, require_resident
from .torch.runtime import runtime_of
from .torch.stand_ins import StandIns

__all__ = ["offload"]


def offload(accelerator: Any, **options: Any) -> Any:
    """Has ``accelerator.prepare`` move the model that it is given into tierd, and returns the accelerator, whose class
    is now a subclass of the one that it had. ``options`` are those of :func:`tierd.torch.offload`, without those of the
    optimizer.

    Of several ranks (torchrun, on the CPU), each calls this; gradients are averaged as by :func:`tierd.torch.offload`
    with a ``process_group``, and Accelerate's ``no_sync`` and ``accumulate`` work as usual.

    ``Invalid``: it uses DeepSpeed, FSDP, several devices, or compiles the model; in ``prepare``: a model without its
    optimizer, more than one model, an optimizer that tierd does not have, or a plain one for a model that is offloaded
    already. Not thread-safe.
    """
    if not isinstance(accelerator, _accelerate.Accelerator):
        raise TypeError(f"accelerator is a {type(accelerator).__name__}: pass an accelerate.Accelerator")
    if isinstance(accelerator, _Offloaded):
        raise Invalid("this accelerator is one that offloads already")
    if "process_group" in options:
        raise Invalid("leave out process_group: Accelerate has it")
    require_supported(accelerator)
    if accelerator.state.dynamo_plugin.backend != _accelerate.utils.DynamoBackend.NO:
        raise Invalid("Accelerate is set to compile the whole model: compile its blocks before, without dynamo_backend")
    plain = type(accelerator)
    accelerator.__class__ = type(plain.__name__, (_Offloaded, plain), {"__module__": plain.__module__})
    accelerator._tierd_options = options
    accelerator._tierd_replaced = []
    return accelerator


class _Offloaded(AcceleratedRanks):
    """What an Accelerator does differently."""

    _models: list[Any]
    _optimizers: list[Any]
    _save_model_state_pre_hook: dict[Any, Any]
    _tierd_options: dict[str, Any]
    _tierd_replaced: list[tuple[torch.optim.Optimizer, OffloadableOptimizer]]  # Plain ones, for their schedulers.
    _tierd_stand_ins: list[StandIns] | None = None

    def prepare(self, *args: Any, **more: Any) -> Any:
        plain: Any = super()
        models = [each for each in args if isinstance(each, torch.nn.Module) and runtime_of(each) is None]
        optimizers = [each for each in args if _is_plain(each)]
        for each in optimizers:
            require_resident(each)
        if models and (len(models), len(optimizers)) != (1, 1):
            raise Invalid(
                f"prepare() was given {len(models)} models and {len(optimizers)} optimizers of torch.optim: pass one "
                "model together with its optimizer"
            )
        given = list(args)
        if models:
            require_plain_steps(self, self._tierd_options)
            made = offload_as(models[0], optimizers[0], **group_options(self), **self._tierd_options)
            follow_handler(models[0], self)
            self._tierd_replaced.append((optimizers[0], made))
            given = [made if each is optimizers[0] else each for each in args]
        for each in given:
            for old, new in self._tierd_replaced:
                follow(each, old, new)
        return plain.prepare(*given, **more)

    def free_memory(self, *objects: Any) -> Any:
        plain: Any = super()
        self._tierd_replaced.clear()  # Else it would keep the optimizers, and they their models.
        return plain.free_memory(*objects)

    def unwrap_model(self, model: Any, keep_fp32_wrapper: bool = True, *args: Any, **more: Any) -> Any:
        plain: Any = super()
        if not keep_fp32_wrapper and runtime_of(model) is not None and "_original_forward" in model.__dict__:
            model.forward = model.__dict__.pop("_original_forward")  # It is bound: Accelerate would bind it once more.
        return plain.unwrap_model(model, keep_fp32_wrapper, *args, **more)

    # ---- Checkpoints ----

    def save_state(self, output_dir: Any = None, safe_serialization: bool = True, **more: Any) -> Any:
        """As Accelerate's. With ``safe_serialization=False``, or hooks of ``register_save_state_pre_hook``, which are
        given the weights, the whole model is in memory while it is saved."""
        plain: Any = super()
        if not self._is_in_tierd():
            return plain.save_state(output_dir, safe_serialization, **more)
        self._tierd_stand_ins = [] if safe_serialization and not self._save_model_state_pre_hook else None
        try:
            with self._without_optimizers() as optimizers:
                folder = plain.save_state(output_dir, safe_serialization, **more)
            for each in self._tierd_stand_ins or () if self._writes() else ():
                each.fill(folder)
        finally:
            self._tierd_stand_ins = None
        for number, optimizer in enumerate(optimizers if self._writes() else []):
            save_optimizer(optimizer.optimizer, os.path.join(folder, _numbered("optimizer", number, "bin")))
        plain.wait_for_everyone()  # What one rank has written, all may load.
        return folder

    def _writes(self) -> bool:
        """Whether this process is the one that writes what is the same for all."""
        accelerator: Any = self
        on_each = accelerator.project_configuration.save_on_each_node
        return bool(accelerator.is_local_main_process if on_each else accelerator.is_main_process)

    def get_state_dict(self, model: Any, unwrap: bool = True) -> Any:
        plain: Any = super()
        if self._tierd_stand_ins is None:
            return plain.get_state_dict(model, unwrap)
        self._tierd_stand_ins.append(StandIns(model))
        return self._tierd_stand_ins[-1].state_dict.copy()

    def load_state(self, input_dir: Any = None, load_kwargs: Any = None, **more: Any) -> Any:
        """As Accelerate's. Of several ranks all call it, and it waits for the one that is writing."""
        plain: Any = super()
        if not self._is_in_tierd():
            return plain.load_state(input_dir, load_kwargs, **more)
        plain.wait_for_everyone()  # One rank writes what all load, and may be at it.
        with self._without_optimizers() as optimizers:

            def load(models: list[Any], folder: str) -> None:
                """In the place of Accelerate, which leaves out the models that are no longer in the list."""
                files = [
                    os.path.join(folder, _numbered("model", number, "safetensors")) for number in range(len(models))
                ]
                if all(os.path.isfile(file) for file in files):
                    for model, file in zip(models, files, strict=True):
                        loaded = load_weights(model, file)
                        if more.get("strict", True):
                            _require_all(loaded, model, file)
                    models.clear()
                for number, optimizer in enumerate(optimizers):
                    load_optimizer(optimizer.optimizer, os.path.join(folder, _numbered("optimizer", number, "bin")))

            handle = plain.register_load_state_pre_hook(load)
            try:
                return plain.load_state(input_dir, load_kwargs, **more)
            finally:
                handle.remove()

    def _is_in_tierd(self) -> bool:
        """Whether all that is prepared is. What is not only in tierd is saved and loaded by Accelerate alone."""
        optimizers = [getattr(each, "optimizer", each) for each in self._optimizers]
        return bool(self._models) and (
            all(runtime_of(each) is not None for each in self._models)
            and all(isinstance(each, OffloadableOptimizer) for each in optimizers)
        )

    @contextlib.contextmanager
    def _without_optimizers(self) -> Iterator[list[Any]]:
        """Accelerate finds none to save or load."""
        optimizers, self._optimizers = self._optimizers, []
        try:
            yield optimizers
        finally:
            self._optimizers = optimizers


def _is_plain(given: Any) -> bool:
    return isinstance(given, torch.optim.Optimizer) and not isinstance(
        given, (OffloadableOptimizer, _accelerate.optimizer.AcceleratedOptimizer)
    )


def _numbered(name: str, number: int, ending: str) -> str:
    """The name that Accelerate gives to a file."""
    return f"{name}.{ending}" if number == 0 else f"{name}_{number}.{ending}"


def _require_all(loaded: Any, model: torch.nn.Module, file: str) -> None:
    """``Invalid`` where the file has not all of the model. Of tied weights, it has one."""
    state = model.state_dict(keep_vars=True)
    missing = set(loaded.missing_keys)
    there = {id(value) for name, value in state.items() if name not in missing}
    absent = sorted(name for name in missing if id(state[name]) not in there)
    if absent or loaded.unexpected_keys:
        raise Invalid(f"{file} does not fit the model: missing {absent[:3]}, unexpected {loaded.unexpected_keys[:3]}")
