"""A step that an optimizer refuses has changed nothing: no parameter is at another version, no state is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from test_deferred_update import step_of
from test_offload import assert_same, new_client, offloaded, pair_of
from test_offload_oddities import Small, both, rows
from torch import nn

import tierd
import tierd.torch


def two_groups(model: nn.Module) -> list[dict[str, Any]]:
    return [{"params": list(layer.parameters())} for layer in model.children()]


def two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))


def set_gradient(optimizer: Any, gradient: torch.Tensor | None) -> None:
    optimizer.param_groups[1]["params"][0].grad = gradient


# What an update of the second group cannot use, and the repair.
UNUSABLE: dict[str, tuple[Callable[[Any], object], Callable[[Any], object]]] = {
    "an option": (lambda o: o.param_groups[1].update(lr=None), lambda o: o.param_groups[1].update(lr=1e-2)),
    "a state that is missing": (
        lambda o: o.param_groups[1].update(amsgrad=True),
        lambda o: o.param_groups[1].update(amsgrad=False),
    ),
    "a sparse gradient": (lambda o: set_gradient(o, torch.ones(8, 8).to_sparse()), lambda o: set_gradient(o, None)),
}


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("what", UNUSABLE)
@pytest.mark.parametrize("update", ["step", "deferred"])
def test_a_step_that_its_last_group_refuses_changes_nothing(update: str, what: str, steps: int) -> None:
    if what == "a state that is missing" and not steps:
        return
    client, fake = new_client()
    ours, theirs = pair_of(two_layers)
    _, optimizer = offloaded(ours, client, update=update, groups=two_groups)
    plain = torch.optim.AdamW(two_groups(theirs), lr=1e-2, fused=True)
    arms = ((ours, optimizer), (theirs, plain))
    for model, o in arms:
        for step in range(steps):
            step_of(model, o, step)
        o.zero_grad()
        model(rows(7)).pow(2).sum().backward()
    before = optimizer.state_dict()["state"]
    later = [model(rows(8).requires_grad_()).pow(2).sum() for model, _ in arms]
    spoil, repair = UNUSABLE[what]
    spoil(optimizer), spoil(plain)
    with pytest.raises(tierd.Invalid):
        optimizer.step()
    repair(optimizer), repair(plain)
    torch.testing.assert_close(optimizer.state_dict()["state"], before, rtol=0, atol=0)
    for loss in later:
        loss.backward()
    for _, o in arms:
        o.step()
    assert_same(ours, theirs)


def test_a_step_without_gradients_in_a_group_needs_none_of_its_options() -> None:
    client, _ = new_client()
    ours, theirs = pair_of(two_layers)
    _, optimizer = offloaded(ours, client, groups=two_groups)
    plain = torch.optim.AdamW(two_groups(theirs), lr=1e-2, fused=True)
    for model, o in ((ours, optimizer), (theirs, plain)):
        o.param_groups[1]["lr"] = None
        model[1].requires_grad_(False)
        step_of(model, o, 0)
    assert_same(ours, theirs)


def test_an_update_in_backward_that_is_refused_changes_nothing() -> None:
    client, _ = new_client()
    model, optimizer = offloaded(two_layers(), client, update="backward")
    step_of(model, optimizer, 0)
    optimizer.zero_grad()
    loss, later = (model(rows(seed).requires_grad_()).pow(2).sum() for seed in range(2))
    optimizer.param_groups[0]["amsgrad"] = True
    with pytest.raises(tierd.Invalid, match="turned on"):
        loss.backward()
    optimizer.param_groups[0]["amsgrad"] = False
    later.backward()
    optimizer.step()


def test_a_step_under_a_name_that_another_optimizer_has_changes_nothing() -> None:
    client, _ = new_client()
    (first, one), (second, other) = (offloaded(two_layers(), client, name=name, update="step") for name in ("a", "b"))
    other._name = one._name
    step_of(first, one, 0)
    later = second(rows(1).requires_grad_()).pow(2).sum()
    with pytest.raises(tierd.AlreadyExists, match="another optimizer"):
        step_of(second, other, 0)
    assert other.state_dict()["state"] == {}
    later.backward()


@pytest.mark.parametrize("kind", [numpy.float32, numpy.float64, numpy.int64])
@pytest.mark.parametrize("update", ["step", "deferred"])
def test_options_that_numpy_has_computed(update: str, kind: Any) -> None:
    arms = both(Small, update=update)
    for model, optimizer in arms:
        for name in ("lr", "weight_decay", "eps"):
            optimizer.param_groups[0][name] = kind(1)
        step_of(model, optimizer, 0)
    assert_same(arms[0][0], arms[1][0])


def test_an_option_that_was_a_tensor_at_first() -> None:
    client, _ = new_client()
    model, optimizer = tierd.torch.offload(
        Small(), tierd.torch.AdamW, client=client, min_bytes=1, lr=torch.tensor(1e-2)
    )
    optimizer.param_groups[0]["lr"] = None
    with pytest.raises(tierd.Invalid, match="lr"):
        step_of(model, optimizer, 0)
    optimizer.param_groups[0]["lr"] = 1e-2
    optimizer.step()
