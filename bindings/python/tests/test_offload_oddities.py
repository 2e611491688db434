"""offload(model) where training loops do what few do: the same bits as in plain torch, or a sentence."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_offload import assert_same, new_client, offloaded, pair_of
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import tierd
import tierd.torch
from tierd.torch.placeholder import Placeholder


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.norm(self.linear(x))
        return y


def rows(seed: int) -> torch.Tensor:
    return torch.randn(2, 8, generator=torch.Generator().manual_seed(seed))


def both(make: Callable[[], nn.Module], **options: Any) -> tuple[tuple[nn.Module, Any], tuple[nn.Module, Any]]:
    client, _ = new_client()
    ours, theirs = pair_of(make)
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
    return offloaded(ours, client, **options), (theirs, plain)


@pytest.mark.parametrize("reentrant", [False, True])
def test_frozen_parameters_in_a_checkpoint_have_their_values_in_backward(reentrant: bool) -> None:
    class Frozen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.part = nn.Linear(8, 8), nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.PReLU(8))
            self.part.requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = checkpoint(self.part, self.first(x), use_reentrant=reentrant)
            return y

    arms = both(Frozen)
    for step in range(3):
        for model, optimizer in arms:
            model(rows(step)).pow(2).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert_same(arms[0][0], arms[1][0])


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_a_checkpoint_used_outside_of_its_module_is_a_placeholder_after_backward(reentrant: bool) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8, bias=False)

        def part(self, x: torch.Tensor) -> torch.Tensor:
            return F.linear(self.a(x), self.b.weight).relu()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = checkpoint(self.part, x, use_reentrant=reentrant)
            return y

    arms = both(Odd)
    for step in range(3):
        norms = []
        for model, optimizer in arms:
            model(rows(step).requires_grad_()).pow(2).sum().backward()
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 1e9))
            optimizer.step()
            optimizer.zero_grad()
        assert torch.allclose(*norms, rtol=1e-5)
    assert type(arms[0][0].b.weight) is Placeholder
    assert_same(arms[0][0], arms[1][0])


def test_what_autograd_holds_itself_never_becomes_nan() -> None:
    arms = both(Small)
    for model, optimizer in arms:
        gathering = tierd.torch.gathered(model) if model is arms[0][0] else torch.enable_grad()
        loss = model(rows(0)).pow(2).sum()
        with gathering:
            loss = loss + sum(p.pow(2).sum() for p in model.parameters()) + model(rows(1)).pow(3).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert_same(arms[0][0], arms[1][0])


def test_a_forward_that_wants_gradients_inside_no_grad() -> None:
    class Field(Small):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                return torch.autograd.grad(super().forward(x).pow(3).sum(), x)[0]

    arms = both(Field)
    with torch.no_grad():
        assert torch.equal(arms[0][0](rows(0)), arms[1][0](rows(0)))


def test_a_parameter_that_forward_changes_in_place_stays_changed() -> None:
    class Clamped(Small):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                self.norm.weight.clamp_(max=0.9)
            return super().forward(x)

    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(8, 8, max_norm=0.5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.embed(x.abs().long().clamp(max=7))
            return y

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.clamped, self.normed = Clamped(), Normed()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.clamped(x).sum() + self.normed(x).sum()
            return y

    arms = both(Both)
    for model, optimizer in arms:
        for step in range(3):
            model(rows(step)).pow(2).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert_same(arms[0][0], arms[1][0])


def test_gathered_keeps_writes_through_data_and_knows_the_gradients() -> None:
    arms = both(Small)
    for step in range(2):
        norms = []
        for model, optimizer in arms:
            model(rows(step)).pow(2).sum().backward()
            manager = tierd.torch.gathered(model, write=True) if model is arms[0][0] else torch.enable_grad()
            with manager:
                model.linear.weight.data.mul_(0.5)
                norms.append(nn.utils.clip_grad_norm_(model.parameters(), 1e9))
                if step == 0:
                    optimizer.zero_grad()
            optimizer.step()
            optimizer.zero_grad()
        assert torch.allclose(*norms, rtol=1e-5) and norms[0] > 0
    assert_same(arms[0][0], arms[1][0])


@pytest.mark.parametrize("how", ["never", "zeros", "model zeros"])
def test_gradients_that_stay_or_become_zeros(how: str) -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
            self.turn = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.turn += 1
            y: torch.Tensor = (self.a if self.turn % 2 else self.b)(x)
            return y

    arms = both(Branches)
    for step in range(4):
        for model, optimizer in arms:
            model(rows(step)).pow(2).sum().backward()
            optimizer.step()
            if how != "never":
                (model if how == "model zeros" else optimizer).zero_grad(set_to_none=False)
    assert_same(arms[0][0], arms[1][0])


def test_a_norm_that_is_nan_is_nan_and_a_division_is_one() -> None:
    arms = both(Small)
    norms = []
    for model, optimizer in arms:
        model(rows(0)).pow(2).sum().backward()
        for parameter in model.parameters():
            parameter.grad.div_(3)
        optimizer.step()
        optimizer.zero_grad()
        handle = model.norm.bias.register_hook(lambda gradient: gradient * float("nan"))
        model(rows(1)).pow(2).sum().backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        handle.remove()
        optimizer.zero_grad()
    assert all(norm.isnan() for norm in norms)
    assert_same(arms[0][0], arms[1][0])


def test_bytes_that_two_parameters_share_are_refused() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
            self.b.weight = nn.Parameter(self.a.weight)

    client, fake = new_client()
    with pytest.raises(tierd.Invalid, match="share their bytes"):
        offloaded(Shared(), client)
    assert fake.tensors == {}


def test_a_step_given_up_half_way_is_forgiven_when_its_gradients_go() -> None:
    (model, optimizer), (theirs, plain) = both(Small, update="step")
    model(rows(0)).pow(2).sum().backward()
    client = optimizer._client
    creating = iter(range(100))

    def take(parts: list[tierd.Part], write: bool = False, **options: Any) -> list[tierd.Lease]:
        if next(creating) >= 3:
            raise tierd.NoSpace("full")
        return lease_many(parts, write, **options)

    lease_many = client.lease_many
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "lease_many", take)
        with pytest.raises(tierd.NoSpace):
            optimizer.step()
    with pytest.raises(tierd.Invalid, match="persist"):
        tierd.torch.persist(model, optimizer)
    model.zero_grad()
    before = model.state_dict()
    model(rows(1)).pow(2).sum().backward()
    optimizer.step()
    assert not any(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_every_way_to_ask_for_a_norm() -> None:
    arms = both(Small)
    for model, _ in arms:
        model(rows(0)).pow(2).sum().backward()
    ours, theirs = arms[0][0].linear.weight.grad, arms[1][0].linear.weight.grad
    ways: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda g: g.norm(),
        lambda g: g.norm(2),
        lambda g: g.norm(p=1),
        lambda g: g.data.norm(2),
        lambda g: g.detach().data.norm(2),
        torch.norm,
        torch.linalg.vector_norm,
        lambda g: torch.linalg.vector_norm(g, float("inf")),
    ]
    for way in ways:
        assert torch.allclose(way(ours), way(theirs), rtol=1e-5)


@pytest.mark.parametrize("update", ["step", "deferred", "backward"])
def test_gradients_of_some_parameters(update: str) -> None:
    arms = both(Small, update=update)
    for step in range(3):
        found = []
        for model, optimizer in arms:
            loss = model(rows(step)).pow(2).sum()
            found.append(torch.autograd.grad(loss, [*model.parameters()], retain_graph=True))
            loss.backward(inputs=[model.linear.weight, model.norm.bias])
            optimizer.step()
            optimizer.zero_grad()
        assert all(map(torch.equal, *found))
    assert_same(arms[0][0], arms[1][0])


def test_gradients_that_cannot_be_are_refused() -> None:
    model = both(Small)[0][0]
    weight: Any = model.linear.weight
    for call in (torch.autograd.grad, torch.autograd.backward):
        with pytest.raises(tierd.Invalid, match="gathered"):
            call([weight], [weight])
    model.norm.requires_grad_(False)
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.autograd.grad(model(rows(0)).sum(), model.norm.weight)


def test_a_gradient_in_tierd_is_given_no_other_values_below_the_guard() -> None:
    model = both(Small)[0][0]
    model(rows(0)).sum().backward()
    gradient: Any = model.linear.weight.grad
    uses: dict[str, Callable[[], object]] = {
        r"set_\(\)": lambda: gradient.set_(torch.ones(2)),
        r"as_subclass\(\)": lambda: gradient.as_subclass(torch.Tensor),
        r"\.data": lambda: setattr(gradient, "data", torch.ones(8, 8)),
        r"fill_\(\)": lambda: gradient.data.fill_(1.0),
        r"copy_\(\)": lambda: gradient.data.copy_(torch.ones(8, 8)),
        r"__setitem__\(\)": lambda: gradient.data.__setitem__(0, 1.0),
        r"\.T": lambda: gradient.T,
    }
    for name, use in uses.items():
        with pytest.raises(tierd.Invalid, match=f": {name} cannot use it.*gradient_of"):
            use()
    assert gradient.shape == (8, 8)


@pytest.mark.parametrize("update", ["step", "deferred", "backward"])
@pytest.mark.parametrize("keep", ["self", "detach", "data"])
def test_what_a_custom_function_keeps_of_a_parameter(keep: str, update: str) -> None:
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            ctx.weight = {"self": weight, "detach": weight.detach(), "data": weight.data}[keep]
            return x @ weight

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            (x,) = ctx.saved_tensors
            return gradients[0] @ ctx.weight.t(), x.t() @ gradients[0]

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.weight = nn.Linear(8, 8), nn.Parameter(torch.randn(8, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = Product.apply(self.first(x), self.weight)
            return y

    ((ours, optimizer), (theirs, plain)) = both(Model, update=update)
    for step in range(3):
        theirs(rows(step)).pow(2).sum().backward()
        loss = ours(rows(step)).pow(2).sum()
        if keep == "self":
            loss.backward()
        else:  # The view cannot see the new values: it must be gone before.
            with pytest.raises(tierd.Invalid, match="ctx of a custom Function"):
                loss.backward()
                optimizer.step()
        del loss
        if keep != "self" and update == "backward":
            return
        for o in (optimizer, plain):
            o.step()
            o.zero_grad()
    assert_same(ours, theirs)


@pytest.mark.parametrize("update", ["deferred", "step", "backward"])
def test_a_parameter_that_is_frozen_between_forward_and_backward_gets_no_gradient(update: str) -> None:
    arms = both(Small, update=update)
    for model, optimizer in arms:
        loss = model(rows(0)).pow(2).sum()
        model.linear.weight.requires_grad_(False)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert_same(arms[0][0], arms[1][0])


class Transposed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 4, dtype=torch.bfloat16).t())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.made = shaped(self.weight)
        return x.bfloat16() @ self.weight


def shaped(weight: torch.Tensor) -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [
        torch.zeros_like(input=weight),
        torch.ones_like(weight, dtype=torch.float32),
        torch.full_like(weight, fill_value=3),
        torch.rand_like(weight),
        torch.randn_like(weight, requires_grad=True),
        torch.zeros_like(torch.empty_like(weight, memory_format=torch.contiguous_format)),
        weight.new_zeros(2, 3),
        weight.new_full((2,), 5.0),
        torch.ones_like(weight, device="cpu", requires_grad=True),
    ]


def test_tensors_of_a_parameters_shape_and_type_need_no_values() -> None:
    """A buffer for an average of the weights, say: the same bits, strides and type in forward and outside of it."""
    (ours, _), (theirs, _) = both(Transposed)
    for model in (ours, theirs):
        model(rows(0)[:, :4])
    expected = shaped(theirs.weight)
    for found in (shaped(ours.weight), ours.made, theirs.made):
        for one, other in zip(found, expected, strict=True):
            assert torch.equal(one, other)
            assert (one.stride(), one.dtype, one.requires_grad) == (other.stride(), other.dtype, other.requires_grad)
            assert not isinstance(one, nn.Parameter)


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).tanh()
        return x


@pytest.mark.parametrize("update", ["deferred", "step", "backward"])
@pytest.mark.parametrize("trained", [False, True])
def test_a_layer_that_is_replaced_or_added_later_is_as_in_plain_torch(update: str, trained: bool) -> None:
    """Its own parameters are no part of the optimizer, unless they are added to it."""
    arms = both(Stack, update=update)
    torch.manual_seed(4)
    others = nn.Linear(8, 8), nn.Linear(8, 8)
    for model, optimizer in arms:
        for step in range(4):
            if step == 2:
                model.layers[0] = copy.deepcopy(others[0])
                model.layers.append(copy.deepcopy(others[1]))
                if trained:
                    optimizer.add_param_group(
                        {"params": [*model.layers[0].parameters(), *model.layers[2].parameters()]}
                    )
            model(rows(step)).pow(2).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert_same(arms[0][0], arms[1][0])


def test_a_graph_made_in_gathered_is_freed_without_a_backward() -> None:
    model = both(Small)[0][0]
    with tierd.torch.gathered(model):
        norm = model.linear.weight.norm()  # Its graph saves its result too.
        result = weakref.ref(norm)
        del norm
        assert result() is None


def test_what_a_graph_made_in_gathered_saved_must_not_change() -> None:
    for model, _ in both(Small):
        with tierd.torch.gathered(model):
            found = model.linear.weight.exp()
            loss = found.sum()
            with torch.no_grad():
                found.mul_(2)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()
