"""A step that is interrupted at any point, and continued: by torch's kernels and by libtier's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fake_library import FakeLibrary
from test_interrupts import Interrupter
from test_offload import assert_same, new_client, offloaded, pair_of
from test_optimizer import assert_same_bits, give_gradients, parameters_of, run
from test_optimizer_kinds import CASES
from torch import nn

import tierd
import tierd.torch
from tierd.session import Session


PLAIN = (tierd.torch.AdamW, functools.partial(torch.optim.AdamW, fused=True), torch.float32, {})


# The other kinds run mostly the same lines as the first one: every third point is enough there.
@pytest.mark.usefixtures("reported")
@pytest.mark.parametrize(("case", "stride"), [("adamw", 1), ("sgd momentum", 3), ("adamw random", 3)])
def test_a_step_interrupted_at_any_point_is_continued_with_the_same_bits(case: str, stride: int) -> None:
    ours_class, reference, dtype, options = PLAIN if case == "adamw" else CASES[case]
    theirs = parameters_of([(10,), (5,)], dtype)
    run(reference(theirs), theirs, 2)
    for first in (True, False):
        expected = parameters_of([(10,), (5,)], dtype)
        run(reference(expected), expected, 1 if first else 2)
        at = 0
        while True:
            fake = FakeLibrary()
            client = tierd.Client(Session(fake, 1))  # type: ignore[arg-type]
            parameters = parameters_of([(10,), (5,)], dtype)
            tiered = ours_class(parameters, client=client, **options)
            if not first:
                run(tiered, parameters, 1)
            give_gradients(parameters, 0 if first else 1)
            caught: list[BaseException] = []
            with Interrupter(at) as interrupter:
                try:
                    tiered.step()
                except KeyboardInterrupt as error:
                    caught.append(error)  # With its frames, as code that reports it does.
            if not interrupter.raised:
                break
            client.stats()  # A call: what an interrupted finalizer has left is gone with it.
            assert fake.leases == {} and all(tensor.sealed for tensor in fake.tensors.values()), at
            updated = all(torch.equal(a, b) for a, b in zip(parameters, expected, strict=True))
            whole = updated and not any(state.finished for state in tiered._tiered.values())
            if not whole:  # Else the interrupt came when all was done.
                tiered.step()
            if first:
                give_gradients(parameters, 1)
                tiered.step()
            assert_same_bits(parameters, theirs)
            at += stride
    assert at >= 100


@pytest.mark.parametrize("update", ["step", "deferred", "backward"])
def test_a_step_that_failed_behind_its_update_is_not_made_twice(update: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client, _ = new_client()
    ours, theirs = pair_of(lambda: nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)))
    _, optimizer = tierd.torch.offload(ours, tierd.torch.AdamW, client=client, min_bytes=64, lr=0.1, update=update)
    plain = torch.optim.AdamW(theirs.parameters(), lr=0.1, fused=True)
    fails = [True, True]

    def step(*_: object) -> None:
        if fails and fails.pop():
            raise KeyboardInterrupt

    monkeypatch.setattr(client, "step", step)
    for number in range(3):
        for model in (ours, theirs):
            model(torch.full((2, 8), float(number + 1))).square().sum().backward()
        plain.step()
        while fails:
            with pytest.raises(KeyboardInterrupt):
                optimizer.step()
        if number != 1:
            optimizer.step()
        else:  # It was made: a step that fails, and is left at that.
            fails.append(True)
            with pytest.raises(KeyboardInterrupt):
                optimizer.step()
        for each in (plain, optimizer):
            each.zero_grad()
    assert_same(ours, theirs)


BETWEEN: dict[str, Callable[[nn.Module, Any], object]] = {
    "zeros": lambda model, optimizer: optimizer.zero_grad(set_to_none=False),
    "zeros by the model": lambda model, optimizer: model.zero_grad(set_to_none=False),
    "a factor": lambda model, optimizer: [parameter.grad.mul_(2.0) for parameter in model.parameters()],
    "a sum": lambda model, optimizer: model(torch.ones(2, 8)).square().sum().backward(),
    "a load": lambda model, optimizer: optimizer.load_state_dict(optimizer.state_dict()),
}


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("place", ["auto", "device"])
@pytest.mark.parametrize("update", ["step", "deferred"])
def test_a_step_by_other_gradients_than_those_of_one_that_failed_is_made(
    update: str, place: str, between: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _ = new_client()
    ours, theirs = pair_of(lambda: nn.Linear(8, 8))
    options = {"min_bytes": 1, "lr": 0.1, "update": update, "gradients": place}
    _, optimizer = tierd.torch.offload(ours, tierd.torch.AdamW, client=client, **options)
    plain = torch.optim.AdamW(theirs.parameters(), lr=0.1, fused=True)
    for model in (ours, theirs):
        model(torch.ones(2, 8)).square().sum().backward()
    plain.step()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(client, "step", interrupt)
        optimizer.step()
    for model, of in ((ours, optimizer), (theirs, plain)):
        BETWEEN[between](model, of)
        of.step()
    assert {state["step"].item() for state in optimizer.state.values()} == {2.0}
    assert_same(ours, theirs)


def test_a_step_by_the_gradients_of_one_that_was_discarded_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    client, _ = new_client()
    ours, theirs = pair_of(lambda: nn.Linear(8, 8))
    options = {"min_bytes": 1, "lr": 0.1, "gradients": "device"}
    _, optimizer = tierd.torch.offload(ours, tierd.torch.AdamW, client=client, **options)
    plain = torch.optim.AdamW(theirs.parameters(), lr=0.1, fused=True)
    for model in (ours, theirs):
        model(torch.ones(2, 8)).square().sum().backward()
    kept = [parameter.grad for parameter in ours.parameters()]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(client, "step", interrupt)
        optimizer.step()
    optimizer.discard_update(accept=True)
    for parameter, gradient in zip(ours.parameters(), kept, strict=True):
        parameter.grad = gradient
    for _ in range(2):
        plain.step()
    optimizer.step()
    assert_same(ours, theirs)


def test_a_gradient_in_tierd_counts_its_changes_as_one_of_the_process() -> None:
    client, _ = new_client()
    ours, theirs = pair_of(lambda: nn.Linear(8, 8))
    offloaded(ours, client)
    seen: list[list[int]] = [[], []]
    for versions, model in zip(seen, (ours, theirs), strict=True):
        for step in range(3):
            model(torch.ones(2, 8)).square().sum().backward()
            gradient = model.weight.grad
            versions.append(gradient._version)
            gradient.mul_(2.0)
            gradient.div_(2.0)
            versions.append(gradient._version)
            if step == 1:
                gradient.zero_()
            versions.append(gradient._version)
    assert seen[0] == seen[1]


def test_a_step_by_gradients_that_were_made_in_inference_mode() -> None:
    client, _ = new_client()
    ours, theirs = pair_of(lambda: nn.Linear(8, 8))
    _, optimizer = offloaded(ours, client)
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
    for model, of in ((ours, optimizer), (theirs, plain)):
        for _ in range(2):
            with torch.inference_mode():
                for parameter in model.parameters():
                    parameter.grad = torch.ones(parameter.shape)
            of.step()
            of.zero_grad()
    assert_same(ours, theirs)


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt
