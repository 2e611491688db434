"""What goes wrong on one of two ranks: all ranks are told, never drift apart in silence, and go on afterwards."""

from __future__ import annotations

import contextlib
import pathlib
import tempfile
from typing import Any

import pytest
import torch
import torch.distributed as distributed
from fake_library import FakeLibrary, Refusal
from rank_processes import Outcomes, assert_passed, client_of, outcomes_of, refused, run_all
from torch import nn

import tierd
import tierd.torch
from tierd.torch.checkpoint_file import load_weights, save_weights
from tierd.torch.deferred_update import DeferredUpdate

NO_SPACE = 6


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16))


def offloaded(model: nn.Module | None = None, **options: Any) -> tuple[nn.Module, Any, FakeLibrary]:
    client, fake = client_of()
    options = {"min_bytes": 512, "lr": 1e-2, "process_group": True} | options
    ours, optimizer = tierd.torch.offload(model or net(), tierd.torch.AdamW, client=client, **options)
    return ours, optimizer, fake


def own_rows(step: int) -> torch.Tensor:
    return torch.randn(4, 16, generator=torch.Generator().manual_seed(10 * step + distributed.get_rank()))


def backward(model: nn.Module, step: int = 0) -> None:
    model(own_rows(step)).square().mean().backward()


def is_same(values: torch.Tensor) -> bool:
    told: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(told, values.detach().clone())
    return all(torch.equal(told[0], each) for each in told)


def models_are_same(model: nn.Module) -> bool:
    return all(is_same(values) for values in model.state_dict().values())


def is_first() -> bool:
    return distributed.get_rank() == 0


def a_gradient_that_one_rank_cannot_store() -> None:
    """No rank updates; once there is room, all of them take the step."""
    model, optimizer, fake = offloaded()
    if is_first():
        fake.put_refusal = Refusal(NO_SPACE, "full")
    backward(model)
    with pytest.raises(tierd.NoSpace) if is_first() else refused("rank 0 is about to raise NoSpace in step"):
        optimizer.step()
    fake.put_refusal = None
    optimizer.step()
    optimizer.zero_grad()
    backward(model, 1)
    optimizer.step()
    assert models_are_same(model)


def one_rank_skips_the_step_that_failed() -> None:
    model, optimizer, fake = offloaded(update="step")
    backward(model)
    plain, failing = optimizer._update_group, [is_first()]

    def update(*arguments: Any) -> None:
        if failing and failing.pop():
            raise tierd.NoSpace("full")
        plain(*arguments)

    optimizer._update_group = update
    with pytest.raises(tierd.NoSpace) if is_first() else contextlib.nullcontext():
        optimizer.step()  # The ranks had agreed to update.
    optimizer.zero_grad()  # Instead of another call of step() on the rank that failed.
    backward(model, 1)
    with refused("for the 1. time and rank 1 is about to update for the 2. time"):
        optimizer.step()


def a_discarded_update() -> None:
    """All ranks drop it: they go on. One of them alone: they are told."""
    model, optimizer, _ = offloaded(min_bytes=1)
    before = model.state_dict()
    backward(model)
    optimizer.step()
    assert optimizer.discard_update().is_consistent
    assert all(torch.equal(before[key], values) for key, values in model.state_dict().items())
    optimizer.zero_grad()
    backward(model, 1)
    optimizer.step()
    if is_first():
        assert optimizer.discard_update().is_consistent
    optimizer.zero_grad()
    backward(model, 2)
    with refused("about to update for the"):
        optimizer.step()


def options_that_differ() -> None:
    """A schedule that only one rank follows: no rank updates, and all do once the options are equal."""
    model, optimizer, _ = offloaded()
    backward(model)
    optimizer.param_groups[0]["note"] = distributed.get_rank()  # The caller's own.
    optimizer.param_groups[0]["lr"] = torch.tensor(0.5) if is_first() else 0.25
    with refused("rank 0 is about to update for the 1. time with lr=0.5") as told:
        optimizer.step()
    assert "with lr=0.25" in str(told.value)
    optimizer.param_groups[0]["lr"] = 0.25
    optimizer.step()
    assert models_are_same(model)


def options_that_differ_in_backward() -> None:
    """The update of a backward goes by them: no rank makes it."""
    model, optimizer, _ = offloaded(update="backward")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer.param_groups[0]["lr"] = 0.5 if is_first() else 0.25
    with refused("rank 0 is about to update, in backward, with lr=0.5"):
        backward(model)
    optimizer.zero_grad()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    optimizer.param_groups[0]["lr"] = 0.25
    backward(model)
    optimizer.step()
    assert models_are_same(model) and not torch.equal(model.state_dict()["0.weight"], before["0.weight"])


def a_parameter_from_outside_of_the_model() -> None:
    outside = nn.Parameter(torch.ones(()))
    model, optimizer, _ = offloaded(groups=lambda model: [{"params": [*model.parameters(), outside]}])
    (model(own_rows(0)).square().mean() * outside).backward()
    with refused("1 parameters with gradients that were not in the model"):
        optimizer.step()


def a_module_that_was_replaced() -> None:
    model: Any
    model, optimizer, _ = offloaded()
    model[2] = nn.Linear(16, 16)
    optimizer.add_param_group({"params": list(model[2].parameters())})
    backward(model)
    with refused("2 parameters with gradients that were not in the model"):
        optimizer.step()


def biases_that_were_unfrozen() -> None:
    """Nothing else is trained, so no gradient is reduced."""
    frozen = net().requires_grad_(False)
    model: Any
    model, optimizer, _ = offloaded(frozen)
    model[2].bias.requires_grad_(True)
    backward(model)
    with refused("the gradient of '2.bias' was not reduced.*unfreeze parameters before"):
        optimizer.step()


def a_closure_that_does_not_reduce() -> None:
    model, optimizer, _ = offloaded()

    def closure() -> None:
        with tierd.torch.no_sync(model):
            backward(model)

    with refused("was not reduced"):
        optimizer.step(closure)


def a_forward_that_is_run_again() -> None:
    """By one rank alone: it has the buffers already."""
    torch.manual_seed(0)
    model, optimizer, _ = offloaded(nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Linear(16, 16)))
    backward(model)
    optimizer.step()
    optimizer.zero_grad()
    plain, failing = DeferredUpdate.run, [is_first()]

    def run(self: DeferredUpdate) -> None:
        if failing and failing.pop():
            raise tierd.NoSpace("full")
        plain(self)

    DeferredUpdate.run = run  # type: ignore[method-assign]
    try:
        with pytest.raises(tierd.NoSpace) if is_first() else contextlib.nullcontext():
            result = model(own_rows(1))
        if is_first():
            result = model(own_rows(1))
    finally:
        DeferredUpdate.run = plain  # type: ignore[method-assign]
    result.square().mean().backward()
    optimizer.step()
    backward(model, 2)  # The next forward spreads them again.
    state = model.state_dict()
    assert all(is_same(state[name]) for name, _ in model.named_parameters())


def a_checkpoint_with_frozen_weights() -> None:
    """The ranks share them: what is loaded has to be equal, and changes nothing."""
    model = net()
    model[0].requires_grad_(False)
    ours, _, _ = offloaded(model)
    path = pathlib.Path(tempfile.mkdtemp()) / "weights.safetensors"
    save_weights(ours.state_dict(keep_vars=True), path)
    load_weights(ours, path)
    changed = {key: values + (key == "0.weight") for key, values in ours.state_dict().items()}
    with refused("0.weight' was frozen", RuntimeError):
        ours.load_state_dict(changed)


def a_failed_offload_leaves_nothing() -> None:
    model = net()
    model[0].requires_grad_(False)
    client, fake = client_of()

    def fails(*_: object) -> None:
        raise tierd.NoSpace("full")

    with pytest.MonkeyPatch.context() as patch:
        if is_first():
            patch.setattr(tierd.torch.offloading.Runtime, "attach", fails)
        for _ in range(2):
            with refused("full", tierd.NoSpace):
                tierd.torch.offload(
                    model, tierd.torch.AdamW, client=client, name="net", min_bytes=1, process_group=True
                )
            assert fake.tensors == {}
    tierd.torch.offload(model, tierd.torch.AdamW, client=client, name="net", min_bytes=1, process_group=True)


def one_rank_persists_alone() -> None:
    """The usual mistake of those who know DDP. Both are told at once."""
    model, optimizer, _ = offloaded()
    backward(model)
    if is_first():
        with refused(r"rank 0 is about to take part in persist\(\) and rank 1 is about to update"):
            tierd.torch.persist(model, optimizer)
    else:
        with refused(r"rank 0 is about to take part in persist\(\)"):
            optimizer.step()


def gradients_that_one_rank_drops() -> None:
    """All of them, or one. No rank updates, and both say by what they are to."""
    model, optimizer, _ = offloaded(update="step")
    for drops in (lambda: optimizer.zero_grad(), lambda: setattr(model[2].weight, "grad", None)):
        backward(model)
        if not is_first():
            drops()
        with refused("the ranks of the process group differ: rank 0 is about to update for the 1. time"):
            optimizer.step()
        optimizer.zero_grad()
    backward(model)
    optimizer.step()
    assert models_are_same(model)


def buffers_of_any_type() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16)
            self.register_buffer("count", torch.full((3,), distributed.get_rank(), dtype=torch.int16))
            self.register_buffer("flags", torch.full((), distributed.get_rank() == 1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.layer(x)
            return y

    model, _, _ = offloaded(Counts())
    model(own_rows(0))
    assert models_are_same(model)


def an_error_that_has_a_method_for_its_code() -> None:
    class Odd(Exception):
        def code(self) -> int:
            return 3

    def groups(model: nn.Module) -> Any:
        if is_first():
            raise Odd("of another library")
        return model.parameters()

    with pytest.raises(Odd) if is_first() else refused("rank 0 .*of another library"):
        offloaded(groups=groups)


def a_gradient_that_a_hook_takes_away() -> None:
    model: Any
    model, optimizer, _ = offloaded()

    def take(parameter: torch.Tensor) -> None:
        parameter.grad = None

    model[0].bias.register_post_accumulate_grad_hook(take)
    before = model[0].bias.detach().clone()
    backward(model)
    optimizer.step()
    assert torch.equal(model[0].bias, before) and models_are_same(model)


def a_backward_more_of_a_model_with_buffers() -> None:
    """One mismatch is one error on each rank: the next steps agree again."""
    torch.manual_seed(0)
    model, optimizer, _ = offloaded(nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16)))
    failures = 0
    if is_first():
        backward(model)
    for step in range(4):
        try:
            backward(model, step)
            optimizer.step()
        except tierd.Error:
            failures += 1
        optimizer.zero_grad()
    assert failures == 1
    with tierd.torch.gathered(model):
        assert all(is_same(parameter) for parameter in model.parameters())


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        a_gradient_that_one_rank_cannot_store,
        a_discarded_update,
        one_rank_skips_the_step_that_failed,
        options_that_differ,
        options_that_differ_in_backward,
        a_parameter_from_outside_of_the_model,
        a_module_that_was_replaced,
        biases_that_were_unfrozen,
        a_closure_that_does_not_reduce,
        a_forward_that_is_run_again,
        a_checkpoint_with_frozen_weights,
        a_failed_offload_leaves_nothing,
        one_rank_persists_alone,
        gradients_that_one_rank_drops,
        buffers_of_any_type,
        an_error_that_has_a_method_for_its_code,
        a_gradient_that_a_hook_takes_away,
        a_backward_more_of_a_model_with_buffers,
    )
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return outcomes_of(__file__, 2, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", SCENARIOS)
def test_of_two_ranks(outcomes: Outcomes, name: str) -> None:
    assert_passed(outcomes, name)


if __name__ == "__main__":
    run_all(SCENARIOS)
