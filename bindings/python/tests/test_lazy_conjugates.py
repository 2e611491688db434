"""Tensors of which torch has only noted that they are conjugated or negated: files get their values, not their bytes."""

from __future__ import annotations

import pathlib

import torch
from torch import nn

import tierd.torch

VALUES = torch.tensor([1 + 2j, 3 - 4j])


class Holder(nn.Module):
    """Buffers that are the same bytes, read in different ways."""

    def __init__(self, values: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("one", values)
        self.register_buffer("conjugated", values.conj())
        self.register_buffer("real", torch.view_as_real(values))
        self.register_buffer("negated", torch._neg_view(torch.view_as_real(values)))
        self.register_buffer("imaginary", values.conj().imag)


def test_buffers_have_their_values_in_a_file(tmp_path: pathlib.Path) -> None:
    model = Holder(VALUES.clone())
    assert model.conjugated.is_conj() and model.negated.is_neg()
    tierd.torch.save_safetensors(model, tmp_path)
    other = nn.Module()
    for name, value in model.named_buffers():
        other.register_buffer(name, torch.zeros_like(value.resolve_conj().resolve_neg()))
    tierd.torch.load_safetensors(other, tmp_path)
    for name, value in model.named_buffers():
        assert torch.equal(other.get_buffer(name), value), name


def test_a_conjugated_buffer_is_filled_with_values(tmp_path: pathlib.Path) -> None:
    source, target = nn.Module(), nn.Module()
    source.register_buffer("value", VALUES.clone())
    target.register_buffer("value", torch.zeros_like(VALUES).conj())
    tierd.torch.save_safetensors(source, tmp_path)
    tierd.torch.load_safetensors(target, tmp_path)
    assert torch.equal(target.value, VALUES)
