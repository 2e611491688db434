"""LookAhead: what is asked for ahead, in recorded order, and how it finds its place again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fake_library import FakeLibrary
from test_offload import Net, new_client, train

import tierd
import tierd.torch
from tierd.states import Part
from tierd.torch.look_ahead import LookAhead
from tierd.torch.runtime import required_runtime


class Asked:
    """A client that only notes what it is asked for."""

    def __init__(self) -> None:
        self.keys: list[object] = []
        self.gone: set[object] = set()

    def prefetch(self, parts: list[Part], *, shared: bool) -> None:
        if any(part.key in self.gone for part in parts):
            raise tierd.NotFound("no such tensor")
        self.keys += [part.key for part in parts]


def look_ahead(bytes_max: int = 30) -> tuple[LookAhead, Asked]:
    asked = Asked()
    client: Any = asked
    return LookAhead(client, bytes_max), asked


def use(ahead: LookAhead, *keys: int) -> None:
    for key in keys:
        ahead.use([Part(key, 0, 10)])


def test_a_step_is_asked_for_in_the_order_of_the_last_one() -> None:
    ahead, asked = look_ahead()
    use(ahead, 1, 2, 3, 4, 5, 6)
    assert asked.keys == []
    ahead.end_step()
    assert asked.keys == [1, 2, 3]
    use(ahead, 1)
    assert asked.keys == [1, 2, 3, 4]
    use(ahead, 2, 3, 4, 5, 6)
    assert asked.keys == [1, 2, 3, 4, 5, 6]


def test_a_use_may_ask_for_more_than_the_others() -> None:
    ahead, asked = look_ahead(bytes_max=20)
    use(ahead, *range(1, 9))
    ahead.end_step()
    assert asked.keys == [1, 2]
    ahead.use([Part(1, 0, 10)], 40)
    assert asked.keys == [1, 2, 3, 4, 5]
    use(ahead, 2, 3)
    assert asked.keys == [1, 2, 3, 4, 5], "two more than the others want are asked for already"
    use(ahead, 4)
    assert asked.keys == [1, 2, 3, 4, 5, 6]


def test_uses_that_were_left_out_are_passed_over_and_unknown_ones_ask_for_nothing() -> None:
    ahead, asked = look_ahead()
    use(ahead, *range(1, 9))
    ahead.end_step()
    use(ahead, 3)
    assert asked.keys == [1, 2, 3, 4, 5, 6]
    use(ahead, 77)
    assert asked.keys == [1, 2, 3, 4, 5, 6]
    use(ahead, 4)
    assert asked.keys == [1, 2, 3, 4, 5, 6, 7]


def test_a_tensor_larger_than_the_window_is_asked_for_in_part() -> None:
    ahead, asked = look_ahead(bytes_max=5)
    use(ahead, 1, 2)
    ahead.end_step()
    assert asked.keys == [1]
    use(ahead, 1)
    assert asked.keys == [1, 2]


def test_what_does_not_exist_is_left_out() -> None:
    ahead, asked = look_ahead()
    use(ahead, 1, 2, 3)
    ahead.absent.add(2)
    asked.gone.add(1)
    ahead.end_step()
    assert asked.keys == [3]


def test_a_step_may_begin_later_than_the_last_one_ends() -> None:
    ahead, asked = look_ahead()
    use(ahead, 1, 2, 3, 4, 5)
    ahead.end_step(ask=False)
    assert asked.keys == []
    use(ahead, 1)
    assert asked.keys == [2, 3, 4]


def test_an_update_whose_gradient_is_gone_is_not_asked_for_and_takes_no_room() -> None:
    ahead, asked = look_ahead(bytes_max=20)
    ahead.whole_uses = True
    for key in range(1, 7):
        ahead.use([Part(10 * key, 0, 10), Part(key, 0, 10)])  # An update, by state and gradient,
        use(ahead, 10 * key + 1)  # and the parameter that needs it.
    ahead.end_step()
    assert asked.keys == [10, 1]
    ahead.absent |= {1, 2, 3, 4}  # An evaluation has carried these out.
    use(ahead, 11)
    assert asked.keys == [10, 1, 21, 31]
    use(ahead, 21, 31, 41)
    assert asked.keys == [10, 1, 21, 31, 41, 50, 5]


@pytest.mark.parametrize("update, ahead", [("step", 4 * 16 << 20), ("deferred", 4 * 16 << 20), ("backward", 0)])
def test_updates_ask_for_two_units_unless_beside_backward(
    monkeypatch: pytest.MonkeyPatch, update: str, ahead: int
) -> None:
    """Units of value, gradient and two kinds of state, 8 MiB each."""
    asked: set[int] = set()

    def use(self: LookAhead, parts: list[Part], bytes_max: int = 0) -> None:
        asked.add(bytes_max)

    monkeypatch.setattr(LookAhead, "use", use)
    model, optimizer = tierd.torch.offload(
        Net(), tierd.torch.AdamW, client=new_client()[0], min_bytes=1, lr=0.1, update=update
    )
    train(model, optimizer)
    assert max(asked) == ahead


class Chain(torch.nn.Module):
    """Layers that a caller may also run one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).relu()
        return x


def order_of(model: torch.nn.Module) -> LookAhead:
    return required_runtime(model).store.training_order


def frozen_chain() -> tuple[Chain, Any, FakeLibrary]:
    client, fake = new_client()
    model = Chain().requires_grad_(False)
    _, optimizer = tierd.torch.offload(model, tierd.torch.SGD, client=client, min_bytes=1)
    return model, optimizer, fake


def through(model: Chain, x: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = model(x)
    return found


def by_layers(model: Chain, x: torch.Tensor) -> torch.Tensor:
    for layer in model.layers:
        x = layer(x).relu()
    return x


@pytest.mark.parametrize("forward", [through, by_layers])
@pytest.mark.parametrize("backward", [True, False])
def test_a_frozen_model_is_asked_for_ahead_though_it_makes_no_step(
    forward: Callable[[Chain, torch.Tensor], torch.Tensor], backward: bool
) -> None:
    model, _kept, fake = frozen_chain()
    sizes = []
    for _ in range(10):
        fake.prefetched.clear()
        found = forward(model, torch.randn(4, 16).requires_grad_())
        if backward:
            found.sum().backward()
        sizes.append((order_of(model).recorded, len(fake.prefetched)))
    assert len({*sizes[2:]}) == 1, sizes
    assert sizes[-1][0] <= 12 and sizes[-1][1] >= sizes[-1][0] // 2


def test_micro_batches_are_one_order_where_only_small_parameters_are_trained() -> None:
    model = Chain()
    for layer in model.layers:
        layer.weight.requires_grad_(False)
    _, optimizer = tierd.torch.offload(model, tierd.torch.AdamW, client=new_client()[0], min_bytes=128)
    order = order_of(model)
    for _ in range(3):
        recorded = []
        for _ in range(3):
            model(torch.randn(4, 16)).sum().backward()
            recorded.append(order.recorded)
        optimizer.step()
        optimizer.zero_grad()
        assert recorded == [recorded[0], 2 * recorded[0], 3 * recorded[0]] and recorded[0]


def test_an_order_that_no_step_ends_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tierd.torch.look_ahead, "RECORDED_MAX", 13)
    client, fake = new_client()
    model, _optimizer = tierd.torch.offload(Chain(), tierd.torch.AdamW, client=client, min_bytes=1)
    for _ in range(20):
        model(torch.randn(4, 16))  # Without no_grad().
        assert order_of(model).recorded <= 13
    assert fake.prefetched
