"""Three and four ranks beside DistributedDataParallel, which sums in the order of the ranks by a communication hook."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import test_accumulate_ranks
import test_created_ranks
import test_ranks
import torch
import torch.distributed as distributed
from rank_processes import Outcomes, assert_passed, client_of, outcomes_of, refused, run_all
from test_ranks import both, loss_of

import tierd.torch
from tierd.torch.ranks import Ranks


def sums_have_one_order() -> None:
    """Whatever lies beside an element, and of which type it is; also of large tensors, and of one element."""
    world, rank = distributed.get_world_size(), distributed.get_rank()
    ranks = Ranks.of(True)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for count in (1, world, 1001, (1 << 20) + 3 if dtype is torch.float32 else 77):
            of_all = [torch.randn(count, generator=torch.Generator().manual_seed(n)).to(dtype) for n in range(world)]
            expected = functools.reduce(torch.add, of_all)
            found = of_all[rank].clone()
            ranks.sum(found)
            assert torch.equal(found, expected), (dtype, count)
            if count == 1001:
                parts = [part.clone() for part in of_all[rank].split(77)]
                for part in parts:
                    ranks.sum(part)
                assert torch.equal(torch.cat(parts), expected)


def one_differs() -> None:
    """The ranks that agree are told too, and which one differs."""
    last = distributed.get_world_size() - 1
    client, _ = client_of()
    ours, optimizer, _, _ = both(client)
    if distributed.get_rank() == last:
        ours.order = [2, 0, 1]
    with refused(rf"rank 0 is about to reduce the gradient of 'blocks.2.0.\w+' .* and rank {last} .* 'blocks.1"):
        loss_of(ours, 1).backward()


def a_group_of_some() -> None:
    """All ranks but the first train; the first one trains alone."""
    world = distributed.get_world_size()
    some = distributed.new_group(list(range(1, world)))
    client, _ = client_of()
    torch.manual_seed(distributed.get_rank())
    group: Any = None if distributed.get_rank() == 0 else some
    model, optimizer = tierd.torch.offload(
        test_ranks.Net(), tierd.torch.AdamW, client=client, min_bytes=512, process_group=group
    )
    loss_of(model, 0).backward()
    optimizer.step()
    told: list[Any] = [None] * world
    distributed.all_gather_object(told, model.state_dict()["first.weight"].sum().item())
    assert len(set(told[1:])) == 1 and told[0] != told[1]


SCENARIOS = {
    "sums": sums_have_one_order,
    **{name: test_ranks.SCENARIOS[name] for name in ("deferred", "accumulation", "clipping and scaler")},
    "created": test_created_ranks.SCENARIOS["frozen, other random numbers, updated in backward"],
    "accumulated by blocks": test_accumulate_ranks.SCENARIOS["deferred"],
    "a group of some": a_group_of_some,
    "one differs": one_differs,
}


@pytest.fixture(scope="module", params=[3, 4])
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return outcomes_of(__file__, request.param, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", SCENARIOS)
def test_more_than_two_ranks(outcomes: Outcomes, name: str) -> None:
    assert_passed(outcomes, name)


if __name__ == "__main__":
    run_all(SCENARIOS)
