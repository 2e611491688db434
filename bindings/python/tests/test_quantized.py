"""Frozen weights of types that have no NaN, or no values that torch can fill, with adapters that are trained."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
import torch
from test_offload import assert_same, new_client, offloaded, pair_of
from torch import nn
from torch.nn import functional as F

import tierd
import tierd.torch
from tierd.torch.placeholder import Placeholder


class Quantized(nn.Module):
    """A linear layer of eight bits and one scale a row."""

    def __init__(self, width: int, device: str = "cpu") -> None:
        super().__init__()
        given: dict[str, Any] = {"device": device}
        self.weight = nn.Parameter(torch.randint(-127, 128, (width, width), dtype=torch.int8, **given), False)
        self.scale = nn.Parameter(torch.rand(width, 1, **given) / 127, False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight.to(x.dtype) * self.scale)


class Adapted(nn.Module):
    """As QLoRA does it: the base is quantized and does not learn; an adapter of low rank does."""

    def __init__(self, width: int = 16, device: str = "cpu", outside: bool = False) -> None:
        super().__init__()
        self.base = Quantized(width, device)
        self.down, self.up = nn.Linear(width, 4, bias=False), nn.Linear(4, width, bias=False)
        self.outside = outside  # Whether it converts the base's weights itself.

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.outside:
            y = F.linear(x, self.base.weight.float() * self.base.scale.data)
        else:
            y = self.base(x)
        return y + self.up(self.down(x))


def net(**options: Any) -> nn.Module:
    return nn.Sequential(*[Adapted(**options) for _ in range(3)])


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
    losses = []
    for step in range(3):
        loss = model(torch.randn(5, 16, generator=torch.Generator().manual_seed(step))).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def trained_as_plain(ours: nn.Module, optimizer: Any, theirs: nn.Module) -> None:
    plain = torch.optim.AdamW([p for p in theirs.parameters() if p.requires_grad], lr=1e-2, fused=True)
    assert train(ours, optimizer) == train(theirs, plain)
    assert_same(ours, theirs)


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("update", ["step", "deferred", "backward"])
def test_an_adapter_on_weights_of_eight_bits(update: str, outside: bool) -> None:
    client, fake = new_client()
    ours, theirs = pair_of(lambda: net(outside=outside))
    _, optimizer = offloaded(ours, client, update=update)
    weight = ours.get_parameter("0.base.weight")
    assert type(weight) is Placeholder and weight.dtype is torch.int8
    trained_as_plain(ours, optimizer, theirs)
    assert fake.leases == {}
    with pytest.raises(tierd.Invalid, match="gathered"):
        weight.data.float()


def test_they_are_created_in_tierd_and_saved_and_loaded(tmp_path: pathlib.Path) -> None:
    client, _ = new_client()
    torch.manual_seed(1)
    with tierd.torch.creating(client=client, min_bytes=64):
        ours = net()
    torch.manual_seed(1)
    theirs = net()
    assert type(ours.get_parameter("0.base.weight")) is Placeholder
    _, optimizer = offloaded(ours, client)
    trained_as_plain(ours, optimizer, theirs)
    tierd.torch.save_safetensors(ours, tmp_path)
    other, _ = offloaded(net(), client)
    tierd.torch.load_safetensors(other, tmp_path)
    assert_same(other, theirs)


def test_they_are_loaded_from_the_meta_device() -> None:
    client, _ = new_client()
    torch.manual_seed(1)
    theirs = net()
    values = theirs.state_dict()
    ours = net(device="meta")
    for name, parameter in ours.named_parameters():
        if not parameter.is_meta:
            parameter.data.copy_(values[name])
    _, optimizer = offloaded(ours, client, name="base", load_frozen=values.__getitem__)
    trained_as_plain(ours, optimizer, theirs)


FROZEN = [
    torch.bool, torch.uint8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64,
    torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu, torch.complex64,
]  # fmt: skip


@pytest.mark.parametrize("dtype", FROZEN, ids=str)
def test_a_frozen_parameter_of_any_type_has_its_bytes(dtype: torch.dtype) -> None:
    client, _ = new_client()
    model = nn.Linear(4, 4)
    values = (torch.arange(64, dtype=torch.uint8) % (2 if dtype is torch.bool else 64)).view(dtype)
    model.table = nn.Parameter(values.clone(), requires_grad=False)
    offloaded(model, client)
    assert type(model.table) is Placeholder
    with tierd.torch.gathered(model):
        assert torch.equal(model.table.view(torch.uint8), values.view(torch.uint8))
    assert torch.equal(model.state_dict()["table"].view(torch.uint8), values.view(torch.uint8))


@pytest.mark.filterwarnings("ignore:.*quantize")
def test_what_torch_cannot_fill_stays_in_the_process() -> None:
    client, _ = new_client()
    model = nn.Linear(4, 4)
    model.table = nn.Parameter(torch.empty(64, dtype=torch.float4_e2m1fn_x2), requires_grad=False)
    model.other = nn.Parameter(torch.quantize_per_tensor(torch.rand(8), 0.1, 0, torch.qint8), requires_grad=False)
    with tierd.torch.creating(client=client, min_bytes=1):
        created = nn.Sequential(model)
    offloaded(created, client)
    assert type(model.table) is nn.Parameter and type(model.other) is nn.Parameter
    assert type(model.weight) is Placeholder
    model(torch.ones(4)).sum().backward()
