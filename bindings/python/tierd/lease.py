"""Lease: the right to touch a tensor's bytes in the daemon's memory, and arrays over them that never outlive it.

The rule: every array is made over one buffer object, and *that buffer* has the grant, with which libtier's lease ends.
So the lease ends after the last array, storage or memoryview over it is gone, never in a hook or in ``__exit__``.
Leaving a ``with`` block while an array is alive raises :class:`tierd.LiveViews`, or only warns while another exception
passes. Either way the memory stays valid until the last array is gone.

A write lease over which no array was made has changed nothing: unless it is released, it ends as if it had never been
granted. So an interrupt on the way to the first array costs no content.
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
from .grant import Grant
from .layout import Layout


class Lease:
    """A lease on one byte range of one tensor; made by :meth:`tierd.Client.lease` and :meth:`tierd.Client.create`.
    A process that is forked from this one, such as a worker of a DataLoader, has none of its memory: an array over a
    lease ends it (SIGSEGV) where it is read there; give it a copy. Where an administrator removes the job
    (:class:`tierd.Revoked`), arrays read as zeros from then on.

    Use it in a ``with`` block, or call :meth:`release`. A lease is not thread-safe; arrays over it may be used by any
    thread.
    """

    def __init__(self, grant: Grant, key: object, write: bool, layout: Layout | None) -> None:
        self.write = write
        self._key = key
        self._layout = layout
        self._ending = grant.ending
        try:
            grant.locate()
            buffer: Any = (ctypes.c_ubyte * grant.length).from_address(grant.address)
            buffer.grant = grant  # And nothing else keeps it: the lease ends with the last array.
        except BaseException:
            grant.drop()
            raise
        self.nbytes = grant.length
        self._buffer: Any = buffer
        self._lasting = weakref.ref(buffer)  # As long as an array is over the lease, also after release() here.

    def numpy(self, dtype: Any = None, shape: Sequence[int] | int | None = None) -> Any:
        """Returns a numpy array over the leased bytes, read-only unless the lease is for writing. ``dtype`` is by
        default the one that the tensor was put with, else bytes."""
        stated = self._stated("numpy", dtype, shape)
        if stated.dtype is None:
            stated = Layout("numpy", "u1", stated.shape, stated.size)
        return layouts.numpy_over(self._touch(), stated, self.write)

    def torch(self, dtype: Any = None, shape: Sequence[int] | int | None = None) -> Any:
        """Returns a torch tensor over the leased bytes. torch has no read-only tensors: do not write to one under a
        read lease. Other readers would see the change, and the result of a later ``get`` is not defined."""
        import torch

        stated = self._stated("torch", dtype, shape)
        if stated.dtype is None:
            stated = Layout("torch", torch.uint8, stated.shape, stated.size)
        return layouts.torch_over(self._touch(), stated)

    def memoryview(self) -> memoryview:
        """Returns the leased bytes without a copy, read-only unless the lease is for writing."""
        view = memoryview(self._touch()).cast("B")
        return view if self.write else view.toreadonly()

    def release(self) -> None:
        """Ends the lease. :class:`tierd.LiveViews` while arrays over it are alive: the lease then ends with the last of
        them. May be called again. Raises :class:`tierd.Error` where the written bytes could not be made final, because
        the daemon or the session has ended."""
        self._ending.touched = True  # What was not written is final too, such as a new tensor's bytes.
        if self._close():
            raise LiveViews(self._complaint())
        self._ending.end()

    def abandon(self) -> None:
        """Marks the bytes written under this lease as not final: when the lease ends, the daemon reverts them, or the
        tensor is :class:`tierd.Torn` where its older content is nowhere else, as on SSD."""
        self._ending.abandoned = True

    def evict_first(self) -> None:
        """Marks the bytes as not used soon: when the lease ends, they are the first of the job's to leave RAM."""
        self._ending.evict_first = True

    def __enter__(self) -> Lease:
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        if kind is not None and self.write and self._buffer is not None:
            self._ending.abandoned = True  # Half-written content must not become final.
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
        self._ending.require_process()
        return self._buffer

    def _touch(self) -> Any:
        """The buffer, for an array, by which the caller may write. Its owner decides from then on what is final."""
        buffer = self._open()
        self._ending.touched = True
        return buffer

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
            why = "it is shared, and any rank may have replaced it, or a put of it has not ended"
            raise Invalid(f"what {self._key!r} holds is not certain, as {why}: state the {kind} dtype")
        if dtype is None and known is not None and known.kind != "bytes":
            raise Invalid(f"{self._key!r} was put as a {known.kind} array of {known.dtype}: state the {kind} dtype")
        return layouts.declared(dtype, shape, self.nbytes)
