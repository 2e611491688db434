"""offload(model) through a real daemon whose arena is far smaller than the model: the same bits, and typed errors."""

from __future__ import annotations

import pathlib
import signal
from typing import Any

import launcher
import pytest
import torch

import tierd
import tierd.torch

from small_gpt import assert_same, new_model, plain, run, step_of


@pytest.mark.parametrize("update", ["step", "deferred", "backward"])
def test_a_gpt_trains_with_the_same_bits_in_an_arena_smaller_than_its_parameters(
    socket_folder: pathlib.Path, update: str
) -> None:
    losses, expected = plain(4)
    with (
        launcher.start(socket_folder, arena="8MiB", tier="256MiB") as daemon,
        tierd.connect(job="offload", socket=daemon.socket) as client,
    ):
        model, optimizer = tierd.torch.offload(
            new_model(), tierd.torch.AdamW, client=client, lr=1e-3, update=update, min_bytes=1
        )
        assert [step_of(model, optimizer, number) for number in range(4)] == losses
        assert_same(model, expected)
        held = [client.tensor(stored._tierd_stored.key) for stored in model.parameters()]
        assert sum(state.ssd_bytes for state in held) > 4 << 20 and client.stats().leases_open == 0
        del model, optimizer


@pytest.mark.parametrize("update", ["step", "deferred"])
def test_a_step_that_finds_the_ssd_full_is_continued_with_the_same_bits(
    socket_folder: pathlib.Path, update: str
) -> None:
    losses, expected = plain(3)
    with (
        launcher.start(socket_folder, arena="8MiB", tier="64MiB") as daemon,
        tierd.connect(job="full", socket=daemon.socket) as client,
        tierd.connect(job="other", socket=daemon.socket) as other,
    ):
        model, optimizer = tierd.torch.offload(
            new_model(), tierd.torch.AdamW, client=client, lr=1e-3, update=update, min_bytes=1
        )
        filled = 0

        def fill(parts: Any) -> None:
            """Behind the first slices of the first update: another job takes what is free."""
            nonlocal filled
            while filled < 200:
                try:
                    other.put(filled, bytes(1 << 20), timeout=5)
                except (tierd.NoSpace, tierd.NoMemory, tierd.Timeout):
                    break
                filled += 1

        tokens = torch.randint(0, 256, (2, 65), generator=torch.Generator().manual_seed(0))
        loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        fill(None)
        failed = False
        for call in (optimizer.step, optimizer.settle):
            try:
                call()
            except (tierd.NoSpace, tierd.NoMemory, tierd.Timeout):
                failed = True
                for number in range(filled):
                    other.delete(number)
                call()
        optimizer.zero_grad()
        assert failed and filled
        ours = [float(loss.item())] + [step_of(model, optimizer, number) for number in (1, 2)]
        assert ours == losses
        assert_same(model, expected)
        del model, optimizer, loss


PROGRAM = """
    import os, signal, sys
    sys.path[:0] = [{tests!r}, {bindings!r}]
    import torch, tierd, tierd.torch
    from small_gpt import new_model, step_of
    client = tierd.connect(job="run", socket={socket!r}, named=True, mode={mode!r})
    model, optimizer = tierd.torch.offload(
        new_model(), tierd.torch.AdamW, client=client, lr=1e-3, name="gpt", min_bytes="64KiB", resume={resume}
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: (epoch + 1) / 10)
    first = tierd.torch.resumed(model, schedule).get("step", 0)
    for number in range(first, 6):
        print(number, step_of(model, optimizer, number).hex(), torch.rand(()).item(), flush=True)
        schedule.step()
        if number == 2:
            tierd.torch.persist(model, optimizer, schedule, step=number + 1)
        if number == 4 and not first:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_run_resumes_bit_for_bit(own_daemon: launcher.Running) -> None:
    first = run(PROGRAM, own_daemon.socket, "create", False)
    assert first.returncode == -signal.SIGKILL, first.stderr
    lines = first.stdout.splitlines()
    assert len(lines) == 5
    ignored = run(PROGRAM, own_daemon.socket, "resume", False)
    assert ignored.returncode == 1 and "AlreadyExists" in ignored.stderr and "resume=True" in ignored.stderr
    second = run(PROGRAM, own_daemon.socket, "resume", True)
    assert second.returncode == 0, second.stderr
    assert second.stdout.splitlines()[:2] == lines[3:]
    third = run(PROGRAM, own_daemon.socket, "resume", True)
    assert third.stdout == second.stdout, third.stderr


def test_nothing_to_resume_is_said(own_daemon: launcher.Running) -> None:
    with (
        tierd.connect(job="empty", socket=own_daemon.socket) as client,
        pytest.raises(tierd.NotFound, match="no training run 'gpt' to resume"),
    ):
        tierd.torch.offload(new_model(), tierd.torch.AdamW, client=client, name="gpt", resume=True)


def test_a_daemon_that_is_gone_is_an_error_and_not_a_hang(socket_folder: pathlib.Path) -> None:
    with launcher.start(socket_folder, arena="8MiB", tier="256MiB") as daemon:
        client = tierd.connect(job="gone", socket=daemon.socket)
        model, optimizer = tierd.torch.offload(new_model(), tierd.torch.AdamW, client=client, lr=1e-3, min_bytes=1)
        step_of(model, optimizer, 0)
        daemon.process.kill()
        with pytest.raises(tierd.Disconnected):
            step_of(model, optimizer, 1)
        client.close()
