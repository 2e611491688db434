"""Layout: what the bytes of a tensor mean to Python. The daemon knows sizes only.

A process remembers the layout of every tensor it has put or created, so that ``get(key)`` returns an array like the one
that was put. A tensor of another rank has no layout here, and the layout of one in the job's namespace cannot be
trusted, as every rank may have replaced the tensor: pass ``dtype`` and ``shape`` to ``get`` and ``lease``, or fill an
array of your own with ``get_into``; without them its bytes come as a ``bytearray``.

numpy and torch are never imported on the caller's behalf: a caller that passes an array has imported its library, and a
``dtype`` of torch's means torch.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from .arguments import index
from .errors import Invalid

Kind = Literal["numpy", "torch", "bytes", "uncertain"]


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    kind: Kind
    dtype: Any  # numpy.dtype, torch.dtype, or None for bytes.
    shape: tuple[int, ...]
    size: int  # Bytes of the whole tensor.


CUDA_LEGACY_STREAM = 1  # CU_STREAM_LEGACY, the default stream of torch.

# Another rank may have replaced the array that this process put: the caller must state the layout.
UNCERTAIN = Layout("uncertain", None, (), 0)


@dataclasses.dataclass(frozen=True, slots=True)
class Memory:
    """Where an array's bytes lie, contiguous in C order, for as long as ``owner`` is alive."""

    address: int
    size: int
    layout: Layout
    owner: object
    stream: int | None = None  # CUDA: the stream whose work the copy must follow.


class _PyBuffer(ctypes.Structure):
    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (ctypes.POINTER(_PyBuffer),)
_release_buffer.restype = None
_SIMPLE, _WRITABLE = 0, 1


def is_torch(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_numpy(value: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))


@contextlib.contextmanager
def readable(value: object) -> Iterator[Memory]:
    """The bytes of an array to be stored; one that is not contiguous is copied first."""
    if is_torch(value):
        yield _torch_memory(value, must_be_contiguous=False)
    elif is_numpy(value):
        yield _numpy_memory(value, must_be_contiguous=False)
    else:
        with _buffer_memory(value, _SIMPLE) as memory:
            yield memory


@contextlib.contextmanager
def writable(value: object) -> Iterator[Memory]:
    """The bytes of an array to be filled. Raises ``Invalid`` where that cannot be done in place."""
    if is_torch(value):
        memory = _torch_memory(value, must_be_contiguous=True)
        try:
            yield memory
        finally:
            _count_change(value)
    elif is_numpy(value):
        memory = _numpy_memory(value, must_be_contiguous=True)
        if not memory.owner.flags.writeable:  # type: ignore[attr-defined]
            raise Invalid("the array to fill is read-only")
        yield memory
    else:
        with _buffer_memory(value, _WRITABLE) as memory:
            yield memory


def _count_change(tensor: Any) -> None:
    """Tells autograd of a change in place that torch itself has not made."""
    if not tensor.is_inference():  # Those count no versions.
        sys.modules["torch"].autograd.graph.increment_version(tensor)


def _torch_memory(value: Any, must_be_contiguous: bool) -> Memory:
    torch = sys.modules["torch"]
    tensor = value.detach()
    if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_nested:
        raise Invalid(f"a {tensor.layout} tensor on {tensor.device} has no bytes of its own: make it dense first")
    if tensor.is_quantized:
        raise Invalid("a quantized tensor is more than its bytes: store int_repr(), and scale and zero point beside it")
    if must_be_contiguous:
        if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
            raise Invalid("the tensor to fill must be contiguous")
    else:
        tensor = tensor.resolve_conj().resolve_neg().contiguous()
    stream = None
    if tensor.is_cuda:
        # The default one by its handle, not by null: libtier then knows that this is memory of a device, and refuses it
        # where it cannot use the driver.
        stream = torch.cuda.current_stream(tensor.device).cuda_stream or CUDA_LEGACY_STREAM
    elif tensor.device.type != "cpu":
        raise Invalid(f"tensors on {tensor.device} cannot be moved: copy to cpu first")
    size = tensor.numel() * tensor.element_size()
    address = tensor.data_ptr()
    if address == 0 and size > 0:  # It is made of other tensors, as DTensor is.
        raise Invalid(
            f"a {type(value).__name__} has no bytes of its own: pass a tensor inside it, such as to_local()'s"
        )
    return Memory(address, size, Layout("torch", tensor.dtype, tuple(tensor.shape), size), tensor, stream)


def _numpy_memory(value: Any, must_be_contiguous: bool) -> Memory:
    numpy = sys.modules["numpy"]
    if isinstance(value, numpy.generic) and not must_be_contiguous:  # An array without dimensions.
        value = numpy.asarray(value)
    if value.dtype.hasobject:
        raise Invalid(f"an array of dtype {value.dtype} holds Python objects, which cannot leave this process")
    if numpy.ma.isMaskedArray(value):
        raise Invalid("a masked array is more than its bytes: store its data, and its mask beside it")
    if must_be_contiguous:
        if not value.flags.c_contiguous:
            raise Invalid("the array to fill must be contiguous in C order")
    else:
        value = numpy.asarray(value, order="C")
    return Memory(value.ctypes.data, value.nbytes, Layout("numpy", value.dtype, value.shape, value.nbytes), value)


@contextlib.contextmanager
def _buffer_memory(value: object, flags: int) -> Iterator[Memory]:
    view = _PyBuffer()
    try:
        owner = memoryview(value)  # type: ignore[arg-type]  # Any object: one without a buffer raises.
        _get_buffer(value, ctypes.byref(view), flags)
    except (TypeError, BufferError) as error:
        use = "filled" if flags == _WRITABLE else "stored"
        raise Invalid(
            f"a {type(value).__name__} cannot be {use} ({error}): pass a numpy array, a torch tensor, or contiguous "
            f"{'writable ' if flags == _WRITABLE else ''}bytes such as a bytearray or memoryview"
        ) from None
    try:
        yield Memory(view.buf or 0, view.len, Layout("bytes", None, (view.len,), view.len), owner)
    finally:
        _release_buffer(ctypes.byref(view))


def declared(dtype: Any, shape: Sequence[int] | int | None, size: int | None) -> Layout:
    """The layout a caller states by ``dtype`` and ``shape``. ``size``, in bytes, is the tensor's where that is known;
    a shape left out is then all of it, flat."""
    torch = sys.modules.get("torch")
    if dtype is None:
        kind: Kind = "bytes"
        item = 1
    elif torch is not None and isinstance(dtype, torch.dtype):
        kind, item = "torch", dtype.itemsize
    else:
        import numpy  # The caller named a dtype that is not torch's, so wants a numpy array.

        dtype = numpy.dtype(dtype)
        if dtype.hasobject:
            raise Invalid(f"dtype {dtype} holds Python objects, which cannot leave this process")
        kind, item = "numpy", dtype.itemsize
    if item == 0:
        raise Invalid(f"elements of dtype {dtype} have no bytes: state their length, as in 'S8'")
    if shape is None:
        if size is None:
            raise Invalid("state the shape of a tensor to be created")
        if size % item:
            raise Invalid(f"{size} bytes are no whole number of elements of {dtype} ({item} bytes each)")
        shape = (size // item,)
    shape = _extents(shape)
    stated = math.prod(shape) * item
    if any(extent < 0 for extent in shape):
        raise Invalid(f"shape {shape} has a negative extent")
    if size is not None and stated != size:
        raise Invalid(f"shape {shape} of {dtype} is {stated} bytes, the tensor holds {size}")
    return Layout(kind, dtype, shape, stated)


def _extents(shape: Any) -> tuple[int, ...]:
    one = index(shape)
    several = None if isinstance(shape, (str, bytes)) or not isinstance(shape, Iterable) else [*map(index, shape)]
    extents = several if one is None else [one]
    if extents is None or None in extents:
        raise Invalid(f"shape is {shape!r}: an int, or a sequence of them")
    return tuple(extent for extent in extents if extent is not None)


def require_same_dtype(key: object, stored: Layout | None, out: Layout) -> None:
    """``Invalid`` where the tensor is known to have elements of another dtype than the array to be filled. An array of
    uint8 holds bytes, as a buffer does: those of any dtype."""
    if stored is None:
        return
    there, wanted = dtype_name(stored), dtype_name(out)
    if there != wanted and {there, wanted}.isdisjoint(("None", "uint8")):
        raise Invalid(
            f"{key!r} was put as {there}, and the array to fill is of {wanted}, which would take its bytes as they "
            f"are: fill an array of {there}, or pass out.view of uint8 if that is meant"
        )


def dtype_name(layout: Layout) -> str:
    """The same for numpy and torch; None for bytes."""
    return str(layout.dtype).removeprefix("torch.")


def empty(layout: Layout) -> Any:
    """An array of the caller's own to be filled."""
    if layout.kind == "torch":
        return sys.modules["torch"].empty(layout.shape, dtype=layout.dtype, device="cpu")
    if layout.kind == "numpy":
        return sys.modules["numpy"].empty(layout.shape, dtype=layout.dtype)
    return bytearray(layout.size)


def numpy_over(buffer: Any, layout: Layout, write: bool) -> Any:
    """A numpy array that keeps ``buffer`` alive."""
    import numpy

    array = numpy.frombuffer(buffer, dtype=layout.dtype).reshape(layout.shape)
    array.flags.writeable = write
    return array


def torch_over(buffer: Any, layout: Layout) -> Any:
    """A torch tensor whose storage keeps ``buffer`` alive."""
    import torch

    return torch.frombuffer(buffer, dtype=layout.dtype).view(layout.shape)
