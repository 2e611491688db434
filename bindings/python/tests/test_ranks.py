"""offload(model, process_group=…) by two ranks beside DistributedDataParallel: the same bits, errors for all ranks."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as distributed
from rank_processes import Outcomes, assert_passed, client_of, outcomes_of, refused, run_all
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import tierd
import tierd.torch
from tierd.torch.placeholder import Placeholder
from tierd.torch.ranks import Ranks

WIDTH = 24


class Net(nn.Module):
    """Buffers that forward changes, parameters of the process and of tierd, a branch, a block that is checkpointed."""

    def __init__(self, reentrant: bool | None = None) -> None:
        super().__init__()
        self.first = nn.Linear(8, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(3))
        self.last = nn.Linear(WIDTH, 4)
        self.reentrant = reentrant
        self.order = [0, 1, 2]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.first(x))
        for number in self.order:
            block = self.blocks[number]
            x = block(x) if self.reentrant is None else checkpoint(block, x, use_reentrant=self.reentrant)
        return self.last(x)


def loss_of(model: nn.Module, number: int) -> torch.Tensor:
    """Each rank has data of its own."""
    source = torch.Generator().manual_seed(10 * number + distributed.get_rank())
    return F.mse_loss(model(torch.randn(6, 8, generator=source)), torch.randn(6, 4, generator=source))


def data_parallel(model: nn.Module) -> DistributedDataParallel:
    """Torch's, whose sum over more than two ranks has no order of its own: it gets that of the ranks."""
    wrapped = DistributedDataParallel(model)
    if distributed.get_world_size() > 2:
        wrapped.register_comm_hook(None, mean_in_rank_order)
    return wrapped


def mean_in_rank_order(_, bucket):  # type: ignore[no-untyped-def]  # DDP checks annotations, and knows no strings.
    world = distributed.get_world_size()
    ours = bucket.buffer().mul_(1.0 / world)
    parts = [torch.empty_like(ours) for _ in range(world)]
    distributed.all_gather(parts, ours)
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(functools.reduce(torch.add, parts))
    return future


def both(client: tierd.Client, model: nn.Module | None = None, **options: Any) -> tuple[Any, Any, Any, Any]:
    """A model in tierd and one in DDP, with their optimizers. The ranks' values differ at first."""
    torch.manual_seed(distributed.get_rank())
    ours = model or Net()
    if model is None:
        ours.norm.running_mean.uniform_()
    theirs = data_parallel(copy.deepcopy(ours))
    ours, optimizer = tierd.torch.offload(
        ours, tierd.torch.AdamW, client=client, min_bytes=512, lr=1e-2, process_group=True, **options
    )
    return ours, optimizer, theirs, torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3, first: int = 0) -> list[float]:
    losses = []
    for number in range(first, first + steps):
        loss = loss_of(model, number)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def assert_same(ours: nn.Module, theirs: DistributedDataParallel) -> None:
    for key, value in theirs.module.state_dict().items():
        assert torch.equal(ours.state_dict()[key], value), key


def plain_steps(update: str, **options: Any) -> None:
    client, fake = client_of()
    ours, optimizer, theirs, plain = both(client, update=update, **options)
    assert_same(ours, theirs)
    assert train(ours, optimizer) == train(theirs, plain)
    assert_same(ours, theirs)
    assert fake.leases == {} and isinstance(ours.first.weight, Placeholder) != ("parameters" in options)


def checkpointed(reentrant: bool) -> None:
    client, _ = client_of()
    model = Net(reentrant)
    model.norm = nn.Identity()  # DDP itself cannot train a buffer that is changed twice.
    ours, optimizer, theirs, plain = both(client, model)
    assert train(ours, optimizer) == train(theirs, plain)
    assert_same(ours, theirs)


def buckets() -> None:
    """Gradients larger than a bucket, and several in one."""
    client, _ = client_of()
    ours, optimizer, theirs, plain = both(
        client, nn.Sequential(nn.Linear(8, 1 << 18), nn.ReLU(), nn.Linear(1 << 18, 4))
    )
    assert train(ours, optimizer, 2) == train(theirs, plain, 2)
    assert_same(ours, theirs)


def kept_gradients() -> None:
    """Without zero_grad(), the next gradient is added to one that an update may still have to use."""
    client, _ = client_of()
    ours, optimizer, theirs, plain = both(client)
    for step in range(3):
        for model, o in ((ours, optimizer), (theirs, plain)):
            loss_of(model, step).backward()
            o.step()
    assert_same(ours, theirs)


def accumulation() -> None:
    client, _ = client_of()
    ours, optimizer, theirs, plain = both(client)
    for step in range(3):
        for model, no_sync in ((ours, lambda: tierd.torch.no_sync(ours)), (theirs, theirs.no_sync)):
            with no_sync():
                for micro in range(2):
                    loss_of(model, 10 * step + micro).backward()
            for micro in range(2, 4):  # Two that are reduced: the second with what the first has left.
                loss_of(model, 10 * step + micro).backward()
        for name, parameter in theirs.module.named_parameters():
            gradient = tierd.torch.gradient_of(ours.get_parameter(name))
            assert gradient is not None and torch.equal(gradient, parameter.grad), name
        for o in (optimizer, plain):
            o.step()
            o.zero_grad()
    assert_same(ours, theirs)


def clipping_and_scaler() -> None:
    client, _ = client_of()
    ours, optimizer, theirs, plain = both(client, exact_norm=True)
    scalers = [torch.amp.GradScaler("cpu", init_scale=256.0) for _ in range(2)]
    for step in range(4):
        norms = []
        for model, o, scaler in ((ours, optimizer, scalers[0]), (theirs, plain, scalers[1])):
            overflows = step == 1 and distributed.get_rank() == 1
            scaler.scale(loss_of(model, step) * (float("inf") if overflows else 1.0)).backward()
            scaler.unscale_(o)
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.1))
            scaler.step(o)
            scaler.update()
            o.zero_grad()
        assert torch.equal(*norms) or step == 1
        assert scalers[0].get_scale() == scalers[1].get_scale() == (256 if step == 0 else 128)
        found: list[Any] = [None] * distributed.get_world_size()
        distributed.all_gather_object(found, norms[0].item().hex())
        assert len(set(found)) == 1
    assert_same(ours, theirs)


def other_order() -> None:
    """Ranks that differ are told so, all of them, and can go on."""
    client, _ = client_of()
    ours, optimizer, _, _ = both(client, gradients="auto")
    train(ours, optimizer, 1)
    before = ours.state_dict()
    if distributed.get_rank() == 1:
        ours.order = [2, 0, 1]
    with refused(r"rank 0 is about to reduce the gradient of 'blocks.2.0.\w+' .* and rank 1 .* 'blocks.1"):
        loss_of(ours, 1).backward()
    optimizer.zero_grad()
    ours.order = [0, 1] if distributed.get_rank() == 1 else [0, 1, 2]
    with refused("'blocks.2.0.bias'"):
        loss_of(ours, 1).backward()
    optimizer.zero_grad()
    after = ours.state_dict()
    assert all(torch.equal(before[key], value) for key, value in after.items() if not key.startswith("norm"))
    ours.order = [0, 1]  # The same on both: fewer than before is no difference.
    train(ours, optimizer, 1)


def other_count() -> None:
    """One rank has a backward more."""
    client, _ = client_of()
    ours, optimizer, _, _ = both(client, nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4)))
    loss_of(ours, 0).backward()
    if distributed.get_rank() == 1:
        with refused("rank 0 is about to update for the .* and rank 1 is about to reduce the gradient of '1.bias'"):
            loss_of(ours, 1).backward()
    else:
        with refused("rank 0 is about to update for the .* and rank 1 is about to reduce the gradient of '1.bias'"):
            optimizer.step()


def never_reduced() -> None:
    client, _ = client_of()
    ours, optimizer, _, _ = both(client)
    with tierd.torch.no_sync(ours):
        loss_of(ours, 0).backward()
    with refused("'first.weight' and 11 more was not reduced"):
        optimizer.step()
    loss_of(ours, 1).backward()
    optimizer.step()
    optimizer.zero_grad()
    frozen = Net()
    frozen.first.requires_grad_(False)
    ours, optimizer, _, _ = both(client, frozen)
    ours.requires_grad_(True)
    loss_of(ours, 0).backward()
    with refused("'first.weight' and 1 more was not reduced.*unfreeze"):
        optimizer.step()
    alone, _ = tierd.torch.offload(nn.Linear(8, 4), tierd.torch.AdamW, client=client)
    with tierd.torch.no_sync(alone):
        alone(torch.ones(1, 8)).sum().backward()
    hasty, _ = tierd.torch.offload(nn.Linear(8, 4), tierd.torch.AdamW, client=client, update="backward")
    with refused("update='step'"), tierd.torch.no_sync(hasty):
        pass
    with refused("not offloaded"), tierd.torch.no_sync(nn.Linear(1, 1)):
        pass


def bad_offloads() -> None:
    rank = distributed.get_rank()
    client, fake = client_of()
    options: dict[str, Any] = {"client": client, "min_bytes": 1, "process_group": distributed.group.WORLD}
    with refused(rf"rank {rank} has parameter 'weight' of .*, rank {1 - rank} has"):
        tierd.torch.offload(nn.Linear(8, 4 + rank), tierd.torch.AdamW, **options)
    with refused("option"):
        tierd.torch.offload(nn.Linear(8, 4), tierd.torch.AdamW, **options, update="step" if rank else "backward")
    fake.lease_bytes_max = 64 if rank else 1 << 40
    model = nn.Linear(8, 4)
    with refused("at most 64 bytes" if rank else "rank 1 .* failed in offload.*at most 64 bytes", tierd.NoMemory):
        tierd.torch.offload(model, tierd.torch.AdamW, **options)
    assert type(model.weight) is nn.Parameter and fake.tensors == {}
    with refused("ProcessGroup|pass a group"):
        tierd.torch.offload(model, tierd.torch.AdamW, client=client, process_group="all")
    with refused("not in it"):
        other = [distributed.new_group([number]) for number in range(2)][1 - rank]
        tierd.torch.offload(model, tierd.torch.AdamW, client=client, process_group=other)
    Ranks.of(True).require_one_run("mark")
    with refused("persisted at different steps"):
        Ranks.of(True).require_one_run(f"mark {rank}")
    with refused("process_group="):
        tierd.torch.offload(DistributedDataParallel(model), tierd.torch.AdamW, **options)


def wrappers() -> None:
    client, _ = client_of()
    for wrap in (
        fully_shard,
        lambda model: fully_shard(nn.Sequential(model)),
        DistributedDataParallel,
        lambda model: DistributedDataParallel(nn.Sequential(model), init_sync=False),
    ):
        ours, optimizer, theirs, plain = both(client)
        with refused(r"process_group= to tierd.torch.offload\(\)"):
            wrap(ours)  # type: ignore[operator]
    assert train(ours, optimizer, 1) == train(theirs, plain, 1)


SCENARIOS: dict[str, Callable[[], None]] = {
    "deferred": lambda: plain_steps("deferred"),
    "step": lambda: plain_steps("step"),
    "backward": lambda: plain_steps("backward"),
    "gradients in the process": lambda: plain_steps("step", gradients="device"),
    "parameters in the process": lambda: plain_steps("step", parameters="device"),
    "checkpoint": lambda: checkpointed(False),
    "reentrant checkpoint": lambda: checkpointed(True),
    "buckets": buckets,
    "accumulation": accumulation,
    "kept gradients": kept_gradients,
    "clipping and scaler": clipping_and_scaler,
    "another order": other_order,
    "another count": other_count,
    "never reduced": never_reduced,
    "bad offloads": bad_offloads,
    "wrappers": wrappers,
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return outcomes_of(__file__, 2, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", SCENARIOS)
def test_two_ranks(outcomes: Outcomes, name: str) -> None:
    assert_passed(outcomes, name)


if __name__ == "__main__":
    run_all(SCENARIOS)
