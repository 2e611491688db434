"""MicroBatch: the strand that runs forward and backward of one micro-batch, and the hooks that it meets on its way."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from ..errors import Invalid
from .placeholder import Placeholder, on_incoming_gradient
from .dynamo import opaque
from .strands import Place, Strand, current
from .thread_buffers import free_thread_buffers


class MicroBatch(Strand):
    """Its places are (0, round, block) in forward and (1, −round, −block) in backward. A round is a walk through the
    blocks in their order, of which a loss may take several. ``base`` is the same for all of one ``accumulate``.

    Each draws random numbers from a state of its own, ``random_state`` at first: what a checkpoint has noted before a
    block is then what the block draws from, whichever strands run in between."""

    def __init__(self, batch: Any, loss: Callable[[Any], torch.Tensor], base: int, random_state: torch.Tensor) -> None:
        super().__init__()
        self.random_state = random_state  # The state of torch's generator, while others run.
        self.place = (0, 0, 0)
        self.loss: torch.Tensor | None = None  # Detached, at the end.
        self._batch = batch
        self._of = loss
        self._base = base
        self._round = 0
        self._block = -1  # The one entered last.
        self._unwatched: Place | None = None  # Where backward is to stop, once a tensor is found whose gradient it is.
        self._in_backward = False

    def suspended(self) -> None:
        self.random_state = torch.get_rng_state()
        free_thread_buffers()

    def resumed(self) -> None:
        torch.set_rng_state(self.random_state)

    def work(self) -> None:
        loss = self._of(self._batch)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
            kind = f"of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else f"a {type(loss).__name__}"
            raise Invalid(
                f"the loss of micro-batch {self.index} is {kind}: it must be a scalar that requires a gradient"
            )
        self._in_backward = True
        loss.backward()  # type: ignore[no-untyped-call]
        self.loss = loss.detach()

    def copies_place(self) -> Place:
        if self._in_backward:  # What is recomputed there is used next.
            return (self._base, 1)
        _, round_, block = self.place
        return (self._base, 0, round_, block, -self.index)

    def enter(self, block: int, given: Any) -> None:
        self.watch(given)
        if block <= self._block:
            self._round += 1
        self._block = block
        self.come_to((0, self._round, block))

    def leave(self, block: int, output: Any) -> None:
        self._unwatched = (1, -self._round, -block)
        self.watch(output)

    def watch(self, values: Any) -> None:
        """Has backward stop where the gradient of the last block's output is there: the first of ``values`` that has
        one. A block inside of a reentrant checkpoint returns none: the next module gets it."""
        if self._unwatched is None:
            return
        for value in _tensors(values):
            if value.requires_grad and value.grad_fn is not None:
                value.register_hook(functools.partial(self._gradient, self._unwatched))  # type: ignore[no-untyped-call]
                self._unwatched = None
                return

    def _gradient(self, place: Place, _: torch.Tensor) -> None:
        if self._in_backward and current() is self:
            self.come_to(place)

    def add(self, name: str, number: int) -> None:
        """The gradient of a parameter is complete, and about to be added."""
        if self._in_backward and not self.pass_in_order(number):
            raise Invalid(
                f"the gradient of {name!r} comes in several parts, which accumulate() cannot add in the order of a "
                "plain loop: checkpoint with use_reentrant=False, or call backward for each micro-batch"
            )

    def added(self, name: str) -> None:
        """It has been added."""
        if not self._in_backward:
            raise Invalid(
                f"the loss of micro-batch {self.index} called backward() itself, which has added to the gradient of "
                f"{name!r}: have it return the loss, of which accumulate() calls backward()"
            )


def watch_block(block: torch.nn.Module, index: int) -> list[Any]:
    """Has micro-batches stop at it. Returns what is to be removed."""

    def left(_: torch.nn.Module, given: Any, output: Any) -> None:
        batch = _in_forward()
        if batch is not None:
            batch.leave(index, output)

    entered = _before(block, lambda batch, given: batch.enter(index, given))
    return [entered, block.register_forward_hook(opaque(left))]


def watch_other(module: torch.nn.Module) -> list[Any]:
    """The same for a module that is not inside of a block."""
    return [_before(module, MicroBatch.watch)]


def watch_parameter(name: str, parameter: torch.nn.Parameter) -> list[Any]:
    """Has its gradients added in the order of the micro-batches, and by them alone."""
    number = id(parameter)

    def incoming(_: torch.Tensor) -> None:
        batch = current()
        if isinstance(batch, MicroBatch):
            batch.add(name, number)

    def added(_: torch.Tensor) -> None:
        batch = current()
        if isinstance(batch, MicroBatch):
            batch.added(name)

    return [on_incoming_gradient(parameter, incoming), Placeholder.on_gradient(parameter, added)]


def _before(module: torch.nn.Module, meet: Callable[[MicroBatch, Any], None]) -> Any:
    """Ahead of the hook that brings the module's parameters: not while this micro-batch waits."""

    def entered(_: torch.nn.Module, *given: Any) -> None:
        batch = _in_forward()
        if batch is not None:
            meet(batch, given)

    return module.register_forward_pre_hook(opaque(entered), prepend=True, with_kwargs=True)


def _in_forward() -> MicroBatch | None:
    """The micro-batch of this thread. None in a backward, where checkpointing runs a part of the forward again."""
    batch = current()
    return batch if isinstance(batch, MicroBatch) and torch._C._current_graph_task_id() == -1 else None


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, (Mapping, list, tuple)):
        inner: Iterable[Any] = values.values() if isinstance(values, Mapping) else values
        for value in inner:
            yield from _tensors(value)
