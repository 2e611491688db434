#!/usr/bin/env python3
"""One training run of three_jobs.py: a GPT by itself in plain torch, or in tierd beside other jobs.

Prints "ready", then the bits of each step's loss. Without a number of steps it trains until its stdin ends.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
from typing import Any

import gpt
import torch

import tierd
import tierd.torch

LEARNING_RATE = 1e-3
BATCH = 2


def until_stdin_ends() -> threading.Event:
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    return ended


def main() -> None:
    job, socket, shape, seed, steps = json.loads(sys.argv[1])
    torch.set_num_threads(1)  # Three of them share the processors; and the bits depend on it.
    torch.manual_seed(seed)
    tierd.torch.return_freed_memory()
    model: Any = gpt.Gpt(gpt.Shape(**shape))
    client = tierd.connect(job=job, socket=socket) if socket else None
    optimizer: Any
    if client is None:
        optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)
    else:
        model, optimizer = tierd.torch.offload(model, tierd.torch.AdamW, client=client, lr=LEARNING_RATE)
    ended = threading.Event() if steps else until_stdin_ends()
    print("ready", flush=True)
    for number in itertools.count():
        if number == steps if steps else ended.is_set():
            break
        batch = torch.Generator().manual_seed(seed << 20 | number)
        tokens = torch.randint(0, gpt.VOCABULARY, (BATCH, shape["context"] + 1), generator=batch)
        loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item().hex(), flush=True)
        del loss
    if client is not None:
        del model, optimizer
        client.close()


if __name__ == "__main__":
    main()
