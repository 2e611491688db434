"""A training that gets SIGINT again and again, whatever it is at: in the end its losses are plain torch's."""

from __future__ import annotations

import pathlib
import textwrap

import launcher
import pytest
import torch
import torch_programs
from torch import nn

STEPS = 24
INTERRUPTED = 12  # Programs. What none of them has made, one without interrupts does.

# Each begins where the last persist was. An interrupt of forward or backward, or of a persist, is caught, as in a
# notebook, and the training goes on; any other ends the program.
PROGRAM = """
    import os, random, signal, sys, threading, time
    import torch, tierd, tierd.torch
    from torch import nn
    draw = random.Random({seed})

    def tell(line):
        os.write(1, f"{{line}}\\n".encode())  # At once: no line is in parts.

    def interrupt():
        delay = draw.uniform(0, 1.5) * seconds
        threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT)).start()

    client = tierd.connect(job="run", socket={socket!r}, named=True, mode="resume_or_create")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Dropout(0.1), nn.Linear(256, 256), nn.Linear(256, 4))
    model, optimizer = tierd.torch.offload(
        model, tierd.torch.AdamW, client=client, name="net", lr=1e-2, min_bytes=1024, update={update!r},
        resume=client.session.resumed,
    )
    step = tierd.torch.resumed(model).get("step", 0)
    tell(f"begin {{step}}")
    seconds, due = 0.02, step + 1
    while step < {steps}:
        begin = time.monotonic()
        if {seed} and step == due:
            interrupt()
            due = step + draw.randint(4, 8)  # Python drops one that comes in a finalizer.
        torch.manual_seed(step)
        try:
            loss = model(torch.randn(8, 64)).square().mean()
            loss.backward()
        except KeyboardInterrupt:
            loss = None
            optimizer.zero_grad()
            tell(f"again {{step}}")
            due = step + draw.randint(1, 3)
            continue
        optimizer.step()
        optimizer.zero_grad()
        tell(f"loss {{step}} {{loss.item().hex()}}")
        del loss
        step += 1
        if step % 2 == 0:
            try:
                tierd.torch.persist(model, optimizer, step=step)
            except KeyboardInterrupt:
                tell(f"persist {{step}}")
                due = step + draw.randint(1, 3)
        seconds = time.monotonic() - begin
    tell("end")
"""


def plain() -> dict[int, str]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Dropout(0.1), nn.Linear(256, 256), nn.Linear(256, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    losses = {}
    for step in range(STEPS):
        torch.manual_seed(step)
        loss = model(torch.randn(8, 64)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses[step] = loss.item().hex()
    return losses


@pytest.mark.parametrize("update", ["deferred", "step"])
def test_a_training_that_is_interrupted_anywhere_has_the_same_losses(
    own_daemon: launcher.Running, tmp_path: pathlib.Path, update: str
) -> None:
    losses, found, kinds = plain(), {}, []
    with torch_programs.TorchPrograms(launcher.environment()) as programs:
        for seed in [*range(1, INTERRUPTED + 1), 0]:
            script = tmp_path / f"{seed}.py"
            filled = PROGRAM.format(seed=seed, socket=own_daemon.socket, steps=STEPS, update=update)
            script.write_text(textwrap.dedent(filled))
            done = programs.run(script, tmp_path, launcher.environment())
            lines = [line.split() for line in done.stdout.splitlines()]
            kinds += [line[0] for line in lines]
            for _, step, loss in (line for line in lines if line[0] == "loss"):
                assert losses[int(step)] == loss, (seed, step, done.stdout)
                found[int(step)] = loss
            if done.returncode == 0:
                break
            assert done.stderr.rstrip().endswith("KeyboardInterrupt"), done.stderr
    assert lines[-1] == ["end"] and found == losses
    assert sum(kinds.count(kind) for kind in ("begin", "again", "persist")) > 1, "none was interrupted"
