"""What a model needs and where it lies, asked of a real daemon: refusals before a byte moves, and the report."""

from __future__ import annotations

import itertools
import pathlib
import re
import subprocess
import sys
import textwrap

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
        with pytest.raises(tierd.NoSpace, match=r"needs 64 MiB in tierd .* job set --ssd-guarantee") as refused:
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
    import sys, torch, tierd, tierd.torch
    held = []
    for width in (64, 2048):
        held.append(tierd.torch.offload(torch.nn.Linear(width, width), tierd.torch.AdamW))
    print(held[0][1].memory_report().arena_max >> 20)
    try:
        tierd.torch.offload(torch.nn.Linear(8192, 8192), tierd.torch.AdamW, activations="device")
    except tierd.NoMemory as error:
        print(error)
"""


def test_models_of_one_program_share_the_private_daemon_without_a_word(socket_folder: pathlib.Path) -> None:
    """The second one needs another size than that with which the daemon runs, but its caller has set none."""
    launcher.need_build()
    with launcher.disk_folder() as disk:
        places = {"XDG_RUNTIME_DIR": str(socket_folder), "XDG_STATE_HOME": str(disk)}
        environment = {**launcher.environment(**places), "TIERD_SOCKET": ""}
        ran = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(PROGRAM)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
    lines = ran.stdout.splitlines()
    assert ran.returncode == 0 and int(lines[0]) == 192, ran.stdout + ran.stderr
    assert "needs 256 MiB of RAM at one time" in lines[1] and "192 MiB are available" in lines[1]
    assert ran.stderr.count("started a private one") == 1 and "was started with another" not in ran.stderr
