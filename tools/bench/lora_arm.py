#!/usr/bin/env python3
"""A process of the LoRA bench: one of two ranks with the model in tierd, or plain torch with the batches of both.

Prints JSON lines: ``idle`` with torch alone, ``ready`` with the model made, and one ``step`` for each line on stdin.
The base weights are drawn by name, so that a process can make any of them alone. Plain torch runs both batches of a
step one after the other and halves the sum of their gradients: with two ranks, that has the bits of their mean.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import time
import zlib
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bindings/python/demo"), str(ROOT / "bindings/python")]

import torch  # noqa: E402
from torch import nn  # noqa: E402

RANKS, CONTEXT, ADAPTER, LEARNING_RATE = 2, 128, 8, 1e-3
ADAPTED = ("queries_keys_values", "projection")


class Lora(nn.Module):
    """A linear layer that does not learn, and the product of two small ones that do."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        adapted: torch.Tensor = self.base(x) + self.up(self.down(x))
        return adapted


def adapted_model(layers: int, width: int) -> nn.Module:
    """The demo's decoder without values, frozen, with adapters in its attention."""
    import gpt

    with torch.device("meta"):
        model = gpt.Gpt(gpt.Shape(layers, width, width // 64, CONTEXT)).requires_grad_(False)
    torch.manual_seed(0)
    for block in model.blocks:
        for name in ADAPTED:
            setattr(block, name, Lora(getattr(block, name), ADAPTER))
    return model


def values_of(name: str, shape: torch.Size) -> torch.Tensor:
    if name.endswith("norm.weight"):
        return torch.ones(shape)
    if name.endswith("bias"):
        return torch.zeros(shape)
    return torch.empty(shape).normal_(std=0.02, generator=torch.Generator().manual_seed(zlib.crc32(name.encode())))


class Plain:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.model = adapted_model(arguments.layers, arguments.width)
        for module_path, module in self.model.named_modules():
            for name, parameter in module._parameters.items():
                if parameter is not None and parameter.is_meta:
                    values = values_of(f"{module_path}.{name}".lstrip("."), parameter.shape)
                    module._parameters[name] = nn.Parameter(values, requires_grad=False)
        self.optimizer: Any = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE, fused=True)

    def ready(self) -> dict[str, Any]:
        return {}

    def step(self, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> list[float]:
        losses = []
        for inputs, targets in batches:
            loss = self.model(inputs, targets)
            loss.backward()
            losses.append(float(loss.item()))
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(1 / len(batches))
        self.update()
        return losses

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()

    def figures(self) -> dict[str, Any]:
        return {}


class Rank(Plain):
    def __init__(self, arguments: argparse.Namespace) -> None:
        import torch.distributed as distributed

        import tierd
        import tierd.torch

        self._rank = int(os.environ["RANK"])
        store = distributed.FileStore(arguments.store, RANKS)
        distributed.init_process_group("gloo", store=store, rank=self._rank, world_size=RANKS)
        self._client = tierd.connect(job="lora", socket=arguments.socket)
        made = adapted_model(arguments.layers, arguments.width)
        shapes = {name: parameter.shape for name, parameter in made.named_parameters()}
        self.loaded = 0

        def load(name: str) -> torch.Tensor:
            values = values_of(name, shapes[name])
            self.loaded += values.nbytes
            return values

        frozen = {name: parameter.nbytes for name, parameter in made.named_parameters() if parameter.is_meta}
        self.model, self.optimizer = tierd.torch.offload(
            made, tierd.torch.AdamW, client=self._client, lr=LEARNING_RATE, name="lora", process_group=True,
            load_frozen=load,
        )  # fmt: skip
        self._base = {f"lora/{name}": size for name, size in frozen.items() if size >= 64 << 10}
        if self._rank == 0:
            self._client.flush(*self._base, shared=True)  # The one write that they have.
        distributed.barrier()
        self._before = self._states()

    def ready(self) -> dict[str, Any]:
        return {"base": sum(self._base.values()), "loaded": self.loaded}

    def step(self, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> list[float]:
        inputs, targets = batches[self._rank]
        loss = self.model(inputs, targets)
        loss.backward()
        self.update()
        return [float(loss.item())]

    def figures(self) -> dict[str, Any]:
        """Bytes of the base in RAM, and of those written since it was loaded: what has another generation, and what
        has an SSD copy that it did not have."""
        states = self._states()
        written = sum(
            state.size if state.generation != before.generation else state.ssd_bytes - before.ssd_bytes
            for state, before in zip(states, self._before, strict=True)
        )
        return {"held": sum(state.ram_bytes for state in states), "written": written}

    def _states(self) -> list[Any]:
        return [self._client.tensor(key, shared=True) for key in self._base]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("arm", choices=("plain", "rank"))
    for option in ("--layers", "--width"):
        parser.add_argument(option, type=int, default=0)
    for option in ("--socket", "--store"):
        parser.add_argument(option, default="")
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    def say(**fields: Any) -> None:
        print(json.dumps(fields), flush=True)

    import corpus

    say(event="idle", pid=os.getpid())
    sys.stdin.readline()
    arm = (Plain if arguments.arm == "plain" else Rank)(arguments)
    feeds = [corpus.batches(corpus.load(), 1, CONTEXT, seed) for seed in range(RANKS)]
    say(event="ready", **arm.ready())
    for _ in sys.stdin:
        begin = time.perf_counter()
        losses = arm.step([next(feed) for feed in feeds])
        say(event="step", seconds=time.perf_counter() - begin, losses=[loss.hex() for loss in losses], **arm.figures())


if __name__ == "__main__":
    main()
