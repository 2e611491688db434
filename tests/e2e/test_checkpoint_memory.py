"""Checkpoints of Accelerate and of a Trainer do not hold the model: by the most memory that the kernel saw in use."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import textwrap

import launcher
import pytest

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")

ARENA_MIB, MODEL_MIB = 24, 72  # The optimizer's state is twice the model.
COMMON = """
    import os, pathlib, sys
    socket, folder = sys.argv[1:]
    os.environ.update(HF_HUB_OFFLINE="1", ACCELERATE_USE_CPU="true", OMP_NUM_THREADS="1")
    import accelerate, torch, transformers, tierd, tierd.accelerate, tierd.transformers
    transformers.logging.disable_progress_bar()
    client = tierd.connect(job="checkpoints", socket=socket)

    def measured(what, work):
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # The peak is what is in use now.
        before = peak()
        work()
        print(what, (peak() - before) >> 10, flush=True)

    def peak():
        lines = pathlib.Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
"""
ACCELERATE = """
    accelerator = tierd.accelerate.offload(accelerate.Accelerator(), client=client)
    layers = [torch.nn.Linear(1024, 1024) for _ in range(18)]
    model = torch.nn.Sequential(*layers)
    del layers
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))

    def step():
        accelerator.backward(model(torch.ones(1, 1024)).sum())
        optimizer.step()
        optimizer.zero_grad()

    step()
    measured("save", lambda: accelerator.save_state(folder))
    step()
    measured("load", lambda: accelerator.load_state(folder))
    step()
    print("bytes", sum(each.nbytes for each in model.parameters()) >> 20)
"""
TRAINER = """
    class Measured(transformers.Trainer):
        def _save_checkpoint(self, *given):
            measured("save", lambda: super(Measured, self)._save_checkpoint(*given))

    def trained(steps, save_strategy="steps", **more):
        torch.manual_seed(1)
        config = transformers.LlamaConfig(
            vocab_size=64, hidden_size=512, intermediate_size=2048, num_hidden_layers=4, num_attention_heads=4,
        )
        args = transformers.TrainingArguments(
            folder, max_steps=steps, per_device_train_batch_size=1, save_steps=1, report_to=[], disable_tqdm=True,
            use_cpu=True, log_level="error", save_strategy=save_strategy,
        )
        rows = [{"input_ids": torch.arange(1, 9), "labels": torch.arange(1, 9)}] * 4
        trainer = Measured(model=transformers.LlamaForCausalLM(config), args=args, train_dataset=rows)
        trainer = tierd.transformers.offload(trainer, client=client)
        if more:
            measured("load", lambda: trainer.train(**more))
        else:
            trainer.train()  # The first one loads libraries.
        print("bytes", sum(each.nbytes for each in trainer.model.parameters()) >> 20)

    trained(1)
    trained(2, save_strategy="no", resume_from_checkpoint=os.path.join(folder, "checkpoint-1"))
"""


@pytest.mark.parametrize("program", [ACCELERATE, TRAINER], ids=["accelerate", "trainer"])
def test_saving_and_loading_a_checkpoint_holds_no_model(
    socket_folder: pathlib.Path, tmp_path: pathlib.Path, program: str
) -> None:
    with launcher.start(socket_folder, arena=f"{ARENA_MIB}MiB", tier="512MiB") as daemon:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(COMMON) + textwrap.dedent(program), daemon.socket, str(tmp_path)],
            env=launcher.environment(), capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    told = dict(line.split() for line in done.stdout.splitlines() if line.split()[0] in ("save", "load", "bytes"))
    assert int(told["bytes"]) >= MODEL_MIB - 8
    for what in ("save", "load"):  # Beside the windows of the arena: some tensors, and what the libraries make.
        assert int(told[what]) < ARENA_MIB + MODEL_MIB // 3, (what, told)
