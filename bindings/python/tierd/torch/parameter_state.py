"""ParameterState: the state tensors of one parameter, in tierd, cut into slices that are updated one after another.

A slice is a range of one or more whole 2 MiB blocks; the last slice is what is left. A fused kernel over whole blocks
gives the same bits as one over the whole tensor: each slice is a multiple of every vector width, so that only the end
of the tensor is computed by the scalar tail. Whole blocks also mean that no two slices share a piece (of at most one
block) of a tensor.

A parameter's values and gradient are in the process, or in tierd too (``Stored``); then each slice of them is leased
beside the state's.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TypeAlias

import torch

from ..states import Key, Part
from ..errors import Invalid

BLOCK = 2 << 20
MASTER = "master"  # The kind of state that is an fp32 copy of a bf16 or fp16 parameter, and is updated instead of it.


@dataclasses.dataclass(slots=True)
class ParameterState:
    """The state of one parameter. Tensors in tierd hold its elements in the order they have in memory."""

    parameter: torch.Tensor
    keys: dict[str, str]  # "exp_avg" → the key in tierd.
    dtype: torch.dtype  # Of all tensors of the state.
    number: int = 0  # In the keys.
    created: bool = False  # Every range of every tensor has been filled once.
    done: int = 0  # Elements that an unfinished step has updated: the first ones. 0 between steps.
    finished: bool = False  # The step under way has updated all of it …
    gradient: object = None  # … by this gradient.

    @property
    def size(self) -> int:
        return self.parameter.numel() * self.dtype.itemsize

    def step_ended(self) -> list[functools.partial[None]]:
        """The notes of that, for ``uninterrupted``."""
        return [functools.partial(setattr, self, "finished", False), functools.partial(setattr, self, "gradient", None)]


# A method in place, such as "mul_", and its operand: a number, or a tensor of one element.
Factor: TypeAlias = "tuple[str, float | torch.Tensor]"
ZEROS: Factor = ("fill_", 0.0)  # By which elements become zeros, whatever they are.


@dataclasses.dataclass(frozen=True, slots=True)
class Stored:
    """All elements of a tensor that lies in tierd, in the order they have in memory."""

    key: Key
    dtype: torch.dtype
    factors: tuple[Factor, ...] = ()  # Not yet applied to what is stored; each product is rounded.

    def part(self, begin: int, count: int) -> Part:
        return Part(self.key, begin * self.dtype.itemsize, count * self.dtype.itemsize)


def times(elements: torch.Tensor, factors: tuple[Factor, ...]) -> torch.Tensor:
    """The elements as ``mul_`` or ``div_`` by each factor in turn would leave them; themselves where there is none."""
    for number, (operation, factor) in enumerate(factors):
        if number == 0:
            elements = elements.clone()
        getattr(elements, operation)(factor)
    return elements


# Flat, in the process; or in tierd.
Elements: TypeAlias = "torch.Tensor | Stored"


@dataclasses.dataclass(slots=True)
class Slice:
    """Elements [begin, begin + count) of one parameter."""

    state: ParameterState
    values: Elements  # All of the parameter.
    gradient: Elements  # All of its gradient.
    step: torch.Tensor
    begin: int
    count: int

    @property
    def size(self) -> int:
        """Bytes in each of the state's tensors."""
        return self.count * self.state.dtype.itemsize

    @property
    def end(self) -> int:
        return self.begin + self.count

    @property
    def parts_count(self) -> int:
        return len(self.state.keys) + isinstance(self.values, Stored) + isinstance(self.gradient, Stored)

    def state_parts(self) -> list[Part]:
        item = self.state.dtype.itemsize
        return [Part(key, self.begin * item, self.size) for key in self.state.keys.values()]

    def value_parts(self) -> list[Part]:
        return [self.values.part(self.begin, self.count)] if isinstance(self.values, Stored) else []

    def gradient_parts(self) -> list[Part]:
        return [self.gradient.part(self.begin, self.count)] if isinstance(self.gradient, Stored) else []

    def parts(self) -> list[Part]:
        """The ranges that are leased for the slice."""
        return self.state_parts() + self.value_parts() + self.gradient_parts()

    def existing_parts(self) -> list[Part]:
        """The ranges that an update of this slice reads."""
        return (self.state_parts() if self.state.created else []) + self.value_parts() + self.gradient_parts()

    def creating_parts(self) -> list[Part]:
        assert self.begin == 0
        return [Part(key, 0, self.size, self.state.size) for key in self.state.keys.values()]


def slices_of(state: ParameterState, values: Elements, gradient: Elements, step: torch.Tensor) -> list[Slice]:
    """What an unfinished step has left of the parameter, in slices of one block of each tensor: such a slice is
    contiguous wherever its block lies, and needs no mapping of its own."""
    stride = _aligned_elements(state, values, gradient)
    count = state.parameter.numel()
    return [
        Slice(state, values, gradient, step, begin, min(stride, count - begin))
        for begin in range(state.done, count, stride)
    ]


def _aligned_elements(state: ParameterState, values: Elements, gradient: Elements) -> int:
    """The smallest number of elements that is whole blocks of each tensor in tierd."""
    stored = [each.dtype.itemsize for each in (values, gradient) if isinstance(each, Stored)]
    return BLOCK // min([state.dtype.itemsize, *stored])


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
            and (len(unit) + 1) * each.parts_count <= parts_max
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
    if not is_dense(tensor.shape, tensor.stride()):
        raise Invalid(
            f"a parameter of shape {tuple(tensor.shape)} and strides {tensor.stride()} leaves gaps in its memory "
            "or overlaps itself: give the optimizer a dense one"
        )
    return tensor.as_strided((tensor.numel(),), (1,))


def is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether the elements fill one range of memory, each at one place."""
    expected = 1
    for stride, extent in sorted(zip(strides, shape, strict=True)):
        if extent == 1:
            continue
        if stride != expected:
            return False
        expected *= extent
    return True


def flat_like(tensor: torch.Tensor, model: torch.Tensor) -> torch.Tensor:
    """The elements of ``tensor`` in the order ``model`` has in memory: a view where the strides agree, else a copy."""
    if tensor.stride() == model.stride() or (tensor.is_contiguous() and model.is_contiguous()):
        return flat(tensor)
    return flat(torch.empty_strided(model.shape, model.stride(), dtype=tensor.dtype, device="cpu").copy_(tensor))
