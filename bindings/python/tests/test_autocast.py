"""Autocast over a model in tierd: plain torch's bits, and no copy of the weights that stays in the process or is stored
as an activation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from test_offload import assert_same, new_client, pair_of
from torch import nn
from torch.utils.checkpoint import checkpoint

import tierd
import tierd.torch
from tierd.torch import cached_cast
from tierd.torch.storage_identity import StorageIdentity
from tierd.torch.stored_parameter import stored_in

WIDTH = 16


def given(seed: int) -> torch.Tensor:
    return torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(seed))


def layers() -> nn.Module:
    return nn.Sequential(*[each for _ in range(3) for each in (nn.Linear(WIDTH, WIDTH), nn.Tanh())])


class Twice(nn.Module):
    """One weight by two modules and twice by one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.last.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(torch.tanh(self.first(torch.tanh(self.first(x)))))


class Convolved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv1d(1, 4, 3), nn.Conv2d(4, 4, (1, 3), groups=2)

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(self.first(x[:, None])[:, :, None])


class Own(nn.Module):
    """Parameters of its own, of several dimensions, and one that is not cast."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH))
        self.experts = nn.Parameter(torch.randn(2, WIDTH, WIDTH))
        self.bias = nn.Parameter(torch.randn(1, WIDTH))
        self.table = nn.Embedding(8, WIDTH)

    def forward(self, x: torch.Tensor) -> Any:
        x = x @ self.weight + self.bias + self.table(torch.arange(4))
        return torch.bmm(x.expand(2, 4, WIDTH), self.experts) @ self.weight.t()


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.last = nn.MultiheadAttention(WIDTH, 2), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(self.attention(x, x, x)[0])


class Adapted(nn.Module):
    """Frozen layers behind one that is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.frozen = nn.Linear(WIDTH, WIDTH), layers().requires_grad_(False)

    def forward(self, x: torch.Tensor) -> Any:
        return self.frozen(self.first(x))


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.blocks, self.reentrant = nn.ModuleList([layers(), layers()]), reentrant

    def forward(self, x: torch.Tensor) -> Any:
        x = x.clone().requires_grad_()
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x


MODELS: dict[str, Callable[[], nn.Module]] = {
    "layers": layers,
    "twice": Twice,
    "convolved": Convolved,
    "own": Own,
    "attending": Attending,
    "adapted": Adapted,
    "checkpointed": lambda: Checkpointed(False),
    "checkpointed reentrant": lambda: Checkpointed(True),
}


class Arms:
    def __init__(self, make: Callable[[], nn.Module], update: str = "deferred") -> None:
        client, self.fake = new_client()
        self.ours, self.theirs = pair_of(make)
        self.plain = torch.optim.AdamW(self.theirs.parameters(), lr=1e-2, fused=True)
        _, self.optimizer = tierd.torch.offload(
            self.ours, tierd.torch.AdamW, client=client, lr=1e-2, min_bytes=1, update=update
        )
        # All activations, however small.
        self.ours.__dict__["_tierd_runtime"]._activations._min_bytes = 1

    def both(self) -> Iterator[tuple[nn.Module, Any]]:
        yield self.ours, self.optimizer
        yield self.theirs, self.plain


def loss_of(model: nn.Module, seed: int) -> torch.Tensor:
    found: torch.Tensor = model(given(seed)).float().square().mean()
    return found


@pytest.mark.parametrize("update", ["step", "deferred", "backward"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", MODELS)
def test_training_under_autocast_has_plain_torchs_bits(name: str, dtype: torch.dtype, update: str) -> None:
    arms = Arms(MODELS[name], update)
    for step in range(3):
        for model, optimizer in arms.both():
            with torch.autocast("cpu", dtype):
                with torch.no_grad():
                    loss_of(model, 7)
                loss = loss_of(model, step)
                if name != "checkpointed reentrant" or update != "backward":
                    loss = loss + loss_of(model, step + 10)  # Each weight twice in a context.
                with torch.no_grad():
                    loss_of(model, 8)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    assert_same(arms.ours, arms.theirs)
    assert arms.fake.leases == {}


def test_what_a_callers_hooks_keep_stays_as_it_is() -> None:
    arms = Arms(Convolved)
    for step in range(2):
        for model, optimizer in arms.both():
            with torch.autocast("cpu", torch.bfloat16):
                with torch.autograd.graph.saved_tensors_hooks(lambda value: value, lambda value: value):
                    loss = loss_of(model, step) + loss_of(model, step)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    assert_same(arms.ours, arms.theirs)


@contextlib.contextmanager
def casts_seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[StorageIdentity]]:
    """The bytes of each cast that autograd saves."""
    seen: list[StorageIdentity] = []
    plain = cached_cast.pack

    def pack(in_use: Any, value: torch.Tensor) -> Any:
        packed = plain(in_use, value)
        if packed is not None:
            seen.append(StorageIdentity(value.untyped_storage()))
        return packed

    with monkeypatch.context() as patch:
        patch.setattr(cached_cast, "pack", pack)
        yield seen


@pytest.mark.parametrize("name", ["layers", "twice", "convolved", "own", "attending", "adapted"])
def test_no_cast_stays_in_the_process_or_is_stored(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arms = Arms(MODELS[name])
    weights = {each.numel() * 2 for each in arms.ours.parameters() if each.ndim > 1}
    for _ in range(2):
        with casts_seen(monkeypatch) as seen, torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(arms.ours, 0)
            assert len(seen) > 1 and all(each.expired() for each in seen)
        stored = [tensor.size for (key, _), tensor in arms.fake.tensors.items() if key >= 0x4143_0000_0000_0000]
        assert stored and (name == "own" or not weights & set(stored))
        loss.backward()
        arms.optimizer.step()
        arms.optimizer.zero_grad()


def test_an_evaluation_keeps_no_cast() -> None:
    arms = Arms(layers)
    enabled: list[bool] = []
    inner: Any = arms.ours
    inner[2].register_forward_hook(lambda *_: enabled.append(torch.is_autocast_cache_enabled()))
    with torch.autocast("cpu", torch.bfloat16):
        with torch.no_grad():
            ours, theirs = arms.ours(given(0)), arms.theirs(given(0))
            with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
                arms.ours(torch.ones(1, 1))
            assert torch.is_autocast_cache_enabled()
        assert torch.equal(ours, theirs)
        arms.ours(given(0))
    assert enabled == [False, True]


def test_an_update_inside_of_the_context_is_refused_where_torch_would_go_on_with_the_old_cast() -> None:
    arms = Arms(layers)
    with torch.autocast("cpu", torch.bfloat16):
        loss_of(arms.ours, 0).backward()
        arms.optimizer.step()
        with pytest.raises(tierd.Invalid, match="has changed inside of an autocast context"):
            loss_of(arms.ours, 1)
        torch.clear_autocast_cache()
        loss_of(arms.ours, 1)
    loss_of(arms.ours, 2)


def test_a_cast_that_something_keeps_behind_its_context_is_not_taken_for_the_next_ones() -> None:
    arms = Arms(layers)
    kept: list[Any] = []
    for step in range(3):
        for model, optimizer in arms.both():
            with torch.autocast("cpu", torch.bfloat16):
                loss = loss_of(model, step)
                if model is arms.ours:
                    kept += [stored.cast._tensor() for stored in stored_in(model.parameters()) if stored.cast]
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    assert len(kept) == 9
    assert_same(arms.ours, arms.theirs)


def test_a_model_that_is_detached_inside_of_the_context_has_its_casts() -> None:
    arms = Arms(layers)
    with torch.autocast("cpu", torch.bfloat16):
        for model in (arms.ours, arms.theirs):
            loss_of(model, 0)
        arms.ours.__dict__["_tierd_runtime"].detach(resumed=False)
        assert torch.equal(loss_of(arms.ours, 1), loss_of(arms.theirs, 1))


def test_a_mode_sees_the_models_operations_alone() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    arms = Arms(layers)
    counts = []
    for model, _ in arms.both():
        with FlopCounterMode(display=False) as counter, torch.autocast("cpu", torch.bfloat16):
            loss_of(model, 0).backward()
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0
    assert all(stored.cast is None for stored in stored_in(arms.ours.parameters()))


def test_accumulated_micro_batches_have_the_bits_of_the_loop() -> None:
    arms = Arms(layers)
    for step in range(2):
        batches = [given(10 * step + number) for number in range(3)]
        with torch.autocast("cpu", torch.bfloat16):
            tierd.torch.accumulate(arms.ours, batches, lambda batch: arms.ours(batch).float().square().mean())
        for batch in batches:
            with torch.autocast("cpu", torch.bfloat16):
                loss = arms.theirs(batch).float().square().mean()
            loss.backward()
        for _, optimizer in arms.both():
            optimizer.step()
            optimizer.zero_grad()
    assert_same(arms.ours, arms.theirs)
