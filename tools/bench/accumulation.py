"""Eight micro-batches by tierd.torch.accumulate() beside the same eight in a plain loop: parameter bytes that come from
SSD, and the time of the step.

Run as a program, this is the process that trains: it takes a step of the kind that its stdin names. Bytes are looked up
in steps of their own: those of a parameter that are not in RAM when they are asked for are read.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import time
from collections.abc import Iterable
from typing import Any

from allocator import environment
from counters import device_bytes
from models import ARENA, MODELS, Model, gpt
from node import daemon, program
from report import Report, interval
from trainer import tier_bytes

MICRO_BATCHES = 8
BYTES, STEP = 1 / 6, 0.6  # Of the plain loop's.
KINDS = ("loop", "blocks")


def accumulation(report: Report, quick: bool) -> None:
    # A sixth of the arena for the smaller model, whose parameters do not fit into it either.
    name, model, arena = ("13M", gpt(4, 512), ARENA // 6) if quick else ("121M", MODELS["121M"], ARENA)
    rounds = 2 if quick else 10
    tier = tier_bytes(model.parameters, "deferred", model.item)
    with daemon(arena=arena, tier=tier, window="2MiB") as (process, _):
        words = (str(process.directory / "tierd.sock"), model.encoded())
        trainer = program(__file__, *words, environment=environment(in_tierd=True))
        times: dict[str, list[float]] = {kind: [] for kind in KINDS}
        moved: dict[str, list[int]] = {kind: [] for kind in KINDS}
        read: dict[str, list[float]] = {kind: [] for kind in KINDS}
        last = ""
        for number in range(-1, rounds):
            for kind in KINDS if number % 2 else reversed(KINDS):
                if kind != last:
                    trainer(kind)  # In the order that was recorded of the other kind, and with an update of its step.
                last = kind
                before = device_bytes(process.process.pid)[0]
                seconds = trainer(kind)
                if number >= 0:
                    times[kind].append(seconds)
                    moved[kind].append(device_bytes(process.process.pid)[0] - before)
                if number < 1:
                    read[kind].append(trainer(f"bytes of {kind}"))
        trainer.close()
    add_rows(report, name, times, read, moved)


def add_rows(
    report: Report, name: str, times: dict[str, list[float]], read: dict[str, list[float]], moved: dict[str, list[int]]
) -> None:
    what = f"{name}, {MICRO_BATCHES} micro-batches by blocks"
    loop, blocks = (statistics.median(read[kind]) for kind in KINDS)
    total = {kind: statistics.median(moved[kind]) / 1e9 for kind in KINDS}
    report.add(
        f"{what}: parameter bytes read", blocks / loop, "of a plain loop's", at_most=BYTES,
        ceiling=f"{blocks / 1e9:.2f} beside {loop / 1e9:.2f} GB; with gradients, state and activations "
        f"{total['blocks']:.2f} beside {total['loop']:.2f} GB",
    )  # fmt: skip
    ratios = [each / other for each, other in zip(times["blocks"], times["loop"], strict=True)]
    report.add(
        f"{what}: step", statistics.median(ratios), "of a plain loop's", at_most=STEP,
        ceiling=f"{statistics.median(times['blocks']):.2f} beside {statistics.median(times['loop']):.2f} s; "
        f"{interval(ratios)}",
        detail={"seconds": times},
    )  # fmt: skip


class Asked:
    """Stands for a client: counts the bytes of ``keys`` that are not in RAM when they are asked for."""

    def __init__(self, client: Any, keys: set[str]) -> None:
        self._client = client
        self._keys = keys
        self._coming: set[str] = set()  # Asked for, and not used since.
        self.read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def _count(self, keys: Iterable[Any], used: bool) -> None:
        for key in keys:
            if key in self._keys and key not in self._coming:
                state = self._client.tensor(key)
                self.read += state.size - state.ram_bytes
                self._coming.add(key)
            if used:
                self._coming.discard(key)

    def prefetch(self, parts: Any, **options: Any) -> None:
        self._count([part.key for part in parts], used=False)
        self._client.prefetch(parts, **options)

    def lease(self, key: Any, **options: Any) -> Any:
        self._count([key], used=True)
        return self._client.lease(key, **options)


def main() -> None:
    import torch
    from train_arm import batches, maker

    import tierd
    import tierd.torch

    torch.set_num_threads(2)
    model = Model.decoded(sys.argv[2])
    client = tierd.connect(job="accumulation", socket=sys.argv[1])
    with tierd.torch.creating(client=client):
        made = maker(model)()
    net, optimizer = tierd.torch.offload(made, tierd.torch.AdamW, client=client, lr=1e-4)
    store = net.__dict__["_tierd_runtime"].store
    feed = batches(model)

    def loss(batch: Any) -> torch.Tensor:
        found: torch.Tensor = net(*batch) / MICRO_BATCHES
        return found

    def step(kind: str) -> None:
        micro_batches = list(itertools.islice(feed, MICRO_BATCHES))
        if kind == "blocks":
            tierd.torch.accumulate(net, micro_batches, loss)
        else:
            for batch in micro_batches:
                loss(batch).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    def counted(kind: str) -> float:
        asked = Asked(client, {stored.key for stored in store.parameters})
        ahead = store.training_order
        store.client = ahead._client = asked
        try:
            step(kind)
        finally:
            store.client = ahead._client = client
        return asked.read

    print(json.dumps({"ready": 1.0}), flush=True)
    for line in sys.stdin:
        verb = line.strip()
        began = time.perf_counter()
        if verb.startswith("bytes of "):
            value: float = counted(verb.removeprefix("bytes of "))
        else:
            step(verb)
            value = time.perf_counter() - began
        print(json.dumps({verb: value}), flush=True)
    client.close()


if __name__ == "__main__":
    main()
