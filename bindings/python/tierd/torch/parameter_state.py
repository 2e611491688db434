"""ParameterState: the state tensors of one parameter, in tierd, cut into slices that are updated one after another.

A slice is a range of whole 2 MiB blocks; the last slice is what is left. A fused kernel over whole blocks gives the
same bits as one over the whole tensor: each slice is a multiple of every vector width, so that only the end of the
tensor is computed by the scalar tail. Whole blocks also mean that no two slices share a piece (of at most one block) of
a tensor.
"""

from __future__ import annotations

import dataclasses
import math

import torch

from ..states import Part
from ..errors import Invalid

BLOCK = 2 << 20


@dataclasses.dataclass(slots=True)
class ParameterState:
    """The state of one parameter. Tensors in tierd hold its elements in the order they have in memory."""

    parameter: torch.Tensor
    keys: dict[str, str]  # "exp_avg" → the key in tierd.
    dtype: torch.dtype  # Of all tensors of the state.
    created: bool = False  # Every range of every tensor has been filled once.

    @property
    def size(self) -> int:
        return self.parameter.numel() * self.dtype.itemsize


@dataclasses.dataclass(slots=True)
class Slice:
    """Elements [begin, begin + count) of one parameter."""

    state: ParameterState
    values: torch.Tensor  # All of the parameter, flat.
    gradient: torch.Tensor  # All of its gradient, flat.
    step: torch.Tensor
    begin: int
    count: int

    @property
    def size(self) -> int:
        """Bytes in each of the state's tensors."""
        return self.count * self.state.dtype.itemsize

    def parts(self) -> list[Part]:
        item = self.state.dtype.itemsize
        return [Part(key, self.begin * item, self.size) for key in self.state.keys.values()]

    def creating_parts(self) -> list[Part]:
        assert self.begin == 0
        return [Part(key, 0, self.size, self.state.size) for key in self.state.keys.values()]

    def halves(self) -> list[Slice]:
        """The slice in two halves, divided at a block; the slice alone when it is one block or less."""
        blocks = math.ceil(self.size / BLOCK)
        if blocks < 2:
            return [self]
        first = blocks // 2 * BLOCK // self.state.dtype.itemsize
        return [
            dataclasses.replace(self, count=first),
            dataclasses.replace(self, begin=self.begin + first, count=self.count - first),
        ]


def slices_of(
    state: ParameterState, values: torch.Tensor, gradient: torch.Tensor, step: torch.Tensor, size: int
) -> list[Slice]:
    """The parameter in slices of at most ``size`` bytes of state, at least one block."""
    stride = max(1, size // BLOCK) * BLOCK // state.dtype.itemsize
    count = values.numel()
    return [
        Slice(state, values, gradient, step, begin, min(stride, count - begin)) for begin in range(0, count, stride)
    ]


def units_of(slices: list[Slice], size: int, parts_max: int) -> list[list[Slice]]:
    """Consecutive slices that are leased and updated together: at most ``size`` bytes in each kind of state and
    ``parts_max`` ranges in all; one dtype, and never new ones beside existing ones."""
    units: list[list[Slice]] = []
    filled = 0
    for each in slices:
        unit = units[-1] if units else []
        fits = (
            unit
            and unit[0].state.created
            and each.state.created
            and unit[0].values.dtype == each.values.dtype
            and unit[0].state.dtype == each.state.dtype
            and filled + each.size <= size
            and (len(unit) + 1) * len(each.state.keys) <= parts_max
        )
        if fits:
            unit.append(each)
            filled += each.size
        else:
            units.append([each])
            filled = each.size
    return units


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a dense tensor in the order they have in memory, as a view. ``Invalid`` if it is not dense."""
    if tensor.is_contiguous():
        return tensor.view(-1)
    expected = 1
    for stride, extent in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if extent == 1:
            continue
        if stride != expected:
            raise Invalid(
                f"a parameter of shape {tuple(tensor.shape)} and strides {tensor.stride()} leaves gaps in its memory "
                "or overlaps itself: give the optimizer a dense one"
            )
        expected *= extent
    return tensor.as_strided((tensor.numel(),), (1,))


def flat_like(tensor: torch.Tensor, model: torch.Tensor) -> torch.Tensor:
    """The elements of ``tensor`` in the order ``model`` has in memory: a view where the strides agree, else a copy."""
    if tensor.stride() == model.stride() or (tensor.is_contiguous() and model.is_contiguous()):
        return flat(tensor)
    return flat(torch.empty_like(model, dtype=tensor.dtype).copy_(tensor))
