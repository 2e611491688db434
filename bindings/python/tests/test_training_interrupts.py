"""Interrupts at points all over a training step, also in finalizers and in torch's own code: no update is lost, none is
made twice, no tensor is torn, and nothing stays open, in tierd or in torch.

What is left is looked at as in a notebook, which keeps the traceback, and as in a script, which does not.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from test_deferred_update import step_of
from test_discarded_update import arms
from test_interrupts import Interrupter
from test_offload import assert_same
from test_offload_oddities import rows
from torch import nn
from torch.utils.checkpoint import checkpoint


pytestmark = pytest.mark.usefixtures("reported")

POINTS = 8  # Of some thousand: all of them would take an hour.


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))


class Renormed(nn.Module):
    """Its forward changes a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(8, 8, max_norm=0.5)
        self.last = nn.Linear(8, 8)

    def forward(self, given: torch.Tensor) -> Any:
        return self.last(self.table((given.abs() * 4).long().clamp(max=7)))


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = layers(), layers()

    def forward(self, given: torch.Tensor) -> Any:
        return checkpoint(self.last, checkpoint(self.first, given, use_reentrant=False), use_reentrant=False)


class Cast(nn.Module):
    """Under autocast, with a weight that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = layers()

    def forward(self, given: torch.Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return self.layers(self.layers(given)).float()


def forward_and_backward(model: nn.Module, seed: int) -> None:
    model(rows(seed)).pow(2).sum().backward()


def left_in_torch() -> list[str]:
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    left = {
        "gradients are off": not torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "hooks for saved tensors": hooks is not None,
        "autocast": torch.is_autocast_enabled("cpu") or not torch.is_autocast_cache_enabled(),
        "no dispatch": not torch._C._is_torch_function_enabled(),
    }
    return [name for name, found in left.items() if found]


class Training:
    """A model after two steps, whose next one is interrupted; and plain torch's."""

    def __init__(self, make: Callable[[], nn.Module], update: str) -> None:
        (self.ours, self.theirs), self.fake = arms(make, update=update)
        for step in range(2):
            self.step(step)

    def step(self, seed: int) -> None:
        for model, optimizer in (self.ours, self.theirs):
            step_of(model, optimizer, seed)

    def assert_nothing_is_left(self) -> None:
        assert left_in_torch() == []
        client: Any = self.ours[1].client
        gc.collect()
        client.stats()
        assert self.fake.leases == {} and self.fake.operations == {} and client._session.grants == {}
        assert not any(tensor.torn for tensor in self.fake.tensors.values())


def interrupted(
    make: Callable[[], nn.Module],
    update: str,
    call: Callable[[Training], None],
    prepare: Callable[[Training], object] = lambda training: None,
) -> Iterator[tuple[Training, list[BaseException]]]:
    """A training for each of the points at which ``call`` is interrupted, and the exception."""
    stride, at = 0, sys.maxsize
    while True:
        training = Training(make, update)
        prepare(training)
        caught: list[BaseException] = []
        # An interrupt in torch's checkpoint or autocast leaves hooks or casting of its own, as in plain torch.
        with Interrupter(at, everywhere=make in (layers, Renormed)) as interrupter:
            try:
                call(training)
            except KeyboardInterrupt as error:
                caught.append(error)
        if stride == 0:  # The first counts the points.
            stride, at = interrupter.passed // POINTS, 7
            assert stride > 10
        elif interrupter.raised:
            yield training, caught
            at += stride
        else:
            return


# With the traceback, torch's checkpoint keeps what it has recomputed, parameters too: their update is refused then.
NOTEBOOK = [(layers, True), (Renormed, True), (Cast, True)]
SCRIPT = [(layers, False), (Renormed, False), (Cast, False), (Checkpointed, False)]


@pytest.mark.parametrize("update", ["deferred", "step"])
@pytest.mark.parametrize(("make", "keeps"), NOTEBOOK + SCRIPT)
def test_a_forward_or_backward_that_was_interrupted_is_repeated_with_the_same_bits(
    make: Callable[[], nn.Module], update: str, keeps: bool
) -> None:
    for training, caught in interrupted(make, update, lambda each: forward_and_backward(each.ours[0], 2)):
        if not keeps:
            caught.clear()
        training.ours[1].zero_grad()
        training.step(2)
        training.step(3)
        training.ours[1].settle()
        assert_same(training.ours[0], training.theirs[0])
        caught.clear()
        training.assert_nothing_is_left()


@pytest.mark.parametrize("update", ["deferred", "step", "backward"])
@pytest.mark.parametrize("part", ["all", "update"])
def test_a_step_that_was_interrupted_is_discarded_and_what_is_said_of_it_is_true(update: str, part: str) -> None:
    def prepare(training: Training) -> None:
        model, optimizer = training.ours
        optimizer.settle()
        optimizer.zero_grad()
        if part == "update":
            forward_and_backward(model, 2)

    def call(training: Training) -> None:
        model, optimizer = training.ours
        if part == "all":
            forward_and_backward(model, 2)
        optimizer.step()
        optimizer.zero_grad()

    for training, caught in interrupted(layers, update, call, prepare):
        model, optimizer = training.ours
        before = {name: value.clone() for name, value in training.theirs[0].state_dict().items()}
        found = optimizer.discard_update(accept=True)
        with torch.no_grad():
            model(rows(0))
        values = model.state_dict()
        same = all(torch.equal(values[name], value) for name, value in before.items())
        if found.unchanged and found.is_consistent:
            assert same
        step_of(model, optimizer, 3)
        optimizer.settle()
        optimizer.state_dict()
        caught.clear()
        training.assert_nothing_is_left()
