"""offload(model) through a real daemon whose arena is far smaller than the model: the same bits, and typed errors."""

from __future__ import annotations

import contextlib
import pathlib
import signal
from typing import Any

import launcher
import pytest
import torch

import tierd
import tierd.torch
from tierd.torch.slice_update import SliceUpdate

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


class Wide(torch.nn.Module):
    """Two of its parameters are updated in four slices each, whichever comes first."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second = torch.nn.Linear(1024, 2048), torch.nn.Linear(2048, 1024)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.second(self.first(x).relu()).pow(2).mean()
        return y


def rows(number: int) -> torch.Tensor:
    return torch.randn(4, 1024, generator=torch.Generator().manual_seed(number))


class Full:
    """Another job that takes all the SSD space that is left, behind the third of the slices of an update."""

    def __init__(self, other: tierd.Client, monkeypatch: pytest.MonkeyPatch) -> None:
        self._other, self._filled, self.slices, self.armed = other, 0, 0, False
        plain = SliceUpdate._update

        def update(this: SliceUpdate, *given: Any) -> None:
            plain(this, *given)
            self.slices += self.armed
            if self.slices == 3 and not self._filled:
                self._fill()

        monkeypatch.setattr(SliceUpdate, "_update", update)

    def _fill(self) -> None:
        with contextlib.suppress(tierd.NoSpace, tierd.NoMemory, tierd.Timeout):
            while self._filled < 200:
                self._other.put(self._filled, bytes(1 << 20), timeout=5)
                self._filled += 1

    def clear(self) -> int:
        self.armed = False
        for number in range(self._filled):
            self._other.delete(number)
        return self._filled


@pytest.mark.parametrize("update", ["step", "deferred", "backward"])
def test_a_step_that_finds_the_ssd_full_in_the_middle_of_a_parameter_is_continued_with_the_same_bits(
    socket_folder: pathlib.Path, update: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = Wide()
    plain_optimizer = torch.optim.AdamW(theirs.parameters(), lr=1e-3, fused=True)
    with (
        launcher.start(socket_folder, arena="16MiB", tier="96MiB") as daemon,
        tierd.connect(job="full", socket=daemon.socket) as client,
        tierd.connect(job="other", socket=daemon.socket) as other,
    ):
        model, optimizer = tierd.torch.offload(
            Wide(), tierd.torch.AdamW, client=client, lr=1e-3, update=update, min_bytes=1, slice_bytes="2MiB"
        )
        full, failed = Full(other, monkeypatch), 0
        for number in range(3):
            full.armed = number == 0  # The state is made, and that of the second parameter finds no space.
            expected = theirs(rows(number))
            expected.backward()
            plain_optimizer.step()
            plain_optimizer.zero_grad()
            loss = model(rows(number))
            for call in (loss.backward, optimizer.step, optimizer.settle):
                try:
                    call()
                except (tierd.NoSpace, tierd.NoMemory, tierd.Timeout):
                    failed += 1
                    assert full.slices >= 3 and full.clear()
                    if call != loss.backward:
                        call()
            optimizer.zero_grad()
            assert loss.item() == expected.item()
            del loss
        assert failed == 1
        assert_same(model, theirs.state_dict())
        del model, optimizer


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


@pytest.mark.parametrize("update", ["step", "deferred", "backward"])
@pytest.mark.parametrize("point", ["forward", "backward", "step"])
def test_a_daemon_that_is_gone_is_an_error_and_not_a_hang(socket_folder: pathlib.Path, update: str, point: str) -> None:
    with launcher.start(socket_folder, arena="8MiB", tier="256MiB") as daemon:
        client = tierd.connect(job="gone", socket=daemon.socket)
        model, optimizer = tierd.torch.offload(
            new_model(), tierd.torch.AdamW, client=client, lr=1e-3, min_bytes=1, update=update
        )
        step_of(model, optimizer, 0)

        def kill(*_: object) -> None:
            daemon.process.kill()
            daemon.process.wait()

        middle = model.blocks[1]
        if point == "forward":
            middle.register_forward_pre_hook(kill)
        elif point == "backward":
            middle.register_full_backward_hook(kill)
        else:
            optimizer.register_step_pre_hook(kill)
        with pytest.raises(tierd.Disconnected):
            for number in (1, 2):
                step_of(model, optimizer, number)
        assert daemon.process.returncode == -signal.SIGKILL
        client.close()
