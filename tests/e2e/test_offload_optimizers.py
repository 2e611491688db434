"""SGD, Lion and libtier's kernels through a real daemon: its leases, and a run that is persisted and resumed."""

from __future__ import annotations

import sys
from typing import Any

import launcher
import pytest
import torch

import tierd
import tierd.torch

sys.path.insert(0, str(launcher.ROOT / "bindings/python/demo"))
import gpt  # noqa: E402

SHAPE = gpt.Shape(
    layers=1, width=768, heads=4, context=64
)  # 7.5 M parameters; the largest tensors have several slices.
CASES: dict[str, tuple[type[Any], torch.dtype, dict[str, Any]]] = {
    "sgd": (tierd.torch.SGD, torch.float32, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "sgd without state": (tierd.torch.SGD, torch.float32, {"lr": 0.1}),
    "lion": (tierd.torch.Lion, torch.bfloat16, {"rounding": "stochastic", "seed": 3}),
    "adamw": (tierd.torch.AdamW, torch.float32, {"state_dtype": "bfloat16"}),
}


def new_model(dtype: torch.dtype) -> torch.nn.Module:
    torch.manual_seed(2)
    return gpt.Gpt(SHAPE).to(dtype)


def step_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
    tokens = torch.randint(0, 256, (2, 65), generator=torch.Generator().manual_seed(number))
    model(tokens[:, :-1], tokens[:, 1:]).backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_has_the_bits_of_one_whose_state_stayed_in_the_process(
    own_daemon: launcher.Running, case: str
) -> None:
    """The two runs differ in update mode, slices and placement; the second ends and resumes in the middle."""
    optimizer_class, dtype, options = CASES[case]
    runs = []
    with tierd.connect(job="straight", socket=own_daemon.socket) as client:
        expected = new_model(dtype)
        straight = optimizer_class(expected.parameters(), client=client, **options)
        for number in range(4):
            step_of(expected, straight, number)
        del straight
    for mode in ("create", "resume"):
        with tierd.connect(job="run", named=True, mode=mode, socket=own_daemon.socket) as client:
            model, optimizer = tierd.torch.offload(
                new_model(dtype), optimizer_class, client=client, name="net", resume=mode == "resume", min_bytes=1,
                update="step" if mode == "create" else "backward", slice_bytes="2MiB", **options,
            )  # fmt: skip
            first = tierd.torch.resumed(model).get("step", 0)
            for number in range(first, first + 2):
                step_of(model, optimizer, number)
            tierd.torch.persist(model, optimizer, step=first + 2)
            runs.append(first)
            state = {key: value.clone() for key, value in model.state_dict().items()}
            del model, optimizer
    assert runs == [0, 2]
    for key, value in expected.state_dict().items():
        assert torch.equal(state[key], value), key
