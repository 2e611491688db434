"""Tensors in tierd to and from files, by ranges of one block: none is ever whole in the process."""

from __future__ import annotations

from typing import BinaryIO

import torch

from ..client import Client
from ..errors import Invalid
from ..lease import Lease
from ..states import Key
from .autograd_guard import autograd_guard, stop_recording
from .frames import without_frames
from .parameter_state import BLOCK
from .safetensors_file import Entry, SafetensorsFile, Source, bytes_of, in_index_order
from .stored_parameter import StoredParameter, stored_of


def source_of(name: str, values: torch.Tensor) -> Source:
    """A tensor or a parameter, in tierd or not, to be written to a file. ``Invalid`` where it has no bytes."""
    if stored_of(values) is None and values.numel() and values.data_ptr() == 0:
        raise Invalid(f"{name!r} of type {type(values).__name__} has no bytes of its own: make a plain tensor of it")

    def write(file: BinaryIO) -> None:
        if values.numel() == 0:
            return
        stored = stored_of(values)
        if stored is not None:
            stored.store.prepare(stored)
        if stored is None or stored.uses:  # The process may have newer values.
            file.write(bytes_of(in_index_order(values)))
        elif in_order(stored.shape, stored.strides):
            write_ranges(file, stored.store.client, stored.key, stored.nbytes, stored.shared)
        else:
            file.write(bytes_of(stored.copy().contiguous()))

    return Source(name, values.dtype, tuple(values.shape), write)


@without_frames
def write_ranges(file: BinaryIO, client: Client, key: Key, size: int, shared: bool = False) -> None:
    for begin in range(0, size, BLOCK):
        with client.lease(key, offset=begin, length=min(BLOCK, size - begin), shared=shared) as lease:
            _write(file, lease)


@without_frames
def _write(file: BinaryIO, lease: Lease) -> None:
    with lease.memoryview() as view:
        file.write(view)


@without_frames
def load(target: torch.Tensor, file: SafetensorsFile, entry: Entry) -> None:
    """Gives a tensor or a parameter, in tierd or not, the values of the file's tensor, converted as ``copy_`` does.
    REQUIRES: the shapes agree."""
    stored = stored_of(target)
    if stored is None or (stored.uses and stored.living_storage() is None):
        with torch.no_grad():
            target.copy_(file.tensor(entry.name))
    elif in_order(stored.shape, stored.strides):
        _fill(stored, file, entry)
    else:
        stored.write(file.tensor(entry.name))


def _fill(stored: StoredParameter, file: SafetensorsFile, entry: Entry) -> None:
    with stored.store.lock, autograd_guard():
        stop_recording()
        stored.changed()
        step = BLOCK // stored.dtype.itemsize
        for begin in range(0, stored.numel, step):
            count = min(step, stored.numel - begin)
            offset, length = begin * stored.dtype.itemsize, count * stored.dtype.itemsize
            with stored.store.client.lease(stored.key, True, offset=offset, length=length, discard=True) as lease:
                _read(file, entry, begin, count, lease, stored.dtype)


@without_frames
def _read(file: SafetensorsFile, entry: Entry, begin: int, count: int, lease: Lease, dtype: torch.dtype) -> None:
    """``count`` elements of the file's tensor from ``begin`` on, as elements of ``dtype``."""
    if entry.dtype == dtype:
        with lease.memoryview() as view:
            file.read_into(entry, begin * dtype.itemsize, view)
        return
    values = torch.empty(count, dtype=entry.dtype, device="cpu")
    file.read_into(entry, begin * entry.dtype.itemsize, bytes_of(values))
    lease.torch(dtype, (count,)).copy_(values)


def in_order(shape: torch.Size, strides: tuple[int, ...]) -> bool:
    """Whether the elements lie in memory in the order of their indices."""
    return torch.empty_strided(shape, strides, device="meta").is_contiguous()


def require_own(name: str, tensor: torch.Tensor) -> None:
    """``Invalid`` where other ranks read the same bytes."""
    stored = stored_of(tensor)
    if stored is not None and stored.shared:
        raise Invalid(
            f"{name!r} is frozen, and all ranks of the job read the same bytes: load it before tierd.torch.offload(), "
            "by load_frozen=, or leave it out of the file and pass strict=False"
        )


def require_values(tensors: dict[str, torch.Tensor]) -> None:
    """``Invalid`` where one has no values of its own."""
    for name, tensor in tensors.items():
        if torch.nn.parameter.is_lazy(tensor) or tensor.layout is not torch.strided or tensor.is_meta:
            raise Invalid(f"{name!r} has no dense values yet: initialise it first, or make it dense")
        stored = stored_of(tensor)
        if stored is not None:
            stored.store.prepare(stored)
