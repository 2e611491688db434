"""tierd.transformers against the plain Trainer: the same bits, logs and checkpoint files."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import pytest
import torch
from fake_library import FakeLibrary

import tierd
from tierd.session import Session

os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

import tierd.torch  # noqa: E402
import tierd.transformers  # noqa: E402
from tierd.torch.placeholder import Placeholder  # noqa: E402

transformers.logging.disable_progress_bar()


def new_client() -> tuple[tierd.Client, FakeLibrary]:
    fake = FakeLibrary()
    return tierd.Client(Session(fake, 1)), fake  # type: ignore[arg-type]


def llama() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        tie_word_embeddings=True,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def t5() -> Any:
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config)


def lora() -> Any:
    peft = pytest.importorskip("peft", reason="peft is not installed")
    torch.manual_seed(0)
    return peft.get_peft_model(llama(), peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.1))


def rows() -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    drawn = [torch.randint(1, 64, (12,), generator=generator) for _ in range(44)]
    return [{"input_ids": each, "labels": each} for each in drawn]


def trainer_of(model: Any, folder: pathlib.Path, optimizer: Any = None, **arguments: Any) -> Any:
    settings = {
        "max_steps": 12, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "weight_decay": 0.1,
        "learning_rate": 1e-2, "adam_beta2": 0.98, "warmup_steps": 3, "lr_scheduler_type": "cosine", "logging_steps": 1,
        "save_steps": 6, "eval_strategy": "steps", "eval_steps": 4, "report_to": [], "disable_tqdm": True,
        "use_cpu": True, "log_level": "error",
    }  # fmt: skip
    args = transformers.TrainingArguments(output_dir=str(folder), **{**settings, **arguments})
    which = {"model_init": model} if callable(model) and not isinstance(model, torch.nn.Module) else {"model": model}
    which["optimizers"] = (optimizer, None)
    return transformers.Trainer(args=args, train_dataset=rows(), eval_dataset=rows()[:4], **which)


def history(trainer: Any) -> list[dict[str, float]]:
    names = ("step", "loss", "grad_norm", "learning_rate", "eval_loss")
    return [{name: entry[name] for name in names if name in entry} for entry in trainer.state.log_history]


def assert_same(ours: Any, theirs: Any) -> None:
    assert history(ours) == history(theirs) and len(history(ours)) >= 12
    expected = theirs.model.state_dict()
    for name, value in ours.model.state_dict().items():
        assert torch.equal(value, expected[name]), name


def files_of(folder: pathlib.Path, ending: str) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob(f"*{ending}") if path.is_file()}


def assert_equal_states(one: Any, other: Any) -> None:
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other) and one.dtype == other.dtype and one.stride() == other.stride()
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_equal_states(one[key], other[key])
    else:
        assert one == other


@pytest.mark.parametrize(
    ("make", "more"),
    [
        (llama, {"load_best_model_at_end": True, "save_steps": 4}),
        (t5, {"gradient_checkpointing": True}),
        (llama, {"bf16": True}),
        (lora, {"load_best_model_at_end": True, "save_steps": 4}),
        (llama, {"optim": "sgd"}),
    ],
    ids=["llama", "t5-checkpointed", "llama-bf16", "lora", "sgd"],
)
def test_a_trainer_has_the_same_bits_and_files(make: Any, more: dict[str, Any], tmp_path: pathlib.Path) -> None:
    theirs = trainer_of(make(), tmp_path / "plain", **more)
    theirs.train()
    theirs.save_model(str(tmp_path / "plain/last"))
    client, fake = new_client()
    ours = tierd.transformers.offload(
        trainer_of(make(), tmp_path / "ours", **more), client=client, min_bytes=1, name="net"
    )
    assert isinstance(ours, transformers.Trainer)
    assert all(isinstance(parameter, Placeholder) for parameter in ours.model.parameters())
    ours.train()
    ours.save_model(str(tmp_path / "ours/last"))
    assert_same(ours, theirs)
    weights = files_of(tmp_path / "ours", ".safetensors")
    assert weights and weights == files_of(tmp_path / "plain", ".safetensors")
    for path in (tmp_path / "ours").rglob("optimizer.pt"):
        plain = torch.load(tmp_path / "plain" / path.relative_to(tmp_path / "ours"), weights_only=True)
        assert_equal_states(torch.load(path, weights_only=True)["state"], plain["state"])


def test_either_trainer_goes_on_from_the_others_checkpoint(tmp_path: pathlib.Path) -> None:
    def offloaded(folder: str) -> Any:
        return tierd.transformers.offload(trainer_of(llama(), tmp_path / folder), client=new_client()[0], min_bytes=1)

    whole, ours = trainer_of(llama(), tmp_path / "plain"), offloaded("ours")
    whole.train()
    ours.train()
    for number, (make, source) in enumerate([(offloaded, "ours"), (offloaded, "plain"), (None, "ours")]):
        folder = f"again-{number}"
        again = make(folder) if make else trainer_of(llama(), tmp_path / folder)
        again.train(resume_from_checkpoint=str(tmp_path / source / "checkpoint-6"))
        assert_same(again, whole)


def test_a_model_that_is_made_when_training_begins_is_offloaded_then(tmp_path: pathlib.Path) -> None:
    theirs = trainer_of(llama, tmp_path / "plain", save_strategy="no")
    ours = tierd.transformers.offload(
        trainer_of(llama, tmp_path / "ours", save_strategy="no"), client=new_client()[0], min_bytes=1
    )
    assert not isinstance(next(ours.model.parameters()), Placeholder)
    theirs.train()
    ours.train()
    assert_same(ours, theirs)


def test_each_model_of_model_init_has_the_name_in_turn(tmp_path: pathlib.Path) -> None:
    client, fake = new_client()
    trainer = tierd.transformers.offload(trainer_of(llama, tmp_path), client=client, min_bytes=1, name="net")
    kept = []
    for _ in range(2):
        trainer.train()
        kept.append(len(fake.tensors))
    assert kept[0] == kept[1], "the first model's are gone"


def test_parameters_are_updated_in_backward_where_nothing_clips_or_accumulates(tmp_path: pathlib.Path) -> None:
    more = {"max_grad_norm": 0, "gradient_accumulation_steps": 1, "save_strategy": "no"}
    theirs = trainer_of(llama(), tmp_path / "plain", **more)
    ours = tierd.transformers.offload(
        trainer_of(llama(), tmp_path / "ours", **more), client=new_client()[0], min_bytes=1, update="backward"
    )
    theirs.train()
    ours.train()
    expected = [{name: value for name, value in entry.items() if name != "grad_norm"} for entry in history(theirs)]
    assert history(ours) == expected
    with pytest.raises(tierd.Invalid, match="max_grad_norm=1.0"):
        tierd.transformers.offload(trainer_of(llama(), tmp_path / "no"), update="backward")


def test_frozen_parameters_are_never_written(tmp_path: pathlib.Path) -> None:
    client, fake = new_client()
    ours = tierd.transformers.offload(trainer_of(lora(), tmp_path), client=client, min_bytes=1)
    frozen = [each._tierd_stored for each in ours.model.parameters() if not each.requires_grad]
    ours.train()
    assert frozen and all(stored.version == 0 and stored.gradient is None for stored in frozen)
    assert {name for path in tmp_path.rglob("*.safetensors") for name in [path.name]} == {"adapter_model.safetensors"}


def test_no_whole_model_or_state_is_read_to_train_save_or_load(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    ours = tierd.transformers.offload(trainer_of(llama(), tmp_path), client=new_client()[0], min_bytes=1)
    a_step(ours.model, ours.optimizer)  # There is a state, as with resume=True, before Accelerate has the optimizer.
    monkeypatch.setattr(type(ours.model), "state_dict", _only_names(type(ours.model).state_dict))
    monkeypatch.setattr(tierd.torch.AdamW, "_fetch_state", _refuse)
    monkeypatch.setattr("safetensors.torch.load_file", _refuse)
    ours.train()
    ours.train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))


def a_step(model: Any, optimizer: Any) -> None:
    inputs = {name: value[None] for name, value in rows()[0].items()}
    model(**inputs).loss.backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("best", [False, True])
def test_a_checkpoint_in_shards_is_resumed_tensor_by_tensor(
    best: bool, tmp_path: pathlib.Path, monkeypatch: Any
) -> None:
    """As the plain Trainer writes one of a model above 50 GB."""
    plain = trainer_of(llama(), tmp_path / "plain", load_best_model_at_end=best, save_steps=4)
    monkeypatch.setattr(type(plain), "_save", _save_in_shards)
    plain.train()
    monkeypatch.undo()
    folder = str(tmp_path / "plain" / "checkpoint-8")
    assert len(list(pathlib.Path(folder).glob("model-*.safetensors"))) > 2
    ours = trainer_of(llama(), tmp_path / "plain", load_best_model_at_end=best, save_steps=4)
    tierd.transformers.offload(ours, client=new_client()[0], min_bytes=1)
    monkeypatch.setattr("safetensors.torch.load_file", _refuse)
    monkeypatch.setattr(transformers.trainer, "load_sharded_checkpoint", _refuse)
    ours.train(resume_from_checkpoint=folder)
    assert_same(ours, plain)


def _save_in_shards(self: Any, output_dir: str | None = None, state_dict: Any = None) -> None:
    self.model.save_pretrained(output_dir, max_shard_size="8KB")
    torch.save(self.args, os.path.join(str(output_dir), "training_args.bin"))


def _refuse(*_: object, **__: object) -> Any:
    raise AssertionError("all of it is read at once")


@pytest.mark.parametrize("make", [llama, t5, lora], ids=["llama", "t5", "lora"])
def test_a_folder_for_from_pretrained_holds_no_model(make: Any, tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    model = make()
    model.save_pretrained(tmp_path / "plain")
    tierd.torch.offload(model, tierd.torch.AdamW, client=new_client()[0], min_bytes=1)
    monkeypatch.setattr(type(model), "state_dict", _only_names(type(model).state_dict))
    tierd.transformers.save_pretrained(model, tmp_path / "ours")
    monkeypatch.undo()
    assert files_of(tmp_path / "ours", "") == files_of(tmp_path / "plain", "")
    if make is llama:
        again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours")
        assert torch.equal(again(torch.arange(1, 9)[None]).logits, llama()(torch.arange(1, 9)[None]).logits)
    with pytest.raises(tierd.Invalid, match="leave out max_shard_size"):
        tierd.transformers.save_pretrained(model, tmp_path / "ours", max_shard_size="1GB")


@pytest.mark.parametrize("beams", [1, 3])
def test_generation_is_plain_torchs(beams: int) -> None:
    ours, theirs, asked = llama().eval(), llama().eval(), torch.arange(1, 9)[None]
    client, fake = new_client()
    tierd.torch.offload(ours, tierd.torch.AdamW, client=client, min_bytes=1)
    settings = {"max_new_tokens": 8, "do_sample": False, "num_beams": beams, "pad_token_id": 0}
    assert torch.equal(ours.generate(asked, **settings), theirs.generate(asked, **settings))
    assert not fake.leases


def _only_names(state_dict: Any) -> Any:
    def named(self: Any, *args: Any, **options: Any) -> Any:
        assert options.get("keep_vars")
        return state_dict(self, *args, **options)

    return named


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"optim": "rmsprop"}, "the optimizer is RMSprop"),
        ({"torch_compile": True}, "compiles the whole model"),
        ({"bf16_full_eval": True}, "convert the model for an evaluation"),
    ],
)
def test_what_cannot_be_offloaded_is_refused(more: dict[str, Any], sentence: str, tmp_path: pathlib.Path) -> None:
    trainer = trainer_of(llama(), tmp_path, **more)
    with pytest.raises(tierd.Invalid, match=sentence):
        tierd.transformers.offload(trainer, client=new_client()[0])
    assert type(trainer) is transformers.Trainer  # As it was.
    assert not any(isinstance(parameter, Placeholder) for parameter in trainer.model.parameters())


def test_several_devices_and_wrong_arguments_are_refused_by_name(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    trainer = trainer_of(llama(), tmp_path)
    for options in ({"resume": True}, {"persist_steps": 2}, {"persist_steps": 2, "client": new_client()[0]}):
        with pytest.raises(tierd.Invalid, match="need client=, of a named job, and name="):
            tierd.transformers.offload(trainer, **options)
    with pytest.raises(tierd.Invalid, match="persist_steps is -1"):
        tierd.transformers.offload(trainer, persist_steps=-1, client=new_client()[0], name="net")
    with pytest.raises(TypeError, match="pass a transformers.Trainer"):
        tierd.transformers.offload(trainer.model)
    with monkeypatch.context() as patched:
        patched.setattr(type(trainer.args), "n_gpu", 2)
        with pytest.raises(tierd.Invalid, match="2 devices in one process.*DataParallel"):
            tierd.transformers.offload(trainer)
    with pytest.raises(tierd.Invalid, match="leave out process_group"):
        tierd.transformers.offload(trainer, process_group=True)
    client = new_client()[0]
    tierd.transformers.offload(trainer, client=client, min_bytes=1)
    with pytest.raises(tierd.Invalid, match="offloaded already"):
        tierd.transformers.offload(trainer, client=client)


def test_a_second_trainer_goes_on_with_the_first_ones_optimizer(tmp_path: pathlib.Path) -> None:
    options = {"client": new_client()[0], "min_bytes": 1}
    ours = tierd.transformers.offload(trainer_of(llama(), tmp_path / "ours"), **options)
    theirs = trainer_of(llama(), tmp_path / "plain")
    for trainer in (ours, theirs):
        trainer.train()
    other = trainer_of(ours.model, tmp_path / "ours")
    with pytest.raises(tierd.Invalid, match=r"offloaded already.*optimizers=\(that_optimizer, None\)"):
        tierd.transformers.offload(other, **options)
    assert type(other) is transformers.Trainer and other.optimizer is None
    second = trainer_of(ours.model, tmp_path / "ours", ours.optimizer)
    again = tierd.transformers.offload(second, **options)
    expected = trainer_of(theirs.model, tmp_path / "plain", theirs.optimizer)
    for trainer in (again, expected):
        trainer.train()
    assert_same(again, expected)


def test_a_refused_offload_leaves_the_trainer_as_it_was(tmp_path: pathlib.Path) -> None:
    trainer = trainer_of(llama(), tmp_path)
    with pytest.raises(tierd.Invalid, match="parameters is 'nowhere'"):
        tierd.transformers.offload(trainer, client=new_client()[0], min_bytes=1, parameters="nowhere")
    assert trainer.optimizer is None
    trainer.args.learning_rate = 3e-3
    offloaded = tierd.transformers.offload(trainer, client=new_client()[0], min_bytes=1)
    assert offloaded.optimizer.param_groups[0]["lr"] == 3e-3
