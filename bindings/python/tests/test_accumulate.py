"""accumulate: the bits of a loop over the micro-batches, whatever they run, and each block's values fetched once."""

from __future__ import annotations

import collections
import gc
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from fake_library import FakeLibrary
from hypothesis import given, settings
from hypothesis import strategies as st
from test_offload import Net, assert_same, loss_of, new_client, offloaded, pair_of, tokens_of
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import tierd
import tierd.torch
from tierd.torch import strands
from tierd.torch.blocks import blocks_of
from tierd.torch.placeholder import Placeholder

Loss = Callable[[nn.Module, Any], torch.Tensor]


def in_a_loop(model: nn.Module, batches: Sequence[Any], loss: Loss) -> list[torch.Tensor]:
    losses = []
    for batch in batches:
        found = loss(model, batch)
        found.backward()
        losses.append(found.detach())
    return losses


def by_blocks(model: nn.Module, batches: Sequence[Any], loss: Loss, **options: Any) -> list[torch.Tensor]:
    return tierd.torch.accumulate(model, batches, lambda batch: loss(model, batch), **options)


def assert_same_gradients(ours: nn.Module, theirs: nn.Module) -> None:
    for (name, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        found = tierd.torch.gradient_of(a)
        assert (found is None) == (b.grad is None), name
        assert found is None or torch.equal(found, b.grad), name


def assert_nothing_is_left(model: nn.Module, fake: FakeLibrary | None = None) -> None:
    gc.collect()
    assert [thread.name for thread in threading.enumerate() if "tierd-strand" in thread.name] == []
    if fake is None:
        return
    assert fake.leases == {}
    store = model.__dict__["_tierd_runtime"].store
    assert (store.scopes.open, store.scopes.on_demand, store.held.bytes_max) == (0, [], 0)
    assert all(type(parameter) is Placeholder for parameter in model.parameters())


def hooks_of(model: nn.Module) -> list[int]:
    modules = [len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules()]
    return modules + [len(p._backward_hooks or ()) for p in model.parameters()]


class Stack(nn.Module):
    """Blocks that a batch may leave out, between an embedding and a head that may be tied, and a parameter that only
    some blocks use. ``kind``: of checkpoint, or none."""

    def __init__(self, blocks: int, kind: bool | None = None, tied: bool = True, width: int = 8) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.Tanh()) for _ in range(blocks)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 32)
        self.shift = nn.Parameter(torch.ones(width))
        if tied:
            self.head.weight = self.embed.weight
        self.kind = kind

    def forward(self, tokens: torch.Tensor, without: Sequence[int] = (), shifted: int = 0) -> torch.Tensor:
        x = self.embed(tokens)
        if self.kind and not x.requires_grad:
            x = x.requires_grad_()
        for index, layer in enumerate(self.layers):
            if index in without:
                continue
            x = x + (layer(x) if self.kind is None else checkpoint(layer, x, use_reentrant=self.kind))
            if index == shifted:
                x = x * self.shift
        y: torch.Tensor = self.head(self.norm(x))
        return y


def stack_loss(model: nn.Module, batch: tuple[torch.Tensor, Sequence[int], int]) -> torch.Tensor:
    return F.cross_entropy(model(*batch).flatten(0, 1), batch[0].flatten()) / 3


def stack_batches(step: int, count: int) -> list[Any]:
    return [(tokens_of(16 * step + number), (), 0) for number in range(count)]


@pytest.mark.parametrize("reentrant", [None, False, True])
@pytest.mark.parametrize("update", ["step", "deferred", None])
def test_three_steps_have_torchs_bits(update: str | None, reentrant: bool | None) -> None:
    client, fake = new_client()
    ours, theirs = pair_of(lambda: Net(reentrant=reentrant))
    for model in (ours, theirs):
        model.blocks[1].up.requires_grad_(False)
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
    optimizer: Any = torch.optim.AdamW(ours.parameters(), lr=1e-2, fused=True)
    if update is not None:
        optimizer = offloaded(ours, client, update=update)[1]
    hooks = hooks_of(ours)
    for step in range(3):
        batches, results = [tokens_of(10 * step + number) for number in range(3)], []
        for model, run in ((ours, by_blocks), (theirs, in_a_loop)):
            results.append(run(model, batches, loss_of))
            nn.utils.clip_grad_norm_(model.parameters(), 1e9)
        assert all(torch.equal(a, b) and not a.requires_grad for a, b in zip(*results, strict=True))
        assert_same_gradients(ours, theirs)
        for o in (optimizer, plain):
            o.step()
            o.zero_grad()
    assert_same(ours, theirs)
    assert hooks_of(ours) == hooks
    assert_nothing_is_left(ours, None if update is None else fake)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_whatever_the_micro_batches_run_their_gradients_have_torchs_bits(data: st.DataObject) -> None:
    blocks, count = data.draw(st.integers(1, 4), "blocks"), data.draw(st.integers(1, 5), "micro-batches")
    kind, tied = data.draw(st.sampled_from([None, False, True])), data.draw(st.booleans())
    frozen = data.draw(st.sets(st.integers(0, 4 * blocks + 4), max_size=4), "frozen")
    client, fake = new_client()
    ours, theirs = pair_of(lambda: Stack(blocks, kind, tied))
    for model in (ours, theirs):
        for number, parameter in enumerate(model.parameters()):
            parameter.requires_grad_(number not in frozen or number < 2)
    if data.draw(st.booleans(), "offloaded"):
        offloaded(ours, client, update="step")
    numbers = st.integers(0, blocks - 1)
    batches = [
        (tokens_of(number), tuple(data.draw(st.sets(numbers), "left out")), data.draw(numbers, "shifted"))
        for number in range(count)
    ]
    for _ in range(2):  # The second adds to what there is.
        found = by_blocks(ours, batches, stack_loss, blocks="layers")
        assert all(map(torch.equal, found, in_a_loop(theirs, batches, stack_loss)))
    assert_same_gradients(ours, theirs)
    assert fake.leases == {}


def test_all_micro_batches_run_a_block_before_any_runs_the_next() -> None:
    for kind in (None, False, True):
        model, seen = Stack(3, kind), []

        class Note(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: torch.Tensor, name: str) -> torch.Tensor:
                ctx.name = name
                return x.clone()

            @staticmethod
            def backward(ctx: Any, gradient: torch.Tensor) -> Any:
                seen.append(ctx.name.upper())  # noqa: B023
                return gradient, None

        for name, layer in zip("abc", model.layers, strict=True):
            layer.register_forward_pre_hook(lambda *_, name=name, seen=seen: seen.append(name))
            layer.register_forward_hook(lambda _, given, out, name=name, note=Note: note.apply(out, name))
        by_blocks(model, stack_batches(0, 3), stack_loss)
        again = {None: "CCCBBBAAA", False: "CcCcCcBbBbBbAaAaAa", True: "cCcCcCbBbBbBaAaAaA"}  # By the checkpoint.
        assert "".join(seen) == "aaabbbccc" + again[kind]


def test_a_micro_batch_that_is_ahead_waits_with_a_gradient_until_it_is_its_turn() -> None:
    """The second leaves out the last block, so its backward begins first."""
    ours, theirs = pair_of(lambda: Stack(3))
    batches = [(tokens_of(number), (2,) if number == 1 else (), 0) for number in range(3)]
    waited = []
    pass_in_order = strands.Strand.pass_in_order

    def watched(strand: strands.Strand, what: Any) -> bool:
        before = ours.head.bias.grad
        found = pass_in_order(strand, what)
        if what == id(ours.head.bias) and strand.index == 1:
            waited.append((before is None, ours.head.bias.grad is None))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strands.Strand, "pass_in_order", watched)
        by_blocks(ours, batches, stack_loss)
    assert waited == [(True, False)]
    in_a_loop(theirs, batches, stack_loss)
    assert_same_gradients(ours, theirs)


def test_a_gradient_in_several_parts_is_refused_where_their_order_would_be_another() -> None:
    for reentrant in (False, True):
        ours, theirs = pair_of(lambda: Stack(3, reentrant))  # noqa: B023
        for model in (ours, theirs):
            model.layers[2][1].weight = model.layers[0][1].weight
        if reentrant:
            with pytest.raises(tierd.Invalid, match=r"'layers.0.1.weight' comes in several parts.*use_reentrant=False"):
                by_blocks(ours, stack_batches(0, 3), stack_loss)
            continue
        by_blocks(ours, stack_batches(0, 3), stack_loss)
        in_a_loop(theirs, stack_batches(0, 3), stack_loss)
        assert_same_gradients(ours, theirs)


def test_a_loss_may_run_the_model_several_times_and_without_gradients() -> None:
    def loss(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            target = model(tokens)
        slopes = torch.autograd.grad(model(tokens).square().sum(), model.scale, create_graph=True)[0]
        return (model(tokens.flip(1)) - target).square().mean() + slopes.square().sum() + loss_of(model, tokens)

    client, fake = new_client()
    ours, theirs = pair_of(Net)
    _, optimizer = offloaded(ours, client)
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
    for step in range(2):
        batches = [tokens_of(5 * step + number) for number in range(3)]
        found = [run(model, batches, loss) for model, run in ((ours, by_blocks), (theirs, in_a_loop))]
        assert all(map(torch.equal, *found))
        assert_same_gradients(ours, theirs)
        for o in (optimizer, plain):
            o.step()
            o.zero_grad()
    assert_same(ours, theirs)
    assert_nothing_is_left(ours, fake)


def test_a_scaler_skips_the_step_of_a_micro_batch_that_overflows() -> None:
    client, _ = new_client()
    ours, theirs = pair_of(Net)
    _, optimizer = offloaded(ours, client)
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
    scales = []
    for step in range(3):
        for model, o, run in ((ours, optimizer, by_blocks), (theirs, plain, in_a_loop)):
            scaler = torch.amp.GradScaler("cpu", init_scale=256.0)

            def scaled(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
                factor = float("inf") if step == 1 and tokens is batches[1] else 0.5  # noqa: B023
                return scaler.scale(loss_of(model, tokens) * factor)  # noqa: B023

            batches = [tokens_of(10 * step + number) for number in range(2)]
            run(model, batches, scaled)
            scaler.unscale_(o)
            scaler.step(o)
            scaler.update()
            o.zero_grad()
            scales.append(scaler.get_scale())
    assert scales == [256, 256, 128, 128, 256, 256]
    assert_same(ours, theirs)


# ---- What is refused ----


def test_what_cannot_be_accumulated_by_blocks_is_refused() -> None:
    client, fake = new_client()
    model = Stack(2)
    batches = stack_batches(0, 2)
    refusals: list[tuple[str, Callable[[], object]]] = [
        ("no micro-batches", lambda: by_blocks(model, [], stack_loss)),
        ("'layer'", lambda: by_blocks(model, batches, stack_loss, blocks="layer")),
        ("blocks is a Linear", lambda: by_blocks(model, batches, stack_loss, blocks="head")),
        ("not a module of the model", lambda: by_blocks(model, batches, stack_loss, blocks=[nn.Linear(2, 2)])),
        ("blocks is empty", lambda: by_blocks(model, batches, stack_loss, blocks=[])),
        ("of shape (2, 6, 32)", lambda: by_blocks(model, batches, lambda model, batch: model(*batch))),
        ("is a float", lambda: by_blocks(model, batches, lambda *_: 1.0)),  # type: ignore[arg-type,return-value]
        ("requires a gradient", lambda: torch.no_grad()(by_blocks)(model, batches, stack_loss)),
        ("no ModuleList", lambda: by_blocks(nn.Linear(2, 2), batches, stack_loss)),
        ("on the CPU", lambda: by_blocks(nn.ModuleList([nn.Linear(2, 2, device="meta")] * 2), batches, stack_loss)),
        ("pass loss=", lambda: tierd.torch.accumulate(nn.Sequential(nn.Identity(), nn.Identity()), [1])),
    ]
    for match, call in refusals:
        with pytest.raises(tierd.Invalid) as caught:
            call()
        assert match in str(caught.value)
        assert_nothing_is_left(model)
    offloaded(model, client, update="backward")
    with pytest.raises(tierd.Invalid, match="update='deferred'"):
        by_blocks(model, batches, stack_loss)


@pytest.mark.parametrize("in_tierd", [False, True])
def test_a_loss_that_calls_backward_itself_is_refused(in_tierd: bool) -> None:
    def with_backward(model: nn.Module, batch: Any) -> torch.Tensor:
        loss = stack_loss(model, batch)
        loss.backward(retain_graph=True)
        return loss

    client, fake = new_client()
    model, batches = Stack(2), stack_batches(0, 2)
    if in_tierd:
        offloaded(model, client)
    with pytest.raises(tierd.Invalid, match=r"loss of micro-batch 0 called backward\(\) itself.*accumulate\(\) calls"):
        by_blocks(model, batches, with_backward)
    model.zero_grad()
    by_blocks(model, batches, stack_loss)
    stack_loss(model, batches[0]).backward()  # Outside of accumulate nothing watches.
    model.zero_grad()
    assert_nothing_is_left(model, fake if in_tierd else None)


def test_a_call_inside_of_forward_backward_or_another_call_is_refused() -> None:
    model, batches = Stack(2), stack_batches(0, 2)

    def nested(*_: Any) -> None:
        with pytest.raises(tierd.Invalid, match=r"inside of a forward, a backward or another accumulate"):
            by_blocks(model, batches, stack_loss)
        calls.append(1)

    calls: list[int] = []
    handles = [model.norm.register_forward_hook(nested)]
    stack_loss(model, batches[0])
    handles[0].remove()
    loss = stack_loss(model, batches[0])
    loss.register_hook(nested)
    loss.backward()
    by_blocks(model, batches, lambda model, batch: (nested(), stack_loss(model, batch))[1])
    assert len(calls) == 4


def test_blocks_are_found() -> None:
    layer = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8), 3, enable_nested_tensor=False)
    assert blocks_of(layer) == list(layer.layers)
    experts = nn.ModuleList(nn.ModuleList(nn.Linear(2, 2) for _ in range(5)) for _ in range(3))
    assert blocks_of(nn.ModuleDict({"a": experts, "b": nn.ModuleList([nn.Linear(2, 2)] * 2)})) == list(experts)
    mixed = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    assert blocks_of(mixed) == list(mixed)
    assert blocks_of(mixed, "2") == list(mixed[2]) and blocks_of(mixed, [mixed[0]]) == [mixed[0]]


def test_the_model_is_called_with_the_micro_batch_where_there_is_no_loss() -> None:
    class Output(dict[str, torch.Tensor]):
        loss: torch.Tensor

    class Model(Stack):
        def forward(self, tokens: torch.Tensor, labels: torch.Tensor | None = None) -> Any:  # type: ignore[override]
            loss = F.cross_entropy(super().forward(tokens).flatten(0, 1), tokens.flatten())
            if labels is None:
                return loss
            output = Output()
            output.loss = loss * labels
            return output

    ours, theirs = pair_of(lambda: Model(2))
    two = torch.tensor(2.0)
    batches: list[Any] = [tokens_of(0), (tokens_of(1), two), {"tokens": tokens_of(2), "labels": two}]
    calls = [lambda: theirs(batches[0]), lambda: theirs(*batches[1]).loss, lambda: theirs(**batches[2]).loss]
    expected = in_a_loop(theirs, calls, lambda _, call: call() / 3)
    assert all(map(torch.equal, tierd.torch.accumulate(ours, iter(batches)), expected))
    assert_same_gradients(ours, theirs)


# ---- What is fetched ----


def test_a_blocks_parameters_are_leased_and_asked_for_once_in_each_direction() -> None:
    client, fake = new_client()
    ours, _ = pair_of(lambda: Stack(4, tied=False))
    _, optimizer = offloaded(ours, client, name="offload", update="step", activations="device")
    leased: collections.Counter[str] = collections.Counter()
    lease = client.lease

    def counted(key: str, **options: Any) -> tierd.Lease:
        leased[key] += 1
        return lease(key, **options)

    client.lease = counted  # type: ignore[assignment,method-assign]
    ours.__dict__["_tierd_runtime"].store.training_order.bytes_max = 700  # Two blocks.
    weights = [f"offload/layers.{layer}.1.weight" for layer in range(4)]
    for step in range(3):
        leased.clear()
        fake.prefetched.clear()
        by_blocks(ours, stack_batches(step, 5), stack_loss)
        asked = collections.Counter(number for number, _ in fake.prefetched)
        optimizer.step()
        optimizer.zero_grad()
        assert [leased[weight] for weight in weights] == [2] * 4
        assert leased["offload/head.weight"] == 1  # Its backward follows its forward.
        assert {asked[client.tensor_id(weight)] for weight in weights[1:]} <= ({1, 2} if step else {0})


def test_values_that_are_held_make_room_for_others() -> None:
    client, fake = new_client()
    ours, theirs = pair_of(lambda: Stack(2))
    offloaded(ours, client)
    lease, refused = client.lease, []

    def tight(key: str, **options: Any) -> tierd.Lease:
        taken = sum(each.end - each.begin for each in fake.leases.values())
        if taken + client.tensor(key).size > 1400:  # The embedding has 1024, a block 352 in three tensors.
            refused.append(key)
            raise tierd.WouldDeadlock("no room beside your leases")
        return lease(key, **options)

    client.lease = tight  # type: ignore[assignment,method-assign]
    by_blocks(ours, stack_batches(0, 2), stack_loss)
    assert len(refused) > 2
    in_a_loop(theirs, stack_batches(0, 2), stack_loss)
    assert_same_gradients(ours, theirs)


@pytest.mark.parametrize("kind", [None, False])
def test_activations_are_asked_for_in_the_order_in_which_backward_needs_them(kind: bool | None) -> None:
    client, fake = new_client()
    ours, _ = pair_of(lambda: Stack(4, kind, width=32))
    activations = tierd.torch.offload_activations(client, model=ours, min_bytes=1, prefetch="24KiB")
    read: dict[int, int] = {}  # By tensor, how many were asked for before it.
    get_into = client.get_into

    def noting(tensor: int, out: Any) -> None:
        read.setdefault(tensor, len(fake.prefetched))
        get_into(tensor, out)

    client.get_into = noting  # type: ignore[assignment,method-assign]
    late = []
    for run in (in_a_loop, by_blocks):
        read.clear()
        fake.prefetched.clear()
        with activations:
            run(ours, stack_batches(0, 4), stack_loss)
        asked = [tensor for tensor, _ in fake.prefetched]
        late.append(len([tensor for tensor, before in read.items() if tensor not in asked[:before]]))
        assert len(read) > 40
    assert late[0] == 8 and late[1] <= 9
    assert activations.alive == 0 and fake.tensors == {}


@pytest.mark.parametrize("reentrant", [False, True])
def test_dropout_in_a_checkpoint_has_the_same_mask_again_in_backward(reentrant: bool) -> None:
    class Dropping(nn.Module):
        def __init__(self, recomputed: bool) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Tanh()) for _ in range(3))
            self.recomputed = recomputed

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=reentrant) if self.recomputed else layer(x)
            return x

    found = []
    for recomputed in (False, True):
        torch.manual_seed(0)
        model: nn.Module = Dropping(recomputed)
        if recomputed:
            model, _ = offloaded(model, new_client()[0])
        batches = [torch.full((4, 8), 1.0 + number, requires_grad=True) for number in range(3)]
        torch.manual_seed(7)
        losses = by_blocks(model, batches, lambda net, batch: net(batch).square().mean())
        gradients = [tierd.torch.gradient_of(parameter) for parameter in model.parameters()]
        found.append([*losses, *gradients, *(batch.grad for batch in batches)])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_the_generator_goes_on_as_the_caller_had_it() -> None:
    def draw(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        with torch.random.fork_rng():
            torch.manual_seed(3)
            noise = torch.rand(8)
        return model(batch + noise).sum()

    after = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
        torch.manual_seed(seed)
        by_blocks(model, [torch.ones(2, 8), torch.zeros(2, 8)], draw, blocks=list(model))
        after.append(torch.rand(2))
        torch.manual_seed(seed)
        assert torch.equal(after[-1], torch.rand(2)), "the loop draws from a generator of its own alone"
    assert not torch.equal(*after)


def test_micro_batches_draw_different_numbers_and_others_in_the_next_call() -> None:
    drawn: list[list[float]] = []

    def draw(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        drawn.append(torch.rand(2).tolist())
        return model(batch).sum()

    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    torch.manual_seed(5)
    for _ in range(2):
        by_blocks(model, [torch.ones(2, 8)] * 3, draw, blocks=list(model))
    assert len({tuple(each) for each in drawn}) == 6
    torch.manual_seed(5)
    assert drawn[0] == torch.rand(2).tolist(), "the first has what a loop would have"
