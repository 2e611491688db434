"""A Trainer that persists its run beside its own checkpoints: these stay what they are in plain training."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import launcher
import pytest
import torch

import tierd

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")

import tierd.transformers  # noqa: E402
from tierd.torch import persisted_run  # noqa: E402

os.environ["HF_HUB_OFFLINE"] = "1"
transformers.logging.disable_progress_bar()


def trainer_of(folder: pathlib.Path, **arguments: Any) -> Any:
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4
    )
    drawn = torch.randint(1, 64, (20, 12), generator=torch.Generator().manual_seed(3))
    rows = [{"input_ids": row, "labels": row} for row in drawn]
    settings = {
        "max_steps": 8, "per_device_train_batch_size": 2, "learning_rate": 1e-2, "report_to": [], "disable_tqdm": True,
        "use_cpu": True, "log_level": "error", "save_strategy": "no",
    }  # fmt: skip
    args = transformers.TrainingArguments(str(folder), **{**settings, **arguments})
    scores = iter([1.0, 5.0, 2.0, 1.0])  # The second evaluation is the best.
    return transformers.Trainer(
        model=transformers.LlamaForCausalLM(config), args=args, train_dataset=rows, eval_dataset=rows[:4],
        compute_metrics=lambda _: {"score": next(scores)},
    )  # fmt: skip


def test_the_best_model_is_that_of_the_trainers_own_checkpoints(
    own_daemon: launcher.Running, tmp_path: pathlib.Path
) -> None:
    best = {
        "load_best_model_at_end": True, "metric_for_best_model": "score", "greater_is_better": True,
        "eval_strategy": "steps", "eval_steps": 2, "save_steps": 2, "save_strategy": "best",
    }  # fmt: skip
    plain = trainer_of(tmp_path / "plain", **best)
    plain.train()
    with tierd.connect(job="run", socket=own_daemon.socket, named=True) as client:
        ours = tierd.transformers.offload(
            trainer_of(tmp_path / "ours", **best), client=client, name="net", min_bytes=4096, persist_steps=2
        )
        ours.train()
        assert pathlib.Path(ours.state.best_model_checkpoint) == tmp_path / "ours/checkpoint-4"
        values = {name: value.clone() for name, value in ours.model.state_dict().items()}
        del ours
    assert pathlib.Path(plain.state.best_model_checkpoint).name == "checkpoint-4"
    assert all(torch.equal(value, values[name]) for name, value in plain.model.state_dict().items())


def test_each_training_is_persisted(
    own_daemon: launcher.Running, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    persisted: list[int] = []
    monkeypatch.setattr(persisted_run, "persist", lambda *_, **__: persisted.append(1))
    with tierd.connect(job="run", socket=own_daemon.socket, named=True) as client:
        ours = tierd.transformers.offload(
            trainer_of(tmp_path, save_only_model=True), client=client, name="net", min_bytes=4096, persist_steps=8
        )
        for times in (1, 2):
            ours.train()
            assert len(persisted) == times
        assert ours.args.save_only_model
        del ours


def test_a_resume_that_fails_before_its_first_step_begins_there_again(
    own_daemon: launcher.Running, tmp_path: pathlib.Path
) -> None:
    begun: list[int] = []

    class Refusing(transformers.TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            begun.append(state.global_step)
            if len(begun) == 1:
                raise ConnectionError("no network")

    options: dict[str, Any] = {"name": "net", "min_bytes": 4096, "persist_steps": 4}
    with tierd.connect(job="run", socket=own_daemon.socket, named=True) as client:
        ours = tierd.transformers.offload(trainer_of(tmp_path / "first", max_steps=4), client=client, **options)
        ours.train()
        del ours
    with tierd.connect(job="run", socket=own_daemon.socket, named=True, mode="resume") as client:
        trainer = trainer_of(tmp_path / "second")
        trainer.add_callback(Refusing())
        ours = tierd.transformers.offload(trainer, client=client, resume=True, **options)
        with pytest.raises(ConnectionError):
            ours.train()
        ours.train()
        assert begun == [4, 4] and ours.state.global_step == 8
        del ours, trainer
