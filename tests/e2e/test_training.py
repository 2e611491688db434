"""Training through a real daemon whose arena is far smaller than what trains: the same bits as without."""

from __future__ import annotations

import gc
import pathlib
import sys
from typing import Any

import launcher
import pytest
import torch

import tierd
import tierd.torch

sys.path.insert(0, str(launcher.ROOT / "bindings/python/demo"))
import gpt  # noqa: E402


def train(steps: int, client: tierd.Client | None, **options: Any) -> tuple[list[float], list[torch.Tensor], Any]:
    torch.manual_seed(2)
    model = gpt.Gpt(gpt.Shape(layers=3, width=256, heads=4, context=64))
    if client is None:
        optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        offload = torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)
    else:
        optimizer = tierd.torch.AdamW(model.parameters(), lr=1e-3, client=client, slice_bytes="2MiB", **options)
        offload = tierd.torch.offload_activations(client, model=model, min_bytes="4KiB", prefetch="4MiB")
    tokens = torch.randint(0, 256, (2, 65))
    losses = []
    for _ in range(steps):
        with offload:
            loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        del loss
    return losses, [p.detach().clone() for p in model.parameters()], optimizer


@pytest.fixture
def small_daemon(socket_folder: pathlib.Path) -> Any:
    with launcher.start(socket_folder, arena="12MiB", tier="256MiB") as running:
        yield running


def test_a_gpt_trains_with_the_same_bits_in_an_arena_smaller_than_its_state(small_daemon: launcher.Running) -> None:
    losses, parameters, plain = train(4, None)
    with tierd.connect(job="training", socket=small_daemon.socket) as client:
        tiered_losses, tiered_parameters, optimizer = train(4, client)
        assert tiered_losses == losses
        assert all(torch.equal(a, b) for a, b in zip(parameters, tiered_parameters, strict=True))
        ours, theirs = optimizer.state_dict(), plain.state_dict()
        for index, state in theirs["state"].items():
            for kind, value in state.items():
                assert torch.equal(ours["state"][index][kind], value), (index, kind)
        keys = [key for p in optimizer.param_groups[0]["params"] for key in optimizer.tiered_keys(p).values()]
        del optimizer
        gc.collect()
        for key in keys:
            with pytest.raises(tierd.NotFound):
                client.tensor(key)
        assert client.stats().leases_open == 0


def test_activations_leave_nothing_in_the_daemon(small_daemon: launcher.Running) -> None:
    control = pytest.importorskip("tierd.control")
    with tierd.connect(job="activations", socket=small_daemon.socket) as client:
        train(1, client)
        gc.collect()
        with control.connect(small_daemon.directory) as channel:
            assert channel.list_tensors("activations") == []
