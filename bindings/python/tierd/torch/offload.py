"""offload: a model trained with its parameters, gradients, optimizer state and activations in tierd.

The idea: hooks on the modules bring each parameter for its module's forward and take it back behind it
(``stored_parameter``). The outermost forward packs what autograd saves: places in parameters, and activations
(``activations``). A hook on each parameter takes its gradient when autograd has finished it: into tierd
(``stored_gradient``), or straight into the optimizer's update. So the process holds a few tensors at any time, whatever
the size of the model, and a plain training loop goes on as it was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from ..client import Client
from ..errors import AlreadyExists, Invalid
from ..progress import shown, wanted
from ..quantity import byte_count
from . import need, parameter_state
from .arguments import checked_client
from .data_parallel import require_unwrapped, together
from .creation_store import CreationStore, created_in, require_fitting, take_over
from .malloc import return_freed_memory
from .memory_report import MemoryReport
from .offloaded_optimizer import OffloadableOptimizer
from .placeholder import raw_gradient
from .ranks import Ranks
from .reduction import Reduction
from .resume import read_record, restore_generators, write_record
from .runtime import Placement, Runtime, runtime_of, saved_in_gathered
from .shared_weights import FrozenWeights, Parameters
from .stored_parameter import ParameterStore, StoredParameter, stored_in, stored_of

UPDATES = ("step", "deferred", "backward")
LOOK_AHEAD_BYTES = 24 << 20
SLICE_BYTES = 8 << 20
RETURNED_BYTES = 128 << 10  # glibc would keep freed activations of less than its threshold, and fragment its heap.
_numbers = itertools.count(1)


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
    there, which moves fewer bytes; for loops with one backward to each step, without clipping and scaler. Call
    ``step()`` in each case.

    ``parameters``, ``gradients``, ``optimizer_state`` and ``activations`` are each in tierd (``"auto"``, ``"ssd"``, or
    ``"ram"``, see below) or stay in the process (``"device"``; not the state). Parameters below ``min_bytes`` stay too.
    Without ``client``, the call connects, with a private daemon of ``ram`` and ``ssd`` bytes if none runs (default:
    what this model needs). Before anything moves, ``NoMemory`` or ``NoSpace`` says what is needed, what is available
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
    ``AlreadyExists``.

    ``progress`` shows a bar on stderr while the model moves (``None``: where more than 1 GiB moves and stderr is a
    terminal, or in IPython; drawn by ``rich``, if that is installed).

    ``process_group`` (of torch.distributed; True: all ranks) makes it a data-parallel run. Every rank calls this; the
    parameters and buffers become those of the first rank. Each gradient is averaged over the ranks before it leaves, in
    training the buffers follow the first rank's, and all that has the bits of ``DistributedDataParallel``. See
    :func:`no_sync`. ``Disconnected``, within the group's timeout, where a rank has ended. The ranks store what is
    theirs under ``name/rank0`` and so on. Frozen parameters, which do not require a gradient, are stored once for the
    ranks that share a job, and cannot be changed any more; they stay in tierd until the job ends.

    ``load_frozen(name)`` returns the values of a frozen parameter on the meta device, so that no process holds all of
    the frozen weights: of the ranks of a job, one calls it for each parameter that goes into tierd, and takes over
    where another has ended. Each such parameter is replaced by another object. Without a ``process_group`` too, ranks
    that give the same ``name`` then share what they load; weights that the job has under it are used as they are.

    Outside of forward and backward a parameter has no values: see :func:`gathered`. One thread at a time runs the
    model. ``Invalid``: a parameter that cannot be stored, or an option that does not fit.
    """
    placement = Placement(parameters, gradients, optimizer_state, activations)
    if update not in UPDATES:
        raise Invalid(f"update is {update!r}: one of {', '.join(UPDATES)}")
    if not (isinstance(optimizer, type) and issubclass(optimizer, OffloadableOptimizer)):
        given = optimizer.__name__ if isinstance(optimizer, type) else f"a {type(optimizer).__name__}"
        raise TypeError(f"optimizer is {given}: pass a class such as tierd.torch.AdamW")
    if runtime_of(model) is not None:
        raise Invalid("this model is offloaded already")
    require_unwrapped(model)
    created = created_in(model)
    require_fitting(created, client, resume)
    if client is not None and (ram is not None or ssd is not None):
        raise Invalid("ram and ssd are for a private daemon: give them, or client")
    if created:
        if process_group is not None or load_frozen is not None:
            raise Invalid("a model of creating() is trained by one process: leave out process_group and load_frozen")
        if not placement.in_tierd("parameters") or (ram, ssd) != (None, None):
            raise Invalid(
                "a model that is in tierd already: leave out parameters='device', and give creating() ram, ssd"
            )
        client = created[0][1].store.client
    least = byte_count(min_bytes, "min_bytes")
    ranks = None if process_group is None else Ranks.of(process_group)
    if load_frozen is not None and ranks is None and name is None:
        raise Invalid("load_frozen without process_group: give a name, by which other ranks find the same weights")
    prefix = name = name or f"offload-{next(_numbers)}"
    if ranks is not None:
        prefix = ranks.chosen_by_first(name, "offload()")
        name = f"{prefix}/rank{ranks.number}"
        ranks.require_same_model(model, [dataclasses.astuple(placement), update, least, resume])
    weights = FrozenWeights(model, load_frozen, shares=ranks is not None or load_frozen is not None)
    own = client is None
    made: OffloadableOptimizer
    make: Any = optimizer
    options.setdefault("slice_bytes", SLICE_BYTES)
    try:
        with together(ranks, "offload()"):
            weights.load_resident(lambda parameter: _stays(parameter, least, placement))
            chosen = weights.leave_meta(_chosen(model, least, placement, weights))
            moving = 0 if resume else sum(parameter.nbytes for _, parameter in chosen)
            wanted(progress, moving)  # Raises if it is wrong.
        in_tierd = [*chosen, *((path, stored.parameter) for path, stored in created)]
        run = need.Run(model, in_tierd, optimizer, placement, update, options, shared=_ids(weights.shared_of(chosen)))
        if client is None:
            at_once = dataclasses.replace(run, ranks=1 if ranks is None else ranks.on_this_machine())
            with together(ranks, "offload()"):
                client = need.connected(at_once, ram, ssd)
        checked_client(client)
        if ranks is not None:
            ranks.find_jobs(client)
            run = dataclasses.replace(run, ranks=ranks.in_job)
        with together(ranks, "offload()"):
            record = read_record(client, name, optimizer) if resume else None
        if ranks is not None:
            ranks.require_one_run(None if record is None else record["extra"]["persisted"])
        with together(ranks, "offload()"):
            made = make(
                model.parameters() if groups is None else groups(model), client=client, name=f"{name}/state", **options
            )
            if ranks is None or ranks.leads_job:  # For all ranks of the job.
                present = [] if resume else weights.present(weights.shared_of(chosen), client, prefix)
                if ranks is not None and present:
                    left = f"{prefix}/{present[0][0]}"
                    raise AlreadyExists(
                        f"an earlier run has left {left!r} in this job: pass resume=True to go on with it, or another "
                        "name"
                    )
                run = dataclasses.replace(run, present=_ids(present))
                need.check(client, run, made, f"{name}/needed", resume)
        if ranks is not None and record is None:
            ranks.spread_values(model, weights)
    except BaseException:
        weights.undo()
        if own and client is not None:
            client.close()
        raise
    return_freed_memory(RETURNED_BYTES)
    store = ParameterStore(client, name, LOOK_AHEAD_BYTES)
    runtime = Runtime(model, store, placement, update, exact_norm)
    try:
        with together(ranks, "offload()"):
            if record is not None:
                _load_resident(model, record, {path for path, _ in in_tierd})
            keys = {} if record is None else record["extra"].get("keys", {})
            with shown("moving the model", moving, progress) as advance:
                for path, parameter in weights.not_shared_of(chosen):
                    advance(store.adopt(path, parameter, resume, keys.get(path)).nbytes)
                take = weights.resume if resume else weights.adopt
                take(weights.shared_of(chosen), store, prefix, advance)
            for path, stored in created:
                take_over(store, path, stored, keys.get(path))
            runtime.reduction = None if ranks is None else Reduction(model, ranks)
            runtime.attach()
            if record is not None:
                made.adopt_state(record["state"])
                restore_generators(record)
                runtime.resumed = record
    except BaseException:
        runtime.unloaded = weights.undo()
        runtime.detach(resumed=resume)
        raise
    runtime.serve(made)
    return model, made


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
                stored.enter(entered, stored.copy())
                found[stored] = stored.parameter._version
                advance(stored.nbytes)
        with saved_in_gathered():
            yield
        if write:  # All of it: what is changed through .data is not counted.
            for stored in entered:
                stored.write_back()
        elif changed := [stored.name for stored in entered if stored.parameter._version != found[stored]]:
            raise Invalid(f"{changed[0]!r} was changed in gathered(): pass write=True to keep that")
    finally:
        while entered:
            entered[-1].leave(entered)


def persist(model: torch.nn.Module, optimizer: OffloadableOptimizer, *schedulers: Any, **extra: Any) -> None:
    """Makes the training run durable in one atomic step, for ``offload(…, resume=True)`` of the next program: it
    survives the end of this one, of the daemon, and a loss of power. ``extra`` (numbers, strings, tensors, lists and
    dicts: an epoch) comes back from :func:`resumed`, and so do ``schedulers``. Everything that the job has is persisted
    with it, and nothing else stays persisted. Call it between steps, in a ``named`` job. With a ``process_group`` every
    rank calls it, and the ranks of one job persist in one step.

    Small parameters that stay in the process, and buffers, are persisted too.
    """
    runtime = _required_runtime(model)
    client, name = runtime.store.client, runtime.store.name
    resident = _resident(model)
    states = [schedule.state_dict() for schedule in schedulers]
    ranks = None if runtime.reduction is None else runtime.reduction.ranks
    keys = {stored.name: stored.key for stored in runtime.store.parameters if not stored.shared}
    kept: dict[str, Any] = {"user": extra, "resident": resident, "schedulers": states, "keys": keys}
    kept["persisted"] = None if ranks is None else ranks.new_mark()
    with together(ranks, "persist()"):
        write_record(client, name, optimizer, kept)
    with together(ranks, "persist()"):
        if ranks is None or ranks.leads_job:
            client.persist()


def resumed(model: torch.nn.Module, *schedulers: Any) -> dict[str, Any]:
    """What the run that ``model`` goes on with had passed to :func:`persist`; nothing where it began. ``schedulers``
    get the states that they had; and their optimizers the learning rates, which making a scheduler has changed."""
    runtime = _required_runtime(model)
    if not runtime.resumed:
        return {}
    record = runtime.resumed
    if schedulers and len(schedulers) != len(record["extra"]["schedulers"]):
        raise Invalid(f"{len(record['extra']['schedulers'])} schedulers were persisted, {len(schedulers)} are given")
    for schedule, state in zip(schedulers, record["extra"]["schedulers"], strict=False):
        schedule.load_state_dict(state)
    optimizer = None if runtime.optimizer is None else runtime.optimizer()
    if optimizer is not None and schedulers:
        for group, saved in zip(optimizer.param_groups, record["state"]["packed"]["param_groups"], strict=True):
            group.update({name: value for name, value in saved.items() if name != "params"})
    extra: dict[str, Any] = record["extra"]["user"]
    return extra


def _resident(model: torch.nn.Module) -> dict[str, Any]:
    """What of the model's state is not in tierd: small parameters, buffers, extra state."""
    state = model.state_dict(keep_vars=True)
    return {
        key: value.detach() if isinstance(value, torch.Tensor) else value
        for key, value in state.items()
        if not isinstance(value, torch.Tensor) or stored_of(value) is None
    }


def activation_bytes(model: torch.nn.Module) -> int:
    """Bytes of activations that an offloaded model has moved into tierd so far."""
    return _required_runtime(model).activation_bytes


def memory_report(model: torch.nn.Module) -> MemoryReport:
    """The report of an offloaded model: what its optimizer's ``memory_report()`` returns."""
    return _required_runtime(model).memory_report()


def _load_resident(model: torch.nn.Module, record: dict[str, Any], chosen: set[str]) -> None:
    """Gives the model what a run has persisted outside of tierd. ``Invalid`` unless that is all that is not in it."""
    resident = record["extra"]["resident"]
    tied = {id(dict(model.named_parameters(remove_duplicate=False))[path]) for path in chosen}
    state = model.state_dict(keep_vars=True)
    needed = {key for key, value in state.items() if id(value) not in tied}
    if needed != resident.keys():
        other = sorted(needed ^ resident.keys())[0]
        raise Invalid(
            f"{other!r} was on the other side of min_bytes or of the placement when this run was persisted: resume it "
            "with the same model and options"
        )
    model.load_state_dict(resident, strict=False)


def _required_runtime(model: torch.nn.Module) -> Runtime:
    runtime = runtime_of(model)
    if runtime is None:
        raise Invalid("this model is not offloaded: pass the model that tierd.torch.offload() returned")
    return runtime


def gradient_of(parameter: torch.Tensor) -> torch.Tensor | None:
    """A copy of a parameter's gradient, wherever it lies; ``None`` if there is none."""
    stored = stored_of(parameter)
    if stored is not None and stored.gradient is not None:
        return stored.gradient.copy()
    gradient = raw_gradient(parameter)
    return None if gradient is None else gradient.clone()


def _ids(parameters: Parameters) -> frozenset[int]:
    return frozenset(id(parameter) for _, parameter in parameters)


def _stays(parameter: torch.Tensor, min_bytes: int, placement: Placement) -> bool:
    """Whether the parameter stays in the process."""
    return not placement.in_tierd("parameters") or parameter.numel() == 0 or parameter.nbytes < min_bytes


def _chosen(
    model: torch.nn.Module, min_bytes: int, placement: Placement, weights: FrozenWeights
) -> list[tuple[str, torch.nn.Parameter]]:
    """The parameters that go into tierd, with their names. ``Invalid`` where one cannot."""
    chosen = []
    owners: dict[int, str] = {}
    for path, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.layout is torch.strided and not tensor.is_meta and tensor.numel() and stored_of(tensor) is None:
            other = owners.setdefault(tensor.untyped_storage()._cdata, path)
            if other != path and placement.in_tierd("parameters"):
                raise Invalid(f"{path!r} and {other!r} share their bytes: make them one Parameter object")
    for path, parameter in model.named_parameters():
        if (stored := stored_of(parameter)) is not None:
            if isinstance(stored.store, CreationStore):
                continue
            raise Invalid(f"parameter {path!r} belongs to a model that is offloaded already")
        if parameter.is_meta and not weights.loads(parameter):
            raise Invalid(f"parameter {path!r} is on the meta device: only frozen ones may be, with load_frozen=")
        if _stays(parameter, min_bytes, placement):
            continue
        if parameter.is_meta:
            chosen.append((path, parameter))
            continue
        if parameter.layout is not torch.strided or parameter.device.type != "cpu":
            raise Invalid(f"parameter {path!r} ({parameter.layout}, {parameter.device}) cannot be stored in tierd")
        if parameter.untyped_storage().nbytes() and parameter.data_ptr() == 0:
            raise Invalid(f"parameter {path!r} of type {type(parameter).__name__} has no bytes of its own")
        parameter_state.flat(parameter.detach())
        chosen.append((path, parameter))
    return chosen
