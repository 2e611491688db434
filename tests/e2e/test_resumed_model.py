"""What a run resumes: the same model, whole, or a sentence."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import launcher
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
    daemon: launcher.Running, make: Callable[[], nn.Module], resume: bool
) -> Iterator[tuple[nn.Module, Any, tierd.Client]]:
    mode = "resume" if resume else "create"
    with tierd.connect(job="run", socket=daemon.socket, named=True, mode=mode) as client:
        model, optimizer = tierd.torch.offload(
            make(), tierd.torch.AdamW, client=client, name="net", lr=0.1, min_bytes=1024, resume=resume
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
