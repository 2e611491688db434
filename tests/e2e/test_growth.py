"""What a process keeps while it trains: after 200 steps as much as after 50, of whatever kind."""

from __future__ import annotations

import collections
import gc
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import tierd
import tierd.torch

EARLY, LATE = 50, 200
SLACK = 40  # Entries, of a fourth of the steps in between: some tables are swept only when they have doubled.
SWEPT = {"_BackwardOrder._places"}  # With 64 entries more than are alive.
WIDTH, ROWS = 128, 160  # An activation is above the 64 KiB from which it goes into tierd.


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[each for _ in range(3) for each in (nn.Linear(WIDTH, WIDTH), nn.GELU())])
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.norm(self.layers(x))
        return y


Step = Callable[[nn.Module, Any], object]


def backward(model: nn.Module) -> None:
    model(torch.randn(ROWS, WIDTH)).square().mean().backward()


def plain(model: nn.Module, optimizer: Any) -> None:
    backward(model)
    optimizer.step()
    optimizer.zero_grad()


def clipped(model: nn.Module, optimizer: Any) -> None:
    backward(model)
    backward(model)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def with_inputs_that_require_gradients(model: nn.Module, optimizer: Any) -> None:
    model(torch.randn(ROWS, WIDTH).requires_grad_()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def through_frozen(model: nn.Module, _: Any) -> None:
    model(torch.randn(ROWS, WIDTH).requires_grad_()).sum().backward()


def mixed(model: nn.Module, optimizer: Any) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        plain(model, optimizer)


def accumulated(model: nn.Module, optimizer: Any) -> None:
    batches = [torch.randn(ROWS, WIDTH) for _ in range(3)]
    tierd.torch.accumulate(model, batches, lambda batch: model(batch).square().mean())
    optimizer.step()
    optimizer.zero_grad()


def evaluated(model: nn.Module, optimizer: Any) -> None:
    plain(model, optimizer)
    model.eval()
    with torch.no_grad():
        model(torch.randn(ROWS, WIDTH))
    with torch.inference_mode():
        model(torch.randn(ROWS, WIDTH))
    model.train()


def read(model: nn.Module, optimizer: Any) -> None:
    plain(model, optimizer)
    model.state_dict()
    optimizer.state_dict()
    optimizer.memory_report()
    with tierd.torch.gathered(model, write=True):
        next(model.parameters()).norm()


def only_called(model: nn.Module, _: Any) -> None:
    model(torch.randn(ROWS, WIDTH))


def skipped(model: nn.Module, optimizer: Any) -> None:
    backward(model)
    optimizer.zero_grad()


STEPS: dict[str, tuple[Step, dict[str, Any]]] = {
    "deferred": (plain, {}),
    "step": (plain, {"update": "step"}),
    "backward": (plain, {"update": "backward"}),
    "activations in the process": (plain, {"activations": "device"}),
    "clipped": (clipped, {}),
    "inputs that require gradients": (with_inputs_that_require_gradients, {}),
    "frozen": (through_frozen, {}),
    "autocast": (mixed, {}),
    "accumulate": (accumulated, {}),
    "evaluation": (evaluated, {}),
    "read": (read, {}),
    "evaluation in backward": (evaluated, {"update": "backward"}),
    "without a backward": (only_called, {}),
    "without a step": (skipped, {}),
}


def sizes(client: tierd.Client) -> collections.Counter[str]:
    """How many objects there are of each class of tierd's, how long their tables are, and those of its modules."""
    gc.collect()
    found: collections.Counter[str] = collections.Counter()
    objects = gc.get_objects()
    for each in objects:
        kind = type(each)
        if str(kind.__module__).startswith("tierd"):
            found[kind.__qualname__] += 1
            for name, table in tables_of(each, kind):
                found[f"{kind.__qualname__}.{name}"] += len(table)
    for name, module in list(sys.modules.items()):
        if name.startswith("tierd"):
            for variable, table in list(vars(module).items()):
                if is_table(table):
                    found[f"{name}.{variable}"] += len(table)
    found["objects of Python"] = len(objects)
    found["threads"] = threading.active_count()
    found["descriptors"] = len(os.listdir("/proc/self/fd"))
    found["leases"] = client.stats().leases_open
    return found


def tables_of(each: Any, kind: type) -> Iterator[tuple[str, Collection[Any]]]:
    slots = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]
    values = {name: getattr(each, name, None) for name in slots if not name.startswith("__")}
    for name, value in {**values, **getattr(each, "__dict__", {})}.items():
        if is_table(value):
            yield name, value


def is_table(value: object) -> bool:
    return (
        isinstance(value, (dict, list, set, frozenset, tuple, collections.deque)) or type(value).__name__ == "WeakSet"
    )


@pytest.mark.parametrize("name", STEPS)
def test_nothing_grows_with_the_steps(client: tierd.Client, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tierd.torch.look_ahead.RECORDED_MAX", 16)  # Reached, by an order that no step ends.
    step, options = STEPS[name]
    torch.manual_seed(1)
    model = Net()
    model.requires_grad_(name != "frozen")
    _, optimizer = tierd.torch.offload(model, tierd.torch.AdamW, client=client, min_bytes=1, **options)
    for _ in range(EARLY):
        step(model, optimizer)
    early = sizes(client)
    for _ in range(LATE - EARLY):
        step(model, optimizer)
    late = sizes(client)
    grown = {what: (early[what], count) for what, count in late.items() if count > early[what] + SLACK}
    assert not grown.keys() - SWEPT, grown
    assert late["threads"] == early["threads"] and late["descriptors"] == early["descriptors"], (early, late)
    assert late["leases"] <= early["leases"]
