"""offload(update="backward"): what comes between backward and step() is told that it comes too late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_deferred_update import step_of
from test_offload import assert_same, new_client, pair_of
from test_offload_oddities import rows
from torch import nn

import tierd
import tierd.torch


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))


def offloaded(model: nn.Module, client: tierd.Client | None = None) -> Any:
    """Weights are in tierd; biases are small, and stay in the process."""
    client = client or new_client()[0]
    return tierd.torch.offload(model, tierd.torch.AdamW, client=client, lr=1e-2, min_bytes=64, update="backward")


@pytest.fixture
def trained() -> tuple[nn.Module, Any]:
    """After a backward."""
    ours, optimizer = offloaded(layers())
    ours(rows(0)).pow(2).sum().backward()
    return ours, optimizer


USES: dict[str, Callable[[nn.Module], object]] = {
    "clip the norm": lambda model: nn.utils.clip_grad_norm_(model.parameters(), 1.0),
    "clip it one by one": lambda model: nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False),
    "clip values": lambda model: nn.utils.clip_grad_value_(model.parameters(), 1.0),
    "norm": lambda model: [p.grad.norm() for p in model.parameters() if p.grad is not None],
    "multiply": lambda model: [p.grad.mul_(2) for p in model.parameters() if p.grad is not None],
    "add": lambda model: [p.grad + 1 for p in model.parameters() if p.grad is not None],
    "finite": lambda model: [torch.isfinite(p.grad) for p in model.parameters() if p.grad is not None],
    "a copy": lambda model: [tierd.torch.gradient_of(p) for p in model.parameters()],
}


@pytest.mark.parametrize("use", USES)
def test_a_use_of_gradients_that_backward_has_applied_is_refused(trained: tuple[nn.Module, Any], use: str) -> None:
    ours, optimizer = trained
    with pytest.raises(tierd.Invalid, match="has updated parameter '0.weight' by this gradient already.*'deferred'"):
        USES[use](ours)
    gradients = [parameter.grad for parameter in ours.parameters()]
    assert [gradient.shape for gradient in gradients if gradient is not None] == [(8, 8), (8,), (8, 8), (8,)]
    optimizer.step()
    with pytest.raises(tierd.Invalid, match="has updated"):
        USES[use](ours)
    optimizer.zero_grad()
    assert all(parameter.grad is None for parameter in ours.parameters())


def test_what_comes_too_late_is_named_as_it_was_written(trained: tuple[nn.Module, Any]) -> None:
    gradient: Any = trained[0][0].weight.grad
    for name, use in {r"norm\(\)": lambda: gradient.data.norm(2), r"\.T": lambda: gradient.T}.items():
        with pytest.raises(tierd.Invalid, match=f"and {name} comes too late"):
            use()


@pytest.mark.parametrize("call", ["unscale_", "step"])
def test_a_scaler_is_refused_before_it_leaves_a_step_out(call: str) -> None:
    ours, optimizer = offloaded(layers())
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(ours(rows(0) * float("inf")).square().mean()).backward()
    with pytest.raises(tierd.Invalid, match="no GradScaler can take its scale out.*saved last.*'deferred'"):
        getattr(scaler, call)(optimizer)


def test_gradients_that_are_thrown_away_are_not_applied_in_silence(trained: tuple[nn.Module, Any]) -> None:
    ours, optimizer = trained
    throw_away: list[Callable[[], object]] = [
        optimizer.zero_grad,
        lambda: optimizer.zero_grad(set_to_none=False),
        ours.zero_grad,
        lambda: setattr(ours[0].weight, "grad", None),
    ]
    for call in throw_away:
        with pytest.raises(tierd.Invalid, match=r"would drop a gradient .* '\d.weight' already.*step\(\) after each"):
            call()
    optimizer.step()
    ours.zero_grad()
    assert all(parameter.grad is None for parameter in ours.parameters())


def test_a_model_that_another_models_loss_passes_through_is_told() -> None:
    client, _ = new_client()
    maker, makers = offloaded(layers(), client)
    critic, critics = offloaded(layers(), client)
    for seed in range(2):
        critic(maker(rows(seed)).detach()).sum().backward()
        critics.step()
        critics.zero_grad()
        critic.requires_grad_(False)  # As the sentence has it.
        critic(maker(rows(seed))).sum().backward()
        critic.requires_grad_(True)
        makers.step()
        makers.zero_grad()
        critics.zero_grad()
    critic(maker(rows(2))).sum().backward()
    makers.step()
    makers.zero_grad()
    with pytest.raises(tierd.Invalid, match=r"would drop a gradient .*requires_grad_\(False\)"):
        critics.zero_grad()


def test_zeros_in_the_place_of_gradients_are_refused(trained: tuple[nn.Module, Any]) -> None:
    _, optimizer = trained
    optimizer.step()
    with pytest.raises(tierd.Invalid, match="set_to_none=True"):
        optimizer.zero_grad(set_to_none=False)
    optimizer.zero_grad()


def test_a_state_that_is_loaded_or_a_discarded_update_ends_the_step(trained: tuple[nn.Module, Any]) -> None:
    ours, optimizer = trained
    optimizer.load_state_dict(torch.optim.AdamW(layers().parameters(), lr=1e-2, fused=True).state_dict())
    optimizer.zero_grad()
    ours(rows(1)).sum().backward()
    assert optimizer.discard_update(accept=True).updated
    assert all(parameter.grad is None for parameter in ours.parameters())
    step_of(ours, optimizer, 2)


def test_a_loop_that_does_nothing_in_between_has_plain_torchs_bits() -> None:
    ours, theirs = pair_of(layers)
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
    mine = offloaded(ours)
    for seed in range(4):
        for model, optimizer in (mine, (theirs, plain)):
            step_of(model, optimizer, seed)
            if seed % 2:
                model.zero_grad()
    assert_same(ours, theirs)
