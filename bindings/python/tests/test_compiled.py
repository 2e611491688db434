"""Blocks that torch.compile has compiled, offloaded; a process that compiles nothing never loads the compiler."""

from __future__ import annotations

import copy
import subprocess
import sys
import textwrap
import types
from pathlib import Path

import pytest
import torch
from fake_library import FakeLibrary
from torch import nn

import tierd
import tierd.torch
from tierd.session import Session
from tierd.torch import dynamo


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    losses = []
    for step in range(4):
        loss = model(torch.randn(3, 16, generator=torch.Generator().manual_seed(step))).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item().hex())
    return losses


def compiled(model: nn.Sequential, how: str, backend: str) -> None:
    for index, block in enumerate(model):
        if how == "method":
            block.compile(backend=backend)
        else:
            model[index] = torch.compile(block, backend=backend)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("update", "how", "backend"),
    [
        ("backward", "method", "eager"),
        ("backward", "function", "eager"),
        ("deferred", "function", "eager"),
        ("deferred", "method", "inductor"),  # The default of torch.compile; it takes a quarter of a minute.
    ],
)
def test_compiled_blocks_train_with_the_bits_that_they_have_in_plain_torch(update: str, how: str, backend: str) -> None:
    torch.manual_seed(3)
    ours = nn.Sequential(Block(), Block())
    theirs = copy.deepcopy(ours)
    compiled(theirs, how, backend)
    expected = train(theirs, torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True))
    compiled(ours, how, backend)
    client = tierd.Client(Session(FakeLibrary(), 1))  # type: ignore[arg-type]
    _, optimizer = tierd.torch.offload(ours, tierd.torch.AdamW, client=client, min_bytes=1, lr=1e-2, update=update)
    assert train(ours, optimizer) == expected


def test_the_compiler_does_not_look_into_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """All hooks share their code: compiled, it would soon have more versions than the compiler allows."""
    import torch._dynamo.utils

    torch._dynamo.reset()
    monkeypatch.setattr(torch._dynamo.config, "fail_on_recompile_limit_hit", True)
    torch.manual_seed(3)
    ours = nn.Sequential(*[Block() for _ in range(6)])
    theirs = copy.deepcopy(ours)
    expected = train(theirs, torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True))
    client = tierd.Client(Session(FakeLibrary(), 1))  # type: ignore[arg-type]
    _, optimizer = tierd.torch.offload(ours, tierd.torch.AdamW, client=client, min_bytes=1, lr=1e-2)
    ours.compile(backend="eager")
    frames = torch._dynamo.utils.counters["frames"]
    before = frames["total"]
    assert train(ours, optimizer) == expected
    assert frames["total"] - before <= 20, "of a block's forward, what lies between its hooks, and no more"


PROGRAM = """
    import sys
    import torch, tierd, tierd.torch
    from fake_library import FakeLibrary
    from tierd.session import Session

    client = tierd.Client(Session(FakeLibrary(), 1))
    for update in ("backward", "deferred", "step"):
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 8))
        model, optimizer = tierd.torch.offload(model, tierd.torch.AdamW, client=client, min_bytes=1, update=update)
        for _ in range(2):
            model(torch.ones(2, 8)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        optimizer.load_state_dict(optimizer.state_dict())
        model.load_state_dict(model.state_dict())
    print(sorted(set(sys.modules) & {"torch._dynamo", "sympy"}))
    torch.compile(torch.nn.Linear(8, 8), backend="eager")(torch.ones(2, 8))
    model[2].compile(backend="eager")  # After the model was offloaded: hooks keep the compiler out.
    for _ in range(2):
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    optimizer.load_state_dict(optimizer.state_dict())
    print("torch._dynamo" in sys.modules)
"""


def test_a_process_that_compiles_nothing_loads_no_compiler() -> None:
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    program = f"import sys\nsys.path[:0] = {paths!r}\n" + textwrap.dedent(PROGRAM)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout.split("\n")[:2]) == (0, ["[]", "True"]), ran.stdout + ran.stderr


def test_only_the_decorator_against_tracing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own:
        def plain(self) -> str:
            return "plain"

        def decorated(self) -> str:
            return "decorated"

        decorated = torch._disable_dynamo(decorated)  # type: ignore[attr-defined]

    own = Own()
    monkeypatch.setattr(dynamo, "tracer", lambda: None)
    assert dynamo.untraced(own.plain) == own.plain
    direct = dynamo.untraced(own.decorated)
    assert isinstance(direct, types.MethodType) and direct != own.decorated and direct() == "decorated"
    monkeypatch.setattr(dynamo, "tracer", lambda: torch._dynamo)
    assert dynamo.untraced(own.decorated) == own.decorated
