"""Hooks for saved tensors that a forward opens itself around parameters in tierd: plain torch's bits, and no NaN."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_offload import assert_same, new_client
from test_offload_oddities import both
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import tierd
import tierd.torch

Hooks = Callable[[], Any]
_saved: dict[int, torch.Tensor] = {}
_numbers = itertools.count()


def aside() -> Any:
    """Keeps what is saved in a table, and gives the graph a number."""

    def pack(value: torch.Tensor) -> int:
        number = next(_numbers)
        _saved[number] = value
        return number

    return torch.autograd.graph.saved_tensors_hooks(pack, _saved.pop)


def coarse() -> Any:
    """Keeps activations in bf16, and parameters as they are."""

    def pack(value: torch.Tensor) -> torch.Tensor:
        return value if isinstance(value, nn.Parameter) else value.to(torch.bfloat16)

    return torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed.float())


def pushed() -> Any:
    """As other libraries do it, not by the class."""

    class Pushed:
        def __enter__(self) -> None:
            autograd: Any = torch._C._autograd
            autograd._push_saved_tensors_default_hooks(lambda value: value, lambda packed: packed)

        def __exit__(self, *_: object) -> None:
            torch._C._autograd._pop_saved_tensors_default_hooks()

    return Pushed()


HOOKS: dict[str, Hooks] = {
    "save_on_cpu": torch.autograd.graph.save_on_cpu,
    "itself": lambda: torch.autograd.graph.saved_tensors_hooks(lambda value: value, lambda packed: packed),
    "aside": aside,
    "coarse": coarse,
    "pushed": pushed,
}
MODULES: dict[str, Callable[[], nn.Module]] = {
    "norm": lambda: nn.LayerNorm(32),
    "rms": lambda: nn.RMSNorm(32),
    "conv": lambda: nn.Conv1d(4, 4, 3, padding=1),
    "prelu": lambda: nn.PReLU(4),
    "encoder": lambda: nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True),
}


def inputs(seed: int) -> torch.Tensor:
    return torch.randn(2, 4, 32, generator=torch.Generator().manual_seed(seed))


def train_both(make: Callable[[], nn.Module], update: str = "deferred") -> None:
    arms = both(make, update=update)
    for step in range(3):
        losses = []
        for model, optimizer in arms:
            losses.append(model(inputs(step)).square().mean())
            losses[-1].backward()
            optimizer.step()
            optimizer.zero_grad()
        assert torch.equal(*losses) and losses[0].isfinite()
    assert_same(arms[0][0], arms[1][0])


class Around(nn.Module):
    """Opens the hooks around a module."""

    def __init__(self, inner: nn.Module, hooks: Hooks) -> None:
        super().__init__()
        self.first, self.inner = nn.Linear(32, 32), inner
        self.hooks = hooks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        with self.hooks():
            y: torch.Tensor = self.inner(x)
        return y


class Within(nn.Module):
    """Opens them itself around its own parameters, and uses another module's."""

    def __init__(self, hooks: Hooks) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.rand(32)), nn.Parameter(torch.rand(32))
        self.other = nn.Linear(32, 32)
        self.hooks = hooks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with self.hooks():
            x = F.layer_norm(x, (32,), self.weight, self.bias)
            return torch.cat([x * self.weight, F.linear(x, self.other.weight), x @ self.other.weight])


@pytest.mark.parametrize("hooks", HOOKS)
@pytest.mark.parametrize("inner", MODULES)
def test_hooks_around_a_module(inner: str, hooks: str) -> None:
    train_both(lambda: Around(MODULES[inner](), HOOKS[hooks]))


@pytest.mark.parametrize("update", ["step", "deferred", "backward"])
@pytest.mark.parametrize("hooks", HOOKS)
def test_hooks_inside_of_a_modules_own_forward(hooks: str, update: str) -> None:
    train_both(lambda: Within(HOOKS[hooks]), update)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("reentrant", [False, True])
def test_hooks_inside_of_a_checkpoint(reentrant: bool, frozen: bool) -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(32, 32)
            self.around, self.within = Around(nn.LayerNorm(32), HOOKS["itself"]), Within(HOOKS["itself"])
            if frozen:
                self.around.inner.requires_grad_(False)
                self.within.weight.requires_grad_(False)

        def part(self, x: torch.Tensor) -> torch.Tensor:
            x = self.around(x)
            with HOOKS["save_on_cpu"]():
                y: torch.Tensor = self.within(F.layer_norm(x, (32,), self.within.weight))
            return y

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = checkpoint(self.part, self.first(x), use_reentrant=reentrant)
            return y

    train_both(Checkpointed)


def test_what_the_hooks_keep_holds_no_memory_of_tierd() -> None:
    client, fake = new_client()
    model: Any = Around(nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32)), HOOKS["save_on_cpu"])
    tierd.torch.offload(model, tierd.torch.AdamW, client=client, min_bytes=1)
    loss = model(inputs(0)).sum()
    assert fake.leases == {}
    loss.backward()


def test_hooks_see_the_values_and_the_kind_of_a_parameter() -> None:
    seen: list[torch.Tensor] = []

    def pack(value: torch.Tensor) -> torch.Tensor:
        if isinstance(value, nn.Parameter):
            assert value.requires_grad and value.is_leaf
            seen.append(value.detach().clone())
        return value.detach().clone()

    hooks = lambda: torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed)  # noqa: E731
    arms = both(lambda: Around(nn.LayerNorm(32), hooks))
    for model, _ in arms:
        model(inputs(0)).sum().backward()
    half = len(seen) // 2
    assert half and all(torch.equal(*pair) for pair in zip(seen[:half], seen[half:], strict=True))


def test_hooks_inside_of_gathered() -> None:
    arms = both(lambda: nn.LayerNorm(32))
    for model, optimizer in arms:
        manager = tierd.torch.gathered(model) if model is arms[0][0] else torch.enable_grad()
        with manager, HOOKS["save_on_cpu"]():
            loss = F.layer_norm(inputs(0).requires_grad_(), (32,), model.weight).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert_same(arms[0][0], arms[1][0])


def test_a_graph_kept_over_a_step_is_refused_also_where_hooks_kept_the_parameter() -> None:
    (model, optimizer), _ = both(lambda: Around(nn.LayerNorm(32), HOOKS["save_on_cpu"]))
    kept = model(inputs(0)).sum()
    model(inputs(1)).sum().backward()
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified since forward"):
        kept.backward()


@pytest.mark.filterwarnings("error")
def test_where_the_caller_has_disabled_hooks_forward_says_so() -> None:
    (model, _), _ = both(lambda: nn.Linear(32, 32))
    with pytest.raises(RuntimeError, match="none here"), torch.autograd.graph.disable_saved_tensors_hooks("none here"):
        model(inputs(0))
    model(inputs(0)).sum().backward()
