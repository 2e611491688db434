"""A step that is interrupted at any point, and continued: by torch's kernels and by libtier's."""

from __future__ import annotations

import functools

import pytest
import torch
from fake_library import FakeLibrary
from test_interrupts import Interrupter
from test_offload import assert_same, new_client, pair_of
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
