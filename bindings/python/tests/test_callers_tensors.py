"""Gradients and states that a training loop keeps or changes itself: as in plain torch, or a sentence."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from test_offload import assert_same, new_client, offloaded, pair_of
from test_offload_oddities import Small, both, rows
from torch import nn

import tierd
import tierd.torch

STORED = ["step", "deferred"]


@pytest.mark.parametrize("update", STORED)
def test_a_gradient_that_the_caller_has_given_stays_the_callers(update: str) -> None:
    arms = both(Small, update=update)
    for model, optimizer in arms:
        given = torch.zeros(8, 8)
        for step in range(3):
            model.linear.weight.grad = given
            model(rows(step)).pow(2).sum().backward()
            assert model.linear.weight.grad is given
            given.mul_(0.5)
            optimizer.step()
            optimizer.zero_grad()
            given.zero_()
    assert_same(arms[0][0], arms[1][0])


def test_a_given_gradient_is_refused_where_backward_updates() -> None:
    """Before any parameter is updated, whichever has its gradient first."""
    arms = both(Small, update="backward")
    (model, optimizer), _ = arms
    for name, parameter in model.named_parameters():
        parameter.grad = torch.zeros_like(parameter)
        with pytest.raises(tierd.Invalid, match=f"'{name}' was given a gradient"):
            model(rows(0)).sum().backward()
        optimizer.zero_grad()
    assert_same(arms[0][0], arms[1][0])
    for model, optimizer in arms:
        model(rows(0)).sum().backward()
        optimizer.step()
    assert_same(arms[0][0], arms[1][0])


def test_a_gradient_given_to_a_frozen_parameter_refuses_nothing() -> None:
    arms = both(Small, update="backward")
    for model, optimizer in arms:
        model.norm.weight.grad = torch.ones(8)
        model.norm.weight.requires_grad_(False)
        model(rows(0)).pow(2).sum().backward()
        assert torch.equal(model.norm.weight.grad, torch.ones(8))
        model.norm.weight.grad = None
        optimizer.step()
    assert_same(arms[0][0], arms[1][0])


@pytest.mark.parametrize("penalty", [False, True])
@pytest.mark.parametrize("update", STORED)
def test_gradients_that_have_a_graph(update: str, penalty: bool) -> None:
    arms = both(Small, update=update)
    losses = []
    for model, optimizer in arms:
        for step in range(3):
            loss = model(rows(step)).pow(2).sum()
            loss.backward(create_graph=True)
            if penalty:
                found = sum(parameter.grad.pow(2).sum() for parameter in model.parameters())
                for parameter in model.parameters():
                    parameter.grad = None
                (loss + found).backward()
            losses.append(loss.item())
            del loss
            found = None
            optimizer.step()
            optimizer.zero_grad()
    assert losses[:3] == losses[3:]
    assert_same(arms[0][0], arms[1][0])


def test_a_graph_of_gradients_is_refused_where_it_would_be_lost() -> None:
    (model, _), _ = both(Small, update="backward")
    with pytest.raises(tierd.Invalid, match="create_graph"):
        model(rows(0)).pow(2).sum().backward(create_graph=True)
    (model, _), _ = both(Small, update="step")
    model(rows(0)).pow(2).sum().backward()
    with pytest.raises(tierd.Invalid, match="create_graph"):
        model(rows(0)).pow(2).sum().backward(create_graph=True)


def test_a_gradient_that_was_dropped_is_not_the_next_one() -> None:
    (model, optimizer), (theirs, plain) = both(Small, update="step")
    model(rows(0)).pow(2).sum().backward()
    old = model.linear.weight.grad
    optimizer.zero_grad()
    for each in (model, theirs):
        each(rows(1)).pow(2).sum().backward()
    for call in (lambda: old.zero_(), lambda: old.norm(), lambda: old.mul_(0.0)):
        with pytest.raises(tierd.Invalid, match="is gone"):
            call()
    optimizer.step()
    plain.step()
    assert_same(model, theirs)


@pytest.mark.parametrize("update", STORED)
def test_a_step_by_gradients_that_became_zeros_is_a_step(update: str) -> None:
    arms = both(Small, update=update)
    for model, optimizer in arms:
        model(rows(0)).pow(2).sum().backward()
        optimizer.step()
        for _ in range(2):
            optimizer.zero_grad(set_to_none=False)
            optimizer.step()
        assert {state["step"].item() for state in optimizer.state.values()} == {3.0}
    assert_same(arms[0][0], arms[1][0])


@pytest.mark.parametrize("place", [{"gradients": "device"}, {"min_bytes": 1 << 16}], ids=str)
@pytest.mark.parametrize("update", STORED)
def test_a_step_by_gradients_that_are_given_back_is_a_step(update: str, place: dict[str, Any]) -> None:
    ours, theirs = pair_of(Small)
    _, optimizer = tierd.torch.offload(
        ours, tierd.torch.AdamW, client=new_client()[0], lr=1e-2, update=update, **{"min_bytes": 1, **place}
    )
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
    for model, of in ((ours, optimizer), (theirs, plain)):
        model(rows(0)).pow(2).sum().backward()
        of.step()
        kept = [parameter.grad for parameter in model.parameters()]
        of.zero_grad()
        for parameter, gradient in zip(model.parameters(), kept, strict=True):
            parameter.grad = gradient
        of.step()
        assert {state["step"].item() for state in of.state.values()} == {2.0}
    assert_same(ours, theirs)


def test_zero_grad_frees_gradients_of_the_process() -> None:
    (model, optimizer), _ = both(Small, gradients="device")
    model(rows(0)).pow(2).sum().backward()
    optimizer.step()
    alive = [weakref.ref(parameter.grad) for parameter in model.parameters()]
    optimizer.zero_grad()
    assert not any(gradient() is not None for gradient in alive)


@pytest.mark.parametrize("update", STORED)
def test_gradients_that_became_zeros_are_freed_with_the_model(update: str) -> None:
    client, fake = new_client()
    model, optimizer = offloaded(Small(), client, update=update)
    model(rows(0)).pow(2).sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    del model, optimizer
    gc.collect()
    client.stats()
    assert fake.tensors == {}


def test_gradients_that_become_zeros_move_no_bytes_and_carry_no_update_out() -> None:
    client, fake = new_client()
    model, optimizer = offloaded(Small(), client)
    model(rows(0)).pow(2).sum().backward()
    optimizer.step()
    fake.calls.clear()
    optimizer.zero_grad(set_to_none=False)
    assert fake.calls == []


@pytest.mark.parametrize("value", [1.0, float("inf"), float("nan")])
@pytest.mark.parametrize("update", STORED)
def test_gradients_that_became_zeros_are_zeros_to_all_that_asks_for_them(update: str, value: float) -> None:
    arms = both(Small, update=update)
    seen: list[list[Any]] = [[], []]
    for found, (model, optimizer) in zip(seen, arms, strict=True):
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        for factor in (2.0, value):
            (model(rows(0)).pow(2).sum() * value).backward()
            model.zero_grad(set_to_none=False)
            for order in (2.0, 1.0, 0.0, float("inf"), -float("inf")):
                found.append(torch.linalg.vector_norm(model.linear.weight.grad, order))
            found.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0))
            scaler.scale(torch.zeros(()))
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            found.append(optimizer.state[model.linear.weight]["step"].item())
            model.linear.weight.grad.mul_(factor)
            found.append(model.linear.weight.grad.norm())
            model(rows(1)).pow(2).sum().backward()
            found.append(model.linear.bias.grad.norm())
            optimizer.step()
            optimizer.zero_grad()
    torch.testing.assert_close(*seen, equal_nan=True, rtol=1e-5, atol=0)
    for name, value_of in arms[0][0].state_dict().items():
        torch.testing.assert_close(value_of, arms[1][0].state_dict()[name], equal_nan=True, rtol=0, atol=0)


def test_a_norm_in_another_dtype_is_taken_of_the_converted_elements() -> None:
    class Half(Small):
        def __init__(self) -> None:
            super().__init__()
            self.to(torch.bfloat16)

    (model, _), (theirs, _) = both(Half, update="step", exact_norm=True)
    for each in (model, theirs):
        each(rows(0).bfloat16()).float().pow(2).sum().backward()
    for order in (1.0, 2.0):
        ours, plain = (
            torch.linalg.vector_norm(each.linear.weight.grad, order, dtype=torch.float32) for each in (model, theirs)
        )
        assert torch.equal(ours, plain)


class Silent(torch.autograd.Function):
    """Has no gradient for its weight."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x + weight.sum()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient, None


@pytest.mark.parametrize("update", [*STORED, "backward"])
def test_a_function_without_a_gradient_for_a_parameter(update: str) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.weight = nn.Linear(8, 8), nn.Parameter(torch.ones(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = Silent.apply(self.linear(x), self.weight)
            return result

    arms = both(Odd, update=update)
    for model, optimizer in arms:
        model(rows(0)).pow(2).sum().backward()
        assert model.weight.grad is None
        optimizer.step()
    assert_same(arms[0][0], arms[1][0])


def test_a_state_that_is_changed_in_place_changes_no_parameter_and_says_so() -> None:
    model, _ = offloaded(Small(), new_client()[0])
    for use in (lambda: model(rows(0)), model.state_dict):
        model.state_dict()["linear.weight"].copy_(torch.ones(8, 8))
        with pytest.raises(tierd.Invalid, match="'linear.weight' was changed in place"):
            use()
    model(rows(0))


def test_a_state_that_was_changed_and_is_loaded_counts() -> None:
    model, _ = offloaded(Small(), new_client()[0])
    state = model.state_dict()
    for value in state.values():
        value.fill_(2.0)
    model.load_state_dict(state)
    assert all(torch.equal(value, torch.full_like(value, 2.0)) for value in model.state_dict().values())
    clones = {name: value.clone() for name, value in model.state_dict().items()}
    for value in clones.values():
        value.zero_()
    model(rows(0))
