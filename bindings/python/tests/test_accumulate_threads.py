"""accumulate's threads: what the caller's thread has set holds in them, and an error or an interrupt leaves none."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import ctypes
import gc
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from test_accumulate import (
    Stack,
    assert_nothing_is_left,
    assert_same_gradients,
    by_blocks,
    hooks_of,
    in_a_loop,
    stack_batches,
    stack_loss,
)
from test_offload import Net, assert_same, loss_of, new_client, offloaded, pair_of, tokens_of
from torch import nn

import tierd
import tierd.torch
from tierd.torch import strands
from tierd.torch.thread_buffers import mkl_function


@pytest.fixture(autouse=True, scope="module")
def quick_collections() -> Iterator[None]:
    """Not of what was there before."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("threads", [1, 2])
def test_the_bits_are_those_of_as_many_threads(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        ours, theirs = pair_of(lambda: Stack(3, width=192))
        batches = stack_batches(0, 2)
        seen = []

        def loss(model: nn.Module, batch: Any) -> torch.Tensor:
            seen.append(torch.get_num_threads())
            return stack_loss(model, batch)

        by_blocks(ours, batches, loss)
        in_a_loop(theirs, batches, loss)
        assert_same_gradients(ours, theirs)
        assert seen == [threads] * 4
    finally:
        torch.set_num_threads(before)


def test_what_the_caller_has_set_for_its_thread_holds_in_the_micro_batches() -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
    calls: collections.Counter[str] = collections.Counter()

    class Count(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            calls[func.__name__] += 1
            return func(*args, **(kwargs or {}))

    seen: list[Any] = []

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        seen.append((variable.get(), torch.ones(1).device.type, torch.get_default_device().type))
        seen.append((torch.is_autocast_cache_enabled(), torch.autograd.is_multithreading_enabled()))
        assert torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") is torch.float16
        return loss_of(model, batch).to(device="cpu")

    ours, theirs = pair_of(Net)
    packed: list[int] = []
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda x: (packed.append(x.numel()), x)[1], lambda x: x)
    token = variable.set(7)
    with torch.autocast("cpu", torch.float16, cache_enabled=False), torch.autograd.set_multithreading_enabled(False):
        counts = []
        for model, run in ((ours, by_blocks), (theirs, in_a_loop)):
            with hooks, Count():
                run(model, [tokens_of(number) for number in range(2)], loss)
            counts.append((sorted(calls.items()), sorted(packed)))
            calls.clear()
            packed.clear()
        with torch.device("meta"), pytest.raises(tierd.Invalid, match="must be a scalar"):
            by_blocks(ours, [tokens_of(0)], lambda *_: seen.append(torch.ones(1).device.type))  # type: ignore[arg-type]
    variable.reset(token)
    assert counts[0] == counts[1]
    assert seen == [(7, "cpu", "cpu"), (False, False)] * 4 + ["meta"]
    assert_same_gradients(ours, theirs)


def test_dropout_draws_the_same_numbers_for_a_seed() -> None:
    results = []
    for _ in range(2):
        torch.manual_seed(3)
        model = Stack(3, False)
        model.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)) for _ in range(3))
        losses = by_blocks(model, stack_batches(0, 4), stack_loss)
        results.append([*losses, *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)])
    assert len(results[0]) > 10 and all(map(torch.equal, *results))


# ---- Errors and interrupts ----


def failing_at(number: int, act: Callable[[], None]) -> contextlib.AbstractContextManager[list[int]]:
    """``act`` is called before the micro-batch stops that comes to the stop ``number``. Yields the stops so far."""

    @contextlib.contextmanager
    def patched() -> Any:
        pause, stops = strands.Strands.pause, []

        def counted(self: strands.Strands, strand: strands.Strand) -> None:
            stops.append(len(stops))
            if stops[-1] == number:
                act()
            pause(self, strand)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(strands.Strands, "pause", counted)
            yield stops

    found: contextlib.AbstractContextManager[list[int]] = patched()
    return found


def interrupt() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def fail() -> None:
    raise OSError("the data set is gone")


@pytest.mark.parametrize("act", [fail, interrupt])
@pytest.mark.parametrize("reentrant", [None, False, True])
def test_an_end_at_any_stop_leaves_nothing_and_the_model_usable(
    act: Callable[[], None], reentrant: bool | None
) -> None:
    client, fake = new_client()
    ours, theirs = pair_of(lambda: Stack(2, reentrant))
    _, optimizer = offloaded(ours, client)
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
    hooks = hooks_of(ours)
    batches = stack_batches(0, 3)
    at = 0
    while True:
        kept: list[weakref.ref[torch.Tensor]] = []

        def loss(model: nn.Module, batch: Any) -> torch.Tensor:
            found = stack_loss(model, batch)
            kept.append(weakref.ref(found))  # noqa: B023
            return found

        with failing_at(at, act) as stops:
            try:
                by_blocks(ours, batches, loss)
            except OSError as error:
                assert str(error) == "the data set is gone" and error.__traceback__ is not None
            except KeyboardInterrupt:
                pass
        if len(stops) <= at:
            break
        assert hooks_of(ours) == hooks
        assert_nothing_is_left(ours, fake)
        assert all(reference() is None for reference in kept)
        optimizer.zero_grad()
        at += 1
    assert at == 3 + 2 * 3
    in_a_loop(theirs, batches, stack_loss)
    assert_same_gradients(ours, theirs)
    for o in (optimizer, plain):
        o.step()
    assert_same(ours, theirs)


def test_the_first_error_is_raised_with_its_traceback_and_the_gradients_before_it_stay() -> None:
    model = Stack(2)
    model.layers[1][1].weight.register_hook(lambda gradient: fail())

    def loss(batch: Any) -> torch.Tensor:
        return stack_loss(model, batch)

    with pytest.raises(OSError, match="the data set is gone") as caught:
        tierd.torch.accumulate(model, stack_batches(0, 3), loss)
    assert {"fail", "accumulate"} <= {entry.name for entry in caught.traceback}
    assert model.head.bias.grad is not None and model.layers[1][1].weight.grad is None
    assert_nothing_is_left(model)


def test_a_thread_that_cannot_start_ends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    start, model = threading.Thread.start, Stack(2)

    def refused(thread: threading.Thread) -> None:
        if thread.name == "tierd-strand-2":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        by_blocks(model, stack_batches(0, 4), stack_loss)
    assert_nothing_is_left(model)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_full_disk_in_an_update_that_was_put_off_can_be_continued() -> None:
    client, fake = new_client()
    ours, theirs = pair_of(Net)
    _, optimizer = offloaded(ours, client, update="deferred")
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
    for step, refused in ((0, None), (1, 3)):
        batches = [tokens_of(step), tokens_of(step + 7)]
        if refused is not None:
            count, lease_many = iter(range(1000)), client.lease_many

            def take(parts: Any, write: bool = False, **options: Any) -> Any:
                if next(count) == refused:  # noqa: B023
                    raise tierd.NoSpace("full")
                return lease_many(parts, write, **options)  # noqa: B023

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(client, "lease_many", take)
                with pytest.raises(tierd.NoSpace):
                    by_blocks(ours, batches, loss_of)
        for model, o, run in ((ours, optimizer, by_blocks), (theirs, plain, in_a_loop)):
            run(model, batches, loss_of)
            o.step()
            o.zero_grad()
    assert_same(ours, theirs)
    assert_nothing_is_left(ours, fake)


def test_micro_batches_that_wait_keep_no_buffers_of_products() -> None:
    """MKL has some for each thread of the OpenMP pool of each thread that multiplies."""
    stat = mkl_function("mem_stat")
    if stat is None:
        pytest.skip("needs a torch with MKL")
    stat.restype = ctypes.c_longlong

    def kept_bytes() -> int:
        return int(stat(ctypes.byref(ctypes.c_int())))

    model = nn.Sequential(*(nn.Linear(768, 768) for _ in range(3)))
    batches = [torch.randn(512, 768) for _ in range(6)]
    kept: list[int] = []

    def loss(batch: torch.Tensor) -> torch.Tensor:
        kept.append(kept_bytes())
        return model(batch @ batch.T @ batch).square().mean()

    loss(batches[0]).backward()
    assert kept_bytes() != 0, "the test would see nothing"
    kept.clear()
    tierd.torch.accumulate(model, batches, loss, blocks=list(model))
    assert len(kept) == 6 and kept[1:] == [0] * 5, kept
