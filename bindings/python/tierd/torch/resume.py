"""What a training run persists beside its tensors, so that the next one goes on with the same bits.

Parameters and optimizer state are tensors of tierd under stable names. Step counts, the options of the parameter groups
and the state of the random number generators are one small tensor more, ``NAME/training``. ``persist`` writes it and
then has the job persisted in one atomic manifest, so what a run resumes is always of one step.
"""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from typing import Any

import numpy
import torch

from ..client import Client
from ..errors import Invalid, NotFound
from .offloaded_optimizer import OffloadableOptimizer
from .shared_weights import exists

_FORMAT = 1


def write_record(client: Client, name: str, optimizer: OffloadableOptimizer, extra: dict[str, Any]) -> None:
    """Stores what is not a tensor of tierd. ``Invalid``: ``extra`` holds what ``torch.load(weights_only=True)`` would
    not load."""
    packed = optimizer.light_state()
    record = {
        "format": _FORMAT,
        "optimizer": type(optimizer).__name__,
        "state": packed,
        "torch_rng": torch.get_rng_state(),
        "python_rng": random.getstate(),
        "numpy_rng": _numpy_state(),
        "extra": extra,
    }
    stream = io.BytesIO()
    torch.save(record, stream)
    try:
        torch.load(io.BytesIO(stream.getvalue()), weights_only=True)
    except Exception as error:
        raise Invalid(f"persist() takes numbers, strings, tensors, lists and dicts: {error}") from error
    client.put(_key(name), stream.getvalue(), replace=True)


def read_record(
    client: Client, name: str, optimizer: type[OffloadableOptimizer], others: Sequence[str] = ()
) -> dict[str, Any]:
    """The record of the run that this job resumes. ``NotFound`` if there is none; ``Invalid`` if it is another's, or if
    one of ``others`` has been persisted instead: a rank's, or that of a run without ranks."""
    try:
        content = client.get(_key(name))
    except NotFound as error:
        for other in others:
            if exists(client, _key(other), shared=False):
                raise Invalid(
                    f"the job has a training run {other!r}, and none {name!r}: resume it with as many ranks as "
                    "persisted it, or without process_group where it had none"
                ) from error
        raise NotFound(
            f"the job has no training run {name!r} to resume: connect with mode='resume', and give the name that it had"
        ) from error
    record: dict[str, Any] = torch.load(io.BytesIO(bytes(content)), weights_only=True)
    if record.get("format") != _FORMAT:
        raise Invalid(f"the training run {name!r} was persisted in format {record.get('format')}, not {_FORMAT}")
    if record["optimizer"] != optimizer.__name__:
        raise Invalid(f"the training run {name!r} was one of {record['optimizer']}, not of {optimizer.__name__}")
    return record


def restore_generators(record: dict[str, Any]) -> None:
    torch.set_rng_state(record["torch_rng"])
    version, internal, gauss = record["python_rng"]
    random.setstate((version, tuple(internal), gauss))
    of_numpy = record.get("numpy_rng")
    if of_numpy is not None:
        numpy.random.set_state((of_numpy[0], numpy.array(of_numpy[1], numpy.uint32), *of_numpy[2:]))


def _numpy_state() -> list[Any] | None:
    """Of NumPy's global generator. None where it is no longer the one that ``numpy.random.seed`` seeds."""
    kind, words, *rest = numpy.random.get_state()
    return [kind, [int(word) for word in words], *rest] if kind == "MT19937" else None


def _key(name: str) -> str:
    return f"{name}/training"
