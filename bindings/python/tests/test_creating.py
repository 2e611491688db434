"""creating(): a model that is made in tierd has the bits of one that is made in memory, and is never whole in it."""

from __future__ import annotations

import copy
import ctypes
import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from fake_library import FakeLibrary, Refusal
from test_offload import Net, assert_same, loss_of, new_client, tokens_of, train
from torch import nn

import tierd
import tierd.torch
from tierd.torch.placeholder import Placeholder


class Gpt(Net):
    """Initialised like GPT-2: after construction, by apply(), with weights tied before and values read back."""

    def __init__(self) -> None:
        super().__init__()
        self.apply(self.initialise)
        for name, p in self.named_parameters():
            if name.endswith("down.weight"):
                nn.init.normal_(p, std=0.02 / 6**0.5)
        self.register_buffer("norms", torch.stack([p.detach().norm() for p in self.parameters()]))

    def initialise(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            module.weight.data.normal_(mean=0.0, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            rows = module.weight.data  # Written to after other parameters were used.
            nn.init.orthogonal_(self.head.weight)
            with torch.no_grad():
                module.weight[3].fill_(0.5)
            rows[0].zero_()


class Odd(nn.Module):
    """Converted, replaced, reassigned, aliased, built from values, frozen, of other layouts."""

    def __init__(self) -> None:
        super().__init__()
        self.low = nn.Linear(8, 16).to(torch.bfloat16)
        self.conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        self.grown = nn.Linear(8, 8, bias=False)
        self.grown.weight.data = torch.cat([self.grown.weight.data, torch.randn(4, 8)])
        self.kept = nn.Linear(8, 8).requires_grad_(False)
        self.copied = nn.Parameter(self.kept.weight.clone())
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
        self.shaped = nn.Linear(int(self.kept(torch.ones(8)).numel()), 4)
        self.table = nn.Embedding.from_pretrained(torch.randn(6, 8))
        self.lazy = nn.LazyLinear(4)
        self.vector = nn.Parameter(nn.utils.parameters_to_vector(self.kept.parameters()))
        with torch.no_grad():
            self.shaped.weight.mul_(3).clamp_(-1, 1)
            self.kept.bias.copy_(self.shaped.weight[0])
        self.double = nn.Linear(4, 4).double()


def mlp() -> nn.Module:
    return nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(8, 8), nn.ReLU())])


def transformer() -> nn.Module:
    """Its encoder copies layers, and its constructor initialises them all again."""
    return nn.Transformer(16, 2, 3, 2, 32, batch_first=True)


def created(make: Callable[[], nn.Module], client: tierd.Client, **options: Any) -> nn.Module:
    torch.manual_seed(1)
    with tierd.torch.creating(client=client, **{"min_bytes": 1, "window_bytes": 1, **options}):
        return make()


def plain(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(1)
    return make()


def offloaded(model: nn.Module, **options: Any) -> tuple[nn.Module, Any]:
    return tierd.torch.offload(model, tierd.torch.AdamW, **{"min_bytes": 1, "lr": 1e-2, **options})


@pytest.mark.parametrize("make", [mlp, transformer, Net, Gpt, Odd])
def test_a_model_has_the_bits_of_plain_construction(make: Callable[[], nn.Module]) -> None:
    client, fake = new_client()
    torch.set_default_dtype(torch.float64 if make is mlp else torch.float32)
    try:
        theirs = plain(make)
        random = torch.rand(3)
        ours = created(make, client)
        assert torch.equal(torch.rand(3), random)
    finally:
        torch.set_default_dtype(torch.float32)
    if make is not Odd:
        assert all(type(p) is Placeholder for p in ours.parameters())
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    assert all(torch.equal(a, b) for a, b in zip(ours.buffers(), theirs.buffers(), strict=True))
    if make is Odd:
        del ours.lazy, theirs.lazy
        assert type(ours.kept.weight) is Placeholder and ours.grown.weight.shape == (12, 8)
    assert_same(ours, theirs)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert (a.requires_grad, a.dtype, a.shape) == (b.requires_grad, b.dtype, b.shape)
    gc.collect()  # The layer that a transformer copies is dropped.
    before = {key: tensor.address for key, tensor in fake.tensors.items()}
    in_tierd = sum(type(p) is Placeholder for p in ours.parameters())
    offloaded(ours)
    assert in_tierd == len(before)
    assert before == {key: fake.tensors[key].address for key in before}  # The same tensors.
    assert_same(ours, theirs)


@pytest.mark.parametrize("make", [Net, Gpt])
def test_what_was_created_trains_with_the_same_bits(make: Callable[[], nn.Module]) -> None:
    client, fake = new_client()
    ours, theirs = created(make, client), plain(make)
    _, optimizer = offloaded(ours, client=client, name="net")
    other = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
    assert train(ours, optimizer) == train(theirs, other)
    assert_same(ours, theirs)
    del ours, optimizer, _
    gc.collect()
    assert fake.tensors == {} and fake.leases == {}


class Watched(nn.Linear):
    """Counts the elements of all parameters that are in the process."""

    most = 0
    models: list[nn.Parameter]

    def __init__(self) -> None:
        super().__init__(64, 64, bias=False)
        self.look(self.weight)

    @classmethod
    def look(cls, new: nn.Parameter) -> None:
        if not any(p is new for p in cls.models):
            cls.models.append(new)
        cls.most = max(cls.most, sum(type(p) is not Placeholder for p in cls.models))


@pytest.mark.parametrize("window, alive", [(1, 2), (3 * 64 * 64 * 4, 4)])
def test_few_parameters_are_in_the_process_at_a_time(window: int, alive: int) -> None:
    client, fake = new_client()
    Watched.models, Watched.most = [], 0

    def make() -> nn.Module:
        model = nn.Sequential(*[nn.Sequential(*[Watched() for _ in range(4)]) for _ in range(4)])
        for _ in range(2):
            for p in model.parameters():
                nn.init.normal_(p)
                Watched.look(p)
        model.append(copy.deepcopy(model[0]))
        return model

    ours = created(make, client, window_bytes=window)
    assert Watched.most <= alive and len(fake.tensors) == 20
    Watched.models = []
    assert_same(ours, plain(make))


class Replaced(nn.Module):
    """Its children's parameters are replaced by its own constructor, in ways that torch tells no subclass of."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(61, 67, bias=False) for _ in range(8)])
        self.seen: list[weakref.ref[nn.Parameter]] = []
        self.most = 0
        for layer in self.each():
            layer.weight = nn.Parameter(layer.weight, requires_grad=False)
        for layer in self.each():
            layer.weight = nn.Parameter(layer.weight.as_subclass(torch.Tensor).mul(2))
        for layer in self.each():
            layer.weight.data.set_(torch.randn(67, 61))
        for layer in self.each():
            layer.weight.requires_grad_(False).set_(torch.randn(67, 61)).requires_grad_()
        for layer in self.each():
            layer.late = nn.Parameter(torch.randn(67, 61))

    def each(self) -> Iterator[nn.Linear]:
        for layer in self.layers:
            self.seen += [weakref.ref(p) for p in layer.parameters()]
            yield layer
            self.seen += [weakref.ref(p) for p in layer.parameters()]
            alive = {id(ref()) for ref in self.seen if type(ref()) is nn.Parameter}
            self.most = max(self.most, len(alive))


def test_parameters_that_are_replaced_leave_too() -> None:
    client, fake = new_client()
    ours = created(Replaced, client)
    assert ours.most == 2 and all(type(p) is Placeholder for p in ours.parameters())
    theirs = plain(Replaced)
    assert_same(ours, theirs)
    gc.collect()
    assert len(fake.tensors) == 16
    made = nn.Parameter(torch.ones(2))
    assert type(made) is nn.Parameter and isinstance(nn.Parameter.__dict__["__new__"], staticmethod)
    with pytest.raises(RuntimeError, match="weakref"):  # Each would have the other's place in tierd.
        torch.utils.swap_tensors(ours.layers[0].weight, ours.layers[1].weight)
    with pytest.raises(tierd.Invalid, match=r"set_\(\)"):
        ours.layers[0].weight.set_(torch.ones(67, 61))


def test_constructors_run_in_the_order_of_plain_construction() -> None:
    class Mixin:
        pass

    class Inherits(Mixin, nn.Module):
        pass

    class Other(Mixin):
        def __init__(self) -> None:
            super().__init__()
            self.flag = True

    class Both(Inherits, Other):
        pass

    client, _ = new_client()
    plain = Both()
    with tierd.torch.creating(client=client):
        assert hasattr(Both(), "flag") == hasattr(plain, "flag") and Both().flag


def test_a_class_that_cannot_be_wrapped_leaves_with_the_module_around_it() -> None:
    class Meta(type):
        def __setattr__(cls, name: str, value: object) -> None:
            raise TypeError("it cannot be changed")

    class Sealed(nn.Module, metaclass=Meta):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8, 8))

    client, _ = new_client()
    ours = created(lambda: nn.Sequential(Sealed(), nn.Linear(8, 8)), client)
    assert all(type(p) is Placeholder for p in ours.parameters())
    assert_same(ours, plain(lambda: nn.Sequential(Sealed(), nn.Linear(8, 8))))
    assert not hasattr(nn.Linear.__init__, "__wrapped__")


def test_what_something_else_refers_to_stays_and_is_offloaded_as_usual() -> None:
    client, fake = new_client()
    table = torch.randn(6, 8)

    def make() -> nn.Module:
        model = nn.Sequential(nn.Linear(8, 8), nn.Embedding.from_pretrained(table, freeze=False), nn.Linear(8, 8))
        model.kept = model[2].weight.data.numpy()
        return model

    ours, theirs = created(make, client), plain(make)
    table.mul_(2)
    ours.kept *= 2
    theirs.kept *= 2
    assert type(ours[1].weight) is type(ours[2].weight) is nn.Parameter and type(ours[0].weight) is Placeholder
    assert_same(ours, theirs)
    offloaded(ours)
    assert type(ours[1].weight) is Placeholder
    assert_same(ours, theirs)

    class Shares(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(8, 8)
            self.b = nn.Parameter(self.a.weight.data)

    with pytest.raises(tierd.Invalid, match="share their bytes"):
        offloaded(created(Shares, client), client=client)


def test_small_and_late_parameters_and_classes_without_a_constructor() -> None:
    client, fake = new_client()

    class Mixin:
        def __init__(self) -> None:
            super().__init__()
            self.mixed = nn.Parameter(torch.randn(8, 8))  # type: ignore[misc]

    with tierd.torch.creating(client=client, min_bytes=200):

        class Late(Mixin, nn.Module):
            pass

        late = Late()
        assert type(late.mixed) is Placeholder
        model = nn.Sequential(nn.Linear(8, 8), late)
        model.extra = nn.Parameter(torch.ones(8, 8))
        assert type(model[0].bias) is nn.Parameter and type(model.extra) is nn.Parameter
    assert type(model.extra) is Placeholder and type(model[0].bias) is nn.Parameter
    assert "__init__" not in Late.__dict__ and "__init_subclass__" not in nn.Module.__dict__
    assert nn.Linear.__init__.__qualname__ == "Linear.__init__" and not hasattr(nn.Linear.__init__, "__wrapped__")


def test_what_is_dropped_or_fails_is_freed() -> None:
    client, fake = new_client()

    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 8)
            raise KeyError("no")

    with tierd.torch.creating(client=client, min_bytes=1, window_bytes=1):
        for _ in range(3):
            nn.Linear(8, 8)
        with pytest.raises(KeyError):
            Fails()
        gc.collect()
        assert len(fake.tensors) == 0
        kept = nn.Linear(8, 8)
    assert len(fake.tensors) == 2
    with pytest.raises(KeyError), tierd.torch.creating(client=client, min_bytes=1):
        other = nn.Linear(8, 8)
        values = other.weight.clone()
        raise KeyError
    assert type(other.weight) is nn.Parameter and torch.equal(other.weight, values)
    assert type(other.bias) is Placeholder
    del kept, other
    gc.collect()
    assert fake.tensors == {}
    assert not hasattr(nn.Linear.__init__, "__wrapped__")


def test_nested_contexts_and_two_models_of_one() -> None:
    (a, in_a), (b, in_b) = new_client(), new_client()
    torch.manual_seed(1)
    with tierd.torch.creating(client=a, min_bytes=1, window_bytes=1):
        first = nn.Linear(8, 8)
        with tierd.torch.creating(client=b, min_bytes=1, window_bytes=1):
            second = nn.Linear(8, 8)
            nn.init.ones_(first.bias)
            with torch.no_grad():
                second.weight.copy_(first.weight)
        third = nn.Linear(8, 8)
    assert (len(in_a.tensors), len(in_b.tensors)) == (4, 2)
    with tierd.torch.gathered(first, second):
        assert torch.equal(first.weight, second.weight) and first.bias.sum() == 8
    with pytest.raises(tierd.Invalid, match="another client"):
        offloaded(second, client=a)
    with pytest.raises(tierd.Invalid, match="different clients"):
        offloaded(nn.Sequential(first, second))
    offloads = [offloaded(each) for each in (first, second, third)]
    for model, optimizer in offloads:
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()


def test_uses_before_offload() -> None:
    client, fake = new_client()
    ours, theirs = created(Net, client), plain(Net)
    with pytest.raises(tierd.Invalid, match=r"tierd.torch.offload\(\) first"):
        loss_of(ours, tokens_of(0))
    with pytest.raises(tierd.Invalid, match="gathered"):
        copy.deepcopy(ours)
    with tierd.torch.gathered(ours, write=True), torch.no_grad():
        ours.head.weight.mul_(2)
    theirs.head.weight.data.mul_(2)
    ours.load_state_dict({**theirs.state_dict(), "scale": torch.full((16,), 3.0)})
    theirs.scale.data.fill_(3)
    assert_same(ours, theirs)
    with pytest.raises(tierd.Invalid, match="parameters='device'"):
        offloaded(ours, parameters="device")
    with pytest.raises(tierd.Invalid, match="resume"):
        offloaded(ours, resume=True)
    with pytest.raises(TypeError, match="betas"):
        offloaded(ours, betas_of="none")
    assert_same(ours, theirs)
    held = len(fake.tensors)
    with pytest.raises(TypeError):
        offloaded(ours, nothing="such")  # The parameters are as they were, and still there.
    assert len(fake.tensors) == held
    offloaded(ours)
    assert_same(ours, theirs)


def test_offload_inside_of_the_context() -> None:
    client, _ = new_client()
    theirs = plain(Net)
    torch.manual_seed(1)
    with tierd.torch.creating(client=client, min_bytes=1):
        ours = Net()
        nn.init.ones_(ours.scale)
        _, optimizer = offloaded(ours)
        other = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
        assert train(ours, optimizer) == train(theirs, other)
    assert_same(ours, theirs)


def test_a_backward_while_creating_has_its_values() -> None:
    client, _ = new_client()

    def make() -> nn.Module:
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
        loss = (model(torch.ones(2, 8)) * model[0].weight[0]).pow(2).sum()
        nn.init.kaiming_normal_(nn.Linear(8, 8).weight)
        loss.backward()
        return model

    ours, theirs = created(make, client), plain(make)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        gradient = tierd.torch.gradient_of(a)
        assert gradient is not None and torch.equal(gradient, b.grad)
    assert_same(ours, theirs)


def test_no_space_is_said_with_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    client, fake = new_client()
    module = sys.modules["tierd.torch.creating"]  # Its name in the package is the function's.
    monkeypatch.setattr(module, "connect", lambda **options: client)
    fake.put_refusal = Refusal(6, "the SSD is full")
    with pytest.raises(tierd.NoSpace, match=r"creating\(ssd=…\).*the SSD is full"), tierd.torch.creating(min_bytes=1):
        nn.Linear(8, 8)
    with (
        pytest.raises(tierd.NoSpace, match="daemon of this client"),
        tierd.torch.creating(client=client, min_bytes=1),
    ):
        nn.Linear(8, 8)
    with pytest.raises(TypeError, match="client"), tierd.torch.creating(client=1):  # type: ignore[arg-type]
        pass


@pytest.fixture
def persisted(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[tierd.Client, FakeLibrary, list[float]]]:
    """A run that was created, trained and persisted, and what it did next."""
    client, fake = new_client()
    monkeypatch.setattr(client, "persist", lambda: None)
    model = created(Gpt, client, min_bytes=100, name="run")
    _, optimizer = offloaded(model, name="net", min_bytes=100)
    train(model, optimizer)
    tierd.torch.persist(model, optimizer, step=3)
    kept = {key: ctypes.string_at(tensor.address, tensor.size) for key, tensor in fake.tensors.items()}
    losses = train(model, optimizer, first=3)
    for key in list(fake.tensors):  # What the job is when it is resumed.
        del fake.tensors[key]
    del model, optimizer, _
    gc.collect()
    for key, content in kept.items():
        tensor = fake.tensors[key] = type(fake).tensor_of(content)
        assert tensor.sealed
    yield client, fake, losses


@pytest.mark.parametrize("again", ["created", "plain"])
def test_a_run_that_was_created_is_resumed(
    persisted: tuple[tierd.Client, FakeLibrary, list[float]], again: str
) -> None:
    client, fake, losses = persisted
    there = set(fake.tensors)

    class Resumed(Net):
        def __init__(self) -> None:
            super().__init__()
            self.apply(Gpt.initialise.__get__(self))
            self.register_buffer("norms", torch.zeros(len(list(self.parameters()))))

    if again == "created":
        model = created(Resumed, client, min_bytes=100, resume=True)
        assert set(fake.tensors) == there
        with pytest.raises(tierd.Invalid, match="resume"):
            offloaded(model, client=client, min_bytes=100)
    else:
        model = plain(Gpt)
    _, optimizer = offloaded(model, client=client, name="net", min_bytes=100, resume=True)
    assert tierd.torch.resumed(model)["step"] == 3
    assert train(model, optimizer, first=3) == losses


def test_what_reads_values_that_are_to_be_resumed_is_refused() -> None:
    client, fake = new_client()
    with pytest.raises(tierd.Invalid, match="resumed"):
        created(Gpt, client, resume=True)
    model = created(transformer, client, resume=True)
    assert fake.tensors == {}
    for use in (lambda: model.state_dict(), lambda: model.load_state_dict(plain(transformer).state_dict())):
        with pytest.raises((tierd.Invalid, RuntimeError), match="resume"):
            use()
    with pytest.raises(tierd.Invalid, match="resume"), tierd.torch.gathered(model):
        pass
