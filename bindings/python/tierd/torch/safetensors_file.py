"""SafetensorsFile: files in the public safetensors format, read and written range by range.

The format (https://github.com/huggingface/safetensors): 8 bytes with the length of a JSON header, little-endian; the
header, name → dtype, shape and the range of bytes; the bytes. A file comes from outside: nothing in its header is
trusted. Whatever does not fit is ``Invalid`` before a byte of a tensor is read.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import io
import json
import math
import os
import pathlib
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import torch

from ..errors import Invalid, IoError, NoSpace, NotFound
from ..progress import Advance
from ..quantity import format_bytes
from .parameter_state import flat
from .tensor_views import resolved
from .uninterrupted import uninterrupted

HEADER_BYTES_MAX = 100_000_000  # The format's own limit.
DTYPES = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "U16": torch.uint16, "I16": torch.int16,
    "U32": torch.uint32, "I32": torch.int32, "U64": torch.uint64, "I64": torch.int64, "F16": torch.float16,
    "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64, "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
Path = str | os.PathLike[str]


class Entry(NamedTuple):
    """One tensor of a file, and its place behind the header, in bytes."""

    name: str
    dtype: torch.dtype
    shape: torch.Size
    begin: int
    size: int


class SafetensorsFile:
    """A file that is open for reading; a context manager. One thread."""

    def __init__(self, path: Path) -> None:
        """``NotFound``; ``Invalid`` where it is not a whole file of the format."""
        self.path = os.fspath(path)
        self._file = open_regular(self.path)
        try:
            size = os.fstat(self._file.fileno()).st_size
            header = self._header(size)
            self.metadata = self._metadata(header.pop("__metadata__", {}))
            self.entries = {name: self._entry(name, fields) for name, fields in header.items()}
            self._require_cover(size - self._data)
        except BaseException:
            self._file.close()
            raise

    def read_into(self, entry: Entry, offset: int, memory: memoryview) -> None:
        """Fills ``memory`` with the tensor's bytes from ``offset`` on. ``IoError`` where the file became shorter."""
        self._file.seek(self.place_of(entry) + offset)
        done = 0
        while done < len(memory):
            count = self._file.readinto(memory[done:])
            if not count:
                raise IoError(f"{self.path} ends in the middle of {entry.name!r}: it was changed while it was read")
            done += count

    def place_of(self, entry: Entry) -> int:
        """Where in the file the tensor's bytes begin."""
        return self._data + entry.begin

    def tensor(self, name: str) -> torch.Tensor:
        """A copy in memory of the process."""
        entry = self.entries[name]
        values = torch.empty(entry.shape, dtype=entry.dtype, device="cpu")
        if entry.size:
            self.read_into(entry, 0, bytes_of(values))
        return values

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> SafetensorsFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- The header ----

    def _header(self, size: int) -> dict[str, Any]:
        length = int.from_bytes(self._file.read(8), "little")
        if size < 8 or length > min(HEADER_BYTES_MAX, size - 8):
            raise self._wrong(f"states a header of {length} bytes: the file has {size}, a header at most 100 MB")
        self._data = 8 + length
        return json_object(self._file.read(length), self.path)

    def _metadata(self, given: object) -> dict[str, str]:
        if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
            raise self._wrong("has metadata that are not strings")
        return given

    def _entry(self, name: str, fields: object) -> Entry:
        if not isinstance(fields, dict) or fields.keys() != {"dtype", "shape", "data_offsets"}:
            raise self._wrong(f"describes {name!r} by other fields than dtype, shape and data_offsets")
        dtype = DTYPES.get(fields["dtype"]) if isinstance(fields["dtype"], str) else None
        if dtype is None:
            raise self._wrong(f"has {name!r} in dtype {fields['dtype']!r}, which is not supported")
        shape, offsets = fields["shape"], fields["data_offsets"]
        if not _are_counts(shape) or not _are_counts(offsets) or len(offsets) != 2:
            raise self._wrong(f"states the shape or the offsets of {name!r} by what are not counts")
        if len(shape) > _DIMENSIONS_MAX or any(extent >= 1 << 63 for extent in shape):
            raise self._wrong(f"states a shape for {name!r} that no tensor can have")
        size = math.prod(shape) * dtype.itemsize
        if offsets[1] - offsets[0] != size:
            raise self._wrong(f"gives {name!r} bytes {offsets[0]} to {offsets[1]}; its shape and dtype need {size}")
        return Entry(name, dtype, torch.Size(shape), offsets[0], size)

    def _require_cover(self, size: int) -> None:
        """Each byte belongs to one tensor."""
        reached = 0
        for entry in sorted(self.entries.values(), key=lambda entry: (entry.begin, entry.size)):
            if entry.begin != reached:
                what = "overlaps another tensor" if entry.begin < reached else "lies behind bytes of no tensor"
                raise self._wrong(f"has {entry.name!r} at {entry.begin}: it {what}")
            reached += entry.size
        if reached != size:
            raise self._wrong(f"has tensors of {reached} bytes, and {size} bytes for them")

    def _wrong(self, what: str) -> Invalid:
        return Invalid(f"{self.path} {what}: not a safetensors file, or a damaged one")


_DIMENSIONS_MAX = 64  # As torch has it.


def _are_counts(values: object) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def open_regular(path: Path) -> io.FileIO:
    """``NotFound``; ``Invalid`` for anything but a regular file, which may hang a reader."""
    try:
        file = io.FileIO(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    except FileNotFoundError:
        raise NotFound(f"there is no file {os.fspath(path)}") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise Invalid(f"{os.fspath(path)} is not a regular file")
    return file


def json_object(text: bytes, where: str) -> dict[str, Any]:
    """The object that ``text`` is. ``Invalid``, also where a key is there twice."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name is there twice")
        return found

    def constant(name: str) -> object:
        raise ValueError(f"{name} is not JSON")

    try:
        found = json.loads(text.decode(), object_pairs_hook=unique, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{where} has no JSON where it should: {error}") from None
    if not isinstance(found, dict):
        raise Invalid(f"{where} has JSON that is not an object")
    return found


def bytes_of(values: torch.Tensor) -> memoryview:
    """The bytes of a dense tensor that has some, without a copy, in the order of memory. They keep it alive."""
    elements = flat(values.detach())
    buffer: Any = (ctypes.c_ubyte * elements.nbytes).from_address(elements.data_ptr())
    buffer.owner = elements
    return memoryview(buffer).cast("B")


# ---- Writing ----


def in_index_order(values: torch.Tensor) -> torch.Tensor:
    """``values``, or a copy, as they are to be read: in the order of their indices, conjugated and negated where torch
    has only noted that they are."""
    return resolved(values).contiguous()


class Source(NamedTuple):
    """A tensor to be written: ``write`` writes its bytes, in the order of its indices, to a file."""

    name: str
    dtype: torch.dtype
    shape: Sequence[int]
    write: Callable[[BinaryIO], None]

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def require_room(folder: pathlib.Path, size: int) -> None:
    """``NoSpace`` where the file system has less than ``size`` bytes."""
    figures = os.statvfs(folder)
    free = figures.f_bavail * figures.f_frsize
    if free < size:
        raise NoSpace(f"{folder} needs {format_bytes(size)} for the files, {format_bytes(free)} are free")


@contextlib.contextmanager
def partial_files() -> Iterator[list[pathlib.Path]]:
    """A list of files that are being made: what is in it when the context ends by an exception is removed."""
    made: list[pathlib.Path] = []
    try:
        yield made
    except BaseException:
        for each in made:
            each.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def partial_file(path: pathlib.Path, made: list[pathlib.Path]) -> Iterator[BinaryIO]:
    """A new file beside ``path``, with its bytes on the disk when the context ends, under a name that begins with a
    dot, and that is in ``made`` from before it exists. ``NoSpace`` where the disk is full."""
    made.append(path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial"))
    try:
        with open(made[-1], "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpace(
                f"the disk of {path.parent} is full: what was there under {path.name!r} is unchanged"
            ) from error
        raise


def replace_file(
    path: pathlib.Path, sources: Sequence[Source], metadata: Mapping[str, str], advance: Advance | None = None
) -> None:
    """Writes a safetensors file, which is whole and on the disk when it appears as ``path``. ``advance`` is told the
    bytes of each tensor that is written."""
    with partial_files() as made:
        write_file(path, sources, metadata, made, advance)
        rename(made, path)


def write_file(
    path: pathlib.Path,
    sources: Sequence[Source],
    metadata: Mapping[str, str],
    made: list[pathlib.Path],
    advance: Advance | None = None,
) -> None:
    """The same to a partial file, the last in ``made``, which the caller renames."""
    if not all(isinstance(each, str) for item in metadata.items() for each in item):
        raise Invalid(f"metadata {dict(metadata)!r}: a safetensors file takes strings only")
    ordered = sorted(sources, key=lambda source: -source.dtype.itemsize)  # So that each is aligned.
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for source in ordered:
        if source.name == "__metadata__":
            raise Invalid(f"a tensor named {source.name!r}: safetensors files keep that name for themselves")
        if source.dtype not in _NAMES:
            raise Invalid(f"{source.name!r} has dtype {source.dtype}, which safetensors files do not have")
        begin, end = end, end + source.size
        header[source.name] = {
            "dtype": _NAMES[source.dtype], "shape": list(source.shape), "data_offsets": [begin, end],
        }  # fmt: skip
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > HEADER_BYTES_MAX:
        raise Invalid(f"a header of {len(text)} bytes: a safetensors file has at most 100 MB of names")
    require_room(path.parent, end + len(text))
    with partial_file(path, made) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for source in ordered:
            source.write(file)
            if advance is not None:
                advance(source.size)


def rename(made: list[pathlib.Path], path: pathlib.Path) -> None:
    """Gives the last partial file its name, also after a loss of power: all that was in ``made`` stays."""
    uninterrupted([functools.partial(os.replace, made[-1], path), made.clear])
    sync_folder(path.parent)


def sync_folder(folder: pathlib.Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
