"""A hundred steps with a scheduler, and evaluations between them: the losses of each offload mode, and the weights at
the end, have the bits of plain torch with the same fused optimizer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fake_library import FakeLibrary
from torch import nn
from torch.nn import functional as F

import tierd
import tierd.torch
from tierd.session import Session

STEPS, EVALUATED_EVERY = 100, 10
MODES: dict[str, dict[str, Any] | None] = {
    "parameters": {"gradients": "device", "activations": "device"},
    "gradients": {"activations": "device"},
    "optimizer": None,
    "activations": None,
    "all, update in step": {"update": "step"},
    "all, update in backward": {"update": "backward"},
}


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.drop = nn.Dropout(0.1)  # Active in training only: an evaluation must not shift its random numbers.

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.mix(self.norm(x)).chunk(3, -1)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.drop(self.down(F.gelu(self.up(x))))


class Net(nn.Module):
    """Tied embeddings, and a buffer that training changes and evaluation uses."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.blocks = nn.Sequential(Block(16), Block(16))
        self.scale = nn.BatchNorm1d(16)
        self.head = nn.Linear(16, 32, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.blocks(self.embed(tokens))
        logits = self.head(self.scale(x.flatten(0, 1)))
        return F.cross_entropy(logits, tokens.roll(-1, 1).flatten())


def tokens_of(number: int) -> torch.Tensor:
    return torch.randint(0, 32, (3, 8), generator=torch.Generator().manual_seed(number))


def losses_of(model: nn.Module, optimizer: torch.optim.Optimizer, forward: Callable[..., Any]) -> list[str]:
    """Bits of the losses of all steps and evaluations, and of what the schedule had made of the learning rate."""
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=5)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm_up, decay], [5])
    torch.manual_seed(7)
    found = []
    for step in range(STEPS):
        loss = forward(tokens_of(step))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        found.append(loss.item().hex())
        if step % EVALUATED_EVERY == EVALUATED_EVERY - 1:
            model.eval()
            with torch.no_grad():
                found.append(model(tokens_of(STEPS + step)).item().hex())
            model.train()
    return [*found, float(optimizer.param_groups[0]["lr"]).hex()]


def new_net() -> Net:
    torch.manual_seed(3)
    return Net()


@pytest.fixture(scope="module")
def plain() -> tuple[list[str], dict[str, torch.Tensor]]:
    model = new_net()
    losses = losses_of(model, torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True), model)
    assert len({*losses}) > STEPS  # It learns: no two steps have the same loss.
    return losses, model.state_dict()


@pytest.mark.parametrize("mode", list(MODES))
def test_a_hundred_steps_with_evaluations_have_torchs_bits(
    mode: str, plain: tuple[list[str], dict[str, torch.Tensor]]
) -> None:
    losses, weights = plain
    fake = FakeLibrary()
    client = tierd.Client(Session(fake, 1))  # type: ignore[arg-type]
    model: nn.Module = new_net()
    options = MODES[mode]
    hooks: Any = contextlib.nullcontext()
    optimizer: Any
    if options is not None:
        model, optimizer = tierd.torch.offload(
            model, tierd.torch.AdamW, client=client, min_bytes=1, lr=1e-2, slice_bytes="4KiB", **options
        )
    elif mode == "optimizer":
        optimizer = tierd.torch.AdamW(model.parameters(), client=client, lr=1e-2)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
        hooks = tierd.torch.offload_activations(client, model=model, min_bytes=1)

    def forward(tokens: torch.Tensor) -> torch.Tensor:
        with hooks:
            loss: torch.Tensor = model(tokens)
        return loss

    assert losses_of(model, optimizer, forward) == losses
    assert fake.calls, "nothing went through tierd"
    for name, value in model.state_dict().items():
        assert torch.equal(value, weights[name]), name
