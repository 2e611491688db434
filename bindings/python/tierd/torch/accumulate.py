"""accumulate: the gradients of several micro-batches, block by block, so that parameters are fetched once a step.

The idea: each micro-batch runs the loop's forward and backward in a thread of its own, of which one runs at a time
(``strands``). It stops at the entry of each block, and in backward where a block's part begins. So all micro-batches
are through block 0 before any is in block 1, and the same in backward (after GreedySnake, arXiv 2512.17570). A block's
parameters are leased once for all (``held``).

What holds: each parameter gets its gradients in the order of the micro-batches, as in a plain loop, and so the same
bits. Each trained parameter has a hook that waits for the micro-batches before; where all run the same blocks it never
has to.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ..errors import Invalid
from .activations import next_sequence
from .blocks import Blocks, blocks_of
from .held import HELD_BYTES
from .micro_batch import MicroBatch, watch_block, watch_other, watch_parameter
from .runtime import Runtime, runtime_of
from .strands import Strands, current


def accumulate(
    model: torch.nn.Module,
    micro_batches: Iterable[Any],
    loss: Callable[[Any], torch.Tensor] | None = None,
    *,
    blocks: Blocks = None,
) -> list[torch.Tensor]:
    """Adds the gradients of all micro-batches to the parameters' and returns their losses, detached::

        losses = tierd.torch.accumulate(model, batches, lambda batch: criterion(model(batch.x), batch.y) / len(batches))
        optimizer.step(); optimizer.zero_grad()

    The gradients have the bits of ``for batch in micro_batches: loss(batch).backward()``, without randomness: each
    micro-batch draws torch's random numbers, such as those of dropout, from a state of its own, the same each time; the
    first has the loop's. The parameters of an offloaded model are fetched once for each block and direction, not once
    for each micro-batch. Between two blocks the process holds their activations of all micro-batches.

    ``loss(micro_batch)`` runs the model and returns what backward is to begin with, a scalar. It is called once for
    each micro-batch, in threads of which one runs at a time. Without it, the model is called with the micro-batch (a
    mapping's or a tuple's parts as arguments), and the ``.loss`` of what it returns, or that itself, is divided by the
    number of micro-batches. ``blocks`` are the modules that all micro-batches run in turn: a list, or the name of a
    ``ModuleList`` in the model; by default the longest one of a single class is taken. Blocks that run in another
    order, or are left out, take longer, and give the same gradients.

    An error of one micro-batch ends the others and is raised here; so is an interrupt. Gradients that were added by
    then stay: set them to ``None`` before the next try. ``Invalid``: a model that updates in backward or is not on the
    CPU, no micro-batches, no blocks, a loss that is no scalar with a gradient or calls backward itself, a call inside
    of forward or backward.

    With several ranks (``offload(…, process_group=…)``), every rank calls it, with micro-batches of its own. Gradients
    are reduced once, with the last micro-batch, which must reach every parameter that the others reach: the bits are
    those of a loop that has all but the last in :func:`no_sync`. Inside of ``no_sync`` nothing is reduced.
    """
    batches = list(micro_batches)
    if not batches:
        raise Invalid("accumulate() got no micro-batches")
    runtimes = _checked(model)
    found = blocks_of(model, blocks)
    if loss is None:
        loss = functools.partial(_loss_of_model, model, len(batches))
    base = next_sequence()
    states = _random_states(len(batches) + 1)
    strands = [MicroBatch(batch, loss, base, state) for batch, state in zip(batches, states, strict=False)]
    try:
        return _Accumulation(model, runtimes).run(found, strands)
    finally:
        # Where the others drew nothing, as in a plain loop.
        others = zip(strands[1:], states[1:], strict=False)
        drew = any(strand.random_state.tolist() != state.tolist() for strand, state in others)
        torch.set_rng_state(states[-1] if drew else strands[0].random_state)


def _random_states(count: int) -> list[torch.Tensor]:
    """Of torch's generator: the present one, and others that follow from it."""
    present = torch.get_rng_state()
    seed = int.from_bytes(hashlib.blake2b(bytes(present.tolist()), digest_size=7).digest(), "big")
    generator = torch.Generator()
    return [present, *(generator.manual_seed(seed + number).get_state() for number in range(1, count))]


def _checked(model: torch.nn.Module) -> list[Runtime]:
    """What is attached to the model and to parts of it. ``Invalid`` where it cannot run by blocks, or not now."""
    if torch._C._current_graph_task_id() != -1 or _runs(model) or current() is not None:
        raise Invalid("accumulate() was called inside of a forward, a backward or another accumulate()")
    for name, parameter in model.named_parameters():
        if parameter.device.type != "cpu":
            raise Invalid(f"parameter {name!r} is on {parameter.device}: accumulate() takes models on the CPU")
    runtimes = [runtime for module in model.modules() if (runtime := runtime_of(module)) is not None]
    if any(runtime.updates_in_backward for runtime in runtimes):
        raise Invalid(
            "this model updates its parameters in backward, from one gradient each: offload it with "
            "update='deferred' or 'step' to accumulate gradients"
        )
    return runtimes


def _runs(model: torch.nn.Module) -> bool:
    """Whether this thread is inside of a forward of the model, or of a part of it."""
    modules, call = set(model.modules()), torch.nn.Module._call_impl.__code__
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code is call and frame.f_locals.get("self") in modules:
            return True
    return False


def _loss_of_model(model: torch.nn.Module, count: int, batch: Any) -> torch.Tensor:
    if isinstance(batch, Mapping):
        output = model(**batch)
    elif isinstance(batch, tuple):
        output = model(*batch)
    else:
        output = model(batch)
    loss = getattr(output, "loss", output)
    if not isinstance(loss, torch.Tensor):
        raise Invalid(
            f"the model returned {type(output).__name__} without a loss: pass loss=, a function of a micro-batch that "
            "returns the loss"
        )
    return loss / count


class _Accumulation:
    """One call of ``accumulate``."""

    def __init__(self, model: torch.nn.Module, runtimes: Sequence[Runtime]) -> None:
        self._model = model
        self._runtimes = runtimes
        self._removable: list[Any] = []

    def run(self, blocks: Sequence[torch.nn.Module], micro_batches: Sequence[MicroBatch]) -> list[torch.Tensor]:
        self._end_thread()  # Left by an interrupt of an earlier forward.
        try:
            for runtime in self._runtimes:
                runtime.store.held.bytes_max = HELD_BYTES
            self._watch(blocks)
            with self._reducing(micro_batches):
                Strands(micro_batches, self._release_held, self._end_thread).run()
        finally:
            for handle in self._removable:
                handle.remove()
            for runtime in self._runtimes:
                runtime.store.held.bytes_max = 0
            self._release_held()
        return [micro_batch.loss for micro_batch in micro_batches if micro_batch.loss is not None]

    @contextlib.contextmanager
    def _reducing(self, micro_batches: Sequence[MicroBatch]) -> Iterator[None]:
        """Where there are several ranks, only the last micro-batch reduces gradients."""
        last = micro_batches[-1]
        with contextlib.ExitStack() as all_of_them:
            for runtime in self._runtimes:
                if runtime.reduction is not None:
                    all_of_them.enter_context(
                        runtime.reduction.micro_batches(lambda: current() is not last, several=len(micro_batches) > 1)
                    )
            yield

    def _watch(self, blocks: Sequence[torch.nn.Module]) -> None:
        inside: set[torch.nn.Module] = set()
        for index, block in enumerate(blocks):
            if block not in inside:
                self._removable += watch_block(block, index)
            inside.update(block.modules())
        for module in self._model.modules():
            if module not in inside:
                self._removable += watch_other(module)
        for name, parameter in self._model.named_parameters():
            if parameter.requires_grad:
                self._removable += watch_parameter(name, parameter)

    def _release_held(self) -> None:
        for runtime in self._runtimes:
            with runtime.store.lock:
                runtime.store.held.release()

    def _end_thread(self) -> None:
        for runtime in self._runtimes:
            runtime.end_thread()
