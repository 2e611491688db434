#!/usr/bin/env python3
"""One training run of hundred_steps.py: prints the bits of its losses, of evaluations too, as one JSON list."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import corpus
import gpt
import torch

import tierd
import tierd.torch

LEARNING_RATE = 1e-3
WARM_UP = 5  # Steps of the schedule.


def losses(
    model: Any, optimizer: Any, forward: Callable[..., Any], context: int, steps: int, evaluated_every: int
) -> Iterator[str]:
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=WARM_UP)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm_up, decay], [WARM_UP])
    feed, held_out = (corpus.batches(corpus.load(), 2, context, seed) for seed in (0, 1))
    for step in range(steps):
        loss = forward(*next(feed))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        yield loss.item().hex()
        del loss
        if step % evaluated_every == evaluated_every - 1:
            model.eval()
            with torch.no_grad():
                yield model(*next(held_out)).item().hex()
            model.train()


def main() -> None:
    mode, options, socket = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
    shape = gpt.Shape(**json.loads(sys.argv[4]))
    steps, evaluated_every = map(int, sys.argv[5:])
    torch.set_num_threads(2)
    torch.manual_seed(0)
    model: Any = gpt.Gpt(shape)
    forward: Callable[..., Any] = model
    optimizer: Any
    client = tierd.connect(job="losses", socket=socket) if socket else None
    if client is not None and options is not None:
        model, optimizer = tierd.torch.offload(model, tierd.torch.AdamW, client=client, lr=LEARNING_RATE, **options)
    elif client is not None and mode == "optimizer state":
        optimizer = tierd.torch.AdamW(model.parameters(), client=client, lr=LEARNING_RATE)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)
    if client is not None and mode == "activations":
        activations = tierd.torch.offload_activations(client, model=model)

        def with_activations(*inputs: Any) -> Any:
            with activations:
                return model(*inputs)

        forward = with_activations
    print(json.dumps(list(losses(model, optimizer, forward, shape.context, steps, evaluated_every))))


if __name__ == "__main__":
    main()
