"""Reduction: the mean of each gradient over the ranks, before it leaves the process.

The idea is that of DistributedDataParallel, with buckets of a few MiB: when autograd has finished a gradient, the
gradient waits in the bucket until that is full or backward ends; then the bucket is scaled by one over the number of
ranks, and summed over them (``Ranks.sum``). What was accumulated before is part of it. So two ranks have DDP's bits.
More have those of DDP with a communication hook that sums in the order of the ranks: DDP's own sum depends on where in
a bucket a gradient happens to lie.

The ranks must reduce the same gradients in the same order. That is checked, never trusted: before every collective the
ranks tell each other in a few bytes what they are about to do (``_announce``). Where they differ, all of them raise
``Invalid`` at once, with the parameters at which they do, and nothing was mixed. A rank that is gone, or does not come
within the group's timeout, is ``Disconnected``, which names the parameter.

What holds: ``_local`` has the parameters whose gradient has contributions that were not reduced. An update of one is
refused. Used by one thread at a time, and by those that run backward.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator, Sequence

import torch

from ..errors import Error, Invalid
from . import parameter_state
from .autograd_guard import autograd_guard, stop_recording
from .group_options import told_options
from .offloaded_optimizer import Agreement
from .placeholder import Placeholder, raw_gradient
from .ranks import Ranks
from .stored_parameter import model_of, stored_in, stored_of

BUCKET_BYTES = 4 << 20
_INCONSISTENT = -(1 << 30)  # For the number of updates: no rank may go on beside it.


class _Bucket:
    def __init__(self) -> None:
        self.deliveries: dict[int, Callable[[], None]] = {}  # By the parameter's number, in the order of backward.
        self.nbytes = 0


class Reduction(Agreement):
    """What an offloaded model's gradients and buffers go through where there are several ranks."""

    def __init__(self, model: torch.nn.Module, ranks: Ranks) -> None:
        self.ranks = ranks
        self.pauses = 0  # no_sync() contexts under way.
        named = dict(model.named_parameters())
        self._paths = list(named)
        self._parameters = [weakref.ref(parameter) for parameter in named.values()]
        self._numbers = {id(parameter): number for number, parameter in enumerate(named.values())}
        self._trained = {number for number, parameter in enumerate(named.values()) if parameter.requires_grad}
        self._model = weakref.ref(model)
        self._bucket = _Bucket()
        self._local: set[int] = set()
        self._ends: set[int] = set()  # The backwards at whose end the bucket is reduced.
        self._changed = False  # Some gradient has come since the ranks last agreed that a step ends.
        self._buffers_next = True  # As DDP: the next forward begins with the first rank's buffers.
        self.spreads_buffers = True
        self._updates = 0  # Since all ranks had the same state.
        self._repeats = False  # The next forward of the model repeats one that failed.
        self.updates_by: Callable[[], torch.optim.Optimizer | None] | None = None  # In backward, by these options.
        self._is_early: Callable[[], bool] | None = None  # Of the micro-batch that runs, in `micro_batches`.
        self._buffers_of_last = False  # `_buffers_next` for the micro-batch that is not early.

    def watch_resident(self) -> None:
        """Reduces the gradients of the parameters that stay in the process."""
        reduction = weakref.ref(self)

        def finished(parameter: torch.Tensor) -> None:
            attached = reduction()
            if attached is not None:
                attached.add(parameter, _nothing)

        for each in self._parameters:
            parameter = each()
            if parameter is not None and stored_of(parameter) is None and parameter.requires_grad:
                Placeholder.on_gradient(parameter, finished)

    @contextlib.contextmanager
    def micro_batches(self, is_early: Callable[[], bool], several: bool) -> Iterator[None]:
        """While micro-batches run in turn (``accumulate``). Those before the last are ``early``: for them it is as in
        ``no_sync``, and the last one reduces what all have left."""
        self._begin()
        self._is_early = is_early
        self._buffers_of_last = not several and self._buffers_next
        try:
            yield
        finally:
            self._is_early = None
            self._buffers_next = self._buffers_of_last
            self._begin()  # After one that failed.

    def _paused(self) -> bool:
        return self.pauses > 0 or (self._is_early is not None and self._is_early())

    # ---- Gradients ----

    def add(self, parameter: torch.Tensor, deliver: Callable[[], None]) -> None:
        """Autograd has finished the parameter's gradient, which is in the process. It is reduced there, now or before
        backward ends, and then ``deliver`` takes it."""
        number = self._numbers[id(parameter)]
        self._changed = True
        if self._paused():
            self._local.add(number)
            deliver()
            return
        gradient = raw_gradient(parameter)
        assert gradient is not None
        if gradient.layout is not torch.strided:
            raise Invalid(f"the gradient of {self._paths[number]!r} is sparse: ranks reduce dense ones only")
        self._end_with_backward()
        if number not in self._bucket.deliveries:
            self._bucket.nbytes += gradient.nbytes
        self._bucket.deliveries[number] = deliver
        self._local.add(number)  # Until it is reduced.
        if self._bucket.nbytes >= BUCKET_BYTES:
            self._reduce_bucket()

    def _end_with_backward(self) -> None:
        task = torch._C._current_graph_task_id()
        if task not in self._ends:
            self._ends.add(task)
            torch.autograd.Variable._execution_engine.queue_callback(functools.partial(self._end, task))

    def _end(self, task: int) -> None:
        self._ends.discard(task)
        self._reduce_bucket()

    def _reduce_bucket(self) -> None:
        bucket, self._bucket = self._bucket, _Bucket()
        # Without those that are gone: by a hook of the caller's, or with a backward that failed.
        numbers = [number for number in bucket.deliveries if raw_gradient(self._parameter(number)) is not None]
        self._local -= bucket.deliveries.keys() - set(numbers)
        if not numbers:
            return
        updating = None if self.updates_by is None else self.updates_by()
        if updating is None:
            self._announce("reduce the gradient of", numbers)
        else:
            self._announce("update, in backward,", numbers, told_options(updating))
        with autograd_guard():
            stop_recording()
            gradients = {number: self._accumulated(number) for number in numbers}
            self._reduce(gradients)
            for number in numbers:
                self._replace(number, gradients[number])
                self._local.discard(number)
                bucket.deliveries[number]()

    def _accumulated(self, number: int) -> torch.Tensor:
        """The gradient in the process, with what tierd has of it added: flat, in the parameter's order."""
        parameter = self._parameter(number)
        gradient = raw_gradient(parameter)
        assert gradient is not None
        flat = parameter_state.flat_like(gradient.detach(), model_of(parameter))
        stored = stored_of(parameter)
        if stored is not None and stored.gradient is not None:
            stored.gradient.add_to(flat)
        return flat

    def _reduce(self, gradients: dict[int, torch.Tensor]) -> None:
        """As DDP: each rank scales its gradient, then the ranks sum. Small ones are summed as one tensor."""
        together: dict[object, list[int]] = {}
        for number, gradient in gradients.items():
            if gradient.numel():
                gradient.mul_(1.0 / self.ranks.count)
                large = gradient.nbytes > BUCKET_BYTES // 4
                together.setdefault(number if large else (gradient.dtype, gradient.device), []).append(number)
        for numbers in together.values():
            parts = [gradients[number] for number in numbers]
            joined = parts[0] if len(parts) == 1 else torch.cat(parts)
            with self.ranks.naming(f"the gradient of {self._some(numbers)} could not be reduced"):
                self.ranks.sum(joined)
            if len(parts) > 1:
                torch._foreach_copy_(parts, list(torch.split_with_sizes(joined, [each.numel() for each in parts])))

    def _replace(self, number: int, flat: torch.Tensor) -> None:
        """Makes the reduced gradient the one that the parameter has in the process."""
        parameter = self._parameter(number)
        model = model_of(parameter)
        gradient, stored = raw_gradient(parameter), stored_of(parameter)
        assert gradient is not None
        if gradient.data_ptr() != flat.data_ptr():
            gradient.copy_(flat.as_strided(model.shape, model.stride()))
        if stored is not None and stored.gradient is not None:
            stored.gradient.drop()

    # ---- What the ranks agree on ----

    def before_step(self, stepped: Sequence[torch.Tensor], optimizer: torch.optim.Optimizer) -> None:
        """The optimizer is about to update these, which have gradients. ``Invalid`` on all ranks unless each gradient
        was reduced, all ranks have come to the step behind the same updates, and their options are equal. An error that
        keeps one rank from the update is raised there, and the others raise ``Invalid``. A step that is continued says
        nothing: one rank may do so alone."""
        numbers = [self._number_of(parameter) for parameter in stepped]
        left = sorted(
            each for each in numbers if each is not None and (each in self._local or each not in self._trained)
        )
        outside = numbers.count(None)
        if self._changed:
            failure = None if left or outside else _failure_of(stepped)
            doing = f"update for the {self._updates + 1}. time"
            if failure is not None:
                doing = f"raise {type(failure).__name__} in step()"
            elif left or outside:
                doing = "update, with gradients not reduced:"
            try:
                told = left or [each for each in numbers if each is not None]
                self._announce(doing, told, told_options(optimizer))
            except Invalid:
                if failure is None:
                    raise
            if failure is not None:
                raise failure
        if outside:
            raise Invalid(
                f"the optimizer has {outside} parameters with gradients that were not in the model when it was "
                "offloaded, and are not reduced over the ranks: offload the model as it is to be trained"
            )
        if left:
            raise Invalid(
                f"the gradient of {self._some(left)} was not reduced: the last backward of a step must be outside of "
                "no_sync() and reach every parameter that the others have reached. After one that failed, call "
                "zero_grad(); unfreeze parameters before offload()"
            )
        self._local.clear()
        self._changed = False

    def after_step(self) -> None:
        """It has updated them, or is certain to."""
        self._updates += 1

    def after_discard(self, consistent: bool) -> None:
        """This rank has dropped what was left of an update. All ranks are to do so, and to go on only if it is
        ``consistent`` on each of them."""
        self._updates = 0 if consistent else _INCONSISTENT

    def after_load(self) -> None:
        """This rank has another state, as all ranks are to have."""
        self._updates = 0

    def _number_of(self, parameter: torch.Tensor) -> int | None:
        number = self._numbers.get(id(parameter))
        return number if number is not None and self._parameters[number]() is parameter else None

    def repeat_forward(self) -> None:
        """A forward that tierd has failed may be run again, by this rank alone: with the buffers that it has."""
        self._repeats = True

    def begin_forward(self) -> None:
        """The model's forward begins. In training its buffers get the first rank's values, where DDP would do so."""
        if not torch.is_grad_enabled() or torch._C._current_graph_task_id() != -1:
            return
        if self._is_early is None:
            self._begin()
        of_last = self._is_early is not None and not self._is_early()
        model = self._model()
        if (self._buffers_of_last if of_last else self._buffers_next) and model is not None:
            buffers = [buffer for buffer in model.buffers() if buffer.numel()]
            if buffers and self.spreads_buffers and not self._repeats:
                self._announce("give the buffers of a forward", [])
                self._spread(buffers)
        self._repeats = False
        if of_last:
            self._buffers_of_last = not self.pauses
        else:
            self._buffers_next = not self._paused()

    def _begin(self) -> None:
        """No backward is under way: what a failed one has left in the bucket is dropped; `_local` knows of it."""
        self._bucket = _Bucket()
        self._ends.clear()

    def _spread(self, buffers: list[torch.Tensor]) -> None:
        by_kind: dict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = {}
        for buffer in buffers:
            by_kind.setdefault((buffer.dtype, buffer.device), []).append(buffer.detach())
        with torch.no_grad():
            for alike in by_kind.values():
                joined = torch.cat([each.reshape(-1) for each in alike])
                self.ranks.broadcast(joined, "the model's buffers")
                if self.ranks.number:
                    for each, values in zip(
                        alike, torch.split_with_sizes(joined, [each.numel() for each in alike]), strict=True
                    ):
                        each.copy_(values.view(each.shape))

    def _announce(self, what: str, numbers: list[int], options: Sequence[str] = ()) -> None:
        """Tells the other ranks what this one is about to do, and with which options. ``Invalid`` on all of them unless
        all do the same."""
        told = [what, *(self._described(number) for number in numbers), *options]
        name = f"{what} {self._some(numbers)}" if numbers else what
        self.ranks.agree(told, f"about to {name}", self._parameter(0).device)

    def _parameter(self, number: int) -> torch.Tensor:
        parameter = self._parameters[number]()
        if parameter is None:
            raise Invalid(f"parameter {self._paths[number]!r} is gone: the model was changed after offload()")
        return parameter

    def _described(self, number: int) -> str:
        gradient = raw_gradient(self._parameter(number))
        return repr(self._paths[number]) + (f" ({gradient.dtype})" if gradient is not None else "")

    def _some(self, numbers: list[int]) -> str:
        more = f" and {len(numbers) - 1} more" if len(numbers) > 1 else ""
        return f"{self._paths[numbers[0]]!r}{more}"


def _failure_of(stepped: Sequence[torch.Tensor]) -> Error | None:
    """What keeps their update from beginning: a gradient that cannot be stored, or a view that is still alive."""
    try:
        for stored in stored_in(stepped):
            stored.require_changeable()
            if stored.gradient is not None:
                stored.gradient.elements()
    except Error as error:
        return error
    return None


def _nothing() -> None:
    pass
