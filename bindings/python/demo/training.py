"""One training run in a process of its own; writes JSON lines to stdout: `ready`, one `step` each, `end`.

With --socket the model and all of its training state live in that tierd; without, it is plain torch. All else is the
same for both: model, seed, batches, threads, allocator settings, and AdamW's fused kernel.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import corpus
import footprint
import gpt
import torch

import tierd
import tierd.torch
from tierd.states import Part


class SsdWitness:
    """Which optimizer states have come back from SSD. Asked before anything of a state is fetched: what then has no
    byte in RAM, the update can only get from SSD."""

    def __init__(self, client: tierd.Client) -> None:
        self._client = client
        self.returned: set[tierd.Key] = set()

    def look(self, parts: Sequence[Part]) -> None:
        for part in parts:
            if part.offset == 0 and part.key not in self.returned:
                state = self._client.tensor(part.key)
                if state.ram_bytes == 0 and state.ssd_bytes >= state.size:
                    self.returned.add(part.key)


class PlainRun:
    """torch as it is."""

    def __init__(self, model: gpt.Gpt, arguments: argparse.Namespace) -> None:
        self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr, fused=True)

    def figures(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass


class TieredRun(PlainRun):
    """The same model in tierd: parameters, gradients, optimizer state and activations."""

    def __init__(self, model: gpt.Gpt, arguments: argparse.Namespace) -> None:
        self._client = tierd.connect(job="demo", socket=arguments.socket, spin=arguments.spin)
        self._witness = SsdWitness(self._client)
        self._model, self._adamw = tierd.torch.offload(
            model, tierd.torch.AdamW, client=self._client, lr=arguments.lr, slice_bytes=arguments.slice_bytes
        )
        self._adamw.fetch_hook = self._witness.look
        self.optimizer = self._adamw

    def figures(self) -> dict[str, Any]:
        stats = self._client.stats()
        return {
            "states_returned": len(self._witness.returned),
            "waits": stats.acquire_waits,
            "wait_seconds": stats.acquire_wait_ns / 1e9,
            "activation_bytes": tierd.torch.activation_bytes(self._model),
        }

    def close(self) -> None:
        states = [key for p in self._adamw.param_groups[0]["params"] for key in self._adamw.tiered_keys(p).values()]
        say("states", count=len(states), returned=len(self._witness.returned & set(states)))
        self._client.close()


def say(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def digest(model: torch.nn.Module) -> str:
    total = hashlib.sha256()
    for module in model.modules():  # One at a time: only its parameters come into memory.
        if not list(module.children()):
            for value in module.state_dict().values():
                total.update(value.numpy().tobytes())
    return total.hexdigest()


def train(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    tierd.torch.return_freed_memory()
    shape = gpt.Shape(arguments.layers, arguments.width, arguments.heads, arguments.context)
    idle = footprint.private_bytes(os.getpid())
    model = gpt.Gpt(shape)
    run = TieredRun(model, arguments) if arguments.socket else PlainRun(model, arguments)
    feed = corpus.batches(corpus.load(), arguments.batch, arguments.context, arguments.seed)
    say("ready", parameters=sum(p.numel() for p in model.parameters()), threads=torch.get_num_threads(), idle=idle)
    for step in range(1, arguments.steps + 1):
        if arguments.paced and not sys.stdin.readline():
            break
        begin = time.perf_counter()
        inputs, targets = next(feed)
        loss = model(inputs, targets)
        loss.backward()
        run.optimizer.step()
        run.optimizer.zero_grad()
        seconds = time.perf_counter() - begin
        value = loss.item()
        say("step", step=step, loss=value, bits=value.hex(), seconds=seconds, **run.figures())
        del loss
    say("end", digest=digest(model))
    run.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--socket", default="")
    parser.add_argument("--spin", default="auto")
    parser.add_argument("--slice-bytes", type=int, default=4 << 20)
    parser.add_argument("--paced", action="store_true", help="begin each step when a line comes on stdin")
    parser.add_argument("--lr", type=float, default=3e-4)
    for name in ("steps", "layers", "width", "heads", "context", "batch", "threads", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    try:
        train(parser.parse_args())
    except KeyboardInterrupt:
        sys.exit(130)  # The command above this one says what there is to say.
    except tierd.Error as error:
        say("failed", error=f"{type(error).__name__}: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
