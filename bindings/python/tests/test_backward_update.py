"""offload(update="backward"): updates by another thread, beside backward. The same bits, whatever it cannot do."""

from __future__ import annotations

import functools
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_deferred_update import step_of, waiting
from test_discarded_update import Full, arms
from test_offload import assert_same
from test_offload_oddities import rows
from torch import nn

import tierd
from tierd.torch import other_thread
from tierd.torch.other_thread import Work
from tierd.torch.stored_parameter import stored_in


def layers() -> nn.Module:
    return nn.Sequential(*[nn.Linear(8, 8) for _ in range(4)])


def is_beside() -> bool:
    return threading.current_thread().name.startswith("tierd-update")


def updates_of(model: Any) -> Any:
    return model.__dict__["_tierd_runtime"]._updates


class Asked:
    """The threads that ask for leases of several ranges, which only updates do: True is the one beside backward.
    ``refused`` may raise first."""

    def __init__(self, optimizer: Any, monkeypatch: pytest.MonkeyPatch, refused: Callable[[], None] | None = None):
        self.beside: list[bool] = []
        lease_many = optimizer._client.lease_many

        def take(*given: Any, **options: Any) -> Any:
            self.beside.append(is_beside())
            if refused is not None:
                refused()
            return lease_many(*given, **options)

        monkeypatch.setattr(optimizer._client, "lease_many", take)

    def taken(self) -> list[bool]:
        found, self.beside = self.beside, []
        return found


def test_all_updates_are_done_beside_backward_and_when_it_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    ((ours, optimizer), (theirs, plain)), fake = arms(layers, update="backward")
    asked = Asked(optimizer, monkeypatch)
    for step in range(4):
        for model in (ours, theirs):
            model(rows(step)).pow(2).sum().backward()
        assert all(asked.taken()) and waiting(ours) == 0 and fake.leases == {}
        assert all("has updated" in str(parameter.grad) for parameter in ours.parameters())
        for o in (optimizer, plain):
            o.step()
            o.zero_grad()
        assert asked.taken() == []
    assert_same(ours, theirs)
    assert {state["step"].item() for state in optimizer.state_dict()["state"].values()} == {4.0}


def test_at_most_a_window_of_gradients_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    ((ours, optimizer), (theirs, plain)), _ = arms(layers, update="backward")
    updates_of(ours)._bytes_max = 1
    most: list[int] = []
    Asked(optimizer, monkeypatch, lambda: most.append(waiting(ours)))
    for step in range(3):
        for model, o in ((ours, optimizer), (theirs, plain)):
            step_of(model, o, step)
    assert_same(ours, theirs)
    assert max(most) <= 2  # The one that is carried out, and the one that waits for its place.


@pytest.mark.parametrize("error", [tierd.NoMemory, tierd.Timeout, tierd.WouldDeadlock])
def test_with_too_little_ram_for_two_threads_backward_goes_on_alone(
    error: type[tierd.Error], monkeypatch: pytest.MonkeyPatch
) -> None:
    ((ours, optimizer), (theirs, plain)), _ = arms(layers, update="backward")
    scarce = True

    def refuse() -> None:
        if scarce and is_beside():
            raise error("too little")

    asked = Asked(optimizer, monkeypatch, refuse)
    tried: list[int] = []
    for step in range(8):
        for model, o in ((ours, optimizer), (theirs, plain)):
            step_of(model, o, step)
        tried.append(sum(asked.taken()))
    assert tried == [1, 0, 1, 0, 0, 0, 1, 0]  # Each time once, and for twice as long not.
    scarce = False
    while not any(asked.taken()):
        for model, o in ((ours, optimizer), (theirs, plain)):
            step_of(model, o, 9)
    for step in range(3):  # And it stays with the other thread.
        for model, o in ((ours, optimizer), (theirs, plain)):
            step_of(model, o, 10 + step)
        assert all(asked.taken())
    assert_same(ours, theirs)


def test_backward_raises_what_keeps_an_update_from_being_done_and_step_goes_on_with_it() -> None:
    ((ours, optimizer), (theirs, plain)), _ = arms(layers, update="backward")
    for step in range(2):
        for model, o in ((ours, optimizer), (theirs, plain)):
            step_of(model, o, step)
    for model in (ours, theirs):
        model.zero_grad()
    with Full(optimizer, 3), pytest.raises(tierd.NoSpace):
        ours(rows(7)).pow(2).sum().backward()
    assert waiting(ours) > 0
    theirs(rows(7)).pow(2).sum().backward()
    for o in (optimizer, plain):
        o.step()
    assert waiting(ours) == 0
    assert_same(ours, theirs)
    for model, o in ((ours, optimizer), (theirs, plain)):
        step_of(model, o, 8)
    assert_same(ours, theirs)


def test_the_next_forward_goes_on_with_it_too() -> None:
    ((ours, optimizer), (theirs, plain)), _ = arms(layers, update="backward")
    step_of(ours, optimizer, 0)
    step_of(theirs, plain, 0)
    optimizer.zero_grad()
    with Full(optimizer, 2):
        with pytest.raises(tierd.NoSpace):
            ours(rows(1)).pow(2).sum().backward()
        with pytest.raises(tierd.NoSpace):
            ours(rows(2))
    step_of(theirs, plain, 1)
    torch.testing.assert_close(ours(rows(2)), theirs(rows(2)), rtol=0, atol=0)
    assert waiting(ours) == 0


def test_a_step_of_which_nothing_was_done_is_dropped_as_if_it_had_not_been() -> None:
    ((ours, optimizer), (theirs, plain)), _ = arms(layers, update="backward")
    for model, o in ((ours, optimizer), (theirs, plain)):
        step_of(model, o, 0)
    before = theirs.state_dict(), plain.state_dict()["state"]
    optimizer.zero_grad()
    with Full(optimizer, 0):
        with pytest.raises(tierd.NoSpace):
            ours(rows(1)).pow(2).sum().backward()
        found = optimizer.discard_update()
    assert found.is_consistent and sorted(found.unchanged) == sorted(name for name, _ in ours.named_parameters())
    after = ours.state_dict(), optimizer.state_dict()["state"]
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    for model, o in ((ours, optimizer), (theirs, plain)):
        step_of(model, o, 2)
    assert_same(ours, theirs)


class Later:
    """In place of the other thread: keeps what it is given, and does it when it is told to."""

    def __init__(self) -> None:
        self.given: list[Callable[[], object]] = []

    def begin(self, call: Callable[[], object]) -> Work:
        self.given.append(call)
        return Work(call)


class Nobody:
    """In place of the other thread where there can be none."""

    def begin(self, call: Callable[[], object]) -> Work:
        raise RuntimeError("can't start new thread")


class Broken(Exception):
    pass


def fail_in_backward(model: Any, seed: int) -> None:
    """A backward that fails when all layers but the first have their gradients."""

    def fail(_: torch.Tensor) -> None:
        raise Broken

    def watch(_: nn.Module, given: object, output: torch.Tensor) -> None:
        output.register_hook(fail)

    model.zero_grad()
    watching = model[0].register_forward_hook(watch)
    try:
        with pytest.raises(Broken):
            model(rows(seed)).pow(2).sum().backward()
    finally:
        watching.remove()


def test_what_waits_for_the_other_thread_is_not_done_after_it_was_dropped() -> None:
    ((ours, optimizer), (theirs, plain)), _ = arms(layers, update="backward")
    for model, o in ((ours, optimizer), (theirs, plain)):
        step_of(model, o, 0)
    before = theirs.state_dict(), plain.state_dict()["state"]
    beside, later = updates_of(ours)._beside, Later()
    updates_of(ours)._beside = later
    fail_in_backward(ours, 1)
    (stored,) = stored_in([ours[3].weight])
    found = optimizer.discard_update()
    stopped = stored.deferred
    for call in later.given:
        call()
    assert stopped is None and found.is_consistent and len(found.unchanged) == len(later.given) == 6
    torch.testing.assert_close((ours.state_dict(), optimizer.state_dict()["state"]), before, rtol=0, atol=0)
    updates_of(ours)._beside = beside
    for model, o in ((ours, optimizer), (theirs, plain)):
        step_of(model, o, 2)
    assert_same(ours, theirs)


def test_an_update_that_was_stopped_is_done_by_no_other_thread_and_by_this_one() -> None:
    ((ours, optimizer), _), _ = arms(layers, update="backward")
    updates_of(ours)._beside = Later()
    fail_in_backward(ours, 1)
    (stored,) = stored_in([ours[3].weight])
    update: Any = stored.deferred
    update.stop()
    update.run_beside()
    assert stored.deferred is update
    update.run()
    assert stored.deferred is None


def test_zero_grad_drops_a_backward_that_failed_before_it_updated_anything() -> None:
    ((ours, optimizer), (theirs, plain)), _ = arms(layers, update="backward")
    for model, o in ((ours, optimizer), (theirs, plain)):
        step_of(model, o, 0)
    beside, updates_of(ours)._beside = updates_of(ours)._beside, Later()
    for model, o in ((ours, optimizer), (theirs, plain)):
        o.zero_grad()
        fail_in_backward(model, 1)
        o.zero_grad()
    assert waiting(ours) == 0
    updates_of(ours)._beside = beside
    assert_same(ours, theirs)
    for model, o in ((ours, optimizer), (theirs, plain)):
        step_of(model, o, 2)  # No second gradient.
    assert_same(ours, theirs)


def failed_half_way() -> Any:
    """Models of which a backward has failed when the update of the last layer was done, or that one's step in torch."""
    ((ours, optimizer), (theirs, plain)), _ = arms(layers, update="backward")
    updates_of(ours)._bytes_max = 1  # One is done when the next one comes.
    for model, o in ((ours, optimizer), (theirs, plain)):
        step_of(model, o, 0)
        o.zero_grad()
        fail_in_backward(model, 1)
    return (ours, optimizer), (theirs, plain)


def test_after_a_backward_that_failed_half_way_step_does_what_torchs_does() -> None:
    (ours, optimizer), (theirs, plain) = failed_half_way()
    calls: list[Callable[[], Any]] = [optimizer.zero_grad, optimizer.state_dict, optimizer.zero_grad]
    for call in calls:
        with pytest.raises(tierd.Invalid, match=r"backward has updated .*'\d\.\w+'.*step\(\).*discard_update"):
            call()
    for o in (optimizer, plain):
        o.step()
        o.zero_grad()
    assert_same(ours, theirs)
    for model, o in ((ours, optimizer), (theirs, plain)):
        step_of(model, o, 2)
    assert_same(ours, theirs)


def test_a_backward_that_failed_half_way_can_be_given_up() -> None:
    (ours, optimizer), (theirs, _) = failed_half_way()
    with pytest.raises(tierd.Invalid, match="second gradient"):
        ours(rows(2)).pow(2).sum().backward()
    found = optimizer.discard_update()
    assert not found.is_consistent and "3.weight" in found.updated
    with pytest.raises(tierd.Invalid, match="a part was dropped"):
        optimizer.state_dict()
    optimizer.zero_grad()
    optimizer.discard_update(accept=True)
    values = ours.state_dict()
    for name, value in theirs.state_dict().items():
        assert torch.equal(value, values[name]) == (name not in found.updated), name
    step_of(ours, optimizer, 2)


def test_zero_grad_refuses_to_drop_updates_that_no_step_has_ended() -> None:
    ((ours, optimizer), _), _ = arms(layers, update="backward")
    ours(rows(0)).pow(2).sum().backward()
    with pytest.raises(tierd.Invalid, match="would drop a gradient by which backward has updated"):
        optimizer.zero_grad()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.zero_grad()


def test_where_no_thread_can_be_started_backward_goes_on_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    ((ours, optimizer), (theirs, plain)), _ = arms(layers, update="backward")
    updates_of(ours)._beside = Nobody()
    asked = Asked(optimizer, monkeypatch)
    for model, o in ((ours, optimizer), (theirs, plain)):
        step_of(model, o, 0)
    taken = asked.taken()
    assert taken and not any(taken)
    assert_same(ours, theirs)


@pytest.mark.parametrize("update", ["backward", "deferred"])
@pytest.mark.parametrize("look", ["state_dict", "discard_update"])
def test_a_signals_handler_in_the_middle_of_an_update_is_refused_and_no_slice_is_updated_twice(
    update: str, look: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((ours, optimizer), (theirs, plain)), _ = arms(layers, update=update)
    updates_of(ours)._beside = Nobody()  # This thread carries it out.
    for model, o in ((ours, optimizer), (theirs, plain)):
        step_of(model, o, 0)
    refusals: list[str] = []

    def handler() -> None:
        if waiting(ours) and not refusals:
            refusals.append("")
            with pytest.raises(tierd.Invalid, match="a signal's handler") as refused:
                optimizer.discard_update() if look == "discard_update" else ours.state_dict()
            refusals[0] = str(refused.value)

    Asked(optimizer, monkeypatch, handler)
    for step in range(1, 3):
        for model, o in ((ours, optimizer), (theirs, plain)):
            step_of(model, o, step)
    assert_same(ours, theirs)
    assert refusals and refusals[0]


def test_a_use_of_a_parameter_in_the_same_backward_waits_for_its_update() -> None:
    ((ours, optimizer), (theirs, plain)), _ = arms(layers, update="backward")
    last: Any = ours[3]
    seen: list[torch.Tensor] = []

    def read(*_: object) -> None:
        with tierd.torch.gathered(last.weight):
            seen.append(last.weight.detach().clone())

    def watch(_: nn.Module, given: object, output: torch.Tensor) -> None:
        output.register_hook(read)

    ours[0].register_forward_hook(watch)
    for model, o in ((ours, optimizer), (theirs, plain)):
        step_of(model, o, 0)
    other: Any = theirs[3]
    torch.testing.assert_close(seen, [other.weight.detach()], rtol=0, atol=0)


def test_a_process_that_was_forked_has_no_other_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    ((ours, optimizer), (theirs, plain)), _ = arms(layers, update="backward")
    updates_of(ours)._process = -1
    asked = Asked(optimizer, monkeypatch)
    step_of(ours, optimizer, 0)
    step_of(theirs, plain, 0)
    taken = asked.taken()
    assert taken and not any(taken)
    assert_same(ours, theirs)


def test_a_model_that_is_gone_leaves_no_thread() -> None:
    ((ours, optimizer), _), _ = arms(layers, update="backward")
    step_of(ours, optimizer, 0)
    (ended,) = [other_thread._running[updates_of(ours)._beside._queue]]
    assert not ended.acquire(blocking=False)
    del ours, optimizer, _
    gc.collect()
    assert ended.acquire(timeout=30)


def test_the_other_thread_does_its_work_in_order_and_starts_again_where_it_has_ended() -> None:
    other = other_thread.OtherThread("other")
    done: list[int] = []
    for round_ in range(2):
        works = [other.begin(functools.partial(done.append, 3 * round_ + number)) for number in range(3)]
        for work in works:
            work.wait()
        assert other.is_running
        other_thread._end_all()
        assert not other.is_running
    assert done == list(range(6))
