"""FileTensor: a tensor whose bytes are in a checkpoint file until something uses them.

``load_state_dict`` of a model or an optimizer in tierd takes one tensor after the other. Given such tensors, it reads
each from the file when it is about to store it, so a checkpoint of any size passes through the memory of one tensor.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from ..errors import Invalid
from .offloaded_gradient import getters, methods

DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U64": torch.uint64, "U32": torch.uint32,
    "U16": torch.uint16, "U8": torch.uint8, "BOOL": torch.bool, "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2, "C64": torch.complex64,
}  # fmt: skip
_SMALL = 4096  # Bytes up to which a tensor is read at once.
_HEADER_MAX = 100_000_000  # Of the safetensors format.
_no_dispatch = torch._C.DisableTorchFunctionSubclass
_Tensor: Any = torch.Tensor
_Path = str | os.PathLike[str]


class FileTensor(torch.Tensor):
    """Its shape and dtype are known. Every torch call on it reads the values, and works on them; it keeps none."""

    _tierd_read: Callable[[], torch.Tensor]

    @staticmethod
    def of(shape: torch.Size, dtype: torch.dtype, read: Callable[[], torch.Tensor]) -> FileTensor:
        with torch.inference_mode(False), torch.no_grad():
            made = torch.zeros((), dtype=dtype).expand(shape).as_subclass(FileTensor)
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
        given = [each._tierd_read() if isinstance(each, FileTensor) else each for each in args]
        return func(*given, **(kwargs or {}))

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"tensor in a file ({tuple(self.shape)}, {self.dtype})"


_METADATA: set[Any] = {
    *getters("shape", "dtype", "device", "layout", "requires_grad", "ndim", "is_meta", "is_sparse", "is_nested"),
    *methods("size", "dim", "numel", "element_size", "is_floating_point", "is_complex", "__len__", "__hash__"),
    torch.is_floating_point, torch.is_complex, torch.numel,
}  # fmt: skip


def read_safetensors(path: _Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file, by name, with the larger ones still in the file. ``Invalid``: it is none."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > min(_HEADER_MAX, os.fstat(file.fileno()).st_size):
            raise Invalid(f"{os.fspath(path)} is no safetensors file: its header would have {size} bytes")
        header = json.loads(file.read(size))
    found: dict[str, torch.Tensor] = {}
    for name, entry in header.items():
        if name != "__metadata__":
            dtype, shape = DTYPES[entry["dtype"]], torch.Size(entry["shape"])
            begin, end = entry["data_offsets"]
            if end - begin != shape.numel() * dtype.itemsize:
                raise Invalid(f"{os.fspath(path)}: {name!r} has {end - begin} bytes, which does not fit its shape")
            found[name] = _later(shape, dtype, _Place(path, 8 + size + begin, end - begin, dtype))
    return found


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
        content = torch.empty(self._size, dtype=torch.uint8)
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
