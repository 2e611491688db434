"""tierd.transformers and tierd.accelerate by two ranks beside DistributedDataParallel: the same bits and files."""

from __future__ import annotations

import os
import pathlib
import tempfile
from typing import Any

import pytest
import torch
import torch.distributed as distributed
from rank_processes import Outcomes, assert_passed, client_of, outcomes_of, refused, run_all

pytest.importorskip("transformers", reason="transformers is not installed")
accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
import test_accelerate  # noqa: E402
import test_transformers  # noqa: E402
from test_transformers import assert_equal_states, assert_same, files_of, history, llama, trainer_of  # noqa: E402

import tierd  # noqa: E402
import tierd.accelerate  # noqa: E402
import tierd.transformers  # noqa: E402
from tierd.torch.placeholder import Placeholder  # noqa: E402
from tierd.torch.runtime import runtime_of  # noqa: E402


def folder() -> pathlib.Path:
    """The same for all ranks."""
    made = [tempfile.mkdtemp() if distributed.get_rank() == 0 else ""]
    distributed.broadcast_object_list(made)
    return pathlib.Path(made[0])


def offloaded(trainer: Any, **options: Any) -> Any:
    return tierd.transformers.offload(trainer, client=client_of()[0], min_bytes=1, **options)


def is_ddp(model: Any) -> bool:
    return isinstance(model, torch.nn.parallel.DistributedDataParallel)


def the_trainer() -> None:
    place = folder()
    theirs = trainer_of(llama(), place / "plain")
    theirs.train()
    ours = offloaded(trainer_of(llama(), place / "ours"))
    assert all(isinstance(parameter, Placeholder) for parameter in ours.model.parameters())
    ours.train()
    assert is_ddp(theirs.model_wrapped) and ours.model_wrapped is ours.model
    assert_same(ours, theirs)
    logs = [history(ours)] * distributed.get_world_size()
    distributed.all_gather_object(logs, history(ours))
    assert [entry.get("loss") for entry in logs[0]] == [entry.get("loss") for entry in logs[1]]
    distributed.barrier()
    weights = files_of(place / "ours", ".safetensors")
    assert len(weights) == 2 and weights == files_of(place / "plain", ".safetensors")
    assert len(files_of(place / "ours", "rng_state_1.pth")) == 2
    for path in (place / "ours").rglob("optimizer.pt"):
        plain = torch.load(place / "plain" / path.relative_to(place / "ours"), weights_only=True)
        assert_equal_states(torch.load(path, weights_only=True)["state"], plain["state"])
    for number, (make, source) in enumerate([(offloaded, "plain"), (None, "ours")]):
        again = trainer_of(llama(), place / f"again-{number}", save_strategy="no")
        again = make(again) if make else again
        again.train(resume_from_checkpoint=str(place / source / "checkpoint-6"))
        assert_same(again, theirs)


def one_rank_writes() -> None:
    """The others do not even read what is written: the model is saved by one, tensor by tensor."""
    place = folder()
    ours = offloaded(trainer_of(llama(), place, max_steps=2, save_steps=1, eval_strategy="no"))

    def refuse(*_: object, **__: object) -> Any:
        raise AssertionError("this rank writes or reads a whole model or state")

    with pytest.MonkeyPatch.context() as patch:
        named = test_transformers._only_names(type(ours.model).state_dict)
        patch.setattr(type(ours.model), "state_dict", named)
        if distributed.get_rank():
            patch.setattr("tierd.transformers.save_optimizer", refuse)
            patch.setattr("tierd.torch.stand_ins.save_weights", refuse)
        ours.train()
    assert len(files_of(place, "model.safetensors")) == 2


def updated_in_backward() -> None:
    more = {"max_grad_norm": 0, "gradient_accumulation_steps": 1, "save_strategy": "no", "eval_strategy": "no"}
    theirs = trainer_of(llama(), folder(), **more)
    theirs.train()
    ours = offloaded(trainer_of(llama(), folder(), **more), update="backward")
    ours.train()
    assert [entry.get("loss") for entry in history(ours)] == [entry.get("loss") for entry in history(theirs)]


def lora_and_model_init() -> None:
    """Frozen weights, dropout, and a model that is made when training begins."""
    more = {"save_strategy": "no", "eval_strategy": "no"}
    for make in (test_transformers.lora, lambda: llama):
        theirs = trainer_of(make(), folder(), **more)
        theirs.train()
        ours = offloaded(trainer_of(make(), folder(), **more))
        ours.train()
        assert_same(ours, theirs)


def buffers_that_stay() -> None:
    """ddp_broadcast_buffers=False: each rank keeps its own."""
    for spread in (True, False):
        trainer = trainer_of(llama(), folder(), ddp_broadcast_buffers=spread)
        reduction = runtime_of(offloaded(trainer).model).reduction  # type: ignore[union-attr]
        assert reduction is not None and reduction.spreads_buffers == spread


def an_accelerator() -> None:
    place = folder()
    losses, expected = test_accelerate.accelerated(place / "plain", False)
    ours, values = test_accelerate.accelerated(place / "ours", True)
    assert ours == losses and len(losses) == 11
    expected = {name.removeprefix("module."): value for name, value in expected.items()}
    distributed.barrier()
    assert files_of(place / "ours", ".safetensors") == files_of(place / "plain", ".safetensors")
    for offloads, source in [(True, "plain"), (False, "ours")]:
        rest, again = test_accelerate.accelerated(place, offloads, load=place / source)
        assert rest == losses[10:]
        for name, value in again.items():
            name = name.removeprefix("module.")
            assert torch.equal(value, expected[name]) and torch.equal(values[name], value), name


def ranks_with_other_models() -> None:
    """Both are told, before anything moves."""
    trainer = trainer_of(llama(), folder())
    if distributed.get_rank():
        trainer.model.lm_head = torch.nn.Linear(32, 65)
    with refused("the ranks' models differ: rank .* has parameter"):
        offloaded(trainer)
    assert not any(isinstance(parameter, Placeholder) for parameter in trainer.model.parameters())


SCENARIOS = {
    "trainer": the_trainer,
    "one rank writes": one_rank_writes,
    "updated in backward": updated_in_backward,
    "lora, and a model made late": lora_and_model_init,
    "buffers": buffers_that_stay,
    "accelerator": an_accelerator,
    "other models": ranks_with_other_models,
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return outcomes_of(__file__, 2, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", SCENARIOS)
def test_two_ranks_of_hugging_face(outcomes: Outcomes, name: str) -> None:
    assert_passed(outcomes, name)


if __name__ == "__main__":
    os.environ.update(ACCELERATE_USE_CPU="true", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    run_all(SCENARIOS, as_in_a_launch=True)
