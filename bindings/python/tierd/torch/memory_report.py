"""memory_report: where the bytes of a training run lie at this moment, and what all its processes take.

Of each tensor in tierd the daemon is asked how much of it is in RAM; the rest is on SSD alone. Of processes, the
kernel's figures are taken, as docs/benchmarks.md counts memory. What another user's daemon does not show is ``None``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from .. import inspection
from ..client import Client
from ..errors import Disconnected, NotFound
from ..inspection import Pss
from ..states import Key
from . import memory_picture
from .placeholder import raw_gradient
from .stored_parameter import stored_of


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where tensors of one kind lie, in bytes. Each byte counts once: one that is in RAM and on SSD counts as RAM."""

    #: In memory of this process.
    process: int = 0
    #: In RAM of tierd.
    ram: int = 0
    #: On SSD alone.
    ssd: int = 0

    @property
    def total(self) -> int:
        """All three together."""
        return self.process + self.ram + self.ssd

    def __add__(self, other: Place) -> Place:
        return Place(self.process + other.process, self.ram + other.ram, self.ssd + other.ssd)


@dataclasses.dataclass(frozen=True, slots=True)
class MemoryReport:
    """Bytes, at the moment of the call. ``print`` shows a table, a notebook too; :meth:`plot` draws it."""

    parameters: Place
    #: Those that exist. One on its way into tierd counts there.
    gradients: Place
    #: Zero before the first step.
    optimizer_state: Place
    #: What is offloaded. What stays in the process is in ``process`` only.
    activations: Place
    buffers: Place

    #: This process. Views over leases are no part of it: they lie in the arena.
    process: Pss | None
    daemon: Pss | None
    #: Allocated to the daemon's memfds: the arena, and the rings of all clients.
    memfds: int | None
    #: Windows that the daemon has made, of all jobs.
    arena: int | None
    arena_max: int | None
    #: Of the arena, windows of this job.
    held: int | None

    #: Parameters, buffers, a gradient and the state of each that is trained, and the same activations.
    plain_torch: int

    @property
    def parts(self) -> Mapping[str, Place]:
        """The rows of the table, by name."""
        return {
            "parameters": self.parameters,
            "gradients": self.gradients,
            "optimizer state": self.optimizer_state,
            "activations": self.activations,
            "buffers": self.buffers,
        }

    @property
    def measured(self) -> int | None:
        """This process, the daemon and all memfds together, by the rule of docs/benchmarks.md. Other processes and
        jobs that use the daemon are in its part."""
        if self.process is None or self.daemon is None or self.memfds is None:
            return None
        return self.process.total + self.daemon.total + self.memfds

    def __str__(self) -> str:
        return memory_picture.text(self)

    def _repr_html_(self) -> str:
        return memory_picture.html(self)

    def plot(self, path: str | os.PathLike[str] | None = None) -> str:
        """Stacked bars as SVG, a bar for each kind of tensor. Returns the text, which a notebook draws, and writes it
        to ``path`` if one is given."""
        picture = memory_picture.svg(self)
        if path is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(picture)
        return picture


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """What an optimizer has of its own: tensors in tierd, bytes in the process, and the bytes of all its tensors once
    each parameter has been trained."""

    keys: Sequence[Key] = ()
    in_process: int = 0
    whole: int = 0


def measure(
    client: Client,
    parameters: Iterable[torch.Tensor],
    state: State,
    buffers: Iterable[torch.Tensor] = (),
    activations: Iterable[Key] = (),
) -> MemoryReport:
    """Asks for each tensor in turn: some microseconds each. One that is freed meanwhile is left out."""
    values = gradients = Place()
    plain = state.whole
    for parameter in parameters:
        stored = stored_of(parameter)
        size = parameter.nbytes if stored is None else stored.nbytes
        plain += size * (1 + parameter.requires_grad)
        values += Place(process=size) if stored is None else _place_of(client, [stored.key], stored.shared)
        gradients += _gradient_place(client, parameter)
    saved = _place_of(client, activations)
    kept = Place(process=sum(buffer.nbytes for buffer in buffers))
    return MemoryReport(
        parameters=values,
        gradients=gradients,
        optimizer_state=_place_of(client, state.keys) + Place(process=state.in_process),
        activations=saved,
        buffers=kept,
        plain_torch=plain + kept.total + saved.total,
        **_machine(client),
    )


def _place_of(client: Client, keys: Iterable[Key], shared: bool = False) -> Place:
    ram = ssd = 0
    for key in keys:
        with contextlib.suppress(NotFound):
            state = client.tensor(key, shared=shared)
            here = min(state.ram_bytes, state.size)  # The daemon counts pages.
            ram, ssd = ram + here, ssd + state.size - here
    return Place(ram=ram, ssd=ssd)


def _gradient_place(client: Client, parameter: torch.Tensor) -> Place:
    stored = stored_of(parameter)
    gradient: Any = raw_gradient(parameter) if stored is None or stored.gradient is None else stored.gradient
    if gradient is None and stored is not None and stored.deferred is not None:
        gradient = stored.deferred.gradient  # Of an update that is to be carried out.
    if gradient is None:
        return Place()
    if isinstance(gradient, torch.Tensor):
        return Place(process=gradient.nbytes)
    found = _place_of(client, [gradient.key])
    return found if found.total else Place(ram=gradient.stored.numel * gradient.dtype.itemsize)  # On its way.


def _machine(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = dict.fromkeys(("daemon", "memfds", "arena", "arena_max", "held"))
    found["process"] = inspection.pss_of()
    with contextlib.suppress(NotFound, Disconnected):
        status = inspection.daemon_status(client)
        found["arena"], found["arena_max"] = status["arena_bytes"], status["arena_max_bytes"]
        found["daemon"] = inspection.pss_of(status["pid"])
        found["memfds"] = inspection.memfd_bytes(status["pid"])
        found["held"] = inspection.job_figures(client)["held_bytes"]
    return found
