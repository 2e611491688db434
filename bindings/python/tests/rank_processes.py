"""The ranks of a test: as many processes as it wants run its scenarios once, each over a tierd of its own process.

A test file runs itself: ``outcomes_of(__file__, world, folder)`` starts it once for each rank, which calls ``run_all``.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as distributed
from fake_library import FakeLibrary

import tierd
from tierd.session import Session

Outcomes = list[dict[str, str]]  # Of each rank: what became of a scenario; nothing where it went well.


def outcomes_of(file: str, world: int, folder: pathlib.Path) -> Outcomes:
    """Runs the ranks to their end."""
    ranks = [
        subprocess.Popen(
            [sys.executable, file, str(rank), str(world), str(folder / "store")], stdout=subprocess.PIPE, text=True
        )
        for rank in range(world)
    ]
    try:
        return [json.loads((rank.communicate(timeout=120)[0] or "{}").splitlines()[-1]) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def assert_passed(outcomes: Outcomes, name: str) -> None:
    assert all(each.get(name) == "" for each in outcomes), "\n".join(
        f"rank {rank}: {each.get(name, 'not reached')}" for rank, each in enumerate(outcomes)
    )


def run_all(scenarios: Mapping[str, Callable[[], None]]) -> None:
    """What a rank does: its arguments are those that ``outcomes_of`` gives."""
    rank, world, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", store=distributed.FileStore(store, world), rank=rank, world_size=world)
    outcomes = {}
    for name, scenario in scenarios.items():
        try:
            scenario()
            outcomes[name] = ""
        except BaseException:
            outcomes[name] = traceback.format_exc()
        print(json.dumps(outcomes), flush=True)  # Each time: a scenario may be to end the process.
        if outcomes[name]:
            break  # The other ranks may be anywhere.
    distributed.destroy_process_group()


def client_of() -> tuple[tierd.Client, FakeLibrary]:
    fake = FakeLibrary()
    return tierd.Client(Session(fake, 1)), fake  # type: ignore[arg-type]


def refused(match: str, kind: type[Exception] = tierd.Invalid) -> Any:
    import pytest

    return pytest.raises(kind, match=match)
