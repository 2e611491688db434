"""The state of an optimizer to and from a safetensors file, tensor by tensor.

Tensors are there as ``INDEX.KIND``, such as ``0.exp_avg``, by plain torch's numbers of the parameters; step counts and
the options of the groups are JSON in the metadata, with each number exact.
"""

from __future__ import annotations

import json
import math
import pathlib
from typing import Any, BinaryIO

import torch

from ..client import Client
from ..errors import Invalid
from ..progress import Advance, shown
from .file_tensor import FileTensor
from .offloaded_optimizer import OffloadableOptimizer
from .parameter_state import Stored, flat
from .ranges_in_tierd import in_order, source_of, write_ranges
from .safetensors_file import Path, SafetensorsFile, Source, bytes_of, json_object, replace_file
from .stored_parameter import model_of, zeros_like

_FORMAT = "1"


def save_state(optimizer: torch.optim.Optimizer, path: Path, *, progress: bool | None = None) -> None:
    """Writes the state of an optimizer of tierd, or of plain torch, to a safetensors file. What is in tierd is read by
    ranges. The file is on the disk, whole, when the call returns, and the one that it replaces stays until then.
    ``Invalid`` in the middle of a step, or where an option of a group is no plain value; ``NoSpace``. ``progress`` as
    in :func:`offload`."""
    target = pathlib.Path(path)
    ours = optimizer if isinstance(optimizer, OffloadableOptimizer) else None
    packed = optimizer.state_dict() if ours is None else ours.light_state()["packed"]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    sources: list[Source] = []
    light: dict[str, Any] = {}
    for index, state in packed["state"].items():
        if ours is not None:
            stored = ours.stored_state(parameters[index])
            sources += [_source(f"{index}.{kind}", parameters[index], of, ours.client) for kind, of in stored.items()]
            if not stored and "step" in state and state["step"] == 0:
                continue  # Nothing has been updated by it.
        heavy = {kind for kind, value in state.items() if isinstance(value, torch.Tensor) and value.dim()}
        sources += [source_of(f"{index}.{kind}", state[kind]) for kind in state if kind in heavy]
        light[str(index)] = {kind: _encoded(value, kind) for kind, value in state.items() if kind not in heavy}
    groups = [{name: _encoded(value, name) for name, value in group.items()} for group in packed["param_groups"]]
    metadata = {
        "format": "pt", "tierd_optimizer": _FORMAT, "optimizer": type(optimizer).__name__,
        "state": json.dumps(light), "groups": json.dumps({"groups": groups}),
    }  # fmt: skip
    with shown("writing the optimizer's state", sum(source.size for source in sources), progress) as advance:
        replace_file(target, sources, metadata, advance)


def load_state(optimizer: torch.optim.Optimizer, path: Path, *, progress: bool | None = None) -> None:
    """``optimizer.load_state_dict()`` of a file that :func:`save_state` has written, for an optimizer of tierd or of
    plain torch. An optimizer of tierd has at most two of its tensors in memory. ``Invalid``: another file, or a state
    that does not fit the parameters; nothing has changed then. ``NotFound``: no such file. ``progress`` as in
    :func:`offload`."""
    with SafetensorsFile(path) as file:
        whole, size = not isinstance(optimizer, OffloadableOptimizer), sum(each.size for each in file.entries.values())
        with shown("reading the optimizer's state", size, progress) as advance:
            optimizer.load_state_dict(_state_dict(file, whole, advance))


def read_state(path: Path) -> dict[str, Any]:
    """What such a file has as plain torch's ``state_dict()``, in memory of the process."""
    with SafetensorsFile(path) as file:
        return _state_dict(file, whole=True, advance=lambda moved: None)


def _state_dict(file: SafetensorsFile, whole: bool, advance: Advance) -> dict[str, Any]:
    if file.metadata.get("tierd_optimizer") != _FORMAT:
        raise Invalid(f"{file.path} is not the state of an optimizer by tierd.torch.save_state()")
    try:
        light = json_object(file.metadata["state"].encode(), file.path)
        groups = json_object(file.metadata["groups"].encode(), file.path)["groups"]
        state = {int(index): {kind: _decoded(v) for kind, v in kinds.items()} for index, kinds in light.items()}
        for name in file.entries:
            index, _, kind = name.partition(".")
            state.setdefault(int(index), {})[kind] = (
                _read(file, name, advance) if whole else _later(file, name, advance)
            )
        options = [{name: _decoded(value) for name, value in group.items()} for group in groups]
        if not all(isinstance(group["params"], list) for group in options):
            raise TypeError("the parameters of a group are no list")
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise Invalid(f"{file.path} has a damaged description of the optimizer's state: {error!r}") from error
    return {"state": state, "param_groups": options}


def _later(file: SafetensorsFile, name: str, advance: Advance) -> torch.Tensor:
    entry = file.entries[name]
    return FileTensor.of(entry.shape, entry.dtype, lambda: _read(file, name, advance))


def _read(file: SafetensorsFile, name: str, advance: Advance) -> torch.Tensor:
    values = file.tensor(name)
    advance(values.nbytes)
    return values


def _source(name: str, parameter: torch.Tensor, of: Stored, client: Client) -> Source:
    """A tensor of the state, which lies in tierd in the order that the parameter has in memory."""
    like = model_of(parameter)
    size = like.numel() * of.dtype.itemsize

    def write(file: BinaryIO) -> None:
        if in_order(like.shape, like.stride()):
            write_ranges(file, client, of.key, size)
            return
        values = zeros_like(parameter, of.dtype)
        client.get_into(of.key, flat(values.detach()))
        file.write(bytes_of(values.contiguous()))

    return Source(name, of.dtype, tuple(like.shape), write)


# ---- Plain values as JSON ----


def _encoded(value: Any, name: str) -> Any:
    """JSON for it, from which ``_decoded`` makes the same value, of the same type."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, (list, tuple)):
        items = [_encoded(each, name) for each in value]
        return items if isinstance(value, list) else {"tuple": items}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _encoded(each, name) for key, each in value.items()}}
    if isinstance(value, torch.Tensor) and value.dim() == 0 and not value.is_complex():
        return {"tensor": [str(value.dtype).removeprefix("torch."), _encoded(value.item(), name)]}
    raise Invalid(f"{name!r} of the optimizer's state is a {type(value).__name__}: it cannot be written to a file")


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(each) for each in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "float":
        return float(content)
    if kind == "tuple":
        return tuple(_decoded(each) for each in content)
    if kind == "dict":
        return {key: _decoded(each) for key, each in content.items()}
    if kind == "tensor":
        dtype = getattr(torch, content[0])
        if not isinstance(dtype, torch.dtype):
            raise ValueError(f"no dtype {content[0]!r}")
        return torch.tensor(_decoded(content[1]), dtype=dtype, device="cpu")
    raise ValueError(f"an unknown kind of value {kind!r}")
