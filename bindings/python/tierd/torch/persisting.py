"""persist and resumed: a training run that goes on in the next program.

The idea: what is in tierd becomes durable by one atomic manifest of the job, and what is not goes into it as one small
record for each model (``resume``). So the tensors and the record of a model are always of one step. The manifest has
the tensors of all models of the job: their records have to be written for it together.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import torch

from ..errors import Error, Invalid
from . import resident_state
from .data_parallel import together
from .offloaded_optimizer import OffloadableOptimizer
from .resume import write_record
from .runtime import Runtime, required_runtime, runtimes

Models = torch.nn.Module | Sequence[torch.nn.Module]
Optimizers = OffloadableOptimizer | Sequence[OffloadableOptimizer]


def persist(model: Models, optimizer: Optimizers, *schedulers: Any, **extra: Any) -> None:
    """Makes the training run durable in one atomic step, for ``offload(…, resume=True)`` of the next program: it
    survives the end of this one, of the daemon, and a loss of power. ``extra`` (numbers, strings, tensors, lists and
    dicts: an epoch) comes back from :func:`resumed`, and so do ``schedulers``. Everything that the job has is persisted
    with it, and nothing else stays persisted. Call it between steps, in a ``named`` job. With a ``process_group`` every
    rank calls it, and the ranks of one job persist in one step.

    A program that trains several models in one job persists them by one call, which takes a sequence of models and one
    of their optimizers; their records have the same ``extra`` and ``schedulers``. ``Invalid`` where the program trains
    another model of the job, whose tensors would be persisted without their step counts.

    Small parameters that stay in the process, and the buffers that ``state_dict()`` has, are persisted too.
    """
    models, optimizers = _several(model), _several(optimizer)
    trained = [required_runtime(each) for each in models]
    for each in optimizers:
        if not isinstance(each, OffloadableOptimizer):
            raise TypeError(f"optimizer is a {type(each).__name__}: pass the one that offload() returned")
    if len(models) != len(optimizers) or not models:
        raise Invalid(f"{len(models)} models and {len(optimizers)} optimizers: one for each")
    client = trained[0].store.client
    if any(_job(each) != _job(trained[0]) for each in trained):
        raise Invalid("the models are of several jobs: persist those of each by a call of its own")
    _require_all(trained)
    states = [schedule.state_dict() for schedule in schedulers]
    for each, runtime, of in zip(models, trained, optimizers, strict=True):
        _write(each, runtime, of, {"user": extra, "schedulers": states})
    ranks = trained[0].ranks
    with together(ranks, "persist()"):
        if ranks is None or ranks.leads_job:
            client.persist()


def _write(model: torch.nn.Module, runtime: Runtime, optimizer: OffloadableOptimizer, record: dict[str, Any]) -> None:
    """Writes the record of one model."""
    store, ranks = runtime.store, runtime.ranks
    record["keys"] = {stored.name: stored.key for stored in store.parameters if not stored.shared}
    record.update(resident_state.collect(model))
    record["persisted"] = None if ranks is None else ranks.new_mark()
    with together(ranks, "persist()"):
        write_record(store.client, store.name, optimizer, record)


def _require_all(trained: list[Runtime]) -> None:
    """``Invalid`` where this program trains other models in the same job."""
    if _others(trained):
        gc.collect()  # A model and its hooks refer to each other: one that is no longer used may still exist.
    for other in _others(trained):
        raise Invalid(
            f"the job has another model, {other.store.name!r}, whose parameters would be persisted beside older step "
            "counts: persist([model, other], [optimizer, its_optimizer]) keeps both as they are now; or give each a "
            "job of its own"
        )


def _others(trained: list[Runtime]) -> list[Runtime]:
    job = _job(trained[0])
    return [each for each in list(runtimes) if each not in trained and each.trains and _job(each) == job]


def _job(runtime: Runtime) -> tuple[int, str] | None:
    """The job that has the model; None behind the end of the session."""
    try:
        session = runtime.store.client.session
    except Error:
        return None
    return session.epoch, session.job


def _several(given: Any) -> list[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [given]


def resumed(model: Models, *schedulers: Any) -> dict[str, Any]:
    """What the run that ``model`` goes on with had passed to :func:`persist`; nothing where it began. ``schedulers``
    get the states that they had; and their optimizers the learning rates, which making a scheduler has changed. Models
    that were persisted by one call are given together."""
    extra: dict[str, Any] = {}
    for each in _several(model):
        extra = _resumed(required_runtime(each), schedulers)
    return extra


def _resumed(runtime: Runtime, schedulers: tuple[Any, ...]) -> dict[str, Any]:
    if not runtime.resumed:
        return {}
    record = runtime.resumed
    if schedulers and len(schedulers) != len(record["extra"]["schedulers"]):
        raise Invalid(f"{len(record['extra']['schedulers'])} schedulers were persisted, {len(schedulers)} are given")
    for schedule, state in zip(schedulers, record["extra"]["schedulers"], strict=False):
        schedule.load_state_dict(state)
    optimizer = None if runtime.optimizer is None else runtime.optimizer()
    if optimizer is not None and schedulers:
        groups, persisted = optimizer.param_groups, record["state"]["packed"]["param_groups"]
        if len(groups) != len(persisted):
            raise Invalid(
                f"the optimizer has {len(groups)} parameter groups, and {len(persisted)} were persisted: call "
                "resumed() before add_param_group(), or give offload() all groups"
            )
        for group, saved in zip(groups, persisted, strict=True):
            group.update({name: value for name, value in saved.items() if name != "params"})
    extra: dict[str, Any] = record["extra"]["user"]
    return extra
