"""Weights of models from and to Hugging Face folders: one ``model.safetensors``, or shards with an index.

The idea: a file is described before a byte of it moves, so names, shapes and room are checked first. A new save becomes
visible by one rename, or by one removal; up to then the folder's reader finds the old one, whole.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import secrets
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch

from ..errors import Invalid, NotFound
from ..progress import Advance, shown
from ..quantity import byte_count
from .file_tensor import read_safetensors
from .ranges_in_tierd import load, require_own, require_values, source_of
from .safetensors_file import (
    HEADER_BYTES_MAX,
    Path,
    SafetensorsFile,
    Source,
    json_object,
    open_regular,
    partial_file,
    partial_files,
    rename,
    replace_file,
    require_room,
    sync_folder,
    write_file,
)
from .stored_parameter import stored_of
from .uninterrupted import completed, uninterrupted

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


class Unmatched(NamedTuple):
    """Names that the model has and the files have not, and the other way round."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def load_safetensors(
    model: torch.nn.Module, path: Path, *, strict: bool = True, progress: bool | None = None
) -> Unmatched:
    """Gives a model the weights of a safetensors file, or of a Hugging Face folder (``model.safetensors``, or shards
    and ``model.safetensors.index.json``), whether it was offloaded, created in tierd, or neither.

    What is in tierd is filled by ranges of 2 MiB; what is in the process needs memory for its largest tensor. Values
    are converted to the model's dtypes as ``load_state_dict`` does. A tied weight may be there under one of its names.
    ``Invalid``, and nothing has changed: a damaged file, another shape, a frozen weight that ranks share, or, if
    ``strict``, names that the model or the files lack; without it they are returned. ``NotFound``: no such file. An
    error after that (a disk that fails) leaves some tensors as they were. ``progress`` as in :func:`offload`. Call it
    between steps, from the thread that trains.
    """
    with _files(pathlib.Path(path)) as places:
        targets = _tensors(model)
        known = {_identity(targets[name]) for name in places if name in targets}
        missing = [name for name, tensor in targets.items() if name not in places and _identity(tensor) not in known]
        unexpected = [name for name in places if name not in targets]
        if strict and (missing or unexpected):
            raise Invalid(f"{path} does not fit the model: {_listed('missing', missing, 'unexpected', unexpected)}")
        found = {name: tensor for name, tensor in targets.items() if name in places}
        require_values(found)
        own = {id(tensor) for tensor in [*model.parameters(), *model.buffers()]}
        for name, tensor in found.items():
            if id(tensor) not in own:
                raise Invalid(
                    f"{name!r} of the model's state is no parameter and no buffer, but made by a hook or by "
                    "get_extra_state(): use load_state_dict()"
                )
            require_own(name, tensor)
            shape = places[name].entries[name].shape
            if shape != tensor.shape:
                raise Invalid(f"{path} has {name!r} in shape {tuple(shape)}, the model in {tuple(tensor.shape)}")
            stored = stored_of(tensor)
            if stored is not None and not stored.uses:
                stored.require_changeable()
        entries = {name: places[name].entries[name] for name in found}
        with shown("reading weights", sum(entry.size for entry in entries.values()), progress) as advance:
            for name, entry in entries.items():
                if found[name].numel():
                    load(found[name], places[name], entry)
                advance(entry.size)
    return Unmatched(missing, unexpected)


def save_safetensors(
    model: torch.nn.Module,
    folder: Path,
    *,
    max_shard_bytes: int | str = "5GB",
    metadata: Mapping[str, str] | None = None,
    progress: bool | None = None,
) -> None:
    """Writes a model's ``state_dict()``, in tierd or not, as Hugging Face does: ``model.safetensors``, or shards of at
    most ``max_shard_bytes`` (or one tensor) with an index. A tied weight is written under its first name. Other files
    of the folder stay. What is in tierd is read by ranges of 2 MiB.

    The save is complete and on the disk when the call returns. Until then, and whatever happens, the folder has the
    weights that it had: shards get names that are not in use, and older ones are removed at the end. ``NoSpace`` where
    the disk has no room for both; ``Invalid`` where something cannot be written, before a byte is. A process that is
    killed may leave files that no index names. ``progress`` as in :func:`offload`. Call it between steps, from the
    thread that trains.
    """
    limit = byte_count(max_shard_bytes, "max_shard_bytes")
    target = pathlib.Path(folder)
    tensors = _tensors(model)
    require_values(tensors)
    tensors = _first_names(tensors)
    shards = _shards([source_of(name, tensor) for name, tensor in tensors.items()], limit)
    target.mkdir(parents=True, exist_ok=True)
    size = sum(source.size for shard in shards for source in shard)
    require_room(target, size)
    older = _indexed_files(target)
    described = {"format": "pt", **(metadata or {})}
    try:
        with shown("writing weights", size, progress) as advance:
            if len(shards) == 1:
                replace_file(target / SINGLE, shards[0], described, advance)
                (target / INDEX).unlink(missing_ok=True)
            else:
                _write_shards(target, shards, described, advance)
    finally:  # Also where an interrupt comes behind the last rename.
        completed(lambda: _remove_unindexed(target, older))
    sync_folder(target)


# ---- Reading a folder ----


def read_weights(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a file or a folder, by name, with the larger ones still in their files. Errors as in
    :func:`load_safetensors`."""
    with _files(pathlib.Path(path)) as places:
        files = {path: read_safetensors(path) for path in {file.path for file in places.values()}}
        return {name: files[file.path][name] for name, file in places.items()}


@contextlib.contextmanager
def _files(path: pathlib.Path) -> Iterator[dict[str, SafetensorsFile]]:
    """The file of each name."""
    with contextlib.ExitStack() as opened:
        if not path.is_dir() or (path / SINGLE).is_file():
            file = opened.enter_context(SafetensorsFile(path / SINGLE if path.is_dir() else path))
            yield dict.fromkeys(file.entries, file)
            return
        if not (path / INDEX).is_file():
            raise NotFound(f"{path} has neither {SINGLE} nor {INDEX}: give a file, or a folder that has one of them")
        placed = _index(path / INDEX)
        files = {name: opened.enter_context(SafetensorsFile(path / name)) for name in sorted(set(placed.values()))}
        for name, shard in placed.items():
            if name not in files[shard].entries:
                raise Invalid(f"{path / INDEX} has {name!r} in {shard!r}, which does not have it")
        for shard, file in files.items():
            more = [name for name in file.entries if placed.get(name) != shard]
            if more:
                raise Invalid(f"{path / shard} has {more[0]!r}, which the index does not have there")
        yield {name: files[shard] for name, shard in placed.items()}


def _index(path: pathlib.Path) -> dict[str, str]:
    """Name → file in the same folder."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > HEADER_BYTES_MAX:
            raise Invalid(f"{path} has {size} bytes: an index has at most 100 MB")
        placed = json_object(file.readall(), str(path)).get("weight_map")
    if not isinstance(placed, dict) or not placed:
        raise Invalid(f"{path} has no weight_map")
    for name, shard in placed.items():
        if not isinstance(shard, str) or shard in ("", ".", "..") or "/" in shard or "\0" in shard:
            raise Invalid(f"{path} has {name!r} in {shard!r}: it must be a file of the same folder")
    return placed


def _tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    state = model.state_dict(keep_vars=True)
    for name, value in state.items():
        if not isinstance(value, torch.Tensor):
            raise Invalid(
                f"{name!r} of the model's state is a {type(value).__name__}: safetensors files have tensors only"
            )
    return dict(state)


def _listed(one: str, names: list[str], other: str, others: list[str]) -> str:
    def few(what: str, of: list[str]) -> str:
        return f"{what}: {', '.join(of[:5])}{f' and {len(of) - 5} more' if len(of) > 5 else ''}"

    return "; ".join(few(what, of) for what, of in ((one, names), (other, others)) if of)


# ---- Writing a folder ----


def _first_names(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Each tensor once."""
    seen: set[object] = set()
    found = {}
    for name, tensor in tensors.items():
        same = _identity(tensor)
        if same not in seen:
            seen.add(same)
            found[name] = tensor
    return found


def _identity(tensor: torch.Tensor) -> object:
    """The same of tensors that are the same elements."""
    if stored_of(tensor) is not None or not tensor.numel() or tensor.layout is not torch.strided:
        return id(tensor)
    if (address := tensor.data_ptr()) == 0:  # It has no bytes, or those of several tensors.
        return id(tensor)
    return (address, tensor.dtype, tensor.shape, tensor.stride(), tensor.is_conj(), tensor.is_neg())


def _shards(sources: list[Source], limit: int) -> list[list[Source]]:
    shards: list[list[Source]] = [[]]
    filled = 0
    for source in sources:
        if shards[-1] and filled + source.size > limit:
            shards.append([])
            filled = 0
        shards[-1].append(source)
        filled += source.size
    return shards


def _write_shards(folder: pathlib.Path, shards: list[list[Source]], metadata: dict[str, str], advance: Advance) -> None:
    """They, and an index, are what the folder has when this returns."""
    names = _unused_names(folder, len(shards))
    placed = {source.name: name for name, shard in zip(names, shards, strict=True) for source in shard}
    size = sum(source.size for shard in shards for source in shard)
    index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(placed.items()))}
    with partial_files() as made:
        for name, shard in zip(names, shards, strict=True):
            write_file(folder / name, shard, metadata, made, advance)
        for position, name in enumerate(names):
            noted = functools.partial(made.__setitem__, position, folder / name)
            uninterrupted([functools.partial(os.replace, made[position], folder / name), noted])
        sync_folder(folder)
        with partial_file(folder / INDEX, made) as file:
            file.write(json.dumps(index, indent=2).encode() + b"\n")
        rename(made, folder / INDEX)
    (folder / SINGLE).unlink(missing_ok=True)  # A reader of the folder takes it before the index.


def _remove_unindexed(folder: pathlib.Path, shards: set[str]) -> None:
    for name in shards - _indexed_files(folder):
        (folder / name).unlink(missing_ok=True)


def _unused_names(folder: pathlib.Path, count: int) -> list[str]:
    prefix = "model"
    while True:
        names = [f"{prefix}-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]
        if not any((folder / name).exists() for name in names):
            return names
        prefix = f"model-{secrets.token_hex(4)}"


def _indexed_files(folder: pathlib.Path) -> set[str]:
    """Shards of the save that is there."""
    try:
        named = set(_index(folder / INDEX).values()) if (folder / INDEX).exists() else set()
        return {name for name in named if name.endswith(".safetensors")}
    except Invalid:
        return set()  # Of something else: it is not ours to remove.
