"""The ranks of a test: as many processes as it wants run its scenarios once, each over a tierd of its own process.

A test file runs itself: ``outcomes_of(__file__, world, folder)`` starts it once, and ``run_all`` makes a process of
each rank. They are forks: torch and the file are imported once, before there is a thread of torch or a tensor.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
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

RANK_SECONDS_MAX = 120

Outcomes = list[dict[str, str]]  # Of each rank: what became of a scenario; nothing where it went well.


def outcomes_of(file: str, world: int, folder: pathlib.Path) -> Outcomes:
    """Runs the ranks to their end."""
    subprocess.run([sys.executable, file, str(world), str(folder)], check=True, timeout=2 * RANK_SECONDS_MAX)
    return [json.loads(["{}", *(folder / str(rank)).read_text().splitlines()][-1]) for rank in range(world)]


def assert_passed(outcomes: Outcomes, name: str) -> None:
    assert all(each.get(name) == "" for each in outcomes), "\n".join(
        f"rank {rank}: {each.get(name, 'not reached')}" for rank, each in enumerate(outcomes)
    )


def run_all(scenarios: Mapping[str, Callable[[], None]], as_in_a_launch: bool = False) -> None:
    """What a test file does as a program: its arguments are those that ``outcomes_of`` gives. ``as_in_a_launch`` sets
    the environment of a rank as torchrun does."""
    world, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
    ranks = []
    for rank in range(world):
        if (process := os.fork()) == 0:
            if as_in_a_launch:
                os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
            run_rank(scenarios, rank, world, folder)
            return
        ranks.append(process)
    for process in ranks:
        os.waitpid(process, 0)  # What became of it stands in its file.


def run_rank(scenarios: Mapping[str, Callable[[], None]], rank: int, world: int, folder: pathlib.Path) -> None:
    signal.alarm(RANK_SECONDS_MAX)  # It ends the process.
    outcomes = {}
    with (folder / str(rank)).open("w") as written:
        torch.set_num_threads(1)
        store = distributed.FileStore(str(folder / "store"), world)
        distributed.init_process_group("gloo", store=store, rank=rank, world_size=world)
        for name, scenario in scenarios.items():
            try:
                scenario()
                outcomes[name] = ""
            except BaseException:
                outcomes[name] = traceback.format_exc()
            print(json.dumps(outcomes), file=written, flush=True)  # Each time: one may be to end the process.
            if outcomes[name]:
                break  # The other ranks may be anywhere.
    distributed.destroy_process_group()


def client_of() -> tuple[tierd.Client, FakeLibrary]:
    fake = FakeLibrary()
    return tierd.Client(Session(fake, 1)), fake  # type: ignore[arg-type]


def refused(match: str, kind: type[Exception] = tierd.Invalid) -> Any:
    import pytest

    return pytest.raises(kind, match=match)
