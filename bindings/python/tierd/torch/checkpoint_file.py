"""Checkpoints in the formats of plain torch and safetensors, written and read without holding what they have.

``save_weights`` writes a safetensors file, tensor by tensor. ``save_optimizer`` lets ``torch.save`` write a file whose
tensors have no bytes yet (``torch.serialization.skip_data``) and fills them in. In either, what lies in tierd is copied
from leased ranges into the file. ``safetensors`` and ``torch.load`` read the files; only the checksums inside a file of
``torch.save``, which torch does not check, are those of zeros.

A file appears under its name when it is whole. Call these functions between steps, from the thread that trains.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ..client import Client
from ..states import Key, Part
from . import parameter_state
from .file_tensor import DTYPES, outline, place_of, read_safetensors, read_saved
from .offloaded_optimizer import OffloadableOptimizer
from .parameter_state import BLOCK
from .stored_parameter import StoredParameter, model_of, stored_of

_RANGE_BYTES = 2 * BLOCK
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_Path = str | os.PathLike[str]


# ---- Models ----


def save_weights(tensors: Mapping[str, torch.Tensor], path: _Path, metadata: Mapping[str, str] | None = None) -> None:
    """Writes tensors and parameters, in tierd or not, as a safetensors file."""
    names = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))  # So that each is aligned.
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name in names:
        value = tensors[name]
        begin, end = end, end + value.numel() * value.dtype.itemsize
        header[name] = {"dtype": _NAMES[value.dtype], "shape": list(value.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with _written(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            _write_values(file, tensors[name])


def load_weights(model: torch.nn.Module, path: _Path) -> Any:
    """``model.load_state_dict(…, strict=False)`` of a safetensors file, and returns what it returns. The file's tensors
    are in memory one at a time."""
    return model.load_state_dict(read_safetensors(path), strict=False)


# ---- Optimizers ----


def save_optimizer(optimizer: OffloadableOptimizer, path: _Path) -> None:
    """Writes ``optimizer.state_dict()`` as ``torch.save`` would. ``Invalid`` in the middle of a step."""
    state: dict[str, Any] = optimizer.light_state()["packed"]
    stored = {}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for index, parameter in enumerate(parameters):
        if index in state["state"]:
            stored[index] = _kinds_in_tierd(optimizer, parameter)
            state["state"][index] = dict(state["state"][index])
            with FakeTensorMode():
                like = model_of(parameter)
                for kind, (_, dtype) in stored[index].items():
                    state["state"][index][kind] = torch.empty_strided(like.shape, like.stride(), dtype=dtype)
    with _written(path) as file:
        with torch.serialization.skip_data(materialize_fake_tensors=True):
            torch.save(state, file)
        file.flush()
        _fill_in(file, state, outline(file.name), optimizer, stored)


def load_optimizer(optimizer: torch.optim.Optimizer, path: _Path) -> None:
    """``optimizer.load_state_dict(torch.load(path))``; the state's tensors are in memory one at a time."""
    optimizer.load_state_dict(read_saved(path))


def _kinds_in_tierd(optimizer: Any, parameter: torch.Tensor) -> dict[str, tuple[Key, torch.dtype]]:
    keys: dict[str, str] = optimizer.tiered_keys(parameter)
    dtype = torch.float32 if "master" in keys else parameter.dtype
    return {kind: (key, dtype) for kind, key in keys.items()}


def _fill_in(
    file: BinaryIO, state: Any, outlined: Any, optimizer: Any, stored: dict[int, dict[str, tuple[Key, torch.dtype]]]
) -> None:
    """Gives the tensors in the file their bytes."""
    for index, kinds in stored.items():
        for kind, (key, dtype) in kinds.items():
            fake = outlined["state"][index][kind]
            file.seek(place_of(fake))
            if fake.numel():
                _write_stored(file, optimizer._client, key, fake.numel() * dtype.itemsize)
            del state["state"][index][kind]
    for value, fake in _tensors(state, outlined):
        file.seek(place_of(fake))
        file.write(_bytes_of(value))


def _tensors(state: Any, outlined: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    if isinstance(state, torch.Tensor):
        yield state, outlined
    elif isinstance(state, dict):
        for key, value in state.items():
            yield from _tensors(value, outlined[key])
    elif isinstance(state, (list, tuple)):
        for value, of in zip(state, outlined, strict=True):
            yield from _tensors(value, of)


# ---- Bytes ----


@contextlib.contextmanager
def _written(path: _Path) -> Iterator[Any]:
    """A new file, which gets its name when it is whole."""
    target = pathlib.Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with open(partial, "w+b") as file:
            yield file
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def _write_values(file: BinaryIO, value: torch.Tensor) -> None:
    stored = stored_of(value)
    if stored is None or stored.uses:  # While it is gathered, the process may have newer values.
        file.write(_bytes_of(value.detach()))
    elif _is_in_order(stored):
        stored.settle()
        _write_stored(file, stored.store.client, stored.key, stored.nbytes)
    else:
        file.write(_bytes_of(stored.copy()))


def _is_in_order(stored: StoredParameter) -> bool:
    return torch.empty_strided(stored.shape, stored.strides, device="meta").is_contiguous()


def _write_stored(file: BinaryIO, client: Client, key: Key, size: int) -> None:
    for begin in range(0, size, _RANGE_BYTES):
        (lease,) = client.lease_many([Part(key, begin, min(_RANGE_BYTES, size - begin))])
        with lease:
            view = lease.memoryview()
            file.write(view)
            view.release()


def _bytes_of(value: torch.Tensor) -> memoryview:
    """In the order of its indices."""
    flat = parameter_state.flat(value.detach().contiguous())
    return flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")
