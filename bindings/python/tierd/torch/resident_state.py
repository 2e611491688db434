"""What of a model's state is not in tierd: small parameters, buffers and extra state. ``persist`` keeps it in the run's
record, and a run that is resumed has it from there."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import Any

import torch

from ..errors import Invalid
from .stored_parameter import form_of, stored_in, stored_of


def collect(model: torch.nn.Module) -> dict[str, Any]:
    """What a run's record has of the model."""
    return {
        "resident": _resident(model),
        "versions": _versions(model),
        "forms": {stored.name: form_of(stored.parameter) for stored in stored_in(model.parameters())},
    }


def _resident(model: torch.nn.Module) -> dict[str, Any]:
    state = model.state_dict(keep_vars=True)
    named = model.named_parameters(remove_duplicate=False)
    kept = {**{name: parameter for name, parameter in named if stored_of(parameter) is None}, **state}
    return {
        key: _alone(value) if isinstance(value, torch.Tensor) else value
        for key, value in kept.items()
        if not isinstance(value, torch.Tensor) or stored_of(value) is None
    }


def load(model: torch.nn.Module, record: dict[str, Any], in_tierd: set[int]) -> Callable[[], None]:
    """Gives the model what a run's record has of it; the call that is returned gives the tensors back what they had.
    ``Invalid``, and nothing has changed, unless that is all but the parameters with the ids ``in_tierd``."""
    resident = record["extra"]["resident"]
    named = dict(model.named_parameters(remove_duplicate=False))
    # Hooks of the model may leave out parameters, which it has all the same.
    state = {**named, **model.state_dict(keep_vars=True)}
    own = {key: value for key, value in state.items() if id(value) not in in_tierd}
    if own.keys() != resident.keys():
        other = sorted(own.keys() ^ resident.keys())[0]
        raise Invalid(
            f"{other!r} was on the other side of min_bytes or of the placement when this run was persisted: resume it "
            "with the same model and options"
        )
    tensors = [value for value in own.values() if isinstance(value, torch.Tensor)]
    for key, value in own.items():
        was = resident[key]
        if isinstance(value, torch.Tensor) and isinstance(was, torch.Tensor) and value.dtype != was.dtype:
            raise Invalid(
                f"{key!r} was persisted as {was.dtype}, and is {value.dtype}: resume the run with the same model"
            )
    undo = functools.partial(_put_back, [(tensor, tensor.detach().clone()) for tensor in tensors])
    loaded: Any = collections.OrderedDict(resident)
    versions = record["extra"].get("versions", {})
    loaded._metadata = {name: {"version": version} for name, version in versions.items()}
    try:
        unloaded = model.load_state_dict(loaded, strict=False).unexpected_keys
        with torch.no_grad():
            for name in set(unloaded) & named.keys():
                named[name].copy_(resident[name])
    except BaseException:
        undo()
        raise
    return undo


def _put_back(tensors: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    with torch.no_grad():
        for tensor, before in tensors:
            tensor.copy_(before)


def _versions(model: torch.nn.Module) -> dict[str, int]:
    """Of the state of the modules, by their paths: those that torch's own checkpoints have."""
    versions = {name: getattr(module, "_version", None) for name, module in model.named_modules()}
    return {name: version for name, version in versions.items() if isinstance(version, int)}


def _alone(value: torch.Tensor) -> torch.Tensor:
    """With no other bytes of the storage where it lies."""
    value = value.detach()
    return value.clone() if value.untyped_storage().nbytes() > value.nbytes else value
