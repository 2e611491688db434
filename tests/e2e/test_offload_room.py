"""What a model needs and where it lies, asked of a real daemon: refusals before a byte moves, and the report."""

from __future__ import annotations

import itertools
import pathlib
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import launcher
import pytest
import torch
from torch import nn

import tierd
import tierd.torch
from tierd import inspection

MIB = 1 << 20


def new_model(layers: int = 5) -> nn.Sequential:
    """2 MiB a layer: with gradients and moments 8 MiB."""
    torch.manual_seed(4)
    widths = [512 if number % 2 == 0 else 1024 for number in range(layers + 1)]
    return nn.Sequential(*[nn.Linear(*pair, bias=False) for pair in itertools.pairwise(widths)])


def offload(model: nn.Module, client: tierd.Client, **options: object) -> tuple[nn.Module, tierd.torch.AdamW]:
    return tierd.torch.offload(model, tierd.torch.AdamW, client=client, **options)  # type: ignore[return-value]


def test_a_model_is_refused_exactly_where_the_daemon_has_no_room_for_it(socket_folder: pathlib.Path) -> None:
    """64 MiB of SSD: less superblocks and a block for exchange, of which a job may have fifteen sixteenths."""
    with (
        launcher.start(socket_folder, arena="8MiB", tier="64MiB") as daemon,
        tierd.connect(job="-room", socket=daemon.socket) as client,
    ):
        model = new_model(8)
        before = [parameter.detach().clone() for parameter in model.parameters()]
        with pytest.raises(tierd.NoSpace, match=r"needs 64 MiB in tierd .* or leave parts in the process") as refused:
            offload(model, client)
        assert all(type(parameter) is nn.Parameter for parameter in model.parameters())
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(model.parameters(), before, strict=True))
        figures = inspection.job_figures(client)
        assert (figures["logical_bytes"], figures["tensor_count"], client.stats().copied_to_tensors_bytes) == (0, 0, 0)
        found = re.search(r"and ([\d.]+) MiB are available to job '-room'", str(refused.value))
        assert found is not None and 52 < float(found[1]) < 60
        ours, optimizer = offload(new_model(6), client, lr=1e-2)  # 48 MiB: all of them, to the last moment.
        x = torch.ones(1, 512)
        for _ in range(2):
            ours(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        del ours, optimizer


def test_ram_is_promised_only_where_no_other_job_can_take_it(socket_folder: pathlib.Path) -> None:
    with (
        launcher.start(socket_folder, arena="64MiB", tier="256MiB") as daemon,
        tierd.connect(job="one", socket=daemon.socket) as client,
    ):
        with pytest.raises(tierd.NoMemory, match="of RAM at one time, .* and 64 MiB are available"):
            offload(nn.Linear(8192, 4096, bias=False), client)
        model, optimizer = offload(new_model(), client, parameters="ram", optimizer_state="ram")
        model(torch.ones(1, 512)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        optimizer.settle()
        report = optimizer.memory_report()
        assert (report.parameters.ram, report.optimizer_state.ram) == (10 * MIB, 20 * MIB)
        assert report.parameters.ssd == report.optimizer_state.ssd == 0
        del model, optimizer
        with tierd.connect(job="two", socket=daemon.socket, guarantee="30MiB"):
            with pytest.raises(tierd.NoMemory, match="are certain to job 'one'.*guarantee="):
                offload(new_model(), client, parameters="ram", optimizer_state="ram")


def test_the_report_agrees_with_the_daemon(socket_folder: pathlib.Path) -> None:
    with (
        launcher.start(socket_folder, arena="16MiB", tier="256MiB") as daemon,
        tierd.connect(job="report", socket=daemon.socket) as client,
    ):
        model, optimizer = offload(new_model(), client, min_bytes=1)
        model(torch.ones(8, 512)).sum().backward()
        optimizer.step()
        optimizer.settle()
        launcher.metrics(daemon)  # The figures that follow are not of a moment before all of it was there.
        report = optimizer.memory_report()
        figures = inspection.job_figures(client)
        places = report.parts.values()
        in_tierd = sum(place.ram + place.ssd for place in places)
        assert in_tierd == figures["logical_bytes"] == 40 * MIB
        assert sum(place.ram for place in places) <= figures["ram_bytes"] <= 16 * MIB
        assert report.optimizer_state.ssd > 0 and report.plain_torch == 40 * MIB
        assert (report.arena, report.arena_max, report.held) == (16 * MIB, 16 * MIB, figures["held_bytes"])
        assert report.memfds is not None and report.memfds >= 8 * MIB
        assert report.daemon is not None and 0 < report.daemon.total < 200 * MIB
        assert report.measured == report.process.total + report.daemon.total + report.memfds  # type: ignore[union-attr]
        del model, optimizer


PROGRAM = """
    import torch, tierd, tierd.torch

    def offload(width, **sizes):
        model, optimizer = tierd.torch.offload(torch.nn.Linear(width, width), tierd.torch.AdamW, **sizes)
        model(torch.ones(1, width)).sum().backward()
        optimizer.step()
        print(optimizer.memory_report().arena_max >> 20, flush=True)
        return model, optimizer

    held = [offload(64, ram="32MiB", ssd="128MiB"), offload(1024)]  # The second has no size of its own.
"""
PIPES: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
LARGER = """
    held += [offload(4096, update="backward"), offload(1024)]
    try:
        offload(8192, ram="64MiB")
    except tierd.NoMemory as error:
        print(error)
    assert held[2][0].state_dict()["weight"].shape == (4096, 4096)
"""
RANKS = """
    import torch, tierd, tierd.torch
    torch.distributed.init_process_group("gloo")
    model, optimizer = tierd.torch.offload(torch.nn.Linear(2048, 2048), tierd.torch.AdamW, process_group=True)
    model(torch.ones(1, 2048)).sum().backward()
    optimizer.step()
    state = optimizer._client.session
    told = [None, None]
    torch.distributed.all_gather_object(told, (model.state_dict()["weight"].sum().item(), state.socket, state.token))
    assert told[0] == told[1] and "/tierd/2/" in state.socket, told
    torch.distributed.destroy_process_group()
"""


@pytest.fixture
def without_daemon(socket_folder: pathlib.Path) -> Iterator[dict[str, str]]:
    """The environment of a user whose program starts the first daemon."""
    launcher.need_build()
    with launcher.disk_folder() as disk:
        places = {"XDG_RUNTIME_DIR": str(socket_folder), "XDG_STATE_HOME": str(disk)}
        yield {**launcher.environment(**places), "TIERD_SOCKET": ""}


def run(environment: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, timeout=180)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran


def test_models_of_one_program_share_the_private_daemon_without_a_word(without_daemon: dict[str, str]) -> None:
    """The second one needs another size than that with which the daemon runs, but its caller has set none."""
    ran = run(without_daemon, "-c", textwrap.dedent(PROGRAM))
    assert ran.stdout.split() == ["32", "32"]
    assert ran.stderr.count("started a private one") == 1 and "started another" not in ran.stderr
    assert "was started with another" not in ran.stderr


def test_a_model_for_which_the_private_daemon_is_too_small_gets_another_one(
    without_daemon: dict[str, str], socket_folder: pathlib.Path
) -> None:
    """Sized for it. The models of the first stay where they are, and a further small one goes to the first."""
    ran = run(without_daemon, "-c", textwrap.dedent(PROGRAM + LARGER))
    lines = ran.stdout.splitlines()
    assert lines[:4] == ["32", "32", "192", "32"], ran.stdout
    assert "ram= gives 64 MiB; raise ram=" in lines[4]
    assert ran.stderr.count("started a private one") == 1 and ran.stderr.count("started another one") == 1
    assert f"{socket_folder}/tierd/2/tierd.sock" in ran.stderr


def test_ranks_go_to_another_private_daemon_together(without_daemon: dict[str, str], tmp_path: pathlib.Path) -> None:
    """Another program's, which was sized for a small model, is the one that runs."""
    program = tmp_path / "ranks.py"
    program.write_text(textwrap.dedent(RANKS))
    held = textwrap.dedent(PROGRAM) + "input()"
    with subprocess.Popen([sys.executable, "-c", held], env=without_daemon, text=True, **PIPES) as small:
        assert small.stdout is not None and small.stdout.readline() == "32\n"
        ran = run(without_daemon, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(program))
        small.communicate("\n", timeout=60)
    assert ran.stderr.count("started another one") == 1, ran.stderr
