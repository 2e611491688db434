"""tierd.accelerate against plain Accelerate: the same bits, and each loads the other's state."""

from __future__ import annotations

import gc
import pathlib
import weakref
from typing import Any

import pytest
import torch

import tierd

accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import tierd.accelerate  # noqa: E402
import tierd.torch  # noqa: E402
from test_transformers import a_step, files_of, llama, new_client, rows  # noqa: E402
from tierd.torch import checkpoint_file  # noqa: E402

RATES = [(2, 1e-2), (1, 3e-2)]


def accelerated(folder: pathlib.Path, offloaded: bool, load: pathlib.Path | None = None) -> tuple[list[float], Any]:
    """Ten steps, a state saved after the fifth; or from a state, the last five."""
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    if offloaded:
        accelerator = tierd.accelerate.offload(accelerator, client=new_client()[0], min_bytes=1, exact_norm=True)
    model = llama()
    groups = [{"params": [p for p in model.parameters() if p.ndim == wanted], "lr": rate} for wanted, rate in RATES]
    optimizer: Any = torch.optim.AdamW(groups, weight_decay=0.1, fused=True)
    schedule: Any = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    loader: Any = torch.utils.data.DataLoader(rows(), batch_size=2)  # type: ignore[arg-type]
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    first = 0
    if load is not None:
        accelerator.load_state(str(load))
        first = 10
    losses = []
    for number, batch in enumerate(loader):
        if not first <= number < 20:
            continue
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        losses.append(loss.item())
        if number == 9 and load is None:
            accelerator.save_state(str(folder))
    return losses, model.state_dict()


def test_accelerate_has_the_same_bits_and_each_loads_the_others_state(tmp_path: pathlib.Path) -> None:
    losses, expected = accelerated(tmp_path / "plain", False)
    ours, values = accelerated(tmp_path / "ours", True)
    assert ours == losses and len(losses) == 20
    assert files_of(tmp_path / "ours", ".safetensors") == files_of(tmp_path / "plain", ".safetensors")
    for offloaded, source in [(True, "ours"), (True, "plain"), (False, "ours")]:
        rest, again = accelerated(tmp_path, offloaded, load=tmp_path / source)
        assert rest == losses[10:]
        for name, value in again.items():
            assert torch.equal(value, expected[name]) and torch.equal(values[name], value), name


def test_a_state_that_exists_is_not_read_by_prepare(monkeypatch: Any) -> None:
    accelerator = tierd.accelerate.offload(accelerate.Accelerator(cpu=True))
    model, optimizer = tierd.torch.offload(llama(), tierd.torch.AdamW, client=new_client()[0], min_bytes=1)
    a_step(model, optimizer)
    with monkeypatch.context() as patched:
        patched.setattr(tierd.torch.AdamW, "_fetch_state", _refuse)
        model, prepared = accelerator.prepare(model, optimizer)
    assert prepared.optimizer is optimizer
    a_step(model, prepared)
    assert all(step == 2 for step in steps_of(optimizer))


def steps_of(optimizer: Any) -> list[float]:
    return [float(state["step"]) for state in optimizer.state_dict()["state"].values()]


def _refuse(*_: object, **__: object) -> Any:
    raise AssertionError("all of the state is read at once")


def test_mixed_precision_is_taken_off_again() -> None:
    inputs = {name: value[None] for name, value in rows()[0].items()}
    found = []
    for offloaded in (False, True):
        accelerate.state.AcceleratorState._reset_state()
        accelerator = accelerate.Accelerator(cpu=True, mixed_precision="bf16")
        if offloaded:
            accelerator = tierd.accelerate.offload(accelerator, client=new_client()[0], min_bytes=1)
        model = llama()
        model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
        mixed = model(**inputs).loss.item()
        found.append((mixed, accelerator.unwrap_model(model, keep_fp32_wrapper=False)(**inputs).loss.item()))
    accelerate.state.AcceleratorState._reset_state()
    assert found[0] == found[1] and found[0][0] != found[0][1]


def test_accelerate_refuses_what_it_cannot_prepare(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    accelerator = tierd.accelerate.offload(accelerate.Accelerator(cpu=True), client=new_client()[0], min_bytes=1)
    with pytest.raises(tierd.Invalid, match="1 models and 0 optimizers"):
        accelerator.prepare(llama())
    model = llama()
    used = torch.optim.AdamW(model.parameters())
    model(input_ids=rows()[0]["input_ids"][None], labels=rows()[0]["labels"][None]).loss.backward()
    used.step()
    with pytest.raises(tierd.Invalid, match="made steps already"):
        accelerator.prepare(model, used)
    with pytest.raises(tierd.Invalid, match="offloads already"):
        tierd.accelerate.offload(accelerator)
    with monkeypatch.context() as patched:
        fresh = accelerate.Accelerator(cpu=True)
        patched.setattr(accelerate.Accelerator, "num_processes", 2)
        patched.setattr(accelerate.Accelerator, "distributed_type", accelerate.DistributedType.FSDP)
        with pytest.raises(tierd.Invalid, match=r"runs 2 processes \(FSDP\)"):
            tierd.accelerate.offload(fresh)
    hooked = accelerate.Accelerator(
        cpu=True,
        kwargs_handlers=[
            accelerate.DistributedDataParallelKwargs(comm_hook=accelerate.utils.DDPCommunicationHookType.FP16)
        ],
    )
    with pytest.raises(tierd.Invalid, match="communication hook"):
        tierd.accelerate.offload(hooked)
    with pytest.raises(TypeError, match="pass an accelerate.Accelerator"):
        tierd.accelerate.offload(model)
    model, other = llama(), torch.nn.Linear(4, 4)
    accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    checkpoint_file.save_weights(other.state_dict(), tmp_path / "model.safetensors")
    with pytest.raises(tierd.Invalid, match="does not fit the model"):
        accelerator.load_state(str(tmp_path))


def test_a_model_in_tierd_is_prepared_with_its_own_optimizer_only() -> None:
    accelerator = tierd.accelerate.offload(accelerate.Accelerator(cpu=True), client=new_client()[0], min_bytes=1)
    model, optimizer = accelerator.prepare(*small(1))
    plain = torch.optim.AdamW(model.parameters())
    for given in ([model, plain], [plain], [*small(2), plain]):
        with pytest.raises(tierd.Invalid, match="offloaded already: go on with the optimizer of then"):
            accelerator.prepare(*given)
    assert accelerator.prepare(model, optimizer)[1] is optimizer
    elsewhere = small(3)[1]
    assert accelerator.prepare(model, elsewhere)[1].optimizer is elsewhere  # Of another model.


def in_backward(accelerator: Any) -> tuple[Any, Any]:
    accelerator = tierd.accelerate.offload(accelerator, client=new_client()[0], min_bytes=64, update="backward")
    model = torch.nn.Linear(8, 8)
    made = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    return accelerator, made


def test_clipping_what_backward_has_applied_is_refused() -> None:
    accelerator, (model, _) = in_backward(accelerate.Accelerator(cpu=True))
    accelerator.backward(model(torch.ones(2, 8)).sum())
    with pytest.raises(tierd.Invalid, match="has updated parameter 'weight'"):
        accelerator.clip_grad_norm_(model.parameters(), 1e-3)


def test_what_changes_gradients_after_backward_is_refused_before_the_model_moves() -> None:
    with pytest.raises(tierd.Invalid, match="gradient_accumulation_steps=2"):
        in_backward(accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2))
    scaling = accelerate.Accelerator(cpu=True)
    scaling.scaler = torch.amp.GradScaler("cpu")
    with pytest.raises(tierd.Invalid, match="whose GradScaler"):
        in_backward(scaling)


def small(seed: int) -> Any:
    torch.manual_seed(seed)
    model = torch.nn.Linear(8, 8)
    return model, torch.optim.AdamW(model.parameters(), fused=True)


def test_each_of_two_models_is_saved_under_its_own_number(tmp_path: pathlib.Path) -> None:
    for offloaded in (False, True):
        accelerator = accelerate.Accelerator(cpu=True)
        if offloaded:
            accelerator = tierd.accelerate.offload(accelerator, client=new_client()[0], min_bytes=1)
        for seed in (1, 2):
            accelerator.prepare(*small(seed))
        accelerator.save_state(str(tmp_path / str(offloaded)))
    assert files_of(tmp_path / "True", ".safetensors") == files_of(tmp_path / "False", ".safetensors")


def test_a_save_fills_no_file_of_another_one(tmp_path: pathlib.Path) -> None:
    accelerator = tierd.accelerate.offload(accelerate.Accelerator(cpu=True), client=new_client()[0], min_bytes=1)
    accelerator.prepare(*small(1))
    older = tmp_path / "checkpoint-1" / "model.safetensors"
    older.parent.mkdir()
    older.write_bytes(b"a save that was ended")
    accelerator.save_state(str(tmp_path))
    assert older.read_bytes() == b"a save that was ended"
    assert (tmp_path / "model.safetensors").stat().st_size > 256


def test_models_that_are_given_back_are_freed() -> None:
    client, fake = new_client()
    accelerator = tierd.accelerate.offload(accelerate.Accelerator(cpu=True), client=client, min_bytes=1, name="net")
    for seed in (1, 2):  # Under the same name.
        model, optimizer = accelerator.prepare(*small(seed))
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
        gone = weakref.ref(model)
        model, optimizer = accelerator.free_memory(model, optimizer)
        gc.collect()
        assert gone() is None and fake.tensors == {}


def test_a_state_that_does_not_fit_is_loaded_where_it_need_not(tmp_path: pathlib.Path) -> None:
    accelerator = tierd.accelerate.offload(accelerate.Accelerator(cpu=True), client=new_client()[0], min_bytes=1)
    model, _ = accelerator.prepare(*small(1))
    accelerator.save_state(str(tmp_path))
    (weights,) = tmp_path.glob("*.safetensors")
    checkpoint_file.save_weights({"weight": torch.zeros(8, 8), "more": torch.ones(3)}, weights)
    with pytest.raises(tierd.Invalid, match=r"missing \['bias'\], unexpected \['more'\]"):
        accelerator.load_state(str(tmp_path))
    accelerator.load_state(str(tmp_path), strict=False)
    assert not model.state_dict()["weight"].any()


def test_a_hook_of_save_state_is_given_the_weights(tmp_path: pathlib.Path) -> None:
    accelerator = tierd.accelerate.offload(accelerate.Accelerator(cpu=True), client=new_client()[0], min_bytes=1)
    model, _ = accelerator.prepare(*small(1))
    seen: list[Any] = []
    accelerator.register_save_state_pre_hook(lambda models, weights, folder: seen.append(weights[0]["weight"].clone()))
    accelerator.save_state(str(tmp_path))
    assert torch.equal(seen[0], model.state_dict()["weight"])
    assert list(tmp_path.glob("model.safetensors"))
