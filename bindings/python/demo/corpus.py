"""The bytes to train on: the sources of Python's own standard library, the same on every run of one Python."""

from __future__ import annotations

import pathlib
import random
import sysconfig
from collections.abc import Iterator

import torch

BYTES_MAX = 16 << 20


def load() -> torch.Tensor:
    """Up to 16 MiB of sources, in the order of their names, as a tensor of bytes."""
    root = pathlib.Path(sysconfig.get_paths()["stdlib"])
    content = bytearray()
    for path in sorted(root.rglob("*.py")):
        if "site-packages" in path.parts or "test" in path.parts:
            continue
        content += path.read_bytes()
        if len(content) >= BYTES_MAX:
            break
    if len(content) < 1 << 20:
        raise SystemExit(f"the standard library's sources in {root} are only {len(content)} bytes")
    return torch.frombuffer(content[:BYTES_MAX], dtype=torch.uint8)


def batches(corpus: torch.Tensor, batch: int, context: int, seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Endless (inputs, targets), the same for the same seed."""
    draw = random.Random(seed)
    while True:
        starts = [draw.randrange(len(corpus) - context - 1) for _ in range(batch)]
        rows = torch.stack([corpus[start : start + context + 1] for start in starts]).long()
        yield rows[:, :-1], rows[:, 1:]
