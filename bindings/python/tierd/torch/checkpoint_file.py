"""Checkpoints in the formats of plain torch and safetensors, written and read without holding what they have.

``save_weights`` writes a safetensors file, tensor by tensor. ``save_optimizer`` lets ``torch.save`` write a file whose
tensors have no bytes yet (``torch.serialization.skip_data``) and fills them in. In either, what lies in tierd is copied
from leased ranges into the file. ``safetensors`` and ``torch.load`` read the files; only the checksums inside a file of
``torch.save``, which torch does not check, are those of zeros.

A file appears under its name when it is whole. Call these functions between steps, from the thread that trains.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ..client import Client
from .file_tensor import outline, place_of, read_saved
from .offloaded_optimizer import OffloadableOptimizer
from .parameter_state import Stored
from .ranges_in_tierd import source_of, write_ranges
from .safetensors_file import bytes_of, partial_file, partial_files, rename, replace_file
from .stored_parameter import model_of
from .tensor_views import resolved
from .weights import read_weights

_Path = str | os.PathLike[str]


# ---- Models ----


def save_weights(tensors: Mapping[str, torch.Tensor], path: _Path, metadata: Mapping[str, str] | None = None) -> None:
    """Writes tensors and parameters, in tierd or not, as a safetensors file."""
    target = pathlib.Path(path)
    ordered = sorted(tensors.items())
    replace_file(target, [source_of(name, value) for name, value in ordered], metadata or {})


def load_weights(model: torch.nn.Module, path: _Path) -> Any:
    """``model.load_state_dict(…, strict=False)`` of a safetensors file, or of a folder with one or with shards, and
    returns what it returns. The tensors are in memory one at a time."""
    return model.load_state_dict(read_weights(path), strict=False)


# ---- Optimizers ----


def save_optimizer(optimizer: OffloadableOptimizer, path: _Path) -> None:
    """Writes ``optimizer.state_dict()`` as ``torch.save`` would. ``Invalid`` in the middle of a step."""
    state: dict[str, Any] = _with_own_bytes(optimizer.light_state()["packed"])
    stored: dict[int, dict[str, Stored]] = {}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for index, parameter in enumerate(parameters):
        if index in state["state"]:
            stored[index] = optimizer.stored_state(parameter)
            state["state"][index] = dict(state["state"][index])
            with FakeTensorMode():
                like = model_of(parameter)
                for kind, of in stored[index].items():
                    fake = torch.empty_strided(like.shape, like.stride(), dtype=of.dtype, device="cpu")
                    state["state"][index][kind] = fake
    target = pathlib.Path(path)
    with partial_files() as made:
        with partial_file(target, made) as file:
            with torch.serialization.skip_data(materialize_fake_tensors=True):
                torch.save(state, file)
            file.flush()
            _fill_in(file, state, outline(made[-1]), optimizer.client, stored)
        rename(made, target)


def load_optimizer(optimizer: torch.optim.Optimizer, path: _Path) -> None:
    """``optimizer.load_state_dict(torch.load(path))``; the state's tensors are in memory one at a time."""
    optimizer.load_state_dict(read_saved(path))


def _fill_in(file: BinaryIO, state: Any, outlined: Any, client: Client, stored: dict[int, dict[str, Stored]]) -> None:
    """Gives the tensors in the file their bytes."""
    for index, kinds in stored.items():
        for kind, of in kinds.items():
            fake = outlined["state"][index][kind]
            file.seek(place_of(fake))
            write_ranges(file, client, of.key, fake.numel() * of.dtype.itemsize)
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


def _with_own_bytes(state: Any) -> Any:
    """The same, of tensors that fill a storage of their own."""
    if isinstance(state, torch.Tensor):
        value = resolved(state)
        fills = value.is_contiguous() and value.untyped_storage().nbytes() == value.nbytes
        return value if fills else value.clone()  # In the order that the elements have in memory, without its gaps.
    if isinstance(state, dict):
        return {key: _with_own_bytes(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)([_with_own_bytes(value) for value in state])
    return state


def _bytes_of(value: torch.Tensor) -> memoryview:
    return bytes_of(value) if value.numel() else memoryview(b"")
