"""Parameters in tierd that a forward itself changes, in whatever way: the same bits, or a sentence."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_offload import assert_same, new_client, offloaded
from test_offload_oddities import Small, both, rows
from torch import nn
from torch.nn import functional as F

import tierd
import tierd.torch
from tierd.errors import Invalid
from tierd.torch.stored_parameter import stored_of

MODES = pytest.mark.parametrize("update", ["deferred", "step", "backward"])


def train_both(make: Callable[[], nn.Module], steps: int = 4, **options: Any) -> tuple[nn.Module, nn.Module]:
    """Trains the model with and without tierd; the same losses."""
    arms = both(make, **options)
    for step in range(steps):
        losses = []
        for model, optimizer in arms:
            loss = model(rows(step)).pow(2).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        assert torch.equal(*losses), f"in step {step}"
    assert_same(arms[0][0], arms[1][0])
    return arms[0][0], arms[1][0]


class Momentum(nn.Module):
    """Its second layer follows the first, as a momentum encoder does."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)
        self.key.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            for theirs, ours in zip(self.query.parameters(), self.key.parameters(), strict=True):
                ours.data = ours.data * 0.9 + theirs.data * 0.1
            key = self.key(x)
        return self.query(x) * key


@MODES
def test_other_bytes_that_are_assigned_to_data_are_kept(update: str) -> None:
    ours, _ = train_both(Momentum, update=update)
    first = copy.deepcopy(ours.state_dict()["key.weight"])
    ours(rows(9))
    assert not torch.equal(first, ours.state_dict()["key.weight"])


class Masked(nn.Module):
    """Writes through ``data``, which plain torch does not count."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.count = nn.Parameter(torch.zeros(8), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.layer.weight.data *= torch.ones(8, 8).tril()
        self.count.data.add_(1)
        return F.linear(x, self.layer.weight, self.layer.bias) * self.count


@MODES
def test_what_is_written_through_data_is_written_back(update: str) -> None:
    ours, _ = train_both(Masked, update=update)
    count = stored_of(ours.get_parameter("count"))
    assert count is not None and count.version == 4, "a write in each forward, and not only into the lease"
    assert ours.state_dict()["count"].tolist() == [4.0] * 8


@MODES
def test_a_layer_that_another_module_changes_through_data(update: str) -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.layer.weight.data.clamp_(-0.2, 0.2)
            self.layer.bias.data = torch.ones(8)
            y: torch.Tensor = self.layer(x)
            return y

    ours, _ = train_both(Outer, update=update)
    ours(rows(9))
    assert ours.state_dict()["layer.weight"].abs().max() <= 0.2
    assert ours.state_dict()["layer.bias"].tolist() == [1.0] * 8


def test_what_all_ranks_read_is_not_changed_in_silence() -> None:
    class Filling(Small):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.linear.weight.data.fill_(7.0)
            return super().forward(x)

    client, _ = new_client()
    model = Filling()
    values = {name: value.clone() for name, value in model.state_dict().items()}
    model.linear.weight = nn.Parameter(torch.empty(8, 8, device="meta"), requires_grad=False)
    model, _ = offloaded(model, client, name="run", load_frozen=values.__getitem__)
    with pytest.raises(Invalid, match=r"'linear.weight' was changed in place in forward.*end this run"):
        model(rows(0))


def test_a_value_that_is_changed_again_behind_its_use_is_refused_in_backward() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.eye(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(3):
                with torch.no_grad():
                    self.weight.mul_(0.5)
                x = torch.tanh(x @ self.weight)
            return x

    for model, _ in both(Twice):
        with pytest.raises(RuntimeError, match="modified"):
            model(rows(0)).sum().backward()


@MODES
def test_a_model_that_calls_itself(update: str) -> None:
    class Tree(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.eye(8) + 0.1)

        def forward(self, x: torch.Tensor, depth: int = 2) -> torch.Tensor:
            if depth:
                x = self(x, depth - 1)
            return torch.tanh(x @ self.weight)

    train_both(Tree, update=update)


# ---- In gathered ----


def column_major(model: nn.Module) -> None:
    weight = model.get_parameter("linear.weight")
    weight.data = torch.linalg.qr(torch.arange(64.0).reshape(8, 8).cos())[0].t().contiguous().t()


def test_values_of_other_strides_are_written_in_the_order_that_they_had() -> None:
    client, _ = new_client()
    model, _ = offloaded(Small(), client)
    with tierd.torch.gathered(model, write=True):
        column_major(model)
        written = model.linear.weight.clone()
    assert torch.equal(model.state_dict()["linear.weight"], written)
    with tierd.torch.gathered(model, write=True):
        nn.utils.vector_to_parameters(torch.arange(64.0), [model.linear.weight])
    assert torch.equal(model.state_dict()["linear.weight"], torch.arange(64.0).reshape(8, 8))


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.half(),
        lambda model: setattr(model.linear.weight, "data", torch.ones(4, 8)),
        lambda model: setattr(model.linear.weight, "data", torch.ones(16, 4)),
    ],
)
def test_values_that_do_not_fit_are_refused_and_nothing_is_lost(change: Callable[[nn.Module], object]) -> None:
    client, _ = new_client()
    model, _ = offloaded(Small(), client)
    before = model.state_dict()
    with pytest.raises(Invalid, match="it keeps those that it had"), tierd.torch.gathered(model, write=True):
        change(model)
    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_change_without_write_is_noticed_whatever_way_it_takes() -> None:
    client, _ = new_client()
    model, _ = offloaded(Small(), client)
    with pytest.raises(Invalid, match="write=True"), tierd.torch.gathered(model):
        model.linear.weight.data.fill_(1.0)
    with pytest.raises(Invalid, match="write=True"), tierd.torch.gathered(model):
        model.linear.weight.data = torch.ones(8, 8)


def test_gathered_to_write_says_at_once_which_view_is_alive() -> None:
    class Keeping(Small):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.__dict__["kept"] = self.linear.weight.detach()
            return super().forward(x)

    client, _ = new_client()
    model, _ = offloaded(Keeping(), client)
    model(rows(0))
    began = time.monotonic()
    with pytest.raises(Invalid, match=r"a view of parameter 'linear.weight' is still alive"):
        with tierd.torch.gathered(model, write=True):
            pytest.fail("it is to be refused before it begins")
    assert time.monotonic() - began < 30, "it does not wait for the view"


def test_parameters_are_not_taken_the_place_of() -> None:
    client, _ = new_client()
    model, _ = offloaded(Small(), client)
    state = model.state_dict()
    with pytest.raises(Invalid, match="leave out assign"):
        model.load_state_dict(state, assign=True)
    model.load_state_dict(state)
    model(rows(0)).sum().backward()


def test_backward_that_has_updated_a_weight_which_is_still_needed_says_what_to_do() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = F.linear(x.requires_grad_(), self.layer.weight.detach())
            y: torch.Tensor = self.layer(x)
            return y

    client, _ = new_client()
    model, _ = offloaded(Both(), client, update="backward")
    with pytest.raises(RuntimeError, match="update='deferred'"):
        model(rows(0)).pow(2).sum().backward()


# ---- What the optimizer is given ----


@MODES
def test_a_state_that_is_loaded_between_steps_is_not_mistaken_for_the_last_one(update: str) -> None:
    class Two(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8))

    arms = both(Two, update=update)
    for step in range(6):
        for model, optimizer in arms:
            model[0].requires_grad_(step > 0)  # type: ignore[index]
            if step == 3:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            model(rows(step)).pow(2).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert_same(arms[0][0], arms[1][0])


def test_a_factor_of_many_elements_is_refused() -> None:
    client, _ = new_client()
    model, _ = offloaded(Small(), client)
    model(rows(0)).sum().backward()
    with pytest.raises(Invalid, match=r"mul_\(\) cannot use it.*shape \(8, 8\), is no single factor"):
        model.linear.weight.grad.mul_(torch.ones(8, 8))


@pytest.mark.parametrize("factor", [0.0, float("inf"), float("nan")])
def test_the_norm_of_a_gradient_by_odd_factors_is_torch_s(factor: float) -> None:
    norms = []
    for model, _ in both(Small):
        model(rows(0)).pow(2).sum().backward()
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad.div_(factor)
        norms.append(nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None]))
    assert torch.allclose(*norms, equal_nan=True)


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (lambda: nn.LazyLinear(8), "has no shape yet"),
        (lambda: nn.Linear(8, 8, dtype=torch.complex64), "complex64"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_it_moves(layer: Callable[[], nn.Module], why: str) -> None:
    client, _ = new_client()
    model = layer()
    with pytest.raises(Invalid, match=why):
        offloaded(model, client)
    assert type(model.get_parameter("weight")) is not tierd.torch.placeholder.Placeholder
