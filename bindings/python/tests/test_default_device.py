"""torch.set_default_device: what tierd allocates lies in memory, whatever it is, as the models do that it trains."""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils import _device
from test_offload import Net, assert_same, new_client, offloaded, pair_of, tokens_of

import tierd
import tierd.torch

PACKAGE = pathlib.Path(tierd.__file__).parent


def meta() -> Any:
    return torch.device("meta")


def train(model: Any, optimizer: torch.optim.Optimizer, batches: list[torch.Tensor]) -> list[float]:
    losses = []
    for batch in batches:
        loss = model(batch).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("reentrant", [None, False, True])
@pytest.mark.parametrize("update", ["step", "deferred", "backward"])
def test_a_model_in_memory_is_trained_under_another_default_device(update: str, reentrant: bool | None) -> None:
    client, _ = new_client()
    ours, theirs = pair_of(lambda: Net(reentrant=reentrant))
    batches = [tokens_of(step) for step in range(3)]
    with meta():
        _, optimizer = offloaded(ours, client, update=update)
        losses = train(ours, optimizer, batches)
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
    assert losses == train(theirs, plain, batches)
    assert_same(ours, theirs)


@pytest.mark.parametrize("kind", [tierd.torch.Adam, tierd.torch.SGD, tierd.torch.Lion])
def test_other_optimizers(kind: Any) -> None:
    client, _ = new_client()
    models = [pair_of(Net)[0] for _ in range(2)]
    batches = [tokens_of(step) for step in range(3)]
    losses = []
    for model, device in zip(models, (meta(), torch.device("cpu")), strict=True):
        with device:
            _, optimizer = tierd.torch.offload(model, kind, client=client, min_bytes=1, lr=1e-3)
            losses.append(train(model, optimizer, batches))
    assert losses[0] == losses[1]


def test_what_is_saved_and_loaded_meanwhile(tmp_path: pathlib.Path) -> None:
    client, _ = new_client()
    ours, other = pair_of(Net)
    batch = tokens_of(0)
    with meta():
        _, optimizer = offloaded(ours, client)
        train(ours, optimizer, [batch])
        ours(batch).sum().backward()
        assert torch.nn.utils.clip_grad_norm_(ours.parameters(), 1.0).isfinite()
        optimizer.zero_grad()
        tierd.torch.save_safetensors(ours, tmp_path)
        tierd.torch.save_state(optimizer, tmp_path / "state.safetensors")
        with tierd.torch.gathered(ours):
            assert all(parameter.device.type == "cpu" for parameter in ours.parameters())
        _, second = offloaded(other, client)
        tierd.torch.load_safetensors(other, tmp_path)
        tierd.torch.load_state(second, tmp_path / "state.safetensors")
        states = [each.state_dict() for each in (ours, other)], [each.state_dict() for each in (optimizer, second)]
        read = tierd.torch.read_state(tmp_path / "state.safetensors")
    for first, again in states:
        torch.testing.assert_close(first, again, rtol=0, atol=0)
    torch.testing.assert_close(read["state"], optimizer.state_dict()["state"], rtol=0, atol=0)


def allocations(source: str) -> Iterator[ast.Call]:
    """Calls of functions of torch that the default device changes."""
    names = {function.__name__ for function in _device._device_constructors()}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names:
            if ast.unparse(node.func.value) in ("torch", "sys.modules['torch']"):
                yield node


def test_every_allocation_names_its_device() -> None:
    found = [
        f"{path.name}:{call.lineno}: {ast.unparse(call)}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for call in allocations(path.read_text())
        if not any(keyword.arg in ("device", None) for keyword in call.keywords)
    ]
    assert found == []
