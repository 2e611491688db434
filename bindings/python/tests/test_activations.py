"""offload_activations: the same losses and gradients, whatever the graph does, and nothing left behind."""

from __future__ import annotations

import contextlib
import gc
import pathlib
import re
import sys
import weakref
from collections.abc import Callable

import pytest
import torch
from fake_library import FakeLibrary
from torch.utils.checkpoint import checkpoint

import tierd
import tierd.torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "demo"))
import gpt  # noqa: E402
from tierd.torch.runtime import required_runtime  # noqa: E402


@pytest.fixture
def offload(client: tierd.Client) -> tierd.torch.offload_activations:
    return tierd.torch.offload_activations(client, min_bytes=1)


def gradients_of(module: torch.nn.Module) -> list[torch.Tensor]:
    return [p.grad.clone() for p in module.parameters() if p.grad is not None]


def small_gpt() -> tuple[gpt.Gpt, torch.Tensor, torch.Tensor]:
    torch.manual_seed(5)
    model = gpt.Gpt(gpt.Shape(layers=2, width=64, heads=4, context=32))
    tokens = torch.randint(0, 256, (3, 33))
    return model, tokens[:, :-1], tokens[:, 1:]


def test_a_gpt_has_the_same_losses_and_gradients(offload: tierd.torch.offload_activations, fake: FakeLibrary) -> None:
    model, inputs, targets = small_gpt()
    for _ in range(2):
        model.zero_grad()
        plain = model(inputs, targets)
        plain.backward()
        expected = gradients_of(model)
        model.zero_grad()
        with offload:
            loss = model(inputs, targets)
        assert offload.alive > 10 and len(fake.tensors) == offload.alive
        loss.backward()
        assert torch.equal(loss, plain)
        assert all(torch.equal(a, b) for a, b in zip(gradients_of(model), expected, strict=True))
        del loss
        gc.collect()
        assert offload.alive == 0 and fake.tensors == {} and fake.leases == {}


def test_storages_saved_twice_are_stored_once(offload: tierd.torch.offload_activations, fake: FakeLibrary) -> None:
    x = torch.randn(1000, requires_grad=True)
    with offload:
        y = x * 2
        loss = (y * y + y.view(10, 100).sin().view(-1)).sum()
    assert len(fake.tensors) == 1 and offload.shared_bytes == 2 * 4000
    loss.backward()
    assert torch.allclose(x.grad, 2 * (4 * x + torch.cos(2 * x)), atol=1e-5)


def test_queries_keys_and_values_share_their_storage(
    offload: tierd.torch.offload_activations, fake: FakeLibrary
) -> None:
    x = torch.randn(8, 96, requires_grad=True)
    with offload:
        q, k, v = (x * 1).split(32, dim=1)
        loss = (q * k * v).sum()
    assert offload.offloaded_bytes <= 8 * 96 * 4 + 8 * 32 * 4  # The three views, and the product q * k.
    loss.backward()
    assert torch.equal(x.grad[:, :32], (x[:, 32:64] * x[:, 64:]).detach())


def test_attention_saves_its_projection_once(offload: tierd.torch.offload_activations, fake: FakeLibrary) -> None:
    torch.manual_seed(4)
    project = torch.nn.Linear(64, 3 * 64)
    x = torch.randn(2, 16, 64, requires_grad=True)

    def attend() -> torch.Tensor:
        heads = [part.view(2, 16, 4, 16).transpose(1, 2) for part in project(x).chunk(3, dim=2)]
        return torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True).square().sum()

    attend().backward()
    expected = [*gradients_of(project), x.grad.clone()]
    project.zero_grad()
    x.grad = None
    with offload:
        loss = attend()
    assert offload.shared_bytes >= 2 * (2 * 16 * 3 * 64 * 4)
    loss.backward()
    assert all(torch.equal(a, b) for a, b in zip([*gradients_of(project), x.grad], expected, strict=True))


def test_chunks_that_count_their_own_versions_are_not_taken_for_each_other(
    offload: tierd.torch.offload_activations,
) -> None:
    gates = torch.randn(12, 50)
    for dimension in (0, 1):
        expected, packed = [], []
        for chunk in gates.unsafe_chunk(3, dimension):
            chunk.sigmoid_()  # Of the same storage, and all at version 1.
            packed.append(offload.pack(chunk))
            expected.append(chunk.clone())
        assert all(torch.equal(offload.unpack(p), e) for p, e in zip(packed, expected, strict=True))


def test_a_chunk_costs_its_own_range(offload: tierd.torch.offload_activations) -> None:
    packed = [offload.pack(chunk) for chunk in torch.randn(96, 32).unsafe_chunk(3)]
    assert len(packed) == 3 and offload.offloaded_bytes == 96 * 32 * 4


RECURRENT: dict[str, Callable[[int], torch.nn.Module]] = {
    "GRU": lambda hidden: torch.nn.GRU(12, hidden, num_layers=2),
    "GRU, double": lambda hidden: torch.nn.GRU(12, hidden, bidirectional=True, dtype=torch.float64),
    "LSTM": lambda hidden: torch.nn.LSTM(12, hidden),
    "LSTM, double": lambda hidden: torch.nn.LSTM(12, hidden, num_layers=2, dtype=torch.float64),
    "RNN": lambda hidden: torch.nn.RNN(12, hidden),
    "GRUCell": lambda hidden: torch.nn.GRUCell(12, hidden),
    "LSTMCell": lambda hidden: torch.nn.LSTMCell(12, hidden),
}


def last_state(module: torch.nn.Module, steps: torch.Tensor) -> torch.Tensor:
    if not isinstance(module, torch.nn.RNNCellBase):
        return module(steps)[0]
    state = None
    for step in steps:
        state = module(step, state)
    return torch.cat(state) if isinstance(state, tuple) else state


@pytest.mark.parametrize(("batch", "hidden"), [(1, 8), (1, 64), (4, 16), (5, 33), (32, 64)])
@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers_have_the_same_gradients(
    offload: tierd.torch.offload_activations, fake: FakeLibrary, name: str, batch: int, hidden: int
) -> None:
    torch.manual_seed(9)
    module = RECURRENT[name](hidden)
    steps = torch.randn(6, batch, 12, dtype=next(module.parameters()).dtype)
    last_state(module, steps).square().sum().backward()
    expected = gradients_of(module)
    module.zero_grad()
    with offload:
        loss = last_state(module, steps).square().sum()
    loss.backward()
    assert offload.offloaded_bytes > 0
    assert all(torch.equal(a, b) for a, b in zip(gradients_of(module), expected, strict=True))
    del loss
    gc.collect()
    assert fake.tensors == {}


def test_a_change_in_place_after_pack_does_not_reach_the_saved_bytes(
    offload: tierd.torch.offload_activations,
) -> None:
    x = torch.randn(1000, requires_grad=True)
    with offload:
        y = x * 3
        z = y.square()
    kept = y.detach().clone()
    with torch.no_grad():
        y.fill_(7)
    z.sum().backward()
    assert torch.equal(x.grad, 2 * kept * 3)


def test_a_later_version_is_another_copy(offload: tierd.torch.offload_activations, fake: FakeLibrary) -> None:
    x = torch.randn(100, requires_grad=True)
    with offload:
        y = x * 1
        first = y.square().sum()
        with torch.no_grad():
            y.mul_(2)
        second = y.square().sum()
    assert len(fake.tensors) == 2
    (first + second).backward()
    assert torch.allclose(x.grad, 2 * x + 4 * x)


def test_a_freed_storages_address_is_not_taken_for_it(offload: tierd.torch.offload_activations) -> None:
    gradients, expected = [], []
    for turn in range(20):  # The allocator gives the same address again and again.
        x = torch.full((5000,), float(turn), requires_grad=True)
        with offload:
            loss = (x * 1).square().sum()
        expected.append(2.0 * turn)
        gradients.append((loss, x))
    for (loss, x), value in zip(gradients, expected, strict=True):
        loss.backward()
        assert (x.grad == value).all()


def test_unpack_may_happen_twice(offload: tierd.torch.offload_activations, fake: FakeLibrary) -> None:
    x = torch.randn(1000, requires_grad=True)
    with offload:
        loss = (x * 2).exp().sum()
    loss.backward(retain_graph=True)
    first = x.grad.clone()
    x.grad = None
    loss.backward()
    assert torch.equal(x.grad, first)
    del loss
    assert fake.tensors == {}


def test_double_backward_has_the_same_result(offload: tierd.torch.offload_activations, fake: FakeLibrary) -> None:
    def second_order(x: torch.Tensor) -> torch.Tensor:
        (gradient,) = torch.autograd.grad((x.sin() * x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(gradient.square().sum(), x)
        return second

    x = torch.randn(1000, requires_grad=True)
    expected = second_order(x)
    with offload:
        got = second_order(x)
    assert torch.equal(got, expected)
    gc.collect()
    assert fake.tensors == {}


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_inside_has_the_same_result(
    offload: tierd.torch.offload_activations, fake: FakeLibrary, reentrant: bool
) -> None:
    torch.manual_seed(1)
    layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(3))
    x = torch.randn(16, 64, requires_grad=True)

    def forward() -> torch.Tensor:
        value = x * 1
        for layer in layers:
            value = checkpoint(lambda v, layer=layer: layer(v).relu(), value, use_reentrant=reentrant)
        return value.square().sum()

    forward().backward()
    expected = [*gradients_of(layers), x.grad.clone()]
    layers.zero_grad()
    x.grad = None
    with offload:
        loss = forward()
    loss.backward()
    assert all(torch.equal(a, b) for a, b in zip([*gradients_of(layers), x.grad], expected, strict=True))
    del loss
    gc.collect()
    assert fake.tensors == {}


def test_a_graph_that_never_ran_frees_its_bytes(offload: tierd.torch.offload_activations, fake: FakeLibrary) -> None:
    x = torch.randn(1000, requires_grad=True)
    with offload:
        loss = (x * 2).exp().sum()
    assert len(fake.tensors) > 0
    del loss
    gc.collect()
    assert fake.tensors == {} and offload.alive == 0


def test_a_graph_may_be_built_by_one_that_failed(offload: tierd.torch.offload_activations, fake: FakeLibrary) -> None:
    x = torch.randn(1000, requires_grad=True)
    with pytest.raises(ZeroDivisionError):
        with offload:
            y = (x * 2).exp()
            raise ZeroDivisionError
    del y
    gc.collect()
    assert fake.tensors == {}
    with offload:
        pass


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t[:1].expand(50, 100),
        lambda t: t.t(),
        lambda t: t[3:7, 5:90:2],
        lambda t: t.view(-1)[17:4017].view(40, 100),
        lambda t: t.unfold(1, 3, 2),
    ],
)
def test_views_keep_their_shape_and_strides(
    offload: tierd.torch.offload_activations, client: tierd.Client, view: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    value = torch.randn(50, 100)
    packed = offload.pack(view(value * 1))
    back = offload.unpack(packed)
    expected = view(value * 1)
    assert not isinstance(packed, torch.Tensor)
    assert torch.equal(back, expected) and back.stride() == expected.stride()


def test_an_expanded_view_costs_what_it_expands(offload: tierd.torch.offload_activations) -> None:
    packed = offload.pack((torch.randn(1000) * 1).expand(1000, 1000))
    assert offload.offloaded_bytes == 4000
    assert offload.unpack(packed).shape == (1000, 1000)


def test_a_small_view_of_a_large_storage_costs_its_own_range(offload: tierd.torch.offload_activations) -> None:
    large = torch.randn(1_000_000)
    value = large[500_003:500_103]
    packed = offload.pack(value)
    assert offload.offloaded_bytes < 600
    back = offload.unpack(packed)
    assert torch.equal(back, value) and back.data_ptr() % 64 == value.data_ptr() % 64


def test_parameters_and_their_views_stay_in_the_graph(client: tierd.Client, fake: FakeLibrary) -> None:
    offload = tierd.torch.offload_activations(client, min_bytes=1)
    weight = torch.nn.Parameter(torch.randn(64, 64))
    for value in (weight, weight.t(), weight.view(-1)[3:], weight.detach().view(-1)):
        back = offload.unpack(offload.pack(value))
        assert back.data_ptr() == value.data_ptr() and back.stride() == value.stride()
    assert offload.unpack(offload.pack(weight)) is weight
    assert fake.tensors == {}


def test_a_model_names_parameters_that_show_only_as_anonymous_views(client: tierd.Client) -> None:
    model = torch.nn.Linear(64, 64)
    view = model.weight.data.t()
    with tierd.torch.offload_activations(client, model=model, min_bytes=1) as offload:
        assert offload.unpack(offload.pack(view)).data_ptr() == view.data_ptr()
    stranger = tierd.torch.offload_activations(client, min_bytes=1)
    assert stranger.unpack(stranger.pack(view)).data_ptr() != view.data_ptr()


def test_what_is_not_a_plain_cpu_tensor_passes_through(
    offload: tierd.torch.offload_activations, fake: FakeLibrary
) -> None:
    class Mine(torch.Tensor):
        pass

    others = [
        torch.randn(4, 4).as_subclass(Mine),
        torch.randn(4, 4).to_sparse(),
        torch.zeros(4, device="meta"),
        torch.zeros(0),
        torch.randn(4, dtype=torch.complex64).conj(),
        torch.inference_mode()(torch.zeros)(4),
    ]
    for value in others:
        assert offload.unpack(offload.pack(value)) is value
    assert fake.tensors == {}


def graph_of(case: str, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor that backward needs, and what was computed from it."""
    torch.manual_seed(6)
    weight = torch.nn.Parameter(torch.randn(10, 10))
    match case:
        case "the input of an operation":
            value = x * 3
            return value, value.square()
        case "its output":
            value = x.exp()
            return value, value * 1
        case "a leaf":
            value = torch.randn(10, 10)
            return value, x * value
        case "a parameter":
            return weight, x * weight
        case "a parameter behind a view":
            return weight, x @ weight.t()
        case _:
            value = x.to_sparse()
            return value, torch.sparse.mm(value, weight)


@pytest.mark.parametrize("case", ["the input of an operation", "its output", "a leaf", "a parameter",
                                  "a parameter behind a view", "a sparse tensor"])  # fmt: skip
def test_what_stays_and_was_changed_in_place_is_refused_in_torchs_words(client: tierd.Client, case: str) -> None:
    def refusal(hooks: contextlib.AbstractContextManager[object]) -> str:
        x = torch.ones(10, 10, requires_grad=True)
        with hooks:
            changed, result = graph_of(case, x)
        with torch.no_grad():
            changed.mul_(2)
        with pytest.raises(RuntimeError) as caught:
            result.sum().backward()
        said = str(caught.value).split(" Hint: ")[0]  # Versions of torch differ in it, and in what they call the node.
        return re.sub(r"output 0 of \w+", "output 0 of a node", said)

    plain = refusal(contextlib.nullcontext())
    assert "modified by an inplace operation" in plain
    assert refusal(tierd.torch.offload_activations(client)) == plain


@pytest.mark.parametrize("case", ["the input of an operation", "its output", "a parameter", "a sparse tensor"])
def test_a_graph_is_not_kept_alive_by_what_stays_in_it(client: tierd.Client, case: str) -> None:
    gc.disable()
    try:
        with tierd.torch.offload_activations(client):
            saved, result = graph_of(case, torch.ones(10, 10, requires_grad=True))
        alive = [weakref.ref(saved), weakref.ref(result)]
        del saved, result
        assert [reference() for reference in alive] == [None, None]
    finally:
        gc.enable()


def test_tensors_below_the_limit_stay(client: tierd.Client, fake: FakeLibrary) -> None:
    x = torch.randn(100, requires_grad=True)
    with tierd.torch.offload_activations(client):
        (x * 2).exp().sum()
    assert fake.calls == []


def test_backward_asks_ahead_for_what_comes_next(client: tierd.Client, fake: FakeLibrary) -> None:
    offload = tierd.torch.offload_activations(client, min_bytes=1, prefetch=3 * 4000)
    x = torch.randn(1000, requires_grad=True)
    with offload:
        y = x
        for _ in range(6):
            y = (y * 1.5).exp().log()
        loss = y.sum()
    packed = sorted(tensor for tensor, _ in fake.tensors)
    loss.backward()
    assert fake.prefetched == [(tensor, 4000) for tensor in packed[-2::-1]]


def test_what_is_larger_than_the_budget_is_asked_for_in_part(client: tierd.Client, fake: FakeLibrary) -> None:
    offload = tierd.torch.offload_activations(client, min_bytes=1, prefetch=1000)
    x = torch.randn(1000, requires_grad=True)
    with offload:
        y = (x * 1.5).exp().log().sin()
        loss = y.sum()
    packed = sorted(tensor for tensor, _ in fake.tensors)
    loss.backward()
    assert len(packed) > 1 and fake.prefetched == [(tensor, 1000) for tensor in packed[-2::-1]]


def test_no_budget_asks_for_nothing(client: tierd.Client, fake: FakeLibrary) -> None:
    offload = tierd.torch.offload_activations(client, min_bytes=1, prefetch=0)
    x = torch.randn(1000, requires_grad=True)
    with offload:
        loss = (x * 1.5).exp().log().sum()
    loss.backward()
    assert fake.prefetched == []


def test_a_session_that_ended_does_not_break_the_freeing(
    client: tierd.Client, offload: tierd.torch.offload_activations
) -> None:
    x = torch.randn(1000, requires_grad=True)
    with offload:
        loss = (x * 2).exp().sum()
    client.close()
    del loss
    gc.collect()
    assert offload.alive == 0


def test_a_refusal_names_the_module_whose_activation_has_no_room(
    offload: tierd.torch.offload_activations, fake: FakeLibrary
) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Sequential(torch.nn.Linear(16, 4), torch.nn.Tanh()))
    fake.capacity = 1 << 10  # The input, but not what the second layer saves.
    words = r"an activation of module '1\.0', Linear \(float32, shape \(32, 16\)\): no room for 2048 bytes"
    with pytest.raises(tierd.NoSpace, match=words), offload:
        model(torch.randn(32, 8))
    with pytest.raises(tierd.NoSpace, match=r"an activation \(float32, shape \(1024,\)\): no room"), offload:
        torch.randn(1024, requires_grad=True).exp().sum()
    assert offload.alive == 0


def test_inputs_that_require_gradients_are_not_kept_in_mind(client: tierd.Client) -> None:
    """As `enable_input_require_grads()` of Hugging Face makes one in each forward."""
    model, _optimizer = tierd.torch.offload(torch.nn.Linear(16, 16), tierd.torch.AdamW, client=client, min_bytes=1)
    activations = required_runtime(model)._activations
    assert activations is not None
    noted = []
    for _ in range(300):
        model(torch.randn(4, 16).requires_grad_()).sum().backward()
        _optimizer.zero_grad()
        noted.append(len(activations._parameters))
    assert max(noted) < 70
