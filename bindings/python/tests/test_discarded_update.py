"""discard_update(): a step that cannot be finished is dropped, and what became of each parameter is said."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_deferred_update import step_of, waiting
from test_offload import assert_same, new_client, offloaded, pair_of
from test_offload_oddities import rows
from torch import nn

import tierd
import tierd.torch
from tierd.torch import parameter_state
from tierd.torch.stored_parameter import stored_in

Arms = tuple[tuple[nn.Module, Any], tuple[nn.Module, Any]]


def stack() -> nn.Module:
    return nn.Sequential(*[nn.Linear(8, 8) for _ in range(3)])


def arms(make: Callable[[], nn.Module] = stack, **options: Any) -> tuple[Arms, Any]:
    client, fake = new_client()
    ours, theirs = pair_of(make)
    return (
        offloaded(ours, client, **options),
        (theirs, torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)),
    ), fake


class Full:
    """A disk that stays full: after ``allowed`` more requests for leases of several ranges, each is refused."""

    def __init__(self, optimizer: Any, allowed: int) -> None:
        self._client, self._left = optimizer._client, allowed
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> Full:
        lease_many = self._client.lease_many

        def take(*given: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                raise tierd.NoSpace("full")
            return lease_many(*given, **options)

        self._patch.setattr(self._client, "lease_many", take)
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()


def states_of(model: nn.Module, optimizer: Any) -> tuple[Any, Any]:
    return model.state_dict(), optimizer.state_dict()["state"]


@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("set_to_none", [True, False], ids=["gradients gone", "gradients there"])
def test_a_deferred_update_that_never_began_is_dropped_as_if_the_step_had_not_been(
    steps: int, set_to_none: bool
) -> None:
    ((ours, optimizer), (theirs, plain)), fake = arms()
    for step in range(steps):
        for model, o in ((ours, optimizer), (theirs, plain)):
            step_of(model, o, step)
    before = states_of(theirs, plain)
    step_of(ours, optimizer, 7)
    if set_to_none:
        optimizer.zero_grad()
    with Full(optimizer, 0):
        for _ in range(2):
            with pytest.raises(tierd.NoSpace):
                ours(rows(8))
        found = optimizer.discard_update()
        assert found.is_consistent and not found.updated and not found.partial
        assert found.unchanged == tuple(name for name, _ in ours.named_parameters())
    assert waiting(ours) == 0 and all(p.grad is None for p in ours.parameters())
    torch.testing.assert_close(states_of(ours, optimizer), before, rtol=0, atol=0)
    gradients = [number for name, number in fake.names.items() if name.endswith(b"/gradient")]
    assert not any((number, 0) in fake.tensors for number in gradients)
    for step in range(20, 23):  # And training goes on with plain torch's bits.
        for model, o in ((ours, optimizer), (theirs, plain)):
            step_of(model, o, step)
    assert_same(ours, theirs)


@pytest.mark.parametrize("update", ["deferred", "step"])
def test_a_step_of_which_a_part_is_done_is_not_saved_before_a_state_is_loaded(update: str) -> None:
    ((ours, optimizer), (theirs, plain)), _ = arms(update=update)
    for step in range(2):
        for model, o in ((ours, optimizer), (theirs, plain)):
            step_of(model, o, step)
    saved = states_of(theirs, plain), plain.state_dict()
    optimizer._updates.slice_bytes = 1  # Each parameter by itself.
    ours(rows(7)).pow(2).sum().backward()
    with Full(optimizer, 4):
        with pytest.raises(tierd.NoSpace):
            optimizer.step()
            ours(rows(8))
        found = optimizer.discard_update()
    names = [name for name, _ in ours.named_parameters()]
    assert found.updated and found.unchanged and not found.partial and not found.is_consistent
    assert sorted(found.updated + found.unchanged) == sorted(names)
    assert "load what was saved" in str(found)
    assert optimizer.discard_update() == type(found)()  # Nothing is left, and the mixture is not forgotten.
    for save in (optimizer.state_dict, optimizer.light_state):
        with pytest.raises(tierd.Invalid, match="a part was dropped"):
            save()
    ours(rows(9))
    ours.load_state_dict(saved[0][0])
    optimizer.load_state_dict(saved[1])
    for model, o in ((ours, optimizer), (theirs, plain)):
        step_of(model, o, 11)
    assert_same(ours, theirs)
    optimizer.state_dict()


def test_gradients_of_a_step_that_failed_between_two_parameters_stay() -> None:
    ((ours, optimizer), (theirs, plain)), _ = arms(update="step")
    for model, o in ((ours, optimizer), (theirs, plain)):
        step_of(model, o, 0)
    optimizer._updates.slice_bytes = 1  # Each parameter by itself.
    for model in (ours, theirs):
        model(rows(7)).pow(2).sum().backward()
    with Full(optimizer, 4), pytest.raises(tierd.NoSpace):
        optimizer.step()
    for call in (optimizer.zero_grad, optimizer.state_dict, optimizer.light_state):
        with pytest.raises(tierd.Invalid, match=r"call step\(\) again"):
            call()
    for o in (optimizer, plain):
        o.step()
        o.zero_grad()
    assert_same(ours, theirs)


@pytest.mark.parametrize("steps", [0, 1])
def test_a_parameter_that_is_updated_in_part_is_named(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameter_state, "BLOCK", 128)  # Slices of 32 elements.
    ((ours, optimizer), _), fake = arms(lambda: nn.Sequential(nn.Linear(8, 8)))
    optimizer._updates.slice_bytes = 128
    for step in range(steps):
        step_of(ours, optimizer, step)
    step_of(ours, optimizer, 5)
    with Full(optimizer, 2 if steps else 3), pytest.raises(tierd.NoSpace):
        ours(rows(6))
    found = optimizer.discard_update(accept=True)
    assert found.partial == ("0.weight",) and found.unchanged == ("0.bias",) and "'0.weight'" in str(found)
    assert optimizer.state_dict()["state"].keys() == ({0, 1} if steps else set())
    for step in range(2):
        step_of(ours, optimizer, step)
    ours.state_dict()
    assert fake.leases == {} and waiting(ours) == 0


def test_a_small_parameter_of_the_process_is_called_by_its_number() -> None:
    ours, optimizer = tierd.torch.offload(
        nn.Sequential(nn.Linear(8, 8)), tierd.torch.AdamW, client=new_client()[0], min_bytes=64
    )
    step_of(ours, optimizer, 0)
    with Full(optimizer, 0):
        with pytest.raises(tierd.NoSpace):
            ours(rows(0))
        found = optimizer.discard_update()
    assert found.updated == ("parameter 1",) and found.unchanged == ("0.weight",)


def test_where_nothing_is_left_to_drop_nothing_changes() -> None:
    ((ours, optimizer), (theirs, plain)), _ = arms()
    assert str(optimizer.discard_update()) == "no update was left to discard"
    for model, o in ((ours, optimizer), (theirs, plain)):
        step_of(model, o, 0)
    ours(rows(1))
    found = optimizer.discard_update()
    assert found.is_consistent and not found.unchanged
    assert_same(ours, theirs)
    assert all(stored.gradient is None for stored in stored_in(ours.parameters()))


def test_states_that_came_after_a_discarded_first_step_have_names_of_their_own() -> None:
    (ours, optimizer), _ = arms()[0]
    step_of(ours, optimizer, 0)
    with Full(optimizer, 0):
        with pytest.raises(tierd.NoSpace):
            ours(rows(1))
        optimizer.discard_update()
    assert optimizer.light_state()["numbers"] == {}
    ours[2].requires_grad_(False)
    step_of(ours, optimizer, 1)
    numbers = optimizer.light_state()["numbers"]
    assert len(numbers) == 4


def test_a_process_ends_at_once_while_an_update_keeps_failing() -> None:
    program = """
        import sys
        sys.path.insert(0, sys.argv[1])
        import torch, tierd, tierd.torch
        from test_deferred_update import step_of
        from test_discarded_update import Full, arms
        (ours, optimizer), _ = arms()[0]
        step_of(ours, optimizer, 0)
        Full(optimizer, 0).__enter__()
        try:
            ours(torch.ones(2, 8))
        except tierd.NoSpace:
            print("ends")
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(pathlib.Path(__file__).parent)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (found.returncode, found.stdout) == (0, "ends\n"), found.stderr


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_an_optimizer_without_counters_drops_its_update_too(momentum: float) -> None:
    ours, theirs = pair_of(stack)
    ours, optimizer = tierd.torch.offload(
        ours, tierd.torch.SGD, client=new_client()[0], min_bytes=1, lr=0.1, momentum=momentum
    )
    plain = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=momentum, fused=True)
    step_of(ours, optimizer, 0)
    with Full(optimizer, 0):
        with pytest.raises(tierd.NoSpace):
            ours(rows(1))
        assert len(optimizer.discard_update().unchanged) == 6
    for model, o in ((ours, optimizer), (theirs, plain)):
        step_of(model, o, 2)
    assert_same(ours, theirs)


def test_an_update_that_a_backward_has_begun_is_dropped_too() -> None:
    (ours, optimizer), _ = arms(update="backward")[0]
    for step in range(2):
        step_of(ours, optimizer, step)
    optimizer.zero_grad()
    with Full(optimizer, 3):
        with pytest.raises(tierd.NoSpace):
            ours(rows(2)).pow(2).sum().backward()
        found = optimizer.discard_update()
    assert found.updated and not found.is_consistent
    with pytest.raises(tierd.Invalid, match="a part was dropped"):
        optimizer.state_dict()
    optimizer.discard_update(accept=True)
    step_of(ours, optimizer, 3)
    assert {state["step"].item() for state in optimizer.state_dict()["state"].values()} == {3.0, 4.0}
