"""Tensors of which torch has only noted that they are conjugated or negated: what counts is their values."""

from __future__ import annotations

import pathlib

import pytest
import torch
from test_offload import new_client
from torch import nn

import tierd
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


class Rotation(nn.Module):
    """Uses its parameter as complex numbers, conjugated and negated."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([[0.5, -2.0], [3.0, 0.25]]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = torch.view_as_complex(self.weight).conj()
        return x * weight * weight.imag


@pytest.mark.parametrize("update", ["step", "deferred", "backward"])
def test_what_autograd_saves_of_a_parameter_is_read_as_it_was(update: str) -> None:
    ours, theirs = Rotation(), Rotation()
    ours, optimizer = tierd.torch.offload(
        ours, tierd.torch.AdamW, client=new_client()[0], min_bytes=1, lr=0.1, update=update
    )
    plain = torch.optim.AdamW(theirs.parameters(), lr=0.1, fused=True)
    for _ in range(3):
        results = []
        for model, its_optimizer in ((ours, optimizer), (theirs, plain)):
            x = torch.tensor([1 + 2j, -3 + 1j], requires_grad=True)
            model(x).abs().sum().backward()
            its_optimizer.step()
            its_optimizer.zero_grad()
            results.append(x.grad)
        assert torch.equal(*results)
    with tierd.torch.gathered(ours):
        assert torch.equal(ours.weight, theirs.weight)


def test_a_negated_parameter_of_the_process_is_refused() -> None:
    parameter = nn.Parameter(torch._neg_view(torch.ones(4)))
    parameter.grad = torch.ones(4)
    optimizer = tierd.torch.AdamW([parameter], client=new_client()[0], state_dtype="bfloat16")
    with pytest.raises(tierd.Invalid, match="resolve_neg"):
        optimizer.step()
