"""FileTensor: a tensor whose bytes are in a checkpoint file until something uses them.

``load_state_dict`` of a model or an optimizer in tierd takes one tensor after the other. Given such tensors, it reads
each from the file when it is about to store it, so a checkpoint of any size passes through the memory of one tensor.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from .autograd_guard import autograd_guard, stop_recording
from .offloaded_gradient import getters, methods
from .safetensors_file import SafetensorsFile

_SMALL = 4096  # Bytes up to which a tensor is read at once.
_no_dispatch = torch._C.DisableTorchFunctionSubclass
_Tensor: Any = torch.Tensor
_Path = str | os.PathLike[str]


class FileTensor(torch.Tensor):
    """Its shape and dtype are known. Every torch call on it reads the values, and works on them; it keeps those that
    a call has changed in place."""

    _tierd_read: Callable[[], torch.Tensor]

    @staticmethod
    def of(shape: torch.Size, dtype: torch.dtype, read: Callable[[], torch.Tensor]) -> FileTensor:
        with autograd_guard():
            stop_recording()
            made = torch.zeros((), dtype=dtype, device="cpu").expand(shape).as_subclass(FileTensor)
        made._tierd_read = read
        return made

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _METADATA:
            with _no_dispatch():
                return func(*args, **(kwargs or {}))
        if func is _Tensor.detach:
            return args[0]
        given = _read(args)
        result = func(*given, **_read(kwargs or {}))
        if args and isinstance(args[0], FileTensor) and _changes_in_place(func):
            changed = given[0]
            args[0]._tierd_read = lambda: changed
        return result

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"tensor in a file ({tuple(self.shape)}, {self.dtype})"


def _read(given: Any) -> Any:
    """The same with values."""
    if isinstance(given, FileTensor):
        return given._tierd_read()
    if isinstance(given, dict):
        return {name: _read(each) for name, each in given.items()}
    if type(given) in (list, tuple):
        return type(given)(_read(each) for each in given)
    return given


def _changes_in_place(func: Callable[..., Any]) -> bool:
    name = getattr(func, "__name__", "")
    return name in _IN_PLACE or (name.endswith("_") and not name.endswith("__"))


_IN_PLACE = {"__setitem__", *(f"__i{name}__" for name in "add sub mul truediv floordiv mod pow and or xor".split())}
_METADATA: set[Any] = {
    *getters("shape", "dtype", "device", "layout", "requires_grad", "ndim", "is_meta", "is_sparse", "is_nested"),
    *methods("size", "dim", "numel", "element_size", "is_floating_point", "is_complex", "__len__", "__hash__"),
    torch.is_floating_point, torch.is_complex, torch.numel,
}  # fmt: skip


def read_safetensors(path: _Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file, by name, with the larger ones still in the file. ``Invalid``: it is none."""
    with SafetensorsFile(path) as file:
        return {
            name: _later(entry.shape, entry.dtype, _Place(path, file.place_of(entry), entry.size, entry.dtype))
            for name, entry in file.entries.items()
        }


def read_saved(path: _Path) -> Any:
    """What ``torch.save`` has written, with its larger tensors still in the file. A file of the format before torch 1.6
    is loaded whole. Like ``torch.load(weights_only=True)``, it runs no code of the file."""
    with open(path, "rb") as file:
        legacy = file.read(2) != b"PK"
    if legacy:
        return torch.load(path, map_location="cpu", weights_only=True)
    return _with_values(outline(path), path)


def outline(path: _Path) -> Any:
    """What ``torch.save`` has written, with tensors that have no bytes: :func:`place_of` says where they are."""
    with FakeTensorMode():
        return torch.load(path, map_location="cpu", weights_only=True)


def place_of(fake: torch.Tensor) -> int:
    """Where in the file the bytes of the tensor's storage begin."""
    storage: Any = fake.untyped_storage()
    return int(storage._checkpoint_offset)


class _Place:
    """Bytes of a file that hold elements of one dtype."""

    def __init__(self, path: _Path, begin: int, size: int, dtype: torch.dtype) -> None:
        self._path, self._begin, self._size, self._dtype = path, begin, size, dtype

    def read(self, shape: torch.Size, strides: tuple[int, ...] | None = None, offset: int = 0) -> torch.Tensor:
        content = torch.empty(self._size, dtype=torch.uint8, device="cpu")
        if self._size:
            with open(self._path, "rb", buffering=0) as file:
                file.seek(self._begin)
                _fill(content.numpy().data, file, self._path)
        values = content.view(self._dtype)
        return values.view(shape) if strides is None else values.as_strided(shape, strides, offset)


def _fill(memory: memoryview, file: Any, path: _Path) -> None:
    done = 0
    while done < len(memory):
        count = file.readinto(memory[done:])
        if not count:
            raise EOFError(f"{os.fspath(path)} is cut short: {len(memory) - done} bytes of a tensor are not there")
        done += count


def _later(
    shape: torch.Size, dtype: torch.dtype, place: _Place, strides: tuple[int, ...] | None = None, offset: int = 0
) -> torch.Tensor:
    if shape.numel() * dtype.itemsize <= _SMALL:
        return place.read(shape, strides, offset)
    return FileTensor.of(shape, dtype, lambda: place.read(shape, strides, offset))


def _with_values(outlined: Any, path: _Path) -> Any:
    if isinstance(outlined, FakeTensor):
        storage = outlined.untyped_storage()
        place = _Place(path, place_of(outlined), storage.nbytes(), outlined.dtype)
        return _later(outlined.shape, outlined.dtype, place, outlined.stride(), int(outlined.storage_offset()))
    if isinstance(outlined, dict):
        return {key: _with_values(value, path) for key, value in outlined.items()}
    if isinstance(outlined, (list, tuple)):
        return type(outlined)([_with_values(value, path) for value in outlined])
    return outlined
