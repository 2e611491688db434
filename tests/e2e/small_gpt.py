"""A model of 2.5 M parameters, its training step, and what plain torch makes of it."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import launcher
import torch

sys.path.insert(0, str(launcher.ROOT / "bindings/python/demo"))
import gpt  # noqa: E402

SHAPE = gpt.Shape(layers=3, width=256, heads=4, context=64)  # 2.5 M parameters: 10 MB each of values and moments.


def new_model() -> gpt.Gpt:
    torch.manual_seed(2)
    return gpt.Gpt(SHAPE)


def step_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer, number: int) -> float:
    tokens = torch.randint(0, 256, (2, 65), generator=torch.Generator().manual_seed(number))
    loss = model(tokens[:, :-1], tokens[:, 1:])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return float(loss.item())


def plain(steps: int) -> tuple[list[float], dict[str, torch.Tensor]]:
    model = new_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    return [step_of(model, optimizer, number) for number in range(steps)], model.state_dict()


def assert_same(model: torch.nn.Module, expected: dict[str, torch.Tensor]) -> None:
    for key, value in model.state_dict().items():
        assert torch.equal(value, expected[key]), key


def run(program: str, socket: str, mode: str, resume: bool) -> subprocess.CompletedProcess[str]:
    """Runs a program in which the places of this module and of the package, and the other arguments, are named."""
    places = {"tests": str(launcher.ROOT / "tests/e2e"), "bindings": str(launcher.ROOT / "bindings/python")}
    filled = textwrap.dedent(program).format(socket=socket, mode=mode, resume=resume, **places)
    return subprocess.run(
        [sys.executable, "-c", filled], capture_output=True, text=True, timeout=120, env=launcher.environment()
    )
