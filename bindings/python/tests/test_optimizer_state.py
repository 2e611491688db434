"""state_dict() and load_state_dict(): plain torch's format in both directions, all of it or nothing."""

from __future__ import annotations

import pathlib
import copy
import gc
from typing import Any

import pytest
import torch
from fake_library import FakeLibrary
from test_optimizer import (
    BLOCK_ELEMENTS,
    PAIRS,
    assert_same_bits,
    assert_same_state,
    give_gradients,
    parameters_of,
    run,
)

import tierd
import tierd.torch


def test_state_goes_to_plain_torch_and_back_in_the_middle_of_training(client: tierd.Client) -> None:
    shapes = [(BLOCK_ELEMENTS + 5,), (30, 30)]
    theirs = parameters_of(shapes)
    straight = torch.optim.AdamW(theirs, fused=True)
    run(straight, theirs, 4)

    ours = parameters_of(shapes)
    first = torch.optim.AdamW(ours, fused=True)
    run(first, ours, 1)
    second = tierd.torch.AdamW(ours, client=client, slice_bytes="2MiB")
    second.load_state_dict(first.state_dict())
    give_gradients(ours, 1)
    second.step()
    third = torch.optim.AdamW(ours, fused=True)
    third.load_state_dict(second.state_dict())
    give_gradients(ours, 2)
    third.step()
    fourth = tierd.torch.AdamW(ours, client=client)
    fourth.load_state_dict(copy.deepcopy(third.state_dict()))
    give_gradients(ours, 3)
    fourth.step()
    assert_same_bits(ours, theirs)
    assert_same_state(fourth.state_dict(), straight.state_dict())


def test_state_of_an_unfused_optimizer_can_be_loaded(client: tierd.Client) -> None:
    parameters = parameters_of([(30, 30)])
    plain = torch.optim.AdamW(parameters, foreach=True, lr=0.5)
    run(plain, parameters, 1)
    tiered = tierd.torch.AdamW(parameters, client=client)
    tiered.load_state_dict(plain.state_dict())
    assert tiered.param_groups[0]["lr"] == 0.5
    run(tiered, parameters, 1)
    assert tiered.state_dict()["state"][0]["step"] == 2


@pytest.mark.parametrize("source", sorted(PAIRS))
@pytest.mark.parametrize("target", sorted(PAIRS))
def test_state_of_the_other_optimizer_means_what_it_means_to_torch(
    client: tierd.Client, source: str, target: str
) -> None:
    before = parameters_of([(700,)])
    saved = PAIRS[source][1](before, fused=True, weight_decay=0.5)
    run(saved, before, 1)
    ours, theirs = parameters_of([(700,)]), parameters_of([(700,)])
    tiered, plain = PAIRS[target][0](ours, client=client), PAIRS[target][1](theirs, fused=True)
    for parameters, optimizer in ((ours, tiered), (theirs, plain)):
        optimizer.load_state_dict(copy.deepcopy(saved.state_dict()))
        run(optimizer, parameters, 2)
    assert_same_bits(ours, theirs)
    assert_same_state(tiered.state_dict(), plain.state_dict())


def test_state_that_is_missing_or_of_another_shape_is_refused(client: tierd.Client) -> None:
    parameters = parameters_of([(30, 30)])
    plain = torch.optim.AdamW(parameters, fused=True)
    run(plain, parameters, 1)
    with pytest.raises(tierd.Invalid, match="max_exp_avg_sq"):
        tierd.torch.AdamW(parameters, client=client, amsgrad=True).load_state_dict(
            {**plain.state_dict(), "param_groups": [{**plain.state_dict()["param_groups"][0], "amsgrad": True}]}
        )
    state = copy.deepcopy(plain.state_dict())
    state["state"][0]["exp_avg"] = torch.zeros(5)
    with pytest.raises(tierd.Invalid, match="shape"):
        tierd.torch.AdamW(parameters, client=client).load_state_dict(state)


def test_state_that_is_refused_leaves_what_was_there(client: tierd.Client, fake: FakeLibrary) -> None:
    shapes = [(30, 30), (7,)]
    parameters = parameters_of(shapes)
    tiered = tierd.torch.AdamW(parameters, client=client)
    run(tiered, parameters, 2)
    before = tiered.state_dict()
    other = copy.deepcopy(before)
    other["state"][1]["exp_avg"] = torch.zeros(5)
    other["state"][0]["step"].fill_(9)
    momentum = torch.optim.SGD(parameters_of(shapes), momentum=0.9)
    run(momentum, momentum.param_groups[0]["params"], 1)
    fewer = torch.optim.AdamW(parameters_of(shapes[:1]), fused=True)
    for refused in (other, momentum.state_dict(), fewer.state_dict()):
        with pytest.raises(ValueError):  # noqa: PT011  # Also torch's own.
            tiered.load_state_dict(refused)
        assert_same_state(tiered.state_dict(), before)


def test_a_load_that_fails_in_the_middle_leaves_no_state(
    client: tierd.Client, fake: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = parameters_of([(30,), (7,)]), parameters_of([(30,), (7,)])
    tiered = tierd.torch.AdamW(ours, client=client)
    give_gradients(ours, 0)
    tiered.step()
    saved = tiered.state_dict()
    put = client.put

    def full(key: str, *arguments: Any, **options: Any) -> None:
        if key.endswith("3/exp_avg"):
            raise tierd.NoSpace("full")
        put(key, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(client, "put", full)
        with pytest.raises(tierd.NoSpace):
            tiered.load_state_dict(saved)
    assert fake.tensors == {} and tiered.state_dict()["state"] == {}
    for mine, other in zip(ours, theirs, strict=True):
        mine.data.copy_(other)
    run(tiered, ours, 2)
    run(torch.optim.AdamW(theirs, fused=True), theirs, 2)
    assert_same_bits(ours, theirs)


def test_hooks_see_and_may_change_all_of_the_state(client: tierd.Client) -> None:
    """As in torch's recipe, where a hook puts a checkpoint of other parameters in order by their names."""
    first, second = parameters_of([(6,), (6,)])
    saved = tierd.torch.AdamW([first, second], client=client)
    run(saved, [first, second], 1)
    kept = saved.state_dict()
    seen: list[Any] = []

    def swap(optimizer: torch.optim.Optimizer, given: dict[str, Any]) -> dict[str, Any]:
        return {**given, "state": {0: given["state"][1], 1: given["state"][0]}}

    def halve(optimizer: torch.optim.Optimizer, packed: dict[str, Any]) -> None:
        for state in packed["state"].values():
            state["exp_avg"] /= 2

    tiered = tierd.torch.AdamW([second, first], client=client)
    tiered.register_load_state_dict_pre_hook(swap)
    tiered.register_load_state_dict_post_hook(lambda optimizer: seen.append(optimizer.state_dict()))
    tiered.load_state_dict(kept)
    assert torch.equal(seen[0]["state"][0]["exp_avg"], kept["state"][1]["exp_avg"])
    assert torch.equal(seen[0]["state"][1]["exp_avg_sq"], kept["state"][0]["exp_avg_sq"])
    tiered.register_state_dict_post_hook(halve)
    assert torch.equal(tiered.state_dict()["state"][0]["exp_avg"], kept["state"][1]["exp_avg"] / 2)


def test_a_state_dict_stays_what_it_was(client: tierd.Client) -> None:
    parameters = parameters_of([(6,)])
    tiered = tierd.torch.AdamW(parameters, client=client)
    run(tiered, parameters, 1)
    kept = tiered.state_dict()
    before = copy.deepcopy(kept)
    run(tiered, parameters, 1)
    assert_same_state(kept, before)


def test_a_name_is_one_optimizers_at_a_time(client: tierd.Client, fake: FakeLibrary) -> None:
    ours, others, theirs = parameters_of([(700,)]), parameters_of([(700,)]), parameters_of([(700,)])
    first = tierd.torch.AdamW(ours, client=client, name="net")
    run(first, ours, 1)
    second = tierd.torch.AdamW(others, client=client, name="net")
    give_gradients(others, 0)
    with pytest.raises(tierd.AlreadyExists, match="'net'"):
        second.step()
    with pytest.raises(tierd.AlreadyExists, match="'net'"):
        second.load_state_dict(first.state_dict())
    del second
    gc.collect()
    run(first, ours, 2)
    plain = torch.optim.AdamW(theirs, fused=True)
    run(plain, theirs, 1)
    run(plain, theirs, 2)
    assert_same_bits(ours, theirs)
    assert len(fake.tensors) == 2


def test_an_optimizer_let_go_lets_go_of_its_name(client: tierd.Client, fake: FakeLibrary) -> None:
    gc.disable()  # The schedules' cycles are there until the next optimizer needs the name.
    try:
        for rate in (0.1, 0.01):
            parameters = parameters_of([(700,)])
            optimizer = tierd.torch.AdamW(parameters, lr=rate, client=client, name="net")
            schedule = torch.optim.lr_scheduler.ConstantLR(optimizer)
            run(optimizer, parameters, 2)
            schedule.step()
            assert len(fake.tensors) == 2
    finally:
        gc.enable()


def test_a_file_without_the_parameters_of_a_group_is_refused(client: tierd.Client, tmp_path: pathlib.Path) -> None:
    optimizer = tierd.torch.AdamW(parameters_of([(30,)]), client=client)
    tierd.torch.save_state(optimizer, tmp_path / "state")
    content = (tmp_path / "state").read_bytes()
    assert content.count(b"params") == 1
    (tmp_path / "state").write_bytes(content.replace(b"params", b"parama"))
    with pytest.raises(tierd.Invalid, match="damaged description"):
        tierd.torch.load_state(optimizer, tmp_path / "state")
