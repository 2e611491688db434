"""Takes over what a script has made for plain torch: an optimizer, before its first step, and its schedulers.

So an integration repeats nothing: learning rate, decay, groups and the like are those that the script, or the library
it uses, gave to ``torch.optim``.
"""

from __future__ import annotations

from typing import Any

import torch

from ..errors import Invalid
from .offload import OFFLOADED_ALREADY, offload
from .offloaded_optimizer import OffloadableOptimizer
from .adam import Adam, AdamW
from .sgd import SGD
from .stored_parameter import stored_in

_CLASSES: dict[type, type[OffloadableOptimizer]] = {
    torch.optim.AdamW: AdamW,
    torch.optim.Adam: Adam,
    torch.optim.SGD: SGD,
}
# Choices among torch's implementations: tierd always runs the fused kernel.
_IMPLEMENTATION = ("fused", "foreach", "capturable", "differentiable", "decoupled_weight_decay")


def offload_as(model: torch.nn.Module, optimizer: torch.optim.Optimizer, **options: Any) -> OffloadableOptimizer:
    """Offloads ``model`` with an optimizer in tierd that has the groups and options of ``optimizer``, and returns it.
    ``options`` are those of :func:`tierd.torch.offload`. ``Invalid``: tierd has no such optimizer, or it has made steps
    already."""
    kind = _CLASSES.get(type(optimizer))
    if kind is None:
        raise Invalid(
            f"the optimizer is {type(optimizer).__name__}: tierd has torch's AdamW, Adam and SGD (of the Trainer's "
            "optim: adamw_torch_fused, adamw_torch and sgd)"
        )
    if optimizer.state:
        raise Invalid("the optimizer has made steps already: offload the model before its first step")
    for option in ("capturable", "differentiable"):
        if any(group.get(option) for group in optimizer.param_groups):
            raise Invalid(f"{option}=True: an optimizer in tierd cannot do that")
    if kind is Adam and any(group.get("decoupled_weight_decay") for group in optimizer.param_groups):
        kind = AdamW
    groups = [
        {name: value for name, value in group.items() if name not in _IMPLEMENTATION}
        for group in optimizer.param_groups
    ]
    defaults = {
        name: value for name, value in optimizer.defaults.items() if name not in _IMPLEMENTATION and name != "params"
    }
    _, made = offload(model, kind, groups=lambda _: groups, **defaults, **options)
    return made


def require_resident(optimizer: torch.optim.Optimizer) -> None:
    """``Invalid`` where a plain optimizer has parameters of a model that is offloaded, which it could not update."""
    for group in optimizer.param_groups:
        if any(not stored.store.creating for stored in stored_in(group["params"])):
            raise Invalid(OFFLOADED_ALREADY)


def follow(scheduler: Any, old: torch.optim.Optimizer, new: torch.optim.Optimizer) -> None:
    """Has a scheduler that was made for ``old`` change ``new``."""
    for each in getattr(scheduler, "_schedulers", []):
        follow(each, old, new)
    if getattr(scheduler, "optimizer", None) is old:
        scheduler.optimizer = new
