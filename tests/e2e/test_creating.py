"""creating() through a real daemon whose arena is far smaller than the model: the same bits, also after a resume."""

from __future__ import annotations

import pathlib
import signal

import launcher
import torch
from small_gpt import assert_same, new_model, plain, run, step_of

import tierd
import tierd.torch


def test_a_gpt_is_created_in_an_arena_smaller_than_its_parameters(socket_folder: pathlib.Path) -> None:
    losses, expected = plain(2)
    with (
        launcher.start(socket_folder, arena="8MiB", tier="256MiB") as daemon,
        tierd.connect(job="creating", socket=daemon.socket) as client,
    ):
        with tierd.torch.creating(client=client, min_bytes=1, window_bytes=1):
            model = new_model()
        assert_same_values(model, new_model())
        model, optimizer = tierd.torch.offload(model, tierd.torch.AdamW, lr=1e-3, min_bytes=1)
        assert [step_of(model, optimizer, number) for number in range(2)] == losses
        assert_same(model, expected)
        assert client.stats().leases_open == 0
        del model, optimizer


def assert_same_values(ours: torch.nn.Module, theirs: torch.nn.Module) -> None:
    with tierd.torch.gathered(ours):
        for (name, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
            assert torch.equal(a, b), name


def test_weights_and_state_go_out_and_in_by_ranges(socket_folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    losses, expected = plain(4)
    with (
        launcher.start(socket_folder, arena="8MiB", tier="256MiB") as daemon,
        tierd.connect(job="files", socket=daemon.socket) as client,
    ):
        model, optimizer = tierd.torch.offload(new_model(), tierd.torch.AdamW, client=client, lr=1e-3, min_bytes=1)
        assert [step_of(model, optimizer, number) for number in range(2)] == losses[:2]
        tierd.torch.save_safetensors(model, tmp_path, max_shard_bytes="4MB")
        tierd.torch.save_state(optimizer, tmp_path / "optimizer")
        assert len(list(tmp_path.glob("model-*"))) > 1
        del model, optimizer
        with tierd.torch.creating(client=client, min_bytes=1):
            model = new_model()
        tierd.torch.load_safetensors(model, tmp_path)
        model, optimizer = tierd.torch.offload(model, tierd.torch.AdamW, lr=5.0, min_bytes=1)
        tierd.torch.load_state(optimizer, tmp_path / "optimizer")
        assert [step_of(model, optimizer, number) for number in (2, 3)] == losses[2:]
        assert_same(model, expected)
        assert client.stats().leases_open == 0
        del model, optimizer


PROGRAM = """
    import os, signal, sys
    sys.path[:0] = [{tests!r}, {bindings!r}]
    import torch, tierd, tierd.torch
    from small_gpt import new_model, step_of
    client = tierd.connect(job="made", socket={socket!r}, named=True, mode={mode!r})
    with tierd.torch.creating(client=client, resume={resume}):
        model = new_model()
    model, optimizer = tierd.torch.offload(model, tierd.torch.AdamW, lr=1e-3, name="gpt", resume={resume})
    first = tierd.torch.resumed(model).get("step", 0)
    for number in range(first, 4):
        print(number, step_of(model, optimizer, number).hex(), flush=True)
        if number == 1:
            tierd.torch.persist(model, optimizer, step=number + 1)
        if number == 3 and not first:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_created_run_that_was_killed_resumes_bit_for_bit(own_daemon: launcher.Running) -> None:
    first = run(PROGRAM, own_daemon.socket, "create", False)
    assert first.returncode == -signal.SIGKILL, first.stderr
    again = run(PROGRAM, own_daemon.socket, "resume", False)
    assert again.returncode == 1 and "AlreadyExists" in again.stderr and "resume=True" in again.stderr
    second = run(PROGRAM, own_daemon.socket, "resume", True)
    assert second.returncode == 0, second.stderr
    assert second.stdout.splitlines() == first.stdout.splitlines()[2:]


MEMORY = """
    import sys
    sys.path[:0] = [{tests!r}, {bindings!r}]
    import torch, tierd, tierd.torch
    from tierd.inspection import pss_of

    client = tierd.connect(job="large", socket={socket!r})
    torch.ones(512, 512) @ torch.ones(512, 512)  # What torch takes for its kernels.
    before = pss_of().anonymous
    with tierd.torch.creating(client=client):
        model = torch.nn.ModuleList(torch.nn.Linear(512, 2048) for _ in range(48))
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter)
    print(sum(parameter.nbytes for parameter in model.parameters()) >> 20, pss_of().anonymous - before >> 20)
"""


def test_what_was_created_leaves_no_memory_behind(own_daemon: launcher.Running) -> None:
    """glibc would keep it in its heap: more than the whole model."""
    ran = run(MEMORY, own_daemon.socket, "", False)
    assert ran.returncode == 0, ran.stderr
    created, kept = map(int, ran.stdout.split())
    assert created >= 192 and kept <= 80  # The window of values that came back has 64 MiB.
