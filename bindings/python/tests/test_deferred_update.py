"""Updates that step() puts off until the next forward: the same bits, whatever reads in between or fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_interrupts import Interrupter
from test_offload import assert_same, new_client, offloaded, pair_of
from test_offload_oddities import Small, both, rows
from torch import nn

import tierd
import tierd.torch
from tierd.torch.pending_update import PendingUpdate
from tierd.torch.stored_parameter import stored_in


def waiting(model: nn.Module) -> int:
    """How many updates have been put off."""
    return sum(stored.deferred is not None for stored in stored_in(model.parameters()))


def step_of(model: nn.Module, optimizer: Any, seed: int) -> None:
    optimizer.zero_grad()
    model(rows(seed)).pow(2).sum().backward()
    optimizer.step()


def test_a_step_puts_all_updates_off_and_each_layers_forward_carries_out_its_own() -> None:
    client, fake = new_client()
    ours, theirs = pair_of(lambda: nn.Sequential(*[nn.Linear(8, 8) for _ in range(4)]))
    _, optimizer = offloaded(ours, client)
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
    seen: list[int] = []
    for layer in ours:
        layer.register_forward_hook(lambda *_: seen.append(waiting(ours)))
    for step in range(3):
        step_of(ours, optimizer, step)
        step_of(theirs, plain, step)
        assert waiting(ours) == 8
        optimizer.zero_grad()
        assert all(p.grad is None for p in ours.parameters())
    assert seen == [0, 0, 0, 0, 6, 4, 2, 0, 6, 4, 2, 0]
    assert_same(ours, theirs)
    assert waiting(ours) == 0 and fake.leases == {}
    gradients = [number for name, number in fake.names.items() if name.endswith(b"/gradient")]
    assert len(gradients) == 8 and not any((number, 0) in fake.tensors for number in gradients)


LOOKS: dict[str, Callable[[nn.Module, Any], object]] = {
    "state_dict of the model": lambda model, optimizer: model.state_dict(),
    "state_dict of the optimizer": lambda model, optimizer: optimizer.state_dict()["state"],
    "keys": lambda model, optimizer: [optimizer.tiered_keys(p) for p in model.parameters()],
    "settle": lambda model, optimizer: optimizer.settle(),
    "evaluation": lambda model, optimizer: torch.no_grad()(model)(rows(9)),
    "a second step": lambda model, optimizer: optimizer.step(),
    "accumulation": lambda model, optimizer: model(rows(9)).pow(2).sum().backward(),
    "zeros": lambda model, optimizer: optimizer.zero_grad(set_to_none=False),
    "a load": lambda model, optimizer: optimizer.load_state_dict(optimizer.state_dict()),
    "a factor": lambda model, optimizer: [p.grad.mul_(3) for p in model.parameters()],
}


@pytest.mark.parametrize("look", LOOKS)
def test_whoever_looks_in_between_sees_what_plain_torch_shows(look: str) -> None:
    arms = both(Small)
    shown = []
    for model, optimizer in arms:
        if look in ("keys", "settle") and model is arms[1][0]:
            shown.append(None)
            continue
        for step in range(3):
            step_of(model, optimizer, step)
            result = LOOKS[look](model, optimizer)
        shown.append(result if "state_dict" in look else None)
    if look in ("keys", "settle"):
        for step in range(3):
            step_of(arms[1][0], arms[1][1], step)
    if shown[0] is not None:
        torch.testing.assert_close(shown[0], shown[1], rtol=0, atol=0)
    for model, optimizer in arms:
        step_of(model, optimizer, 7)
    assert_same(arms[0][0], arms[1][0])


def test_what_the_options_were_at_the_step_counts() -> None:
    arms = both(Small)
    for model, optimizer in arms:
        rate = torch.tensor(1e-2)
        for group in optimizer.param_groups:
            group["lr"] = rate
        for step in range(3):
            step_of(model, optimizer, step)
            assert {value["step"].item() for value in optimizer.state.values()} == {step + 1.0}
            rate.mul_(0.1)
            for group in optimizer.param_groups:
                group["weight_decay"] = 0.5 * step
    assert_same(arms[0][0], arms[1][0])


def test_values_that_are_loaded_after_a_step_replace_the_updated_ones_and_leave_the_state() -> None:
    arms = both(Small)
    for model, optimizer in arms:
        step_of(model, optimizer, 0)
        with torch.no_grad():
            model.load_state_dict({key: torch.ones_like(value) for key, value in model.state_dict().items()})
        step_of(model, optimizer, 1)
    assert_same(arms[0][0], arms[1][0])


def test_a_parameter_that_the_next_forward_leaves_out_is_updated_by_the_next_step() -> None:
    class Choice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.experts[int(x[0, 0] > 0)](x)
            return y

    arms = both(Choice)
    for model, optimizer in arms:
        for step in range(6):
            step_of(model, optimizer, step)
    assert 0 < waiting(arms[0][0]) <= 4
    assert_same(arms[0][0], arms[1][0])


def test_a_graph_from_before_the_step_cannot_run() -> None:
    (model, optimizer), _ = both(lambda: nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)))
    loss = model(rows(0)).pow(2).sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified since forward"):
        loss.backward()


def test_the_optimizer_may_go_while_updates_wait() -> None:
    (model, optimizer), (theirs, plain) = both(Small)
    step_of(model, optimizer, 0)
    step_of(theirs, plain, 0)
    del optimizer
    assert_same(model, theirs)


def test_a_full_disk_in_forward_is_an_error_after_which_the_update_goes_on() -> None:
    for allowed in range(4):
        (model, optimizer), (theirs, plain) = both(Small)
        step_of(theirs, plain, 0)
        step_of(model, optimizer, 0)
        client, taken = optimizer._client, iter(range(100))
        lease_many = client.lease_many

        def take(parts: list[tierd.Part], write: bool = False, **options: Any) -> list[tierd.Lease]:
            if next(taken) >= allowed:  # noqa: B023
                raise tierd.NoSpace("full")
            return lease_many(parts, write, **options)  # noqa: B023

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client, "lease_many", take)
            with pytest.raises(tierd.NoSpace):
                model(rows(1))
        assert waiting(model) > 0
        for each, o in ((model, optimizer), (theirs, plain)):
            step_of(each, o, 1)
        assert_same(model, theirs)


@pytest.mark.usefixtures("reported")
def test_a_forward_interrupted_at_many_points_leaves_updates_that_go_on() -> None:
    at = 0
    while True:
        (model, optimizer), (theirs, plain) = both(lambda: nn.Sequential(nn.Linear(4, 4)))
        x = torch.ones(1, 4)
        for each, o in ((model, optimizer), (theirs, plain)):
            each(x).sum().backward()
            o.step()
            o.zero_grad()
        with Interrupter(at) as interrupter:
            try:
                with torch.no_grad():
                    model(x)
            except KeyboardInterrupt:
                pass
        if not interrupter.raised:
            break
        for each, o in ((model, optimizer), (theirs, plain)):
            each(x).pow(2).sum().backward()
            o.step()
            o.zero_grad()
        assert_same(model, theirs)
        at += 7  # Each in turn takes half a minute.
    assert at >= 700


def test_a_selective_checkpoint_does_not_see_the_update() -> None:
    seen: list[str] = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    (model, optimizer), _ = both(Small)
    step_of(model, optimizer, 0)
    with Watch():
        model(rows(1))
    assert waiting(model) == 0 and not any("adam" in name for name in seen)


class Failing(torch.overrides.TorchFunctionMode):
    """Fails in each operation of an optimizer that it sees."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in ("copy_", "add", "_fused_adamw_", "zero_"):
            raise KeyboardInterrupt
        return func(*args, **(kwargs or {}))


def test_a_mode_around_the_forward_cannot_come_between_an_update_and_its_note() -> None:
    (model, optimizer), (theirs, plain) = both(Small)
    for each, o in ((model, optimizer), (theirs, plain)):
        step_of(each, o, 0)
    with Failing():
        try:
            model(rows(1))
        except KeyboardInterrupt:
            pass
    for each, o in ((model, optimizer), (theirs, plain)):
        step_of(each, o, 1)
    assert_same(model, theirs)


def test_a_transformation_of_a_model_whose_update_is_due_is_refused_and_changes_nothing() -> None:
    (model, optimizer), (theirs, plain) = both(Small)
    for each, o in ((model, optimizer), (theirs, plain)):
        step_of(each, o, 0)
    for _ in range(3):
        with pytest.raises(tierd.Invalid, match="settle"):
            torch.func.jvp(model, (rows(1),), (rows(2),))
    assert_same(model, theirs)


def test_a_step_in_inference_mode_is_carried_out_later() -> None:
    arms = both(Small)
    for model, optimizer in arms:
        for seed in range(3):
            optimizer.zero_grad()
            model(rows(seed)).pow(2).sum().backward()
            with torch.inference_mode():
                optimizer.step()
    assert_same(arms[0][0], arms[1][0])


def test_an_option_that_no_update_can_use_is_refused_by_step() -> None:
    (model, optimizer), (theirs, plain) = both(Small)
    for each in (model, theirs):
        each(rows(0)).pow(2).sum().backward()
    for name, wrong in (("lr", None), ("betas", 0.9), ("eps", "x")):
        right = optimizer.param_groups[0][name]
        optimizer.param_groups[0][name] = wrong
        with pytest.raises(tierd.Invalid, match=name):
            optimizer.step()
        optimizer.param_groups[0][name] = right
    for o in (optimizer, plain):
        o.step()
        o.zero_grad()
    assert_same(model, theirs)


def test_two_optimizers_of_the_same_parameters_update_in_turn() -> None:
    (model, optimizer), (theirs, plain) = both(Small)
    second = tierd.torch.SGD(model.parameters(), client=optimizer._client, lr=0.1)
    plain_second = torch.optim.SGD(theirs.parameters(), lr=0.1, fused=True)
    for each, first, then in ((model, optimizer, second), (theirs, plain, plain_second)):
        for seed in range(3):
            step_of(each, first, seed)
            then.step()
    assert_same(model, theirs)


def test_a_state_dict_that_fails_leaves_no_mark() -> None:
    (model, optimizer), _ = both(Small)
    step_of(model, optimizer, 0)

    def full(*_: Any, **__: Any) -> Any:
        raise tierd.NoSpace("full")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimizer._client, "lease_many", full)
        with pytest.raises(tierd.NoSpace):
            model.state_dict()
    with pytest.raises(tierd.Invalid, match="gathered"):
        model.linear.weight.detach()


@pytest.mark.parametrize("update", ["step", "deferred"])
def test_a_step_that_is_refused_leaves_earlier_graphs_as_they_are(update: str) -> None:
    (model, optimizer), _ = both(lambda: nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), update=update)
    kept: list[torch.Tensor] = []
    handle = model[1].register_forward_hook(lambda module, *_: kept.append(module.weight.detach()), prepend=True)
    model(rows(0)).pow(2).sum().backward()
    handle.remove()
    loss = model(rows(1)).pow(2).sum()
    with pytest.raises(tierd.Invalid, match="still alive"):
        optimizer.step()
    kept.clear()
    loss.backward()
    optimizer.step()


def test_the_updates_of_a_module_are_carried_out_before_its_parameters_are_leased() -> None:
    client, fake = new_client()
    ours, _ = pair_of(Small)
    _, optimizer = offloaded(ours, client)
    step_of(ours, optimizer, 0)
    optimizer.zero_grad()
    lease_many, beside = client.lease_many, []

    def lease(*arguments: Any, **options: Any) -> Any:
        beside.append(len(fake.leases))
        return lease_many(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "lease_many", lease)
        ours.linear(rows(0))
    assert beside and beside[0] == 0 and max(beside) <= 3  # Those of the update itself: values and moments.


def test_two_threads_at_one_update_carry_it_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    (ours, optimizer), (theirs, plain) = both(Small)
    step_of(ours, optimizer, 0)
    step_of(theirs, plain, 0)
    (stored, *_) = stored_in(ours.parameters())
    arrived, run = threading.Event(), PendingUpdate.run

    def noted(update: PendingUpdate) -> None:
        arrived.set()
        run(update)

    monkeypatch.setattr(PendingUpdate, "run", noted)
    other = threading.Thread(target=stored.settle)
    with stored.store.lock:
        other.start()
        assert arrived.wait(30)  # It waits for the lock, with the update in its hands.
        stored.settle()
    other.join()
    optimizer.settle()
    assert_same(ours, theirs)
