"""Lease: the right to touch a tensor's bytes in the daemon's memory, and arrays over them that never outlive it.

The rule: every array is made over one buffer object, and the *finalizer of that buffer* ends libtier's lease. So the
lease ends after the last array, storage or memoryview over it is gone, never in a hook or in ``__exit__``. Leaving a
``with`` block while an array is alive raises :class:`tierd.LiveViews`, or only warns while another exception passes.
Either way the memory stays valid until the last array is gone.
"""

from __future__ import annotations

import ctypes
import types
import warnings
import weakref
from collections.abc import Sequence
from typing import Any

from . import layout as layouts
from .errors import Invalid, LiveViews, Stale
from .layout import Layout
from .session import Grant


class Lease:
    """A lease on one byte range of one tensor; made by :meth:`tierd.Client.lease` and :meth:`tierd.Client.create`.

    Use it in a ``with`` block, or call :meth:`release`. A lease is not thread-safe; arrays over it may be used by any
    thread.
    """

    def __init__(self, grant: Grant, key: object, write: bool, layout: Layout | None) -> None:
        self.write = write
        self._key = key
        self._layout = layout
        self._grant = grant
        try:
            grant.locate()
            buffer = (ctypes.c_ubyte * grant.length).from_address(grant.address)
            # Not at exit: arrays may still be read then, and the daemon reclaims what a dead process held.
            weakref.finalize(buffer, grant.drop).atexit = False
        except BaseException:
            grant.drop()
            raise
        self.nbytes = grant.length
        self._buffer: Any = buffer
        self._lasting = weakref.ref(buffer)  # As long as an array is over the lease, also after release() here.
        grant.abandon = False  # From here on the owner of the arrays decides what is final.

    def numpy(self, dtype: Any = None, shape: Sequence[int] | int | None = None) -> Any:
        """Returns a numpy array over the leased bytes, read-only unless the lease is for writing. ``dtype`` is by
        default the one that the tensor was put with, else bytes."""
        stated = self._stated("numpy", dtype, shape)
        if stated.dtype is None:
            stated = Layout("numpy", "u1", stated.shape, stated.size)
        return layouts.numpy_over(self._open(), stated, self.write)

    def torch(self, dtype: Any = None, shape: Sequence[int] | int | None = None) -> Any:
        """Returns a torch tensor over the leased bytes. torch has no read-only tensors: do not write to one under a
        read lease. Other readers would see the change, and the result of a later ``get`` is not defined."""
        import torch

        stated = self._stated("torch", dtype, shape)
        if stated.dtype is None:
            stated = Layout("torch", torch.uint8, stated.shape, stated.size)
        return layouts.torch_over(self._open(), stated)

    def memoryview(self) -> memoryview:
        """Returns the leased bytes without a copy, read-only unless the lease is for writing."""
        view = memoryview(self._open()).cast("B")
        return view if self.write else view.toreadonly()

    def release(self) -> None:
        """Ends the lease. :class:`tierd.LiveViews` while arrays over it are alive: the lease then ends with the last of
        them. May be called again. Raises :class:`tierd.Error` where the written bytes could not be made final, because
        the daemon or the session has ended."""
        if self._close():
            raise LiveViews(self._complaint())
        self._grant.end()

    def abandon(self) -> None:
        """Marks the bytes written under this lease as not final: when the lease ends, the daemon reverts them."""
        self._grant.abandon = True

    def __enter__(self) -> Lease:
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        if kind is not None and self.write and self._buffer is not None:
            self._grant.abandon = True  # Half-written content must not become final.
        if kind is None:
            self.release()
        elif self._close():
            warnings.warn(self._complaint(), RuntimeWarning, stacklevel=2)

    def __repr__(self) -> str:
        state = "open" if self._buffer is not None else "kept by arrays" if self._lasting() is not None else "ended"
        return f"<tierd.Lease {'write' if self.write else 'read'} {self._key!r} {self.nbytes} bytes, {state}>"

    def _open(self) -> Any:
        if self._buffer is None:
            raise Stale(f"the lease on {self._key!r} has ended")
        return self._buffer

    def _close(self) -> bool:
        """Lets go of the buffer. Whether something else still holds it."""
        self._buffer = None
        return self._lasting() is not None

    def _complaint(self) -> str:
        return (
            f"arrays over the lease on {self._key!r} are still alive; it lasts until the last of them is gone "
            "(delete them before the with block ends)"
        )

    def _stated(self, kind: layouts.Kind, dtype: Any, shape: Sequence[int] | int | None) -> Layout:
        known = self._layout
        if dtype is None and shape is None and known is not None and known.size == self.nbytes:
            if known.kind == kind:
                return known
            if known.kind == "bytes":
                return layouts.declared(None, None, self.nbytes)
        if dtype is None and known is not None and known.kind == kind:
            dtype = known.dtype
        if dtype is None and known is layouts.UNCERTAIN:
            raise Invalid(f"any rank may have replaced {self._key!r}, which is shared: state the {kind} dtype")
        if dtype is None and known is not None and known.kind != "bytes":
            raise Invalid(f"{self._key!r} was put as a {known.kind} array of {known.dtype}: state the {kind} dtype")
        return layouts.declared(dtype, shape, self.nbytes)
