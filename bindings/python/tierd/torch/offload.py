"""offload: a model trained with its parameters, gradients, optimizer state and activations in tierd.

The idea: hooks on the modules bring each parameter for its module's forward and take it back behind it
(``stored_parameter``). The outermost forward packs what autograd saves: places in parameters, and activations
(``activations``). A hook on each parameter takes its gradient when autograd has finished it: into tierd
(``stored_gradient``), or straight into the optimizer's update. So the process holds a few tensors at any time, whatever
the size of the model, and a plain training loop goes on as it was.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from ..client import Client
from ..errors import Invalid
from ..progress import shown
from ..quantity import byte_count
from .data_parallel import require_unwrapped, together
from .memory_report import MemoryReport
from .offloading import Offloading
from .offloaded_optimizer import OffloadableOptimizer
from .placeholder import raw_gradient
from .ranks import Ranks
from .runtime import Placement, required_runtime, runtime_of
from .saved_tensors import saved_in_gathered
from .stored_parameter import StoredParameter, stored_in, stored_of

UPDATES = ("step", "deferred", "backward")
OFFLOADED_ALREADY = "this model is offloaded already: go on with the optimizer of then, or make the model again"


def offload(
    model: torch.nn.Module,
    optimizer: type[OffloadableOptimizer],
    *,
    client: Client | None = None,
    groups: Callable[[torch.nn.Module], Iterable[Any]] | None = None,
    update: str = "deferred",
    parameters: str = "auto",
    gradients: str = "auto",
    optimizer_state: str = "auto",
    activations: str = "auto",
    min_bytes: int | str = "64KiB",
    exact_norm: bool = False,
    ram: int | str | None = None,
    ssd: int | str | None = None,
    name: str | None = None,
    resume: bool = False,
    progress: bool | None = None,
    process_group: Any = None,
    load_frozen: Callable[[str], torch.Tensor] | None = None,
    **options: Any,
) -> tuple[torch.nn.Module, OffloadableOptimizer]:
    """Moves ``model`` into tierd and returns it with its optimizer. A plain training loop goes on unchanged::

        model, optimizer = tierd.torch.offload(model, tierd.torch.AdamW, lr=3e-4)
        loss = model(batch); loss.backward(); optimizer.step(); optimizer.zero_grad()

    The losses and the parameters have the bits of ``torch.optim``'s fused optimizer. ``options`` are those of
    ``optimizer``; ``groups(model)`` returns its parameter groups (none: all parameters).

    ``update`` says when parameters change. ``"deferred"``: gradients go into tierd as autograd finishes them,
    ``step()`` decides, and each parameter is updated when the next forward comes to it, or when it is read otherwise;
    accumulation, clipping and ``GradScaler`` work as usual, with norms within 1e-5 of torch's, or with ``exact_norm``
    with its bits. An error of an update, such as ``NoSpace``, is then one of that forward; run it again to go on.
    ``"step"``: the same, but ``step()`` updates. ``"backward"``: each parameter is updated as soon as its gradient is
    there, by another thread while backward goes on, which moves fewer bytes; for loops with one backward to each step,
    then ``step()`` and ``zero_grad()``. A use of a gradient in between, as by clipping, raises ``Invalid``; what reads
    or sets a parameter in between finds the updated one. With the other two a gradient that the loop gives a parameter,
    or that has a graph (``create_graph=True``), stays in the process.

    ``parameters``, ``gradients``, ``optimizer_state`` and ``activations`` are each in tierd (``"auto"``, ``"ssd"``, or
    ``"ram"``, see below) or stay in the process (``"device"``; not the state). Parameters below ``min_bytes`` stay too.
    Without ``client``, the call connects, with a private daemon of ``ram`` and ``ssd`` bytes if none runs (default:
    what this model needs). Where a private daemon runs and has no room, as it was started for a smaller model, another
    one is started beside it. Before anything moves, ``NoMemory`` or ``NoSpace`` says what is needed, what is available
    and what to set, where the daemon or the machine has too little; activations are not counted, and neither is what a
    :func:`persist` keeps beside later steps: parameters and state once more.

    ``"ram"`` says that a part is to stay in RAM: the call makes sure that the RAM which the job is certain to have
    (its guarantee, or its part of the arena as things are) holds all of it below the limit from which tierd evicts. It
    is a check and not a pin: bytes that have been unused for long are still written to SSD, and jobs that come later
    take their part where the job has no guarantee of its own (``tierd.connect(guarantee=…)``). tierd decides by use for
    ``"auto"`` and ``"ssd"``. The activations' size is not known in advance, so ``"ram"`` means ``"auto"`` for them.

    ``name`` is the prefix of the keys. With ``resume``, and a client that was connected with ``mode="resume"``, the run
    of that name goes on as :func:`persist` left it: parameters, state, step counts and generators of random numbers;
    ``model`` and ``options`` give the shapes and whatever was not persisted. Without it, tensors of that name are
    ``AlreadyExists``. A script for the first run and for the next connects with ``mode="resume_or_create"`` and gives
    ``resume=client.session.resumed``.

    ``progress`` shows a bar on stderr while the model moves (``None``: where more than 1 GiB moves and stderr is a
    terminal, or in IPython; drawn by ``rich``, if that is installed).

    ``process_group`` (of torch.distributed; True: all ranks) makes it a data-parallel run. Every rank calls this; the
    parameters and buffers become those of the first rank. Each gradient is averaged over the ranks before it leaves, in
    training the buffers follow the first rank's, and all that has the bits of ``DistributedDataParallel`` (of more than
    two ranks, with a communication hook that sums in the order of the ranks). See :func:`no_sync`. ``Disconnected``,
    within the group's timeout, where a rank has ended. The ranks store what is theirs under ``name/rank0`` and so on.
    Frozen parameters, which do not require a gradient, are stored once for the ranks that share a job, and cannot be
    changed any more; they stay in tierd until the job ends.

    ``load_frozen(name)`` returns the values of a frozen parameter on the meta device, so that no process holds all of
    the frozen weights: of the ranks of a job, one calls it for each parameter that goes into tierd, and takes over
    where another has ended. Each such parameter is replaced by another object. Without a ``process_group`` too, ranks
    that give the same ``name`` then share what they load; weights that the job has under it are used as they are.

    Outside of forward and backward a parameter has no values: see :func:`gathered`. ``state_dict()`` has copies: one
    that is changed in place makes the next forward ``Invalid``. One thread at a time runs the model. ``Invalid``: a
    parameter that cannot be stored, or an option that does not fit.
    """
    placement = Placement(parameters, gradients, optimizer_state, activations)
    if update not in UPDATES:
        raise Invalid(f"update is {update!r}: one of {', '.join(UPDATES)}")
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model is a {type(model).__name__}: pass the model itself, not its parameters")
    if not (isinstance(optimizer, type) and issubclass(optimizer, OffloadableOptimizer)):
        given = (
            f"{optimizer.__module__}.{optimizer.__name__}"
            if isinstance(optimizer, type)
            else f"a {type(optimizer).__name__}"
        )
        raise TypeError(f"optimizer is {given}: pass a class such as tierd.torch.AdamW")
    if runtime_of(model) is not None:
        raise Invalid(OFFLOADED_ALREADY)
    require_unwrapped(model)
    if client is not None and (ram is not None or ssd is not None):
        raise Invalid("ram and ssd are for a private daemon: give them, or client")
    if load_frozen is not None and process_group is None and name is None:
        raise Invalid("load_frozen without process_group: give a name, by which other ranks find the same weights")
    moving = Offloading(
        model, optimizer, placement, update, client,
        min_bytes=byte_count(min_bytes, "min_bytes"), exact_norm=exact_norm, resume=resume, progress=progress,
    )  # fmt: skip
    ranks = None if process_group is None else Ranks.of(process_group)
    with together(ranks, "offload()"):
        moving.take_created(of_ranks=ranks is not None, sized=ram is not None or ssd is not None)
    moving.join(ranks, name, load_frozen)
    try:
        return moving.run(ram, ssd, groups, options)
    except BaseException:
        moving.undo()
        raise


@contextlib.contextmanager
def gathered(*of: torch.nn.Module | torch.Tensor, write: bool = False, progress: bool | None = None) -> Iterator[None]:
    """A context in which parameters of an offloaded model have their values, in memory of the process: those of the
    modules and the parameters given. With ``write``, what was changed in them is in tierd when it ends; without, they
    must not be changed. ``progress`` is that of :func:`offload`, while they are read."""
    found: dict[StoredParameter, int] = {}
    for each in of:
        parameters = each.parameters() if isinstance(each, torch.nn.Module) else [each]
        for stored in stored_in(parameters):
            found.setdefault(stored, 0)
    entered: list[StoredParameter] = []
    try:
        with shown("reading parameters", sum(stored.nbytes for stored in found), progress) as advance:
            for stored in found:
                stored.store.prepare(stored)
                if write and not stored.shared:
                    stored.require_unread()  # Else what is written would wait for it.
                stored.enter(entered, stored.copy())
                found[stored] = stored.parameter._version
                advance(stored.nbytes)
        with saved_in_gathered():
            yield
        if write:  # All of it: what NumPy writes is not counted.
            for stored in entered:
                stored.require_writable_back()
            for stored in entered:
                stored.write_back()
        elif changed := [
            stored.name for stored in entered if stored.parameter._version != found[stored] or stored.has_other_bytes()
        ]:
            raise Invalid(f"{changed[0]!r} was changed in gathered(): pass write=True to keep that")
    finally:
        while entered:
            entered[-1].leave(entered)


def activation_bytes(model: torch.nn.Module) -> int:
    """Bytes of activations that an offloaded model has moved into tierd so far."""
    return required_runtime(model).activation_bytes


def memory_report(model: torch.nn.Module) -> MemoryReport:
    """The report of an offloaded model: what its optimizer's ``memory_report()`` returns."""
    return required_runtime(model).memory_report()


def gradient_of(parameter: torch.Tensor) -> torch.Tensor | None:
    """A copy of a parameter's gradient, wherever it lies; ``None`` if there is none."""
    stored = stored_of(parameter)
    if stored is not None and stored.gradient is not None:
        return stored.gradient.copy()
    gradient = raw_gradient(parameter)
    if gradient is None and stored is not None and stored.applied is not None:
        gradient = stored.applied.handle  # Which refuses what follows.
    return None if gradient is None else gradient.clone()
