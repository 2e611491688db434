"""Every optimizer beside plain Adam and AdamW, against its reference: the same bits, alone and offloaded."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fake_library import FakeLibrary
from reference_optimizers import ReferenceAdam, ReferenceAdamW, ReferenceLion, rounded_at_random
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


def adam(dtype: torch.dtype, ours: type[Any] = tierd.torch.AdamW, **options: Any) -> Case:
    reference = ReferenceAdamW if ours is tierd.torch.AdamW else ReferenceAdam
    options = {"lr": 0.01, **options}
    return ours, functools.partial(reference, **options), dtype, options


def lion(dtype: torch.dtype, **options: Any) -> Case:
    options = {"lr": 0.01, "weight_decay": 0.1, **options}
    return tierd.torch.Lion, functools.partial(ReferenceLion, **options), dtype, options


RANDOM: dict[str, Any] = {"rounding": "stochastic", "seed": 5}
# name: our class, what makes the reference, the dtype of the parameters, our options.
CASES: dict[str, Case] = {
    "sgd": sgd(),
    "sgd momentum": sgd(momentum=0.9),
    "sgd all": sgd(momentum=0.9, dampening=0.1, weight_decay=0.1, maximize=True),
    "sgd nesterov": sgd(momentum=0.9, nesterov=True, weight_decay=0.1),
    "lion": lion(FP32),
    "lion bf16": lion(BF16, maximize=True),
    "lion bf16 states": lion(FP32, state_dtype="bfloat16"),
    "lion random": lion(BF16, **RANDOM),
    "adamw bf16 states": adam(FP32, state_dtype="bfloat16", amsgrad=True),
    "adamw fp32 states": adam(BF16, state_dtype="float32"),
    "adamw bf16 states by torch's dtype": adam(FP32, state_dtype=torch.bfloat16),
    "adam bf16 states": adam(FP32, tierd.torch.Adam, state_dtype="bfloat16", weight_decay=0.1, maximize=True),
    "adamw random": adam(BF16, **RANDOM),
    "adam random": adam(BF16, tierd.torch.Adam, state_dtype="float32", **RANDOM),
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
        if ours_class is tierd.torch.SGD:  # Else the groups have other names.
            assert tiered.state_dict()["param_groups"] == plain.state_dict()["param_groups"]
        assert_same_state({**tiered.state_dict(), "param_groups": []}, {**plain.state_dict(), "param_groups": []})


@every_case
@pytest.mark.parametrize("reached", [0, 1, 2])
def test_a_step_that_finds_no_room_is_continued(client: tierd.Client, case: str, reached: int) -> None:
    ours_class, reference, dtype, options = CASES[case]
    shapes = [(4 * BLOCK_ELEMENTS + 5,), (700,)]
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
            state = copy.deepcopy(optimizer.state_dict()["state"])
            optimizer = ours_class(ours, client=client, **options) if step == 0 else reference(ours)
            optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
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


def test_the_bits_depend_on_no_threads(client: tierd.Client) -> None:
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            parameters = parameters_of([(2 * BLOCK_ELEMENTS + 37,), (700,)], BF16)
            run(tierd.torch.AdamW(parameters, client=client, **RANDOM), parameters, 2)
            results.append(parameters)
    finally:
        torch.set_num_threads(threads)
    assert_same_bits(*results)


def test_values_that_are_not_finite_and_subnormal_ones_are_the_references(client: tierd.Client) -> None:
    special = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-40, -1e-45, 3.3e38, 1e-20, 1.0]
    for case in ("lion", "lion random", "adamw bf16 states", "adamw random"):
        ours_class, reference, dtype, options = CASES[case]
        pairs = torch.cartesian_prod(torch.tensor(special), torch.tensor(special)).to(dtype)
        ours, theirs = (torch.nn.Parameter(pairs[:, 0].clone()) for _ in range(2))
        for optimizer, parameter in (
            (ours_class([ours], client=client, **options), ours),
            (reference([theirs]), theirs),
        ):
            for _ in range(2):
                parameter.grad = pairs[:, 1].clone()
                optimizer.step()
        assert torch.equal(ours.isnan(), theirs.isnan()), case
        bits = [each.detach().nan_to_num(7.0).view(torch.uint8) for each in (ours, theirs)]
        assert torch.equal(*bits), case


def test_rounding_at_random_has_the_right_mean(client: tierd.Client) -> None:
    """Updates of a fiftieth of what bf16 can show: rounded to nearest they are all lost."""
    count, steps, rate = 1 << 16, 50, 2.0**-13 / 50
    moved = {}
    for rounding in ("nearest", "stochastic"):
        parameter = torch.nn.Parameter(torch.full((count,), 1.0, dtype=BF16))
        optimizer = tierd.torch.Lion([parameter], lr=rate, client=client, rounding=rounding)
        for _ in range(steps):
            parameter.grad = torch.full_like(parameter, -1.0)
            optimizer.step()
        moved[rounding] = parameter.detach().double() - 1
    assert moved["nearest"].count_nonzero() == 0
    assert set(moved["stochastic"].unique().tolist()) <= {0.0, 2.0**-7, 2.0**-6}
    error = moved["stochastic"].mean().item() - steps * rate
    assert abs(error) < 5 * moved["stochastic"].std().item() / count**0.5
    exact = torch.full((count,), 1 + 2.0**-9)
    assert rounded_at_random(exact, torch.zeros(count, dtype=torch.int32)).eq(1).all()


def test_numbers_of_parameters_choose_other_random_bits(client: tierd.Client) -> None:
    def trained(seed: int) -> list[torch.nn.Parameter]:
        parameters = [torch.nn.Parameter(torch.ones(700, dtype=BF16)) for _ in range(2)]
        optimizer = tierd.torch.Lion(parameters, lr=2.0**-9, client=client, rounding="stochastic", seed=seed)
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, -1.0)
        optimizer.step()
        return parameters

    first, other = trained(1), trained(2)
    assert not torch.equal(*first) and not torch.equal(first[0], other[0])
    assert_same_bits(first, trained(1))


def test_options_that_cannot_be_are_refused_before_anything_changes(client: tierd.Client) -> None:
    fp32, bf16, fp64 = (parameters_of([(5,)], dtype) for dtype in (FP32, BF16, torch.float64))
    refused: list[tuple[str, type[Any], list[torch.nn.Parameter], dict[str, Any]]] = [
        ("stochastic rounding is for bfloat16", tierd.torch.AdamW, fp32, {"rounding": "stochastic"}),
        ("stochastic rounding is for bfloat16", tierd.torch.Lion, bf16 + fp32, {"rounding": "stochastic"}),
        ("without master_weights", tierd.torch.Adam, bf16, {"rounding": "stochastic", "master_weights": True}),
        ("keep an fp32 state", tierd.torch.AdamW, bf16, {"state_dtype": "bfloat16", "master_weights": True}),
        ("rounding is 'up': one of nearest, stochastic", tierd.torch.Lion, bf16, {"rounding": "up"}),
        ("state_dtype is torch.float16", tierd.torch.AdamW, fp32, {"state_dtype": torch.float16}),
        ("state_dtype is 'float16'", tierd.torch.AdamW, fp32, {"state_dtype": "float16"}),
        ("state_dtype is for", tierd.torch.AdamW, fp64, {"state_dtype": "bfloat16"}),
        ("Lion is for", tierd.torch.Lion, fp64, {}),
        ("seed is -1", tierd.torch.Lion, bf16, {"seed": -1}),
        ("none is negative", tierd.torch.Lion, bf16, {"lr": -1.0}),
        ("none is negative", tierd.torch.Lion, bf16, {"betas": (0.9, 1.0)}),
    ]
    for sentence, ours_class, parameters, options in refused:
        with pytest.raises(tierd.Invalid, match=sentence):
            ours_class(parameters, client=client, **options)
    for unknown in ("roundings", "fused"):
        with pytest.raises(TypeError, match=unknown):
            tierd.torch.Lion(bf16, client=client, **{unknown: True})
    with pytest.raises(TypeError, match="SGD has no option 'rounding'"):
        tierd.torch.SGD(bf16, client=client, rounding="stochastic")
    tiered = tierd.torch.Lion(bf16, client=client, rounding="stochastic")
    with pytest.raises(tierd.Invalid, match="an optimizer of its own"):
        tiered.add_param_group({"params": fp32})
    run(tiered, bf16, 1)
    assert len(tiered.param_groups) == 1
    with pytest.raises(tierd.Invalid, match="rounding='stochastic', seed=0"):
        tierd.torch.Lion(bf16, client=client).adopt_state(tiered.light_state())


def test_master_weights_of_lion_are_the_fp32_run(client: tierd.Client) -> None:
    for dtype in (BF16, torch.float16):
        ours = parameters_of([(64, 64)], dtype)
        exact = [torch.nn.Parameter(ours[0].detach().float())]
        tiered, plain = tierd.torch.Lion(ours, client=client, master_weights=True), ReferenceLion(exact)
        for step in range(3):
            give_gradients(ours, step)
            exact[0].grad = ours[0].grad.float()  # type: ignore[union-attr]
            tiered.step()
            plain.step()
        assert torch.equal(tiered.state_dict()["state"][0]["master"], exact[0])
        assert torch.equal(ours[0], exact[0].to(dtype))


def test_what_the_state_takes_is_what_is_reserved_for_it(client: tierd.Client, fake: FakeLibrary) -> None:
    for case, (ours_class, _, dtype, options) in CASES.items():
        parameters = parameters_of([(128,)], dtype)
        optimizer = ours_class(parameters, client=client, **options)
        fake.tensors.clear()
        run(optimizer, parameters, 1)
        held = sum(tensor.size for tensor in fake.tensors.values())
        assert held == 128 * ours_class.state_bytes_per_element(dtype, options), case
