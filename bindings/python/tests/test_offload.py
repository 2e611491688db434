"""offload(model) against the same model in plain torch: the same bits, and nothing of the parameters in the process."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fake_library import FakeLibrary, Refusal
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import tierd
import tierd.torch
from tierd.session import Session
from tierd.torch.placeholder import Placeholder


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attend = nn.MultiheadAttention(width, 2, batch_first=True)  # Uses out_proj outside of its forward.
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        x = x + self.attend(y, y, y, need_weights=False)[0]
        return x + self.down(F.gelu(self.up(x)))


class Net(nn.Module):
    """Tied weights, a parameter used outside of its module, a functional use, checkpointing of both kinds."""

    def __init__(self, width: int = 16, reentrant: bool | None = None) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))
        self.scale = nn.Parameter(torch.ones(width))
        self.head = nn.Linear(width, 32, bias=False)
        self.head.weight = self.embed.weight
        self.reentrant = reentrant

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            if self.reentrant is None:
                x = block(x)
            else:
                x = checkpoint(block, x, use_reentrant=self.reentrant)
        return F.linear(x * self.scale, self.head.weight)


def new_client() -> tuple[tierd.Client, FakeLibrary]:
    fake = FakeLibrary()
    return tierd.Client(Session(fake, 1)), fake  # type: ignore[arg-type]


def pair_of(make: Callable[[], nn.Module]) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(1)
    ours = make()
    theirs = copy.deepcopy(ours)
    return ours, theirs


def tokens_of(step: int) -> torch.Tensor:
    return torch.randint(0, 32, (2, 6), generator=torch.Generator().manual_seed(step))


def loss_of(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    logits = model(tokens)
    return F.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3, first: int = 0) -> list[float]:
    losses = []
    for step in range(first, first + steps):
        loss = loss_of(model, tokens_of(step))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def assert_same(ours: nn.Module, theirs: nn.Module) -> None:
    with tierd.torch.gathered(ours):
        for (name, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
            assert torch.equal(a, b), name


def offloaded(model: nn.Module, client: tierd.Client, **options: Any) -> tuple[nn.Module, Any]:
    return tierd.torch.offload(model, tierd.torch.AdamW, client=client, min_bytes=1, lr=1e-2, **options)


@pytest.mark.parametrize("reentrant", [None, False, True])
@pytest.mark.parametrize("update", ["step", "deferred", "backward"])
def test_training_gives_torchs_bits(update: str, reentrant: bool | None) -> None:
    client, fake = new_client()
    ours, theirs = pair_of(lambda: Net(reentrant=reentrant))
    if reentrant:  # It needs an input that requires a gradient.
        ours, theirs = pair_of(lambda: Net(reentrant=True).train())
    model, optimizer = offloaded(ours, client, update=update)
    assert model is ours
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
    assert train(ours, optimizer, 4) == train(theirs, plain, 4)
    assert all(type(p) is Placeholder for p in ours.parameters())
    assert fake.leases == {}
    assert_same(ours, theirs)


def test_what_a_model_has_in_tierd_is_freed_with_it() -> None:
    client, fake = new_client()
    ours, _ = pair_of(Net)
    _, optimizer = offloaded(ours, client)
    train(ours, optimizer)
    assert fake.tensors
    del ours, optimizer, _
    gc.collect()
    assert fake.tensors == {} and fake.leases == {}


@pytest.mark.parametrize("place", ["parameters", "gradients", "activations"])
def test_each_part_can_stay_in_the_process(place: str) -> None:
    client, fake = new_client()
    ours, theirs = pair_of(Net)
    _, optimizer = offloaded(ours, client, **{place: "device"})
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
    assert train(ours, optimizer) == train(theirs, plain)
    assert_same(ours, theirs)


def test_accumulation_has_torchs_bits() -> None:
    client, fake = new_client()
    ours, theirs = pair_of(Net)
    _, optimizer = offloaded(ours, client)
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
    for step in range(3):
        for micro in range(3):
            loss_of(ours, tokens_of(10 * step + micro)).backward()
            loss_of(theirs, tokens_of(10 * step + micro)).backward()
        for o in (optimizer, plain):
            o.step()
            o.zero_grad()
    assert_same(ours, theirs)


@pytest.mark.parametrize("exact", [True, False])
def test_clipping_works_as_it_is_written(exact: bool) -> None:
    client, fake = new_client()
    ours, theirs = pair_of(Net)
    _, optimizer = offloaded(ours, client, exact_norm=exact)
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
    for step in range(4):
        norms = []
        for model, o in ((ours, optimizer), (theirs, plain)):
            loss_of(model, tokens_of(step)).backward()
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.1))
            o.step()
            o.zero_grad()
        assert torch.equal(*norms) if exact else torch.allclose(*norms, rtol=1e-5)
    if exact:
        assert_same(ours, theirs)


def test_a_gradient_that_is_not_finite_is_found_and_its_step_skipped() -> None:
    client, fake = new_client()
    ours, theirs = pair_of(Net)
    _, optimizer = offloaded(ours, client)
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
    scalers = [torch.amp.GradScaler("cpu", init_scale=256.0) for _ in range(2)]
    for step in range(4):
        scales = []
        for model, o, scaler in ((ours, optimizer, scalers[0]), (theirs, plain, scalers[1])):
            loss = loss_of(model, tokens_of(step)) * (float("inf") if step == 1 else 1.0)
            scaler.scale(loss).backward()
            scaler.unscale_(o)
            scaler.step(o)
            scaler.update()
            o.zero_grad()
            scales.append(scaler.get_scale())
        assert scales[0] == scales[1]
    assert scales[0] < 256
    assert_same(ours, theirs)
    assert not any("gradient" in name.decode() and (number, 0) in fake.tensors for name, number in fake.names.items())


def test_evaluation_and_schedules_between_steps() -> None:
    client, fake = new_client()
    ours, theirs = pair_of(Net)
    _, optimizer = offloaded(ours, client)
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
    results: list[list[Any]] = [[], []]
    for model, o, result in ((ours, optimizer, results[0]), (theirs, plain, results[1])):
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(o, 5)
        for step in range(4):
            result += train(model, o, 1, first=step)
            schedule.step()
            model.eval()
            with torch.no_grad():
                result.append(loss_of(model, tokens_of(50)).item())
            with torch.inference_mode():
                result.append(loss_of(model, tokens_of(51)).item())
            model.train()
    assert results[0] == results[1] and fake.leases == {}


def test_frozen_weights_are_never_written_again() -> None:
    client, fake = new_client()

    def make() -> Net:
        net = Net()
        net.blocks.requires_grad_(False)
        return net

    ours, theirs = pair_of(make)
    _, optimizer = offloaded(ours, client)
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
    before = set(fake.tensors)
    assert train(ours, optimizer) == train(theirs, plain)
    frozen = [name for name in fake.names if b"blocks" in name]
    assert frozen and not any(b"exp_avg" in name or b"gradient" in name for name in frozen)
    assert before <= set(fake.tensors)
    assert_same(ours, theirs)


USES: dict[str, Callable[[Any], Any]] = {
    "arithmetic": lambda p: p + 1,
    "norm": lambda p: p.norm(),
    "numpy": lambda p: p.numpy(),
    "item": lambda p: p[0, 0].item(),
    "data": lambda p: p.data,
    "detach": lambda p: p.detach(),
    "clone": lambda p: p.clone(),
    "data_ptr": lambda p: p.data_ptr(),
    "storage": lambda p: p.untyped_storage(),
    "list": lambda p: torch.stack([p, p]),
    "in place": lambda p: nn.init.zeros_(p),
    "half": lambda p: p.half(),
    "set data": lambda p: setattr(p, "data", torch.zeros(32, 16)),
}


@pytest.mark.parametrize("use", USES)
def test_a_use_outside_of_forward_is_refused(use: str) -> None:
    client, _ = new_client()
    ours, _ = pair_of(Net)
    offloaded(ours, client)
    with pytest.raises(tierd.Invalid, match="embed.weight") as refused:
        USES[use](ours.embed.weight)
    assert "gathered" in str(refused.value) or use == "half"


@pytest.mark.parametrize("copying", [copy.deepcopy, pickle.dumps])
def test_a_copy_is_refused_with_what_works(copying: Callable[[Any], Any]) -> None:
    client, _ = new_client()
    ours, _ = pair_of(Net)
    offloaded(ours, client)
    with pytest.raises(tierd.Invalid, match="state_dict"):
        copying(ours.embed.weight)


def test_what_needs_no_values_works_on_a_placeholder() -> None:
    client, _ = new_client()
    ours, theirs = pair_of(Net)
    offloaded(ours, client)
    p, q = ours.embed.weight, theirs.embed.weight
    assert (p.shape, p.dtype, p.device, p.numel(), p.size(0), p.dim(), len(p)) == (
        q.shape, q.dtype, q.device, q.numel(), q.size(0), q.dim(), len(q),
    )  # fmt: skip
    assert p.requires_grad and p.is_leaf and p.grad is None and isinstance(p, nn.Parameter) and p in {p}
    assert "embed.weight" in repr(p) and "tierd" in repr(p)
    assert ours.to("cpu") is ours and ours.float() is ours and ours.to(torch.float32) is ours
    ours.requires_grad_(False)
    assert not p.requires_grad
    assert sum(each.numel() for each in ours.parameters()) == sum(each.numel() for each in theirs.parameters())
    assert str(ours) == str(theirs)


def test_gathered_brings_values_and_keeps_what_is_written() -> None:
    client, _ = new_client()
    ours, theirs = pair_of(Net)
    _, optimizer = offloaded(ours, client)
    with tierd.torch.gathered(ours.head, write=True), torch.no_grad():
        ours.embed.weight.mul_(2)
    with torch.no_grad():
        theirs.embed.weight.mul_(2)
    assert_same(ours, theirs)
    with pytest.raises(tierd.Invalid, match="write=True"), tierd.torch.gathered(ours.embed), torch.no_grad():
        ours.embed.weight.add_(1)
    assert_same(ours, theirs)
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
    assert train(ours, optimizer) == train(theirs, plain)


def test_state_dicts_interchange_with_plain_torch() -> None:
    client, _ = new_client()
    ours, theirs = pair_of(Net)
    _, optimizer = offloaded(ours, client)
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
    train(ours, optimizer)
    train(theirs, plain)
    for key, value in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[key], value), key
    other, _ = pair_of(Net)
    _, second = offloaded(other, client)
    other.load_state_dict(theirs.state_dict())
    second.load_state_dict(plain.state_dict())
    assert train(other, second, first=9) == train(theirs, plain, first=9)
    with pytest.raises(tierd.Invalid):
        ours.embed.weight.detach()


def test_a_view_that_outlives_forward_holds_the_update_off() -> None:
    client, fake = new_client()
    ours, theirs = pair_of(lambda: nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)))
    _, optimizer = offloaded(ours, client, update="backward")
    kept: list[torch.Tensor] = []
    keep = lambda module, args, output: kept.append(module.weight.data)  # noqa: E731
    handle = ours[0].register_forward_hook(keep, prepend=True)  # Before the values are taken back.
    loss = ours(torch.randn(2, 8)).sum()
    before = kept[0].clone()
    with pytest.raises(tierd.Invalid, match="still alive"):
        loss.backward()
    assert torch.equal(kept[0], before)
    handle.remove()
    kept.clear()
    optimizer.step()
    optimizer.zero_grad()
    ours(torch.randn(2, 8)).sum().backward()


def test_a_second_gradient_in_one_step_is_refused_before_anything_changes() -> None:
    client, fake = new_client()
    ours, _ = pair_of(lambda: nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)))
    _, optimizer = offloaded(ours, client, update="backward")
    ours(torch.ones(2, 8)).sum().backward()
    before = ours.state_dict()
    with pytest.raises(tierd.Invalid, match="second gradient"):
        ours(torch.ones(2, 8)).sum().backward()
    assert all(torch.equal(before[key], value) for key, value in ours.state_dict().items())
    optimizer.step()
    with pytest.raises(tierd.Invalid, match=r"zero_grad\(\) before backward"):  # Plain torch would add it to the first.
        ours(torch.ones(2, 8)).sum().backward()
    optimizer.zero_grad()
    ours(torch.ones(2, 8)).sum().backward()


def test_backward_with_weights_of_an_earlier_version_is_refused() -> None:
    client, _ = new_client()
    ours, _ = pair_of(Net)
    _, optimizer = offloaded(ours, client)
    first, second = loss_of(ours, tokens_of(0)), loss_of(ours, tokens_of(1))
    first.backward()
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified since forward"):
        second.backward()


def test_a_gradient_that_could_not_be_stored_is_an_error_and_the_next_step_works() -> None:
    client, fake = new_client()
    ours, theirs = pair_of(Net)
    _, optimizer = offloaded(ours, client)
    fake.put_refusal = Refusal(6, "full")
    with pytest.raises(tierd.NoSpace):
        loss_of(ours, tokens_of(0)).backward()
        optimizer.step()
    fake.put_refusal = None
    optimizer.zero_grad()
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
    assert train(ours, optimizer) == train(theirs, plain)


@pytest.mark.parametrize("at", [1, 3, 6])
def test_an_exception_in_forward_leaves_the_model_usable(at: int) -> None:
    client, fake = new_client()
    ours, theirs = pair_of(Net)
    _, optimizer = offloaded(ours, client)
    calls = iter(range(1, 100))

    def fail(module: nn.Module, args: object) -> None:
        if next(calls) == at:
            raise KeyboardInterrupt

    handles = [module.register_forward_pre_hook(fail) for module in ours.modules() if isinstance(module, nn.Linear)]
    with pytest.raises(KeyboardInterrupt):
        loss_of(ours, tokens_of(0))
        loss_of(ours, tokens_of(0))
    for handle in handles:
        handle.remove()
    gc.collect()
    assert all(type(p) is Placeholder for p in ours.parameters()) and fake.leases == {}
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
    assert train(ours, optimizer) == train(theirs, plain)


@pytest.mark.parametrize("update", ["step", "deferred", "backward"])
def test_other_layouts_dtypes_and_empty_parameters(update: str) -> None:
    client, _ = new_client()

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
            self.low = nn.Linear(4, 8).to(torch.bfloat16)
            self.wide = nn.Linear(8, 5).double()
            self.nothing = nn.Parameter(torch.empty(0))
            self.unused = nn.Parameter(torch.ones(3))
            self.turned = nn.Parameter(torch.randn(3, 4).t())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = (self.conv(x).mean((2, 3)) @ self.turned) @ self.turned.t()
            return self.wide(self.low(x.bfloat16()).double()).sum() + self.nothing.sum()

    ours, theirs = pair_of(Odd)
    _, optimizer = offloaded(ours, client, update=update)
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
    for step in range(3):
        x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(step))
        for model, o in ((ours, optimizer), (theirs, plain)):
            model(x).backward()
            o.step()
            o.zero_grad()
    assert_same(ours, theirs)
    assert ours.conv.weight.shape == theirs.conv.weight.shape


def test_sparse_gradients_are_refused() -> None:
    client, _ = new_client()
    ours, _ = pair_of(lambda: nn.Embedding(10, 4, sparse=True))
    offloaded(ours, client)
    with pytest.raises(tierd.Invalid, match="sparse"):
        ours(torch.tensor([1])).sum().backward()


def test_options_that_cannot_be_are_refused_before_anything_moves() -> None:
    client, fake = new_client()
    ours, _ = pair_of(Net)
    for options in ({"update": "now"}, {"parameters": "disk"}, {"optimizer_state": "device"}):
        with pytest.raises(tierd.Invalid):
            offloaded(ours, client, **options)
    with pytest.raises(TypeError, match=r"torch\.optim.*AdamW: pass a class such as tierd.torch.AdamW"):
        tierd.torch.offload(ours, torch.optim.AdamW, client=client)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a generator: pass the model itself"):
        tierd.torch.offload(ours.parameters(), tierd.torch.AdamW, client=client)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="learning rate"):
        tierd.torch.offload(ours, tierd.torch.AdamW, client=client, lr=-1.0, min_bytes=1)
    assert all(type(p) is nn.Parameter for p in ours.parameters())
    gc.collect()
    assert fake.tensors == {}
    offloaded(ours, client)
    with pytest.raises(tierd.Invalid, match="already"):
        offloaded(ours, client)


def test_what_comes_next_is_asked_for_in_recorded_order() -> None:
    client, fake = new_client()
    ours, _ = pair_of(Net)
    _, optimizer = offloaded(ours, client)
    train(ours, optimizer, 1)
    fake.prefetched.clear()
    train(ours, optimizer, 1, first=1)
    names = {number: name for name, number in fake.names.items()}
    asked = [names[tensor].decode() for tensor, _ in fake.prefetched if tensor in names]
    first = [name for name in asked if "/state/" not in name]
    assert first[0].endswith("/scale") and any("blocks.2" in name for name in first)
    assert any("exp_avg" in name for name in asked)


def test_an_evaluation_does_not_change_the_order_of_training() -> None:
    client, fake = new_client()
    ours, _ = pair_of(Net)
    _, optimizer = offloaded(ours, client, update="step")
    train(ours, optimizer, 2)
    fake.prefetched.clear()
    train(ours, optimizer, 1, first=2)
    expected = [tensor for tensor, _ in fake.prefetched]
    with torch.no_grad():
        loss_of(ours, tokens_of(9))
    fake.prefetched.clear()
    train(ours, optimizer, 1, first=3)
    assert [tensor for tensor, _ in fake.prefetched] == expected


@pytest.mark.parametrize("update", ["step", "deferred", "backward"])
def test_gradients_leave_the_process_during_backward(update: str) -> None:
    client, _ = new_client()
    ours, _ = pair_of(lambda: nn.Sequential(*[nn.Linear(64, 64) for _ in range(12)]))
    _, optimizer = offloaded(ours, client, update=update)
    ours.__dict__["_tierd_runtime"]._window._bytes_max = 1  # One gradient.
    ours(torch.randn(4, 64)).sum().backward()
    gc.collect()
    left = [known for known in gc.get_objects() if type(known) is torch.Tensor and known.shape == (64, 64)]
    assert len({each.data_ptr() for each in left}) <= (update != "backward")
    optimizer.step()
