"""Models that several ranks make in creating(process_group=…): the bits of DistributedDataParallel, errors for all."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as distributed
from fake_library import NO_SPACE, Refusal
from rank_processes import Outcomes, assert_passed, client_of, outcomes_of, refused, run_all
from test_ranks import Net, assert_same, data_parallel, train

import tierd
import tierd.torch
from tierd.torch.placeholder import Placeholder
from tierd.torch.stored_parameter import stored_of


def made(seed: int, frozen: bool) -> Net:
    torch.manual_seed(seed)
    model = Net()
    model.norm.running_mean.uniform_()
    model.blocks[1].requires_grad_(not frozen)
    return model


def trained(seed: int, frozen: bool = False, update: str = "deferred") -> None:
    client, fake = client_of()
    with tierd.torch.creating(client=client, min_bytes=512, process_group=True):
        ours = made(seed, frozen)
    after = torch.get_rng_state()
    theirs = data_parallel(made(seed, frozen))
    assert torch.equal(torch.get_rng_state(), after)
    weight = ours.blocks[1][0].weight
    assert isinstance(weight, Placeholder)
    assert f"/rank{distributed.get_rank()}/created/" in str(weight._tierd_stored.key)
    fake.calls.clear()
    ours, optimizer = tierd.torch.offload(
        ours, tierd.torch.AdamW, client=client, min_bytes=512, lr=1e-2, process_group=True, update=update, name="net"
    )
    plain = torch.optim.AdamW([p for p in theirs.parameters() if p.requires_grad], lr=1e-2, fused=True)
    assert_same(ours, theirs)
    assert train(ours, optimizer) == train(theirs, plain)
    assert_same(ours, theirs)
    shared = {key for key, flags in fake.tensors if flags}
    names = [b"net/blocks.1.0.weight", b"net/group"][: 1 if distributed.get_rank() else 2]  # The first claims the name.
    assert shared == ({fake.names[name] for name in names} if frozen else set())
    stored = stored_of(weight)
    assert stored is not None and stored.shared == frozen and fake.leases == {}
    assert (
        len([key for key in fake.names if b"/created/" in key and (fake.names[key], 0) in fake.tensors]) == 4 - frozen
    )


def nothing_moves_between_ranks_that_drew_the_same() -> None:
    client, fake = client_of()
    with tierd.torch.creating(client=client, min_bytes=1, process_group=True):
        ours = made(7, False)
    fake.calls.clear()
    tierd.torch.offload(ours, tierd.torch.AdamW, client=client, min_bytes=1, process_group=True)
    assert "swap_out" not in fake.calls and "create" not in fake.calls[1:]  # The first asks for room.
    assert fake.calls.count("acquire") == sum(stored_of(p) is not None for p in ours.parameters()) == 12


def full_for_one() -> None:
    rank = distributed.get_rank()
    client, fake = client_of()
    if rank == 1:
        fake.put_refusal = Refusal(NO_SPACE, "full")
    with refused("does not fit" if rank else r"rank 1 .* failed in creating\(\).*does not fit", tierd.NoSpace):
        with tierd.torch.creating(client=client, min_bytes=1, process_group=True):
            model = made(0, False)
    assert rank == 1 or type(model.first.weight) is Placeholder  # Of this rank it is whole.
    fake.put_refusal = None
    with refused("KeyError|failed in creating", KeyError if rank else tierd.Error):
        with tierd.torch.creating(client=client, min_bytes=1, process_group=True):
            if rank:
                raise KeyError("KeyError")


def wrong_groups() -> None:
    rank = distributed.get_rank()
    client, _ = client_of()
    with tierd.torch.creating(client=client, min_bytes=1):
        alone = made(0, False)
    with tierd.torch.creating(client=client, min_bytes=1, process_group=True):
        together = made(0, False)
    with refused("created without process_group"):
        tierd.torch.offload(alone, tierd.torch.AdamW, client=client, process_group=True)
    with refused("created with process_group"):
        tierd.torch.offload(together, tierd.torch.AdamW, client=client)
    with refused("pass a group"):
        with tierd.torch.creating(client=client, process_group="all"):
            pass
    some = together if rank else made(0, False)
    with refused("rank 0 has parameter 'first.weight'|rank 1 has parameter 'first.weight'.*in tierd"):
        tierd.torch.offload(some, tierd.torch.AdamW, client=client, min_bytes=1, process_group=True)


def a_view_that_one_rank_keeps() -> None:
    rank = distributed.get_rank()
    client, _ = client_of()
    with tierd.torch.creating(client=client, min_bytes=1, process_group=True):
        model = made(0, False)
        view = model.first.weight.detach()[:1] if rank else None
        model.first.weight.data.zero_()
    with refused("in (tierd|the process), rank .*In creating.. a parameter stays in the process while something else"):
        tierd.torch.offload(model, tierd.torch.AdamW, client=client, min_bytes=1, process_group=True)
    assert (view is None) == (rank == 0)


def given_back_when_a_rank_fails() -> None:
    """What the first has shared already is its own again, with the same values."""
    rank = distributed.get_rank()
    client, fake = client_of()
    with tierd.torch.creating(client=client, min_bytes=512, process_group=True):
        model = made(3, True)
    state = made(3, True).state_dict()
    before = {number for number, shared in fake.tensors if not shared}
    options = {"client": client, "min_bytes": 512, "process_group": True, "name": "net"}
    groups = (lambda _: []) if rank else None  # An optimizer refuses it.
    with refused("empty parameter list" if rank else "rank 1", ValueError):
        tierd.torch.offload(model, tierd.torch.AdamW, groups=groups, **options)
    with pytest.MonkeyPatch.context() as patch:
        if rank:
            patch.setattr(tierd.torch.runtime.Runtime, "attach", lambda _: 1 / 0)
        with refused("division" if rank else "rank 1 .*division", ZeroDivisionError if rank else tierd.Error):
            tierd.torch.offload(model, tierd.torch.AdamW, **options)
    assert {number for number, shared in fake.tensors if not shared} == before
    assert not any(shared for _, shared in fake.tensors)
    model, _ = tierd.torch.offload(model, tierd.torch.AdamW, **options)
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())


SCENARIOS = {
    "the same random numbers": lambda: trained(5),
    "other random numbers": lambda: trained(distributed.get_rank()),
    "frozen": lambda: trained(5, frozen=True),
    "frozen, other random numbers, updated in backward": lambda: trained(distributed.get_rank(), True, "backward"),
    "nothing moves": nothing_moves_between_ranks_that_drew_the_same,
    "full for one": full_for_one,
    "wrong groups": wrong_groups,
    "a view that one rank keeps": a_view_that_one_rank_keeps,
    "given back": given_back_when_a_rank_fails,
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return outcomes_of(__file__, 2, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", SCENARIOS)
def test_two_ranks_create(outcomes: Outcomes, name: str) -> None:
    assert_passed(outcomes, name)


if __name__ == "__main__":
    run_all(SCENARIOS)
