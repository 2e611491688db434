"""Ranks: the processes of a data-parallel run, as ``offload(process_group=…)`` knows them.

All ranks call the same functions in the same order. What only one of them can find out is told to all: either all of
them go on, or all of them raise. So an error of one rank is not a hang of the others.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import socket
from collections.abc import Container, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as distributed

from ..client import Client
from ..errors import BY_CODE, Disconnected, Error, Invalid
from . import parameter_state
from .safetensors_file import bytes_of, in_index_order
from .stored_parameter import StoredParameter, stored_of

_SUMMED_BYTES = 4 << 20  # At a time.
_IN_TIERD = ", in tierd"
_IN_PROCESS = ", in the process"
_KEPT = (
    ". In creating() a parameter stays in the process while something else refers to its bytes, such as a view or its "
    ".data: drop that before the context ends. Or one of the ranks has made it outside of creating()"
)
# The second is its name before torch 2.13, which warns of it.
_all_gather: Any = getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor


class Ranks:
    """One rank's view of all ranks of a process group. One thread at a time. Its calls are collective, and raise
    ``Disconnected`` where a rank has ended or the group's timeout has passed."""

    def __init__(self, group: Any) -> None:
        if not (distributed.is_available() and distributed.is_initialized()):
            raise Invalid("process_group: call torch.distributed.init_process_group() first")
        self.group = group
        self.number = distributed.get_rank(group)
        self.count = distributed.get_world_size(group)
        self.in_job = 1  # Ranks that share this one's job.
        self.leads_job = True  # The first of the ranks that share this one's job.
        self._leader = self.number  # That first one.
        self._first = distributed.get_global_rank(group, 0) if group is not None else 0

    @classmethod
    def of(cls, group: Any) -> Ranks:
        if group is True:
            return cls(None)
        if group is distributed.GroupMember.NON_GROUP_MEMBER:
            raise Invalid("process_group: this process is not in it")
        if not isinstance(group, distributed.ProcessGroup):
            raise Invalid(
                f"process_group is a {type(group).__name__}: pass a group of torch.distributed, or True for all"
            )
        return cls(group)

    # ---- What each rank tells the others ----

    def agree(self, doing: Sequence[str], what: str, device: torch.device | str | None = None) -> None:
        """Tells the other ranks in a few bytes what this one is about to do: an action, and to what. ``Invalid`` on all
        of them unless all do the same."""
        digest = int.from_bytes(hashlib.blake2b("\n".join(doing).encode(), digest_size=7).digest(), "big")
        ours = torch.tensor([digest], dtype=torch.int64, device=device or _device_of(self.group))
        with self.naming(what):
            heard = self.gather_flat(ours)
        if len(set(heard.tolist())) > 1:
            raise Invalid(_difference(self._gather(list(doing), what)))

    def gather(self, told: Any, what: str) -> list[Any]:
        """What every rank tells, in the order of the ranks. ``what`` names the call that all of them are in."""
        self.agree([f"take part in {what}"], what)
        return self._gather(told, what)

    def _gather(self, told: Any, what: str) -> list[Any]:
        answers: list[Any] = [None] * self.count
        with self.naming(what):
            distributed.all_gather_object(answers, told, group=self.group)
        return answers

    def chosen_by_first(self, value: Any, what: str) -> Any:
        """The first rank's ``value``."""
        return self.gather(value if self.number == 0 else None, what)[0]

    def chosen_by_leader(self, value: Any, what: str) -> Any:
        """The ``value`` of the first of the ranks that share this one's job."""
        return self.gather(value, what)[self._leader]

    def broadcast(self, value: torch.Tensor, what: str) -> None:
        """Replaces ``value`` by the first rank's. It is contiguous, of any type."""
        with self.naming(what), torch.no_grad():
            distributed.broadcast(value.reshape(-1).view(torch.uint8), src=self._first, group=self.group)

    def gather_flat(self, values: torch.Tensor) -> torch.Tensor:
        """The flat tensors of all ranks, one after the other."""
        found = values.new_empty(self.count * values.numel())
        _all_gather(found, values, group=self.group)
        return found

    def sum(self, values: torch.Tensor) -> None:
        """Replaces the elements of a flat, contiguous tensor by their sums over the ranks: ((first + second) + third) +
        …, each sum rounded to the tensor's type. So the bits are the same whatever is summed in one call, and of two
        ranks those of any all-reduce. (That of gloo adds each part of a buffer in an order of its own.)"""
        if self.count <= 2:
            distributed.all_reduce(values, group=self.group)
            return
        for part in torch.split(values, max(1, _SUMMED_BYTES // values.itemsize)):
            each = -(-part.numel() // self.count)
            sent = torch.nn.functional.pad(part, (0, self.count * each - part.numel()))
            received = torch.empty_like(sent)
            distributed.all_to_all_single(received.view(torch.uint8), sent.view(torch.uint8), group=self.group)
            total, *others = torch.split(received, each)  # One rank sums one part.
            for other in others:
                total.add_(other)
            part.copy_(self.gather_flat(total.view(torch.uint8)).view(part.dtype)[: part.numel()])

    @contextlib.contextmanager
    def together(self, what: str) -> Iterator[None]:
        """All ranks leave the block without an error, or all raise: each its own, or the first of the others'."""
        failure: Exception | None = None
        try:
            yield
        except Exception as error:
            failure = error
        code = failure.code if isinstance(failure, Error) else Invalid.code
        told = None if failure is None else (code, str(failure))
        answers = self.gather(told, what)
        if failure is not None:
            raise failure
        for number, answer in enumerate(answers):
            if answer is not None:
                kind = BY_CODE.get(answer[0], Error)
                raise kind(f"rank {number} of the process group failed in {what}: {answer[1]}")

    @contextlib.contextmanager
    def naming(self, what: str) -> Iterator[None]:
        """Errors of the group name what was under way."""
        try:
            yield
        except RuntimeError as error:
            raise Disconnected(
                f"{what}: a rank of the process group has ended, or has not come within the group's timeout ({error})"
            ) from error

    # ---- The start of a run ----

    def on_this_machine(self) -> int:
        """How many of the ranks run on this machine."""
        name = socket.gethostname()
        return self.gather(name, "offload()").count(name)

    def find_jobs(self, client: Client) -> None:
        """Which ranks share a job. The token says so; the others get a digest of it only."""
        state = client.session
        job = hashlib.blake2b(f"{state.epoch} {state.job} {state.token}".encode(), digest_size=16).hexdigest()
        jobs = self.gather(job, "offload()")
        self._leader = jobs.index(job)
        self.leads_job = self._leader == self.number
        self.in_job = jobs.count(job)

    def require_same_model(self, model: torch.nn.Module, options: Sequence[object]) -> None:
        """``Invalid`` on all ranks, with the first difference, unless they have the same parameters and options."""
        known = [f"option {option}" for option in options]
        for kind, tensors in (("parameter", model.named_parameters()), ("buffer", model.named_buffers())):
            for path, tensor in tensors:
                trained = "trained" if tensor.requires_grad else "not trained"
                where = _IN_PROCESS if stored_of(tensor) is None else _IN_TIERD
                known.append(f"{kind} {path!r} of {tuple(tensor.shape)}, {tensor.dtype}, {trained}{where}")
        for number, other in enumerate(self.gather(known, "offload()")):
            for position in range(max(len(known), len(other))):
                ours = known[position] if position < len(known) else "nothing"
                theirs = other[position] if position < len(other) else "nothing"
                if ours != theirs:
                    same = ours.replace(_IN_TIERD, _IN_PROCESS) == theirs.replace(_IN_TIERD, _IN_PROCESS)
                    note = _KEPT if same else ""
                    raise Invalid(
                        f"the ranks' models differ: rank {self.number} has {ours}, rank {number} has {theirs}{note}"
                    )

    def spread_values(self, model: torch.nn.Module, awaited: Container[torch.Tensor]) -> None:
        """Gives all ranks the first rank's parameters and buffers, as DistributedDataParallel does; not those that
        await their values."""
        for path, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if tensor in awaited or tensor.numel() == 0:
                continue
            if (stored := stored_of(tensor)) is not None:
                self._spread_stored(path, stored)
                continue
            values = tensor.detach()
            contiguous = in_index_order(values)
            self.broadcast(contiguous, f"offload(), {path!r}")
            if contiguous.data_ptr() != values.data_ptr():
                values.copy_(contiguous)

    def _spread_stored(self, path: str, stored: StoredParameter) -> None:
        """The same for a parameter in tierd. Where all ranks have the first one's bytes, they learn so by a digest."""
        what = f"offload(), {path!r}"
        with self.together(what):
            values = stored.copy()
            digest = hashlib.blake2b(bytes_of(parameter_state.flat(values)), digest_size=16).hexdigest()
        if len(set(self.gather(digest, what))) == 1:
            return
        self.broadcast(parameter_state.flat(values), what)
        with self.together(what):
            if self.number:
                stored.write(values)

    def require_one_run(self, persisted: str | None) -> None:
        """``Invalid`` on all ranks unless they resume what one call of ``persist`` has left."""
        if len(set(self.gather(persisted, "offload()"))) != 1:
            raise Invalid(
                "the ranks were persisted at different steps: one of them ended in the middle of persist(). Ranks of "
                "one job persist in one atomic step; those of several jobs, as of several machines, do not"
            )

    def new_mark(self) -> str:
        """The same on all ranks, and never given twice."""
        mark: str = self.chosen_by_first(secrets.token_hex(8), "persist()")
        return mark


def _difference(told: list[list[str]]) -> str:
    """A sentence on the first rank that differs from rank 0. Each tells what it is about to do, and to which."""
    other = next(number for number, each in enumerate(told) if each != told[0])
    place = next(
        (place for place, pair in enumerate(zip(told[0][1:], told[other][1:], strict=False), 1) if pair[0] != pair[1]),
        min(len(told[0]), len(told[other])),
    )
    sides = [
        " ".join([f"rank {number} is about to {told[number][0]}", *told[number][place : place + 1]])
        for number in (0, other)
    ]
    return (
        f"the ranks of the process group differ: {' and '.join(sides)}. All ranks must use the same parameters, in the "
        "same order, in each step, and call backward, step() and no_sync() alike"
    )


def _device_of(group: Any) -> torch.device | str:
    """Where a tensor must lie that the group is to move."""
    device: torch.device | str = distributed.distributed_c10d._get_object_coll_device(group)
    return device
