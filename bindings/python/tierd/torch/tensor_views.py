"""Tensors that own no memory: over a storage that there is, or over one element for all of a shape.

All of them name the CPU, whatever device is torch's default. Callers guard them from autograd where it may record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch


def tensor_over(
    storage: torch.UntypedStorage,
    dtype: torch.dtype,
    offset: int | torch.SymInt,
    shape: Sequence[int],
    strides: Sequence[int],
) -> torch.Tensor:
    """A tensor over a part of the storage; ``offset`` and ``strides`` are elements."""
    return torch.empty(0, dtype=dtype, device="cpu").set_(storage, offset, shape, strides)


class View(NamedTuple):
    """How a tensor lies in its storage, and what torch has only noted of it, and carries out when it is read."""

    dtype: torch.dtype
    offset: int
    shape: torch.Size
    strides: tuple[int, ...]
    conjugated: bool
    negated: bool

    @staticmethod
    def of(value: torch.Tensor) -> View:
        offset = int(value.storage_offset())
        return View(value.dtype, offset, value.shape, value.stride(), value.is_conj(), value.is_neg())

    def over(self, storage: torch.UntypedStorage) -> torch.Tensor:
        """The same part of another storage."""
        value = tensor_over(storage, self.dtype, self.offset, self.shape, self.strides)
        value = torch._conj(value) if self.conjugated else value
        return torch._neg_view(value) if self.negated else value


def resolved(value: torch.Tensor) -> torch.Tensor:
    """``value``, or a copy, of which nothing is only noted: its bytes are its values."""
    return value.detach().resolve_conj().resolve_neg()


def no_values(shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """One NaN, or 0, expanded to the shape."""
    value = float("nan") if dtype.is_floating_point or dtype.is_complex else 0
    return torch.full((), value, dtype=dtype, device="cpu").expand(shape)
