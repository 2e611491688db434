"""A Trainer that is killed, and goes on from what it had persisted: by one process and by two ranks."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys
import textwrap

import launcher
import pytest

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")

PROGRAM = """
    import os, signal, sys, tempfile
    rank, world, mode, socket, store = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
    os.environ.update(HF_HUB_OFFLINE="1", ACCELERATE_USE_CPU="true", OMP_NUM_THREADS="1")
    if world > 1:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="here")
        os.environ.update(MASTER_PORT="1", TORCHELASTIC_RUN_ID=mode, TORCHELASTIC_RESTART_COUNT="0")
        import torch.distributed as distributed
        distributed.init_process_group("gloo", store=distributed.FileStore(store, world), rank=rank, world_size=world)
    import torch, transformers, tierd, tierd.transformers
    transformers.logging.disable_progress_bar()

    class Killed(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if mode == "create" and state.global_step == 7 and rank == world - 1:
                report(ours)
                os.kill(os.getpid(), signal.SIGKILL)

    def trainer_of(*callbacks):
        torch.manual_seed(1)
        config = transformers.LlamaConfig(
            vocab_size=64, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
            attention_dropout=0.1,
        )
        drawn = torch.randint(1, 64, (22, 12), generator=torch.Generator().manual_seed(3))
        arguments = transformers.TrainingArguments(
            tempfile.mkdtemp(), max_steps=10, per_device_train_batch_size=2, gradient_accumulation_steps=2,
            learning_rate=1e-2, weight_decay=0.1, warmup_steps=3, lr_scheduler_type="cosine", logging_steps=1,
            save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True, log_level="error",
        )
        return transformers.Trainer(
            model=transformers.LlamaForCausalLM(config), args=arguments, callbacks=list(callbacks),
            train_dataset=[{"input_ids": row, "labels": row} for row in drawn],
        )

    def report(trainer, state={}):
        names = ("step", "loss", "grad_norm", "learning_rate")
        found = [tuple(entry[name] for name in names) for entry in trainer.state.log_history if "loss" in entry]
        sums = sum(value.double().sum().item() for value in state.values())
        print("history", found, sums.hex() if state else "", flush=True)

    if mode == "create":
        plain = trainer_of()
        plain.train()
        report(plain, plain.model.state_dict())
    client = tierd.connect(job="run", socket=socket, named=True, mode="attach" if mode == "create" else mode)
    ours = tierd.transformers.offload(
        trainer_of(Killed()), client=client, name="llama", persist_steps=3, resume=mode == "resume", min_bytes=4096
    )
    tierd.torch.AdamW._fetch_state = None  # Nothing reads all of the state, not even where there is one already.
    ours.train()
    report(ours, ours.model.state_dict())
    ours.accelerator.end_training()  # Else threads of gloo may abort the process at its end.
"""


def run(world: int, mode: str, socket: str, folder: pathlib.Path) -> list[subprocess.CompletedProcess[str]]:
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM)]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(world), mode, socket, str(folder / mode)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=launcher.environment(),
        )
        for rank in range(world)
    ]  # fmt: skip
    try:
        ended = [rank.communicate(timeout=120) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return [
        subprocess.CompletedProcess(rank.args, rank.returncode, *answer)
        for rank, answer in zip(ranks, ended, strict=True)
    ]


@pytest.mark.parametrize("world", [1, 2])
def test_a_killed_trainer_goes_on_from_what_it_persisted(
    own_daemon: launcher.Running, tmp_path: pathlib.Path, world: int
) -> None:
    def histories(rank: subprocess.CompletedProcess[str]) -> list[str]:
        return [line for line in rank.stdout.splitlines() if line.startswith("history")]  # The Trainer prints too.

    begun = run(world, "create", own_daemon.socket, tmp_path)
    assert begun[-1].returncode == -signal.SIGKILL, begun[-1].stderr
    plain, killed_at = histories(begun[-1])
    assert killed_at.count("(") == 6  # It had logged six steps of ten.
    resumed = run(world, "resume", own_daemon.socket, tmp_path)
    assert [rank.returncode for rank in resumed] == [0] * world, resumed[0].stderr
    assert [histories(rank) for rank in resumed] == [histories(rank)[:1] for rank in begun]
    assert plain.count("(") == 10
