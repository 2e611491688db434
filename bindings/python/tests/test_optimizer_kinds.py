"""Every optimizer beside plain Adam and AdamW, against its reference: the same bits, alone and offloaded."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fake_library import FakeLibrary
from test_offload import Net, assert_same, new_client, pair_of, train
from test_optimizer import (
    BLOCK_ELEMENTS,
    assert_same_bits,
    assert_same_state,
    give_gradients,
    parameters_of,
    run,
)

import tierd
import tierd.torch
from tierd.session import Session

Make = Callable[..., Any]
Case = tuple[type[Any], Make, torch.dtype, dict[str, Any]]
BF16, FP32 = torch.bfloat16, torch.float32


def sgd(**options: Any) -> Case:
    options = {"lr": 0.01, **options}
    return tierd.torch.SGD, functools.partial(torch.optim.SGD, fused=True, **options), FP32, options


# name: our class, what makes the reference, the dtype of the parameters, our options.
CASES: dict[str, Case] = {
    "sgd": sgd(),
    "sgd momentum": sgd(momentum=0.9),
    "sgd all": sgd(momentum=0.9, dampening=0.1, weight_decay=0.1, maximize=True),
    "sgd nesterov": sgd(momentum=0.9, nesterov=True, weight_decay=0.1),
}
every_case = pytest.mark.parametrize("case", CASES)


@every_case
def test_the_bits_are_the_references_whatever_the_slices(client: tierd.Client, case: str) -> None:
    ours_class, reference, dtype, options = CASES[case]
    shapes = [(2 * BLOCK_ELEMENTS + 37,), (0, 4), (3, 7), (700,), (130, 128)]
    theirs = parameters_of(shapes, dtype)
    plain = reference(theirs)
    run(plain, theirs, 3)
    for slice_bytes in ("2MiB", "6MiB"):
        ours = parameters_of(shapes, dtype)
        tiered = ours_class(ours, client=client, slice_bytes=slice_bytes, **options)
        run(tiered, ours, 3)
        assert_same_bits(ours, theirs)
        assert_same_state(tiered.state_dict(), plain.state_dict())


@every_case
@pytest.mark.parametrize("reached", [0, 1, 2])
def test_a_step_that_finds_no_room_is_continued(client: tierd.Client, case: str, reached: int) -> None:
    ours_class, reference, dtype, options = CASES[case]
    shapes = [(2 * BLOCK_ELEMENTS + 5,), (700,)]
    ours, theirs = parameters_of(shapes, dtype), parameters_of(shapes, dtype)
    tiered = ours_class(ours, client=client, slice_bytes="2MiB", **options)
    update = tiered._updates._update
    for step in range(2):
        give_gradients(ours, step)
        units = iter(range(reached))

        def refused(*arguments: Any, units: Any = units) -> None:
            if next(units, None) is None:
                raise tierd.NoSpace("full")
            update(*arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tiered._updates, "_update", refused)
            with pytest.raises(tierd.NoSpace):
                tiered.step()
        tiered.step()
    run(reference(theirs), theirs, 2)
    assert_same_bits(ours, theirs)


@every_case
def test_state_goes_to_the_reference_and_back(client: tierd.Client, case: str) -> None:
    ours_class, reference, dtype, options = CASES[case]
    shapes = [(700,), (30, 30)]
    ours, theirs = parameters_of(shapes, dtype), parameters_of(shapes, dtype)
    run(reference(theirs), theirs, 3)
    optimizer = reference(ours)
    for step in range(3):
        give_gradients(ours, step)
        optimizer.step()
        if step < 2:
            state = copy.deepcopy(optimizer.state_dict())
            optimizer = ours_class(ours, client=client, **options) if step == 0 else reference(ours)
            optimizer.load_state_dict(state)
    assert_same_bits(ours, theirs)


@every_case
@pytest.mark.parametrize("update", ["step", "backward"])
def test_an_offloaded_model_trains_with_the_same_bits_and_resumes(case: str, update: str) -> None:
    ours_class, reference, dtype, options = CASES[case]
    client, fake = new_client()
    ours, theirs = pair_of(lambda: Net().to(dtype))
    model, optimizer = tierd.torch.offload(ours, ours_class, client=client, min_bytes=1, update=update, **options)
    plain = reference(theirs.parameters())
    assert train(model, optimizer, 3) == train(theirs, plain, 3)
    assert fake.leases == {}
    assert_same(model, theirs)
    # Another process would find the tensors and this record.
    parameters = [torch.nn.Parameter(each.detach().clone()) for each in theirs.parameters()]
    another = tierd.Client(Session(fake, 2))  # type: ignore[arg-type]
    again = ours_class(parameters, client=another, name=optimizer._name, **options)
    again.adopt_state(optimizer.light_state())
    run(again, parameters, 2)
    run(plain, list(theirs.parameters()), 2)
    assert_same_bits(parameters, list(theirs.parameters()))


def test_sgd_starts_momentum_of_a_parameter_with_its_first_gradient(client: tierd.Client, fake: FakeLibrary) -> None:
    late, early = parameters_of([(5,), (700,)])
    tiered = tierd.torch.SGD([late, early], lr=0.1, momentum=0.9, client=client)
    expected = parameters_of([(5,), (700,)])
    plain = [torch.optim.SGD([each], lr=0.1, momentum=0.9, fused=True) for each in expected]
    for step in range(3):
        give_gradients([late, early], step)
        give_gradients(expected, step)
        if step == 0:
            late.grad = expected[0].grad = None
        tiered.step()
        for each in plain:
            each.step()
    assert_same_bits([late, early], expected)
    assert len(fake.tensors) == 2


def test_sgd_refuses_momentum_that_comes_late(client: tierd.Client) -> None:
    parameters = parameters_of([(5,)])
    tiered = tierd.torch.SGD(parameters, client=client)
    run(tiered, parameters, 1)
    tiered.param_groups[0]["momentum"] = 0.9
    before = parameters[0].detach().clone()
    with pytest.raises(tierd.Invalid, match="momentum_buffer"):
        run(tiered, parameters, 1)
    assert torch.equal(parameters[0], before)
    with pytest.raises(TypeError, match="fused"):
        tierd.torch.SGD(parameters, client=client, foreach=True)  # type: ignore[arg-type]


def test_sgd_with_master_weights_is_the_fp32_run(client: tierd.Client) -> None:
    ours = parameters_of([(64, 64)], BF16)
    exact = [torch.nn.Parameter(ours[0].detach().float())]
    for momentum in (0.0, 0.9):
        tiered = tierd.torch.SGD(ours, lr=1e-3, momentum=momentum, client=client, master_weights=True)
        plain = torch.optim.SGD(exact, lr=1e-3, momentum=momentum, fused=True)
        for step in range(3):
            give_gradients(ours, step)
            exact[0].grad = ours[0].grad.float()  # type: ignore[union-attr]
            tiered.step()
            plain.step()
        assert torch.equal(tiered.state_dict()["state"][0]["master"], exact[0])
        exact = [torch.nn.Parameter(ours[0].detach().float())]
