"""AdamW and Adam against torch's own fused ones: the same bits, whatever the shapes, options and slices."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fake_library import FakeLibrary
from hypothesis import given, settings
from hypothesis import strategies as st
from test_client import Pair

import tierd
import tierd.torch
from tierd.session import Session

BLOCK_ELEMENTS = (2 << 20) // 4
PAIRS = {"AdamW": (tierd.torch.AdamW, torch.optim.AdamW), "Adam": (tierd.torch.Adam, torch.optim.Adam)}


def parameters_of(shapes: list[tuple[int, ...]], dtype: torch.dtype = torch.float32) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(3)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in shapes]


def give_gradients(parameters: list[torch.nn.Parameter], step: int) -> None:
    generator = torch.Generator().manual_seed(100 + step)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)


def run(optimizer: torch.optim.Optimizer, parameters: list[torch.nn.Parameter], steps: int) -> None:
    for step in range(steps):
        give_gradients(parameters, step)
        optimizer.step()


def assert_same_bits(ours: list[torch.nn.Parameter], theirs: list[torch.nn.Parameter]) -> None:
    for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert torch.equal(a, b), f"parameter {number} differs"


def assert_same_state(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert ours["param_groups"] == theirs["param_groups"]
    assert ours["state"].keys() == theirs["state"].keys()
    for index, state in theirs["state"].items():
        assert ours["state"][index].keys() == state.keys()
        for kind, value in state.items():
            assert torch.equal(ours["state"][index][kind], value), (index, kind)


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(sorted(PAIRS)),
    sizes=st.lists(
        st.one_of(
            st.integers(1, 300),
            st.integers(-40, 40).map(lambda near: BLOCK_ELEMENTS + near),
            st.integers(-40, 40).map(lambda near: 2 * BLOCK_ELEMENTS + near),
        ),
        min_size=1,
        max_size=4,
    ),
    amsgrad=st.booleans(),
    maximize=st.booleans(),
    weight_decay=st.sampled_from([0.0, 0.1]),
    slice_blocks=st.integers(1, 3),
)
def test_any_shapes_and_options_give_torchs_bits(
    name: str, sizes: list[int], amsgrad: bool, maximize: bool, weight_decay: float, slice_blocks: int
) -> None:
    client = tierd.Client(Session(FakeLibrary(), 1))  # type: ignore[arg-type]
    ours, theirs = parameters_of([(n,) for n in sizes]), parameters_of([(n,) for n in sizes])
    options: dict[str, Any] = {"lr": 0.01, "amsgrad": amsgrad, "maximize": maximize, "weight_decay": weight_decay}
    mine, reference = PAIRS[name]
    tiered = mine(ours, client=client, slice_bytes=slice_blocks * (2 << 20), **options)
    plain = reference(theirs, fused=True, **options)
    run(tiered, ours, 3)
    run(plain, theirs, 3)
    assert_same_bits(ours, theirs)
    assert_same_state(tiered.state_dict(), plain.state_dict())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_dtypes_give_torchs_bits(client: tierd.Client, dtype: torch.dtype) -> None:
    shapes = [(700, 1501), (7,)]
    ours, theirs = parameters_of(shapes, dtype), parameters_of(shapes, dtype)
    run(tierd.torch.AdamW(ours, client=client, slice_bytes="2MiB"), ours, 3)
    run(torch.optim.AdamW(theirs, fused=True), theirs, 3)
    assert_same_bits(ours, theirs)


def test_groups_schedules_missing_gradients_and_closures_work(client: tierd.Client) -> None:
    def train(make: Any) -> list[torch.nn.Parameter]:
        parameters = parameters_of([(50, 20), (20,), (9,), (3, 3)])
        groups = [
            {"params": parameters[:1], "weight_decay": 0.3},
            {"params": parameters[1:], "lr": 0.1, "betas": (0.8, 0.95)},
        ]
        optimizer = make(groups)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
        for step in range(6):
            give_gradients(parameters, step)
            if step % 2 == 0:
                parameters[2].grad = None
            parameters[3].grad = None
            assert optimizer.step(lambda: torch.tensor(5.0)) == 5
            schedule.step()
        optimizer.zero_grad()
        assert all(parameter.grad is None for parameter in parameters)
        return parameters

    ours = train(lambda groups: tierd.torch.AdamW(groups, client=client))
    assert_same_bits(ours, train(lambda groups: torch.optim.AdamW(groups, fused=True)))


def test_a_parameter_with_other_strides_keeps_them(client: tierd.Client) -> None:
    def make() -> torch.nn.Parameter:
        values = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).view(2, 3, 4, 5) / 100
        return torch.nn.Parameter(values.to(memory_format=torch.channels_last))

    ours, theirs = make(), make()
    tiered, plain = tierd.torch.AdamW([ours], client=client), torch.optim.AdamW([theirs], fused=True)
    for parameter, optimizer in ((ours, tiered), (theirs, plain)):
        (parameter.sin() * parameter).sum().backward()
        optimizer.step()
    assert_same_bits([ours], [theirs])
    assert_same_state(tiered.state_dict(), plain.state_dict())


def test_a_gradient_with_strides_of_its_own_reaches_the_right_elements(client: tierd.Client) -> None:
    ours, theirs = parameters_of([(40, 30)]), parameters_of([(40, 30)])
    gradient = torch.randn(30, 40)
    ours[0].grad, theirs[0].grad = gradient.t(), gradient.t().contiguous()
    tierd.torch.AdamW(ours, client=client).step()
    torch.optim.AdamW(theirs, fused=True).step()
    assert_same_bits(ours, theirs)


def test_a_tensor_for_the_learning_rate_works(client: tierd.Client) -> None:
    ours, theirs = parameters_of([(40, 30)]), parameters_of([(40, 30)])
    run(tierd.torch.AdamW(ours, lr=torch.tensor(0.02), client=client), ours, 2)
    run(torch.optim.AdamW(theirs, lr=torch.tensor(0.02), fused=True), theirs, 2)
    assert_same_bits(ours, theirs)


def test_master_weights_keep_what_bf16_would_lose(client: tierd.Client) -> None:
    ours = parameters_of([(64, 64)], torch.bfloat16)
    exact = [torch.nn.Parameter(ours[0].detach().float())]
    tiered = tierd.torch.AdamW(ours, lr=1e-4, client=client, master_weights=True)
    reference = torch.optim.AdamW(exact, lr=1e-4, fused=True)
    for step in range(5):
        give_gradients(ours, step)
        exact[0].grad = ours[0].grad.float()
        tiered.step()
        reference.step()
    assert torch.equal(tiered.state_dict()["state"][0]["master"], exact[0])
    assert torch.equal(ours[0], exact[0].bfloat16())
    again = tierd.torch.AdamW(ours, lr=1e-4, client=client, master_weights=True)
    again.load_state_dict(tiered.state_dict())
    assert torch.equal(again.state_dict()["state"][0]["master"], exact[0])


def test_a_step_shrinks_its_slices_where_memory_is_short(client: tierd.Client, fake: FakeLibrary) -> None:
    shapes = [(3 * BLOCK_ELEMENTS + 7,), (100,), (2 * BLOCK_ELEMENTS,)]
    ours, theirs = parameters_of(shapes), parameters_of(shapes)
    tiered = tierd.torch.AdamW(ours, client=client, slice_bytes="16MiB")
    fake.lease_bytes_max = 5 << 20
    run(tiered, ours, 2)
    run(torch.optim.AdamW(theirs, fused=True), theirs, 2)
    assert_same_bits(ours, theirs)
    fake.lease_bytes_max = 1 << 20
    with pytest.raises(tierd.NoMemory):
        tiered.step()
    assert fake.leases == {}


def test_a_first_step_that_fails_starts_again_from_nothing(client: tierd.Client, fake: FakeLibrary) -> None:
    ours, theirs = parameters_of([(2 * BLOCK_ELEMENTS,)]), parameters_of([(2 * BLOCK_ELEMENTS,)])
    tiered = tierd.torch.AdamW(ours, client=client, slice_bytes="2MiB")
    give_gradients(ours, 0)
    fake.lease_bytes_max = 1 << 20
    with pytest.raises(tierd.NoMemory):
        tiered.step()
    assert fake.tensors == {} and fake.leases == {}
    fake.lease_bytes_max = 1 << 40
    run(tiered, ours, 2)
    run(torch.optim.AdamW(theirs, fused=True), theirs, 2)
    assert_same_bits(ours, theirs)


def test_a_first_step_that_finds_no_room_is_made_up_for_by_the_next(
    client: tierd.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = [(0, 4), (700,), (3 * BLOCK_ELEMENTS,), (5,)]
    ours, theirs = parameters_of(shapes), parameters_of(shapes)
    tiered, plain = tierd.torch.AdamW(ours, client=client), torch.optim.AdamW(theirs, fused=True)
    lease_many = client.lease_many

    def full(parts: list[tierd.Part], write: bool = False, **options: Any) -> list[tierd.Lease]:
        if parts[0].key == tiered._tiered[ours[refused]].keys["exp_avg"]:
            raise tierd.NoSpace("full")
        return lease_many(parts, write, **options)

    for refused in (1, 2):
        give_gradients(ours, 0)
        with monkeypatch.context() as patch:
            patch.setattr(client, "lease_many", full)
            with pytest.raises(tierd.NoSpace):
                tiered.step()
        assert [tiered.state[parameter]["step"].item() for parameter in ours] == [0, refused - 1, 0, 0]
        ours[1].grad = None  # The only one that moved, and only in the second of these steps.
    tiered.step()
    give_gradients(theirs, 0)
    plain.step()
    assert_same_bits(ours, theirs)
    assert_same_state(tiered.state_dict(), plain.state_dict())


@pytest.mark.parametrize("kind", ["exp_avg", "exp_avg_sq"])
def test_a_tensor_in_the_way_of_a_first_step_stays_its_owners(
    client: tierd.Client, fake: FakeLibrary, kind: str
) -> None:
    ours, theirs = parameters_of([(700,), (5,)]), parameters_of([(700,), (5,)])
    client.put(f"net/0/{kind}", b"mine")
    give_gradients(ours, 0)
    for _ in range(2):
        tiered = tierd.torch.AdamW(ours, client=client, name="net")
        for _ in range(2):
            with pytest.raises(tierd.AlreadyExists):
                tiered.step()
        assert client.get(f"net/0/{kind}") == b"mine" and len(fake.tensors) == 1
        del tiered  # With what is its own: not this.
        gc.collect()
        assert client.get(f"net/0/{kind}") == b"mine"
    tiered = tierd.torch.AdamW(ours, client=client, name="net")
    client.delete(f"net/0/{kind}")
    run(tiered, ours, 2)
    run(torch.optim.AdamW(theirs, fused=True), theirs, 2)
    assert_same_bits(ours, theirs)


@pytest.mark.parametrize("reached", range(1, 6))
def test_a_step_that_finds_no_room_half_way_is_continued_by_the_next_call(client: tierd.Client, reached: int) -> None:
    shapes = [(2 * BLOCK_ELEMENTS + 5,), (BLOCK_ELEMENTS + 3,), (0,)]
    ours, theirs = parameters_of(shapes), parameters_of(shapes)
    tiered = tierd.torch.AdamW(ours, client=client, slice_bytes="2MiB", name="net")
    units = iter(range(100))

    def take(parts: list[tierd.Part], write: bool = False, **options: Any) -> list[tierd.Lease]:
        if next(units) >= reached:
            raise tierd.NoSpace("full")
        return lease_many(parts, write, **options)

    lease_many = client.lease_many
    for step in range(2):
        give_gradients(ours, step)
        if step == 0 or reached < 4:  # The first step and a later one.
            units = iter(range(100))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(client, "lease_many", take)
                if reached < 5:
                    with pytest.raises(tierd.NoSpace):
                        tiered.step()
                    if reached in (1, 2, 4):  # In the middle of a parameter.
                        with pytest.raises(tierd.Invalid, match="call step"):
                            tiered.zero_grad()
                        with pytest.raises(tierd.Invalid, match="call step"):
                            tiered.state_dict()
        tiered.step()
    run(torch.optim.AdamW(theirs, fused=True), theirs, 2)
    assert_same_bits(ours, theirs)


def test_a_later_step_that_fails_counts_for_those_it_reached(client: tierd.Client, fake: FakeLibrary) -> None:
    parameters = parameters_of([(700,), (BLOCK_ELEMENTS,), (5,)])
    tiered = tierd.torch.AdamW(parameters, client=client, slice_bytes="2MiB")
    run(tiered, parameters, 1)
    fake.lease_bytes_max = 1 << 20
    with pytest.raises(tierd.NoMemory):
        tiered.step()
    assert [tiered.state[parameter]["step"].item() for parameter in parameters] == [2, 1, 1]


def interrupting(call: Callable[..., Any], turn: int) -> Callable[..., Any]:
    """``call``, but its call number ``turn`` is interrupted, with its arguments in its hands."""
    turns = iter(range(turn + 1))

    def interrupted(*arguments: Any, **options: Any) -> Any:
        if next(turns) == turn:
            raise KeyboardInterrupt
        return call(*arguments, **options)

    return interrupted


def fail_at(monkeypatch: pytest.MonkeyPatch, turn: int) -> None:
    kernel = interrupting(tierd.torch.AdamW._kernel, turn)
    monkeypatch.setattr(tierd.torch.AdamW, "_kernel", staticmethod(kernel))


@pytest.mark.parametrize("turn", [0, 1, 2])
def test_an_interrupt_in_the_first_kernels_is_made_up_for_by_the_next_step(
    client: tierd.Client, fake: FakeLibrary, monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    ours, theirs = parameters_of([(3 * BLOCK_ELEMENTS,)]), parameters_of([(3 * BLOCK_ELEMENTS,)])
    tiered = tierd.torch.AdamW(ours, client=client, slice_bytes="2MiB")
    give_gradients(ours, 0)
    with monkeypatch.context() as patch:
        fail_at(patch, turn)
        with pytest.raises(KeyboardInterrupt) as caught:
            tiered.step()
    assert fake.leases == {} and len(fake.tensors) == (2 if turn else 0)
    assert caught.traceback[-1].name == "interrupted"  # Who looks at it later still sees where it came from.
    if turn:
        gradients = [parameter.grad for parameter in ours]
        give_gradients(ours, 7)
        with pytest.raises(tierd.Invalid, match="its gradient is gone"):
            tiered.step()
        for parameter, gradient in zip(ours, gradients, strict=True):
            parameter.grad = gradient
    tiered.step()
    give_gradients(ours, 1)
    tiered.step()
    run(torch.optim.AdamW(theirs, fused=True), theirs, 2)
    assert_same_bits(ours, theirs)


@pytest.mark.parametrize("freed", [0, 1])
def test_a_second_interrupt_while_a_first_step_is_undone_is_made_up_for(
    client: tierd.Client, fake: FakeLibrary, monkeypatch: pytest.MonkeyPatch, freed: int
) -> None:
    ours, theirs = parameters_of([(3 * BLOCK_ELEMENTS,)]), parameters_of([(3 * BLOCK_ELEMENTS,)])
    tiered = tierd.torch.AdamW(ours, client=client, slice_bytes="2MiB")
    give_gradients(ours, 0)

    with monkeypatch.context() as patch:
        # The state is there, and its first slice has not been updated.
        fail_at(patch, 0)
        patch.setattr(client, "delete", interrupting(client.delete, freed))
        with pytest.raises(KeyboardInterrupt):
            tiered.step()
    assert fake.leases == {}
    run(tiered, ours, 2)
    run(torch.optim.AdamW(theirs, fused=True), theirs, 2)
    assert_same_bits(ours, theirs)


def test_an_interrupt_in_a_later_kernel_keeps_the_state(
    client: tierd.Client, fake: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = parameters_of([(700,)]), parameters_of([(700,)])
    tiered, plain = tierd.torch.AdamW(ours, client=client), torch.optim.AdamW(theirs, fused=True)
    run(tiered, ours, 1)
    run(plain, theirs, 1)
    with monkeypatch.context() as patch:
        fail_at(patch, 0)
        with pytest.raises(KeyboardInterrupt) as caught:
            tiered.step()
    assert fake.leases == {} and fake.abandoned == 0 and caught.tb is not None
    run(tiered, ours, 1)
    run(plain, theirs, 1)
    assert_same_bits(ours, theirs)


def test_small_parameters_share_a_request(client: tierd.Client, fake: FakeLibrary) -> None:
    ours = parameters_of([(10,)] * 40)
    tiered = tierd.torch.AdamW(ours, client=client)
    run(tiered, ours, 1)
    fake.calls.clear()
    run(tiered, ours, 1)
    assert fake.calls.count("acquire") == 1


def test_what_the_update_needs_next_is_asked_for_ahead(client: tierd.Client, fake: FakeLibrary) -> None:
    ours = parameters_of([(BLOCK_ELEMENTS,)] * 6)
    tiered = tierd.torch.AdamW(ours, client=client, slice_bytes="2MiB")
    asked: list[object] = []
    run(tiered, ours, 1)
    tiered.fetch_hook = lambda parts: asked.extend(part.key for part in parts)
    run(tiered, ours, 1)
    assert len(asked) == len(set(asked)) == 12
    assert len(fake.prefetched) == 10  # All but the first, which is taken at once.


def test_the_state_leaves_ram_before_what_is_used_sooner(client: tierd.Client, fake: FakeLibrary) -> None:
    parameters = parameters_of([(300, 300), (20,)])
    optimizer = tierd.torch.AdamW(parameters, client=client)
    for step in range(2):
        fake.evicted_first.clear()
        give_gradients(parameters, step)
        optimizer.step()
        assert sorted(tensor for tensor, _ in fake.evicted_first) == sorted(tensor for tensor, _ in fake.tensors)


def test_what_cannot_be_updated_is_refused_before_anything_changed(client: tierd.Client) -> None:
    good, bad = parameters_of([(5,), (5, 5)])
    before = good.detach().clone()
    optimizer = tierd.torch.AdamW([good, bad], client=client)
    good.grad = torch.ones(5)
    bad.grad = torch.eye(5).to_sparse()
    with pytest.raises(tierd.Invalid, match="sparse"):
        optimizer.step()
    assert torch.equal(good, before)
    gaps = torch.nn.Parameter(torch.zeros(10, 10)[:, :3])
    gaps.grad = torch.zeros(10, 3)
    with pytest.raises(tierd.Invalid, match="gaps"):
        tierd.torch.AdamW([gaps], client=client).step()
    pair = Pair(torch.ones(3), torch.ones(3)).requires_grad_()
    pair.grad = Pair(torch.ones(3), torch.ones(3))
    with pytest.raises(tierd.Invalid, match="Pair"):
        tierd.torch.AdamW([pair], client=client).step()
    complex_one = torch.nn.Parameter(torch.zeros(3, dtype=torch.complex64))
    complex_one.grad = torch.zeros(3, dtype=torch.complex64)
    with pytest.raises(tierd.Invalid, match="complex"):
        tierd.torch.AdamW([complex_one], client=client).step()


def test_copies_and_pickles_are_refused(client: tierd.Client) -> None:
    optimizer = tierd.torch.AdamW(parameters_of([(3,)]), client=client)
    for work in (copy.deepcopy, pickle.dumps):
        with pytest.raises(tierd.Invalid, match="state_dict"):
            work(optimizer)


def test_an_empty_parameter_does_no_harm(client: tierd.Client) -> None:
    ours, theirs = parameters_of([(0, 4), (3,)]), parameters_of([(0, 4), (3,)])
    tiered, plain = tierd.torch.AdamW(ours, client=client), torch.optim.AdamW(theirs, fused=True)
    run(tiered, ours, 2)
    run(plain, theirs, 2)
    assert_same_bits(ours, theirs)
    assert_same_state(tiered.state_dict(), plain.state_dict())


def test_an_optimizer_let_go_frees_its_state(client: tierd.Client, fake: FakeLibrary) -> None:
    parameters = parameters_of([(10,), (20, 20)])
    optimizer = tierd.torch.AdamW(parameters, client=client)
    run(optimizer, parameters, 1)
    assert len(fake.tensors) == 4
    assert set(optimizer.tiered_keys(parameters[0])) == {"exp_avg", "exp_avg_sq"}
    del optimizer
    gc.collect()
    assert fake.tensors == {} and fake.leases == {}


def test_the_finalizer_waits_for_nothing_and_needs_no_other_thread(
    client: tierd.Client, fake: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = parameters_of([(10,)])
    optimizer = tierd.torch.AdamW(parameters, client=client)
    run(optimizer, parameters, 1)
    cycle = [optimizer]
    cycle.append(cycle)  # type: ignore[arg-type]  # Only the collector finds it.
    del optimizer, cycle

    def collecting(handle: int, step: int) -> int:
        gc.collect()  # In the middle of a call, as it happens.
        return 0

    monkeypatch.setattr(fake, "tier_step", collecting)
    monkeypatch.setattr(threading.Thread, "start", lambda thread: pytest.fail("a finalizer started a thread"))
    monkeypatch.setattr(fake, "tier_poll", lambda operation, timeout: pytest.fail("a finalizer waited"))
    client.step()
    assert fake.tensors == {} and fake.operations == {}


def test_a_step_reports_that_the_daemon_is_gone(client: tierd.Client, fake: FakeLibrary) -> None:
    parameters = parameters_of([(10,)])
    optimizer = tierd.torch.AdamW(parameters, client=client)
    run(optimizer, parameters, 1)
    fake.lost = True
    with pytest.raises(tierd.Disconnected, match="gone"):
        run(optimizer, parameters, 1)
    assert fake.leases == {}
