"""What the graph of an offloaded model holds instead of the tensors that autograd saves: places in parameters
(``Packed``, ``PackedCast``), activations in tierd, and what stays in the process."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from .activations import Kept, offload_activations
from .cached_cast import PackedCast
from .frames import without_frames
from .saved_hooks import OwnHooks, stored_behind
from .stored_parameter import Packed


@dataclasses.dataclass(frozen=True, slots=True)
class Activation:
    owner: offload_activations
    packed: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Held:
    """The bytes of a parameter that the graph holds itself: the parameter is to be a placeholder by then."""

    value: torch.Tensor


def held(value: torch.Tensor) -> Held:
    return Held(value.detach())


def kept(value: torch.Tensor) -> Any:
    """What is no parameter's, and stays in the process. A node that held its own result would never be freed."""
    return value if value.is_inference() or not _counts_versions(value) else Kept(value)


@without_frames
def unpack(packed: Any) -> torch.Tensor:
    """The tensor that autograd gets back."""
    if isinstance(packed, (Packed, PackedCast)):
        return packed.unpack()
    if isinstance(packed, Activation):
        return packed.owner.unpack(packed.packed)
    if isinstance(packed, Kept):
        return packed.unchanged()
    if isinstance(packed, Held):
        return packed.value
    value: torch.Tensor = packed
    return value


def saved_in_gathered() -> Any:
    """Hooks for what autograd saves while parameters are gathered."""
    return OwnHooks(lambda value: kept(value) if stored_behind(value) is None else held(value), unpack)


def _counts_versions(value: torch.Tensor) -> bool:
    return type(value) in (torch.Tensor, torch.nn.Parameter) and not torch._C._functorch.is_functorch_wrapped_tensor(
        value
    )
