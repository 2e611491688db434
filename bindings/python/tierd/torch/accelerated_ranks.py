"""AcceleratedRanks: what an Accelerator does differently with a model in tierd and its optimizer.

Accelerate, and the Trainer by way of it, would wrap the model of several ranks in DistributedDataParallel. The model
stays as it is instead, since ``offload(process_group=…)`` reduces the gradients, and Accelerate's ``no_sync`` is
tierd's. The optimizer's state stays where it is too: Accelerate would read all of it to place it on a device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from ..errors import Invalid
from .data_parallel import no_sync
from .offloaded_optimizer import OffloadableOptimizer
from .runtime import runtime_of

_KINDS = ("NO", "MULTI_CPU")  # Of accelerate.DistributedType.


class AcceleratedRanks:
    """For a subclass that has an Accelerator's class behind this one."""

    def prepare_model(self, model: Any, device_placement: Any = None, evaluation_mode: bool = False) -> Any:
        plain: Any = super()
        in_tierd = isinstance(model, torch.nn.Module) and runtime_of(model) is not None
        return plain.prepare_model(model, device_placement, evaluation_mode or in_tierd)  # Which wraps nothing.

    def prepare_optimizer(self, optimizer: Any, device_placement: Any = None) -> Any:
        plain: Any = super()
        if isinstance(optimizer, OffloadableOptimizer):
            device_placement = False
        return plain.prepare_optimizer(optimizer, device_placement)

    @contextlib.contextmanager
    def no_sync(self, model: Any) -> Iterator[None]:
        plain: Any = super()
        in_tierd = isinstance(model, torch.nn.Module) and runtime_of(model) is not None
        with no_sync(model) if in_tierd else plain.no_sync(model):
            yield


def require_supported(accelerator: Any) -> None:
    """``Invalid`` unless the accelerator runs one process, or ranks on the CPU that reduce gradients as DDP does."""
    kind = accelerator.distributed_type
    if kind.name not in _KINDS:
        raise Invalid(
            f"Accelerate runs {accelerator.num_processes} processes ({kind.value}) and would wrap or shard the model, "
            "which cannot be done with parameters and gradients in tierd: run one process, or ranks on the CPU, "
            "without DeepSpeed and FSDP"
        )
    handler = accelerator.ddp_handler
    if handler is not None and (handler.comm_hook.value != "no" or handler.comm_wrapper.value != "no"):
        raise Invalid("a communication hook for DistributedDataParallel: tierd reduces gradients itself, in their type")


def take_ranks_over(accelerator: Any) -> None:
    """Makes the accelerator's class a subclass of the one that it has."""
    if not isinstance(accelerator, AcceleratedRanks):
        plain = type(accelerator)
        accelerator.__class__ = type(plain.__name__, (AcceleratedRanks, plain), {"__module__": plain.__module__})


def require_plain_steps(accelerator: Any, options: dict[str, Any]) -> None:
    """``Invalid`` where ``update="backward"`` would update parameters by gradients that Accelerate scales or adds to
    others afterwards."""
    if options.get("update") != "backward":
        return
    if accelerator.scaler is not None:
        raise Invalid(
            f"update='backward' with mixed_precision={accelerator.mixed_precision!r}, whose GradScaler takes its scale "
            "out of gradients after backward: leave update out, or train in bf16"
        )
    if accelerator.gradient_accumulation_steps > 1:
        raise Invalid(
            f"update='backward' with gradient_accumulation_steps={accelerator.gradient_accumulation_steps}: each "
            "backward would be a step: accumulate nothing, or leave update out"
        )


def group_options(accelerator: Any) -> dict[str, Any]:
    """Options of ``offload`` for the ranks of the accelerator."""
    return {"process_group": True} if accelerator.num_processes > 1 else {}


def follow_handler(model: torch.nn.Module, accelerator: Any) -> None:
    """What the accelerator's handler for DDP says of buffers holds for an offloaded model too."""
    runtime, handler = runtime_of(model), accelerator.ddp_handler
    if runtime is not None and runtime.reduction is not None and handler is not None:
        runtime.reduction.spreads_buffers = handler.broadcast_buffers
