"""load_shared, and frozen parameters that the ranks of a job store once."""

from __future__ import annotations

import dataclasses
import gc
import pathlib
from typing import Any

import pytest
import torch
from fake_library import FakeLibrary
from torch import nn

import tierd
import tierd.torch
from tierd import library
from tierd.session import Session
from tierd.torch import need
from tierd.torch.placeholder import Placeholder
from tierd.torch.runtime import Placement

RANGES = torch.Size([3, 1 << 19])  # Six MiB: three ranges of one block.


class Adapted(nn.Module):
    """A linear layer that does not learn, and an adapter of low rank that does."""

    def __init__(self, width: int, device: str = "cpu") -> None:
        super().__init__()
        self.base = nn.Linear(width, width, device=device).requires_grad_(False)
        self.down, self.up = nn.Linear(width, 4, bias=False), nn.Linear(4, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))


def new_client(fake: FakeLibrary | None = None) -> tuple[tierd.Client, FakeLibrary]:
    fake = fake or FakeLibrary()
    return tierd.Client(Session(fake, 1)), fake  # type: ignore[arg-type]


def net(device: str = "cpu") -> nn.Sequential:
    torch.manual_seed(3)
    model = nn.Sequential(*[Adapted(32, device) for _ in range(3)], nn.Linear(32, 4))
    for adapted in model[:-1]:  # The base draws numbers on one device only.
        for parameter in (adapted.down.weight, adapted.up.weight):
            nn.init.normal_(parameter, std=0.1, generator=torch.Generator().manual_seed(parameter.numel()))
    nn.init.normal_(model[-1].weight, generator=torch.Generator().manual_seed(9))
    nn.init.zeros_(model[-1].bias)
    return model


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
    losses = []
    for number in range(3):
        loss = model(torch.randn(5, 32, generator=torch.Generator().manual_seed(number))).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def shared_names(fake: FakeLibrary) -> list[str]:
    names = {number: name.decode() for name, number in fake.names.items()}
    return sorted(names[number] for number, space in fake.tensors if space == library.SHARED)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_shared_tensor_is_created_once(dtype: torch.dtype) -> None:
    values = torch.randn(RANGES).to(dtype)
    (first, fake), calls = new_client(), []
    second, _ = new_client(fake)

    def create() -> torch.Tensor:
        calls.append(1)
        return values

    for client in (first, second, first):
        found = tierd.torch.load_shared(client, "base", create, shape=RANGES, dtype=dtype)
        assert torch.equal(found, values) and calls == [1]
        assert len(fake.leases) == 1
        del found
        assert fake.leases == {}
    assert shared_names(fake) == ["base"]


def test_a_creation_that_fails_leaves_nothing() -> None:
    client, fake = new_client()
    options: dict[str, Any] = {"shape": RANGES, "dtype": torch.float32}

    def fail() -> torch.Tensor:
        raise OSError("no such file")

    with pytest.raises(OSError, match="no such file"):
        tierd.torch.load_shared(client, "base", fail, **options)
    for wrong in (torch.zeros(3), torch.zeros(RANGES, dtype=torch.bfloat16), "weights"):
        with pytest.raises(tierd.Invalid, match="the values of 'base' are"):
            tierd.torch.load_shared(client, "base", lambda wrong=wrong: wrong, **options)
    with pytest.raises(tierd.Invalid, match="no bytes"):
        tierd.torch.load_shared(client, "base", fail, shape=[0], dtype=torch.float32)
    assert fake.tensors == {} and fake.leases == {}
    tierd.torch.load_shared(client, "base", lambda: torch.zeros(RANGES), **options)
    with pytest.raises(tierd.Invalid, match="another name"):
        tierd.torch.load_shared(client, "base", fail, shape=[3], dtype=torch.float32)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_frozen_weights_are_loaded_once_and_never_written(device: str) -> None:
    values, theirs = net().state_dict(), net()
    client, fake = new_client()
    loaded: list[str] = []

    def load(name: str) -> torch.Tensor:
        loaded.append(name)
        return values[name]

    def offloaded(least: int) -> tuple[nn.Module, Any]:
        model = net(device)
        if device == "cpu":
            model.load_state_dict(values)
        return tierd.torch.offload(
            model, tierd.torch.AdamW, client=client, lr=1e-2, min_bytes=least, name="lora", load_frozen=load
        )

    theirs.load_state_dict(values)
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
    ours, optimizer = offloaded(256)
    weights, biases = [f"{number}.base.weight" for number in range(3)], [f"{number}.base.bias" for number in range(3)]
    assert sorted(loaded) == (sorted(weights + biases) if device == "meta" else [])
    assert shared_names(fake) == [f"lora/{name}" for name in weights]
    assert not any(parameter.is_meta for parameter in ours.parameters())
    before = {key: tensor for key, tensor in fake.tensors.items() if key[1] == library.SHARED}
    assert train(ours, optimizer) == train(theirs, plain)
    with torch.no_grad():
        assert torch.equal(ours(torch.ones(1, 32)), theirs(torch.ones(1, 32)))
    assert all(torch.equal(ours.state_dict()[key], value) for key, value in theirs.state_dict().items())
    assert {key: tensor for key, tensor in fake.tensors.items() if key[1] == library.SHARED} == before
    base = ours.get_parameter("0.base.weight")
    ours.load_state_dict(ours.state_dict())  # The same values: no change.
    for change in (copied_over, loaded_over, gathered_change):
        with pytest.raises((tierd.Invalid, RuntimeError), match="was frozen when|0.base.weight"):
            change(ours)
    with tierd.torch.gathered(ours, write=True), torch.no_grad():
        ours.get_parameter("0.up.weight").mul_(2)
    base.requires_grad_(True)
    ours(torch.ones(1, 32)).sum().backward()
    with pytest.raises(tierd.Invalid, match="was frozen when"):
        optimizer.step()
    del ours, optimizer, base
    gc.collect()
    assert shared_names(fake) == [f"lora/{name}" for name in weights]
    again, optimizer = offloaded(256)  # As a second rank of the job would.
    assert [name for name in loaded if name in weights] == (weights if device == "meta" else [])
    assert isinstance(again.get_parameter("2.base.weight"), Placeholder)


def copied_over(model: nn.Module) -> None:
    model.get_parameter("0.base.weight").copy_(torch.zeros(32, 32))


def loaded_over(model: nn.Module) -> None:
    model.load_state_dict({name: value + 1 for name, value in model.state_dict().items()})


def gathered_change(model: nn.Module) -> None:
    with tierd.torch.gathered(model, write=True):
        model.get_parameter("1.base.weight").data.add_(1)


def test_weights_that_cannot_be_loaded_are_refused_and_nothing_changes() -> None:
    client, fake = new_client()
    model = net("meta")
    options: dict[str, Any] = {"client": client, "min_bytes": 1}
    with pytest.raises(tierd.Invalid, match="'0.base.weight' is on the meta device"):
        tierd.torch.offload(model, tierd.torch.AdamW, **options)
    with pytest.raises(tierd.Invalid, match="give a name"):
        tierd.torch.offload(model, tierd.torch.AdamW, **options, load_frozen=lambda name: torch.zeros(1))
    values = net().state_dict() | {"1.base.bias": torch.zeros(31)}
    with pytest.raises(tierd.Invalid, match=r"values of '1.base.bias' are \(31,\)"):
        tierd.torch.offload(model, tierd.torch.AdamW, **options, name="lora", load_frozen=values.__getitem__)
    assert sum(parameter.is_meta for parameter in model.parameters()) == 6
    assert type(model[0].up.weight) is nn.Parameter and fake.leases == {}
    assert shared_names(fake) == ["lora/0.base.bias", "lora/0.base.weight", "lora/1.base.weight"]
    values = net().state_dict()
    tierd.torch.offload(model, tierd.torch.AdamW, **options, name="lora", load_frozen=values.__getitem__)
    with pytest.raises(tierd.Invalid, match="'weight' is on the meta device"):
        tierd.torch.offload(
            nn.Linear(2, 2, device="meta"), tierd.torch.AdamW, **options, name="all", load_frozen=values.__getitem__
        )


def test_shared_weights_go_into_files_and_not_out_of_them(tmp_path: pathlib.Path) -> None:
    client, fake = new_client()
    values, theirs = net().state_dict(), net()
    theirs.load_state_dict(values)
    ours, _ = tierd.torch.offload(
        net("meta"), tierd.torch.AdamW, client=client, min_bytes=1, name="lora", load_frozen=values.__getitem__
    )
    tierd.torch.save_safetensors(ours, tmp_path)
    tierd.torch.load_safetensors(theirs, tmp_path)
    for key, value in ours.state_dict().items():
        assert torch.equal(value, theirs.state_dict()[key]), key
    before = ours.state_dict()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(1)
    tierd.torch.save_safetensors(theirs, tmp_path)
    with pytest.raises(tierd.Invalid, match="'0.base.weight' is frozen.*load_frozen="):
        tierd.torch.load_safetensors(ours, tmp_path)
    assert all(torch.equal(value, before[key]) for key, value in ours.state_dict().items())
    assert fake.leases == {}


def test_a_private_daemon_has_room_for_every_rank_and_for_frozen_weights_once() -> None:
    model = nn.ParameterDict({"a": torch.empty(1 << 20), "b": torch.empty(1 << 18)})
    model["a"].requires_grad_(False)
    chosen = list(model.named_parameters())
    run = need.Run(model, chosen, tierd.torch.AdamW, Placement(), "step", {}, shared=frozenset([id(model["a"])]))
    assert [need.required(dataclasses.replace(run, ranks=ranks)).tensors >> 20 for ranks in (1, 2)] == [8, 12]
    one, two = need.required(run), need.required(dataclasses.replace(run, ranks=2))
    assert two.ram >= 2 * one.ram and two.ssd > one.ssd + (1 << 30)
    assert need.required(dataclasses.replace(run, present=run.shared)).tensors >> 20 == 4


def test_a_tensor_of_other_strides_is_shared_by_its_values() -> None:
    client, _ = new_client()
    given = torch.arange(6.0).reshape(3, 2).t()
    found = tierd.torch.load_shared(client, "transposed", lambda: given, shape=(2, 3), dtype=torch.float32)
    assert torch.equal(found, given)
