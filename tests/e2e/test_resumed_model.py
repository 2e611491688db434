"""What a run resumes: the same model, whole, or a sentence."""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import launcher
import numpy
import pytest
import torch
from torch import distributed, nn

import tierd
import tierd.torch
from tierd.torch import activations


def leave_out_bias(_: nn.Module, state: Any, prefix: str, metadata: object) -> None:
    del state[prefix + "bias"]


class Versioned(nn.Module):
    """Its state is of a second version; a hook leaves its bias out of checkpoints; its buffer is a view."""

    _version = 2

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(8, 64)), nn.Parameter(torch.zeros(8))
        self.register_buffer("seen", torch.zeros(1 << 20)[:4])
        self.register_state_dict_post_hook(leave_out_bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight.t() + self.bias

    def _load_from_state_dict(self, state: Any, prefix: str, metadata: dict[str, Any], *more: Any) -> None:
        if metadata.get("version") != 2:
            state[prefix + "seen"] = torch.full((4,), -1.0)
        super()._load_from_state_dict(state, prefix, metadata, *more)


@contextlib.contextmanager
def run_of(
    daemon: launcher.Running, make: Callable[[], nn.Module], resume: bool, **options: Any
) -> Iterator[tuple[nn.Module, Any, tierd.Client]]:
    options.setdefault("optimizer", tierd.torch.AdamW)
    mode = "resume" if resume else "create"
    with tierd.connect(job="run", socket=daemon.socket, named=True, mode=mode) as client:
        model, optimizer = tierd.torch.offload(
            make(), client=client, name="net", lr=0.1, min_bytes=1024, resume=resume, **options
        )
        yield model, optimizer, client
        del model, optimizer


def test_what_stays_in_the_process_comes_back_whatever_the_model_does_to_its_checkpoints(
    own_daemon: launcher.Running,
) -> None:
    with run_of(own_daemon, Versioned, resume=False) as (model, optimizer, client):
        model(torch.ones(2, 64)).sum().backward()
        optimizer.step()
        model.get_buffer("seen").fill_(3)
        tierd.torch.persist(model, optimizer)
        bias = model.get_parameter("bias").detach().clone()
        assert client.tensor("net/training").size < 100_000, "a view is kept without the storage that it lies in"
        del model, optimizer
    with run_of(own_daemon, Versioned, resume=True) as (model, _, _):
        assert torch.equal(model.get_parameter("bias"), bias) and bias.any()
        assert model.get_buffer("seen").tolist() == [3.0] * 4
        del model


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (lambda: nn.Linear(64, 32).half(), "persisted as torch.bfloat16.*is torch.float16"),
        (lambda: nn.Linear(32, 64).bfloat16(), r"shape \(32, 64\).*is torch.bfloat16 of shape \(64, 32\)"),
    ],
)
def test_bytes_are_not_taken_for_something_else(
    own_daemon: launcher.Running, other: Callable[[], nn.Module], why: str
) -> None:
    def same() -> nn.Module:
        return nn.Linear(64, 32).bfloat16()

    with run_of(own_daemon, same, resume=False) as (model, optimizer, _):
        tierd.torch.persist(model, optimizer)
        values = {name: value.clone() for name, value in model.state_dict().items()}
        del model, optimizer
    with pytest.raises(tierd.Invalid, match=why), run_of(own_daemon, other, resume=True):
        pytest.fail("it is another model")
    with run_of(own_daemon, same, resume=True) as (model, _, _):
        assert all(torch.equal(value, values[name]) for name, value in model.state_dict().items())
        del model


def test_momentum_that_was_off_when_it_was_persisted_goes_on_when_it_is_on_again(own_daemon: launcher.Running) -> None:
    def make() -> nn.Module:
        torch.manual_seed(0)
        return nn.Linear(64, 32)

    def step(model: nn.Module, optimizer: Any, momentum: float) -> None:
        optimizer.param_groups[0]["momentum"] = momentum
        model(torch.ones(2, 64)).pow(2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    plain = make()
    theirs = torch.optim.SGD(plain.parameters(), lr=1e-3, momentum=0.9, fused=True)
    for momentum in (0.9, 0.0, 0.9):
        step(plain, theirs, momentum)
    sgd = {"optimizer": tierd.torch.SGD, "momentum": 0.9}
    with run_of(own_daemon, make, resume=False, **sgd) as (model, ours, _):
        ours.param_groups[0]["lr"] = 1e-3
        step(model, ours, 0.9)
        step(model, ours, 0.0)
        tierd.torch.persist(model, ours)
        del model, ours
    with run_of(own_daemon, make, resume=True, **sgd) as (model, ours, _):
        step(model, ours, 0.9)
        assert all(torch.equal(value, model.state_dict()[name]) for name, value in plain.state_dict().items())
        del model, ours


def test_all_generators_go_on(own_daemon: launcher.Running) -> None:
    with run_of(own_daemon, lambda: nn.Linear(64, 32), resume=False) as (model, optimizer, _):
        tierd.torch.persist(model, optimizer)
        drawn = (torch.rand(1).item(), random.random(), numpy.random.rand())
        del model, optimizer
    with run_of(own_daemon, lambda: nn.Linear(64, 32), resume=True) as (model, _, _):
        assert drawn == (torch.rand(1).item(), random.random(), numpy.random.rand())
        del model


def test_persist_names_what_it_was_given_instead_of_the_optimizer(own_daemon: launcher.Running) -> None:
    with run_of(own_daemon, lambda: nn.Linear(64, 32), resume=False) as (model, _, _):
        with pytest.raises(TypeError, match="optimizer is a SGD"):
            tierd.torch.persist(model, torch.optim.SGD(nn.Linear(2, 2).parameters()))
        del model


def test_bytes_that_ranks_share_are_not_taken_for_something_else(own_daemon: launcher.Running) -> None:
    def frozen(dtype: torch.dtype) -> nn.Module:
        model = nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 64, dtype=dtype, device="meta"))
        model[1].requires_grad_(False)
        return model

    values = {"1.weight": torch.ones(64, 32), "1.bias": torch.zeros(64)}
    for dtype, resume in ((torch.bfloat16, False), (torch.float16, True), (torch.bfloat16, True)):
        given = {"load_frozen": lambda name, dtype=dtype: values[name].to(dtype)}
        with contextlib.ExitStack() as stack:
            if dtype is torch.float16:
                stack.enter_context(pytest.raises(tierd.Invalid, match=r"'1.weight' was persisted as torch.bfloat16"))
            making = run_of(own_daemon, lambda dtype=dtype: frozen(dtype), resume, **given)
            model, optimizer, _ = stack.enter_context(making)
            assert model.state_dict()["1.weight"].dtype is dtype
            tierd.torch.persist(model, optimizer)
            del model, optimizer


def test_shared_bytes_keep_their_order_in_memory(own_daemon: launcher.Running) -> None:
    weight = torch.randn(8, 8, 3, 3)

    def frozen(form: torch.memory_format) -> nn.Module:
        conv = nn.Conv2d(8, 8, 3, bias=False, device="meta").to(memory_format=form).requires_grad_(False)
        return nn.Sequential(nn.Linear(64, 32), conv)

    for form, resume in ((torch.channels_last, False), (torch.contiguous_format, True)):
        with run_of(own_daemon, lambda form=form: frozen(form), resume, load_frozen=lambda _: weight) as run:
            model, optimizer, _ = run
            with tierd.torch.gathered(model):
                assert torch.equal(model[1].weight, weight)
            tierd.torch.persist(model, optimizer)
            del model, optimizer, run


class Counting(nn.Module):
    """A linear layer with a small parameter, a buffer, and more that does not fit another of its kind."""

    def __init__(self, value: int, counts: int = 4, more: int = 32) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((32, 64), float(value)))
        self.last = nn.Parameter(torch.full((more, 64), float(value)))
        self.bias = nn.Parameter(torch.full((32,), float(value)))
        self.register_buffer("counts", torch.full((counts,), float(value)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight.t() + self.bias


def whole_numbers(model: Counting) -> Counting:
    model.counts = model.counts.int()
    return model


@pytest.mark.parametrize(
    ("other", "options", "error", "why"),
    [
        (lambda: Counting(9, more=16), {}, tierd.Invalid, "'last' was persisted as"),
        (lambda: Counting(9, counts=5), {}, RuntimeError, "size mismatch for counts"),
        (
            lambda: whole_numbers(Counting(9)),
            {},
            tierd.Invalid,
            "'counts' was persisted as torch.float32, and is torch.int",
        ),
        (lambda: Counting(9), {"state_dtype": torch.bfloat16}, tierd.Invalid, "was persisted with"),
        (lambda: Counting(9), {"groups": lambda model: [model.weight, model.bias]}, tierd.Invalid, "parameter groups"),
    ],
)
def test_a_resume_that_is_refused_leaves_the_model_as_it_was_and_the_run_to_be_resumed(
    own_daemon: launcher.Running,
    other: Callable[[], nn.Module],
    options: dict[str, Any],
    error: type[Exception],
    why: str,
) -> None:
    with run_of(own_daemon, lambda: Counting(1), resume=False) as (model, optimizer, _):
        model(torch.ones(2, 64)).sum().backward()
        optimizer.step()
        tierd.torch.persist(model, optimizer)
        persisted = {name: value.clone() for name, value in model.state_dict().items()}
        del model, optimizer
    with tierd.connect(job="run", socket=own_daemon.socket, named=True, mode="resume") as client:
        given: dict[str, Any] = {"client": client, "name": "net", "lr": 0.1, "min_bytes": 1024, "resume": True}
        left = other()
        with pytest.raises(error, match=why):
            tierd.torch.offload(left, tierd.torch.AdamW, **given, **options)
        assert all((value == 9).all() for value in left.state_dict().values()), "nothing of the run is in it"
        model, optimizer = tierd.torch.offload(Counting(2), tierd.torch.AdamW, **given)
        assert all(torch.equal(value, persisted[name]) for name, value in model.state_dict().items())
        del model, optimizer


class WithUnusedBranch(nn.Module):
    """What a second branch has kept for backward lives on after the step: the loss does not use it."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(256, 256), nn.Linear(256, 256)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.used(x), torch.tanh(self.unused(x))


@pytest.mark.parametrize("update", ["deferred", "step"])
def test_what_a_graph_keeps_is_not_persisted_and_does_not_hinder_the_next_run(
    own_daemon: launcher.Running, monkeypatch: pytest.MonkeyPatch, update: str
) -> None:
    control = pytest.importorskip("tierd.control")
    resumed = []
    for resume in (False, True, True):
        monkeypatch.setattr(activations, "_ids", itertools.count(activations.FIRST_ID))  # As in a new process.
        with run_of(own_daemon, WithUnusedBranch, resume, update=update, activations="ssd") as (
            model,
            optimizer,
            client,
        ):
            with control.connect(own_daemon.directory) as channel:
                resumed.append({tensor.id for tensor in channel.list_tensors("run")})
            used, unused = model(torch.ones(256, 256))
            used.sum().backward()
            optimizer.step()
            tierd.torch.persist(model, optimizer)  # With gradients, and what `unused` needs for its own.
            del model, optimizer, used, unused
    assert len(resumed[1]) == len(resumed[2]) < 10, "parameters and states alone"


def make_two(client: tierd.Client, resume: bool) -> tuple[list[nn.Module], list[Any]]:
    made = []
    for name in ("generator", "critic"):
        torch.manual_seed(len(name))
        given: dict[str, Any] = {"client": client, "name": name, "lr": 0.1, "min_bytes": 1024, "resume": resume}
        made.append(tierd.torch.offload(nn.Linear(64, 64), tierd.torch.AdamW, **given))
    return [model for model, _ in made], [optimizer for _, optimizer in made]


def step_two(models: list[nn.Module], optimizers: list[Any], steps: int) -> None:
    for _ in range(steps):
        models[1](models[0](torch.ones(2, 64))).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


def test_two_models_of_a_job_are_persisted_by_one_call(own_daemon: launcher.Running) -> None:
    with tierd.connect(job="two", socket=own_daemon.socket, named=True) as client:
        models, optimizers = make_two(client, resume=False)
        schedules = [torch.optim.lr_scheduler.StepLR(each, 2) for each in optimizers]
        step_two(models, optimizers, 2)
        for schedule in schedules:
            schedule.step()
        with pytest.raises(tierd.Invalid, match=r"another model, 'critic'.*persist\(\[model, other\]"):
            tierd.torch.persist(models[0], optimizers[0])
        with pytest.raises(tierd.Invalid, match="2 models and 1 optimizers"):
            tierd.torch.persist(models, optimizers[:1])
        tierd.torch.persist(models, optimizers, *schedules, step=2)
        step_two(models, optimizers, 2)
        trained = [{name: value.clone() for name, value in each.state_dict().items()} for each in models]
        del models, optimizers, schedules
    with tierd.connect(job="two", socket=own_daemon.socket, named=True, mode="resume") as client:
        models, optimizers = make_two(client, resume=True)
        schedules = [torch.optim.lr_scheduler.StepLR(each, 2) for each in optimizers]
        assert tierd.torch.resumed(models, *schedules) == {"step": 2}
        assert [schedule.last_epoch for schedule in schedules] == [1, 1]
        step_two(models, optimizers, 2)
        for model, state in zip(models, trained, strict=True):
            assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
        del model, models, optimizers, schedules


def test_a_model_that_is_trained_no_longer_does_not_hinder_persisting(own_daemon: launcher.Running) -> None:
    with tierd.connect(job="two", socket=own_daemon.socket, named=True) as client:
        models, optimizers = make_two(client, resume=False)
        models[1].requires_grad_(False)
        tierd.torch.persist(models[0], optimizers[0])
        models[1].requires_grad_(True)
        del optimizers[1]
        tierd.torch.persist(models[0], optimizers[0])
        del models[1]
        tierd.torch.persist(models[0], optimizers[0])
        del models, optimizers


@pytest.mark.parametrize("persisted_by", [None, True])
def test_a_run_without_ranks_and_one_of_ranks_are_not_taken_for_each_other(
    own_daemon: launcher.Running, tmp_path: pathlib.Path, persisted_by: bool | None
) -> None:
    distributed.init_process_group(
        "gloo", store=distributed.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1
    )
    try:
        making = run_of(own_daemon, lambda: Counting(1), resume=False, process_group=persisted_by)
        with making as (model, optimizer, _):
            tierd.torch.persist(model, optimizer)
            del model, optimizer
        theirs, ours = ("net/rank0", "net") if persisted_by else ("net", "net/rank0")
        with (
            pytest.raises(tierd.Invalid, match=f"a training run '{theirs}', and none '{ours}': resume it with as many"),
            run_of(own_daemon, lambda: Counting(1), resume=True, process_group=None if persisted_by else True),
        ):
            pytest.fail("it was persisted otherwise")
    finally:
        distributed.destroy_process_group()
