"""accumulate() by several ranks beside DistributedDataParallel with no_sync: the same bits, errors for all ranks."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
import torch.distributed as distributed
from rank_processes import Outcomes, assert_passed, client_of, outcomes_of, refused, run_all
from test_ranks import Net, assert_same, both
from torch import nn
from torch.nn import functional as F

import tierd
import tierd.torch


def batches_of(step: int, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Each rank has data of its own."""
    source = torch.Generator().manual_seed(100 * step + distributed.get_rank())
    return [
        (torch.randn(6, 8, generator=source), torch.randn(6, 4, generator=source))  #
        for _ in range(count)
    ]


def plainly(model: Any, step: int, count: int, rounds: int = 1) -> list[torch.Tensor]:
    """What accumulate() does, by DDP's means."""
    losses = []
    for number, batch in enumerate(batches_of(step, count)):
        if number < count - 1:
            with model.no_sync():
                losses.append(loss_of(model, batch, count, rounds))
                losses[-1].backward()
        else:
            losses.append(loss_of(model, batch, count, rounds))
            losses[-1].backward()
    return losses


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor], count: int, rounds: int = 1) -> torch.Tensor:
    x, y = batch
    return sum(F.mse_loss(model(x + number), y) for number in range(rounds)) / count  # type: ignore[return-value]


def accumulated(model: nn.Module, step: int, count: int, rounds: int = 1) -> list[torch.Tensor]:
    return tierd.torch.accumulate(
        model, batches_of(step, count), lambda batch: loss_of(model, batch, count, rounds), blocks=model.blocks
    )


def steps(count: int, rounds: int = 1, model: Net | None = None, **options: Any) -> None:
    client, fake = client_of()
    ours, optimizer, theirs, plain = both(client, model, **options)
    for step in range(3):
        found = accumulated(ours, step, count, rounds)
        expected = plainly(theirs, step, count, rounds)
        assert [one.item() for one in found] == [one.item() for one in expected]
        for name, parameter in theirs.module.named_parameters():
            gradient = tierd.torch.gradient_of(ours.get_parameter(name))
            assert gradient is not None and torch.equal(gradient, parameter.grad), name
        norms = [nn.utils.clip_grad_norm_(each.parameters(), 0.5) for each in (ours, theirs)]
        assert torch.equal(*norms)
        for o in (optimizer, plain):
            o.step()
            o.zero_grad()
    assert_same(ours, theirs)
    assert fake.leases == {}


def without_buffers(reentrant: bool | None = None) -> Net:
    model = Net(reentrant)
    model.norm = nn.Identity()  # type: ignore[assignment]
    return model


def one_reduction_a_step() -> None:
    """As many collectives as one backward needs, however many micro-batches there are."""
    client, _ = client_of()
    ours, optimizer, _, _ = both(client, without_buffers())
    all_reduce, counts = distributed.all_reduce, [0]

    def counted(*given: Any, **options: Any) -> Any:
        counts[-1] += 1
        return all_reduce(*given, **options)

    for count in (1, 2, 5):
        counts.append(0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(distributed, "all_reduce", counted)
            accumulated(ours, count, count)
        optimizer.step()
        optimizer.zero_grad()
    assert counts == [0, 1, 1, 1]


def inside_no_sync() -> None:
    client, _ = client_of()
    ours, optimizer, theirs, plain = both(client, without_buffers())
    with tierd.torch.no_sync(ours):
        accumulated(ours, 0, 2)
    with theirs.no_sync():
        for batch in batches_of(0, 2):
            loss_of(theirs, batch, 2).backward()
    with refused("was not reduced"):
        optimizer.step()
    accumulated(ours, 1, 2)
    plainly(theirs, 1, 2)
    for o in (optimizer, plain):
        o.step()
        o.zero_grad()
    assert_same(ours, theirs)


def other_counts() -> None:
    """Ranks may have other numbers of micro-batches: each reduces once."""
    client, _ = client_of()
    count = 2 + distributed.get_rank()
    ours, optimizer, theirs, plain = both(client)
    for step in range(2):
        accumulated(ours, step, count)
        plainly(theirs, step, count)
        for o in (optimizer, plain):
            o.step()
            o.zero_grad()
    assert_same(ours, theirs)


def an_error_of_one() -> None:
    """In a micro-batch of one rank: the others hear of it where that rank uses the group next, and all can go on."""
    client, _ = client_of()
    ours, optimizer, theirs, plain = both(client, without_buffers())
    if distributed.get_rank() == 1:
        with refused("a batch", KeyError):
            tierd.torch.accumulate(
                ours, [0, 1], lambda number: (_ for _ in ()).throw(KeyError("a batch")), blocks=ours.blocks
            )
        optimizer.zero_grad()
        ours.order = [2, 0, 1]  # What it does next is something else.
        with refused("rank 0 is about to reduce the gradient of .* and rank 1 is about to reduce"):
            ours(torch.ones(2, 8)).sum().backward()
    else:
        with refused("rank 0 is about to reduce the gradient of .* and rank 1 is about to reduce"):
            accumulated(ours, 0, 2)
    ours, optimizer, theirs, plain = both(client, without_buffers())
    accumulated(ours, 1, 2)
    plainly(theirs, 1, 2)
    optimizer.step()
    plain.step()
    assert_same(ours, theirs)


def left_out_by_the_last() -> None:
    """A parameter that the last micro-batch does not reach is named by step(), on all ranks."""
    client, _ = client_of()
    ours, optimizer, _, _ = both(client, without_buffers())

    def loss(number: int) -> torch.Tensor:
        ours.order = [0, 1] if number else [0, 1, 2]
        return loss_of(ours, batches_of(0, 1)[0], 1)

    tierd.torch.accumulate(ours, [0, 1], loss, blocks=ours.blocks)
    with refused("'blocks.2.0.weight' and 1 more was not reduced"):
        optimizer.step()


def killed() -> None:
    """A rank that ends in the middle is an error of the other, which names the parameters."""
    client, _ = client_of()
    ours, _, _, _ = both(client, without_buffers())
    if distributed.get_rank() == 1:
        ours.first.weight.register_hook(lambda _: os._exit(9))
        ours.blocks[0][0].weight.register_hook(lambda _: os._exit(9))
    with refused("reduce the gradient of 'last.weight'|'last.bias'", tierd.Disconnected):
        accumulated(ours, 0, 3)


SCENARIOS = {
    "deferred": lambda: steps(3, exact_norm=True),
    "step": lambda: steps(3, update="step", exact_norm=True),
    "one micro-batch": lambda: steps(1, exact_norm=True),
    "two rounds": lambda: steps(3, rounds=2, model=without_buffers(), exact_norm=True),
    "checkpoint": lambda: steps(3, model=without_buffers(False), exact_norm=True),
    "gradients in the process": lambda: steps(3, gradients="device", update="step", exact_norm=True),
    "parameters in the process": lambda: steps(3, parameters="device", update="step", exact_norm=True),
    "one reduction": one_reduction_a_step,
    "no_sync": inside_no_sync,
    "other counts": other_counts,
    "an error of one": an_error_of_one,
    "left out by the last": left_out_by_the_last,
    "killed": killed,
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return outcomes_of(__file__, 2, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "killed"])
def test_two_ranks_accumulate(outcomes: Outcomes, name: str) -> None:
    assert_passed(outcomes, name)


def test_a_rank_that_is_killed_in_accumulate_is_an_error_of_the_other(outcomes: Outcomes) -> None:
    assert_passed(outcomes[:1], "killed")
    assert "killed" not in outcomes[1]


if __name__ == "__main__":
    run_all(SCENARIOS)
