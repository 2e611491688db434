"""What is stored for backward goes with its handle; what backward gets back belongs to the node that gets it, and is
asked for ahead while it is there."""

from __future__ import annotations

import contextlib
import gc
import threading
from typing import Any

import numpy
import pytest
import torch
from fake_library import FakeLibrary
from test_interrupts import Interrupter

import tierd
import tierd.torch
from tierd.session import Session


@pytest.fixture
def offload(client: tierd.Client) -> tierd.torch.offload_activations:
    return tierd.torch.offload_activations(client, min_bytes=1)


class GiveSaved(torch.autograd.Function):
    """Its gradient is what it saved, as with losses that compute theirs in forward."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(gradient)
        return x.sum()

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, g: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.saved_tensors[0], None


class ChangeSaved(torch.autograd.Function):
    """The square; computes its gradient in the memory of what it saved."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, g: torch.Tensor) -> torch.Tensor:
        return ctx.saved_tensors[0].mul_(2).mul_(g)


def test_saved_bytes_given_away_as_gradients_have_one_owner_each(offload: tierd.torch.offload_activations) -> None:
    x, z = torch.zeros(100, requires_grad=True), torch.zeros(100, requires_grad=True)
    gradient = torch.randn(100)
    with offload:
        loss = GiveSaved.apply(x, gradient) + GiveSaved.apply(z, gradient)
    for _ in range(3):
        loss.backward(retain_graph=True)
    assert offload.alive == 1
    assert torch.equal(x.grad, gradient + gradient + gradient) and torch.equal(z.grad, x.grad)
    x.grad.mul_(0.5)  # As clipping does, of each gradient once.
    assert torch.equal(z.grad, gradient + gradient + gradient)


def test_a_node_that_changes_what_it_saved_does_so_for_itself(offload: tierd.torch.offload_activations) -> None:
    x = torch.randn(100, requires_grad=True)
    with offload:
        y = x * 1
        loss = (ChangeSaved.apply(y) + ChangeSaved.apply(y)).sum()
    loss.backward()
    assert torch.equal(x.grad, 4 * x)


def test_nodes_made_by_several_threads_are_told_apart(offload: tierd.torch.offload_activations) -> None:
    x = torch.randn(100, requires_grad=True)
    y = x * 1
    squares: list[torch.Tensor] = []

    def work() -> None:
        with offload:
            squares.append(ChangeSaved.apply(y))

    for _ in range(2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    first, second = [square.grad_fn._sequence_nr() for square in squares]
    assert first == second  # Each thread counts for itself.
    for _ in range(2):
        x.grad = None
        sum(squares).sum().backward(retain_graph=True)
        assert torch.equal(x.grad, 4 * x)


def test_what_tells_nodes_apart_keeps_no_graph(offload: tierd.torch.offload_activations, fake: FakeLibrary) -> None:
    x = torch.randn(100, requires_grad=True)
    with offload:
        loss = (x * 1).exp().sum()
    gc.collect()
    gc.disable()  # Counting references is enough.
    try:
        loss.backward(retain_graph=True)
        assert offload.alive > 0
        del loss
        assert offload.alive == 0 and fake.tensors == {}
    finally:
        gc.enable()


def test_a_buffer_filled_again_is_another_activation(
    client: tierd.Client, offload: tierd.torch.offload_activations
) -> None:
    weight, batch = torch.ones(100, requires_grad=True), torch.ones(100)
    client.put("next", torch.full((100,), 5.0))
    with offload:
        first = (weight * batch).sum()
        client.get_into("next", batch)
        second = (weight * batch).sum()
    (first + second).backward()
    assert (weight.grad == 1 + 5).all()


def test_the_views_that_one_node_saved_are_read_once(
    offload: tierd.torch.offload_activations, fake: FakeLibrary
) -> None:
    x = torch.randn(100, 2, requires_grad=True)
    with offload:
        a, b = (x * 1).unbind(1)
        loss = (a * b).sum()
    fake.calls.clear()
    loss.backward()
    assert fake.calls.count("acquire") == 1
    assert torch.equal(x.grad, x.detach().flip(1))


def test_a_copy_freed_meanwhile_is_not_asked_for_ahead(
    client: tierd.Client, offload: tierd.torch.offload_activations, fake: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefetch = fake.tier_prefetch
    graphs: list[torch.Tensor] = []

    def prefetching(handle: int, ranges: Any, count: int, flags: int) -> int:
        graphs.clear()  # As another thread, or the collector, may do with a graph of its own.
        assert all((item.tensor, 0) in fake.tensors for item in ranges)
        return prefetch(handle, ranges, count, flags)

    monkeypatch.setattr(fake, "tier_prefetch", prefetching)
    x = torch.randn(1000, requires_grad=True)
    with offload:
        graphs.append((x * 2).exp().sum())
        loss = (x * 3).exp().sum()
    loss.backward()
    assert len(fake.prefetched) > 0
    del loss
    gc.collect()
    assert fake.tensors == {}


@pytest.mark.usefixtures("reported")
def test_an_interrupt_at_any_point_of_a_forward_leaves_nothing_behind() -> None:
    at = 0
    while True:
        fake = FakeLibrary()
        client = tierd.Client(Session(fake, 1))  # type: ignore[arg-type]
        offload = tierd.torch.offload_activations(client, min_bytes=1)
        value, packed = torch.randn(100), None
        with Interrupter(at) as interrupter, contextlib.suppress(KeyboardInterrupt):
            packed = offload.pack(value)
        if not interrupter.raised:
            break
        packed = None  # An interrupt in a finalizer does not stop the call.
        client.stats()
        assert fake.leases == {} and fake.tensors == {} and offload.alive == 0, at
        assert torch.equal(offload.unpack(offload.pack(value)), value)
        at += 1
    assert at >= 30 and torch.equal(offload.unpack(packed), value)


def test_an_interrupt_at_any_point_of_a_finalizer_frees_the_copy_with_the_next_call(reported: list[Any]) -> None:
    at = 0
    while True:
        fake = FakeLibrary()
        client = tierd.Client(Session(fake, 1))  # type: ignore[arg-type]
        offload = tierd.torch.offload_activations(client, min_bytes=1)
        packed = offload.pack(torch.randn(100))
        assert len(fake.tensors) == 1
        with Interrupter(at) as interrupter:
            del packed
        if not interrupter.raised:
            break
        assert len(reported) == at + 1
        client.stats()
        assert fake.tensors == {} and offload.alive == 0, at
        at += 1
    assert at >= 30


def test_memory_that_others_write_is_copied_each_time(offload: tierd.torch.offload_activations) -> None:
    buffer = numpy.zeros(100, numpy.float32)
    weight = torch.ones(100, requires_grad=True)
    with offload:
        earlier = weight * torch.from_numpy(buffer)
        buffer[:] = 3  # The next batch: nothing counts that.
        later = weight * torch.from_numpy(buffer)
    later.sum().backward()
    assert torch.equal(weight.grad, torch.full((100,), 3.0))
    del earlier
