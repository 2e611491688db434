"""Slots: the state tensors of one parameter, in tierd, cut into pieces that the update takes one after another.

A piece is a range of whole 2 MiB blocks (the last one: the rest). Whole blocks because a fused kernel over such slices
gives the same bits as one over the whole tensor (each is a multiple of every vector width, so that only the tensor's
own end is computed by the scalar tail), and because no two pieces then share a piece of the daemon's.
"""

from __future__ import annotations

import dataclasses
import math

import torch

from ..states import Part
from ..errors import Invalid

BLOCK = 2 << 20


@dataclasses.dataclass(slots=True)
class Slot:
    """The state of one parameter. Tensors in tierd hold its elements in the order they have in memory."""

    parameter: torch.Tensor
    keys: dict[str, str]  # "exp_avg" → the key in tierd.
    dtype: torch.dtype  # Of all its tensors.
    created: bool = False  # Every range of every tensor has been filled once.

    @property
    def size(self) -> int:
        return self.parameter.numel() * self.dtype.itemsize


@dataclasses.dataclass(slots=True)
class Piece:
    """Elements [begin, begin + count) of one parameter."""

    slot: Slot
    values: torch.Tensor  # Flat, all of the parameter.
    gradient: torch.Tensor  # Likewise.
    step: torch.Tensor
    begin: int
    count: int

    @property
    def size(self) -> int:
        """Bytes in each of the slot's tensors."""
        return self.count * self.slot.dtype.itemsize

    def parts(self) -> list[Part]:
        item = self.slot.dtype.itemsize
        return [Part(key, self.begin * item, self.size) for key in self.slot.keys.values()]

    def creating_parts(self) -> list[Part]:
        assert self.begin == 0
        return [Part(key, 0, self.size, self.slot.size) for key in self.slot.keys.values()]

    def halves(self) -> list[Piece]:
        """Itself in two, at a block; itself alone when it is one block or less."""
        blocks = math.ceil(self.size / BLOCK)
        if blocks < 2:
            return [self]
        first = blocks // 2 * BLOCK // self.slot.dtype.itemsize
        return [
            dataclasses.replace(self, count=first),
            dataclasses.replace(self, begin=self.begin + first, count=self.count - first),
        ]


def pieces_of(slot: Slot, values: torch.Tensor, gradient: torch.Tensor, step: torch.Tensor, size: int) -> list[Piece]:
    """The parameter in pieces of at most ``size`` bytes of state, at least one block."""
    stride = max(1, size // BLOCK) * BLOCK // slot.dtype.itemsize
    count = values.numel()
    return [Piece(slot, values, gradient, step, begin, min(stride, count - begin)) for begin in range(0, count, stride)]


def units_of(pieces: list[Piece], size: int, parts_max: int) -> list[list[Piece]]:
    """Consecutive pieces that are leased and updated together: at most ``size`` bytes in each kind of state and
    ``parts_max`` ranges in all; one dtype, and never new ones beside existing ones."""
    units: list[list[Piece]] = []
    filled = 0
    for piece in pieces:
        unit = units[-1] if units else []
        fits = (
            unit
            and unit[0].slot.created
            and piece.slot.created
            and unit[0].values.dtype == piece.values.dtype
            and unit[0].slot.dtype == piece.slot.dtype
            and filled + piece.size <= size
            and (len(unit) + 1) * len(piece.slot.keys) <= parts_max
        )
        if fits:
            unit.append(piece)
            filled += piece.size
        else:
            units.append([piece])
            filled = piece.size
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
