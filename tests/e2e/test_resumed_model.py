"""What a run resumes: the same model, whole, or a sentence."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import launcher
import numpy
import pytest
import torch
from torch import nn

import tierd
import tierd.torch


def leave_out_bias(_: nn.Module, state: Any, prefix: str, metadata: object) -> None:
    del state[prefix + "bias"]


class Versioned(nn.Module):
    """Its state is of a second version; a hook leaves its bias out of checkpoints; its buffer is a view."""

    _version = 2

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(8, 64)), nn.Parameter(torch.zeros(8))
        self.register_buffer("seen", torch.zeros(1 << 20)[:4])
        self.register_state_dict_post_hook(leave_out_bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight.t() + self.bias

    def _load_from_state_dict(self, state: Any, prefix: str, metadata: dict[str, Any], *more: Any) -> None:
        if metadata.get("version") != 2:
            state[prefix + "seen"] = torch.full((4,), -1.0)
        super()._load_from_state_dict(state, prefix, metadata, *more)


@contextlib.contextmanager
def run_of(
    daemon: launcher.Running, make: Callable[[], nn.Module], resume: bool, **options: Any
) -> Iterator[tuple[nn.Module, Any, tierd.Client]]:
    options.setdefault("optimizer", tierd.torch.AdamW)
    mode = "resume" if resume else "create"
    with tierd.connect(job="run", socket=daemon.socket, named=True, mode=mode) as client:
        model, optimizer = tierd.torch.offload(
            make(), client=client, name="net", lr=0.1, min_bytes=1024, resume=resume, **options
        )
        yield model, optimizer, client
        del model, optimizer


def test_what_stays_in_the_process_comes_back_whatever_the_model_does_to_its_checkpoints(
    own_daemon: launcher.Running,
) -> None:
    with run_of(own_daemon, Versioned, resume=False) as (model, optimizer, client):
        model(torch.ones(2, 64)).sum().backward()
        optimizer.step()
        model.get_buffer("seen").fill_(3)
        tierd.torch.persist(model, optimizer)
        bias = model.get_parameter("bias").detach().clone()
        assert client.tensor("net/training").size < 100_000, "a view is kept without the storage that it lies in"
        del model, optimizer
    with run_of(own_daemon, Versioned, resume=True) as (model, _, _):
        assert torch.equal(model.get_parameter("bias"), bias) and bias.any()
        assert model.get_buffer("seen").tolist() == [3.0] * 4
        del model


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (lambda: nn.Linear(64, 32).half(), "persisted as torch.bfloat16.*is torch.float16"),
        (lambda: nn.Linear(32, 64).bfloat16(), r"shape \(32, 64\).*is torch.bfloat16 of shape \(64, 32\)"),
    ],
)
def test_bytes_are_not_taken_for_something_else(
    own_daemon: launcher.Running, other: Callable[[], nn.Module], why: str
) -> None:
    def same() -> nn.Module:
        return nn.Linear(64, 32).bfloat16()

    with run_of(own_daemon, same, resume=False) as (model, optimizer, _):
        tierd.torch.persist(model, optimizer)
        values = {name: value.clone() for name, value in model.state_dict().items()}
        del model, optimizer
    with pytest.raises(tierd.Invalid, match=why), run_of(own_daemon, other, resume=True):
        pytest.fail("it is another model")
    with run_of(own_daemon, same, resume=True) as (model, _, _):
        assert all(torch.equal(value, values[name]) for name, value in model.state_dict().items())
        del model


def test_momentum_that_was_off_when_it_was_persisted_goes_on_when_it_is_on_again(own_daemon: launcher.Running) -> None:
    def make() -> nn.Module:
        torch.manual_seed(0)
        return nn.Linear(64, 32)

    def step(model: nn.Module, optimizer: Any, momentum: float) -> None:
        optimizer.param_groups[0]["momentum"] = momentum
        model(torch.ones(2, 64)).pow(2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    plain = make()
    theirs = torch.optim.SGD(plain.parameters(), lr=1e-3, momentum=0.9, fused=True)
    for momentum in (0.9, 0.0, 0.9):
        step(plain, theirs, momentum)
    sgd = {"optimizer": tierd.torch.SGD, "momentum": 0.9}
    with run_of(own_daemon, make, resume=False, **sgd) as (model, ours, _):
        ours.param_groups[0]["lr"] = 1e-3
        step(model, ours, 0.9)
        step(model, ours, 0.0)
        tierd.torch.persist(model, ours)
        del model, ours
    with run_of(own_daemon, make, resume=True, **sgd) as (model, ours, _):
        step(model, ours, 0.9)
        assert all(torch.equal(value, model.state_dict()[name]) for name, value in plain.state_dict().items())
        del model, ours


def test_all_generators_go_on(own_daemon: launcher.Running) -> None:
    with run_of(own_daemon, lambda: nn.Linear(64, 32), resume=False) as (model, optimizer, _):
        tierd.torch.persist(model, optimizer)
        drawn = (torch.rand(1).item(), random.random(), numpy.random.rand())
        del model, optimizer
    with run_of(own_daemon, lambda: nn.Linear(64, 32), resume=True) as (model, _, _):
        assert drawn == (torch.rand(1).item(), random.random(), numpy.random.rand())
        del model


def test_persist_names_what_it_was_given_instead_of_the_optimizer(own_daemon: launcher.Running) -> None:
    with run_of(own_daemon, lambda: nn.Linear(64, 32), resume=False) as (model, _, _):
        with pytest.raises(TypeError, match="optimizer is a SGD"):
            tierd.torch.persist(model, torch.optim.SGD(nn.Linear(2, 2).parameters()))
        del model


def test_bytes_that_ranks_share_are_not_taken_for_something_else(own_daemon: launcher.Running) -> None:
    def frozen(dtype: torch.dtype) -> nn.Module:
        model = nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 64, dtype=dtype, device="meta"))
        model[1].requires_grad_(False)
        return model

    values = {"1.weight": torch.ones(64, 32), "1.bias": torch.zeros(64)}
    for dtype, resume in ((torch.bfloat16, False), (torch.float16, True), (torch.bfloat16, True)):
        given = {"load_frozen": lambda name, dtype=dtype: values[name].to(dtype)}
        with contextlib.ExitStack() as stack:
            if dtype is torch.float16:
                stack.enter_context(pytest.raises(tierd.Invalid, match=r"'1.weight' was persisted as torch.bfloat16"))
            making = run_of(own_daemon, lambda dtype=dtype: frozen(dtype), resume, **given)
            model, optimizer, _ = stack.enter_context(making)
            assert model.state_dict()["1.weight"].dtype is dtype
            tierd.torch.persist(model, optimizer)
            del model, optimizer
