"""Client: one session with a tierd daemon, for Python.

A key is an integer of 64 bits, which is the tensor's id, or a string, to which the daemon gives an id: the same id in
every session of the job. A tensor belongs to its session, so that the keys of ranks cannot collide; with
``shared=True`` it belongs to the job, and every rank sees it by calls with ``shared=True``. All methods may be called
from any thread, and let other threads run while they wait. ``timeout`` is the time in seconds that a call may wait for
other leases, for room in RAM or for a device (none: 60; 0: it does not wait). Then it raises :class:`tierd.Timeout`, or
:class:`tierd.WouldDeadlock` where only leases of this client block it. A call that copies a large tensor range by range
may wait that long for each range.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import os
import threading
import types
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from . import layout as layouts
from . import finalizers, library, ranges
from .arguments import index, milliseconds, unsigned
from .errors import AlreadyExists, Invalid, NoMemory, NotFound, Timeout, WouldDeadlock
from .grant import Grant
from .layout import Layout
from .lease import Lease
from .pending_put import PendingPut, Settling
from .session import Session
from .states import Key, Part, SessionState, Stats, TensorState


class Client:
    """A session with a daemon. Close it, use it as a context manager, or drop the last reference to it."""

    def __init__(self, session: Session, keeps: Callable[[Client], bool] | None = None) -> None:
        self._session = session
        self._keeps = keeps  # Whether the job stays after its last session. Asked at the first persist, if at all.
        finalizers.attach(self, session.close)  # If __del__ is interrupted.
        self._layouts: dict[tuple[int, bool], Layout] = {}
        # Bytes that this class copied itself, under leases, by thread: a thread changes its own number alone.
        self._copied_to: dict[int, int] = {}
        self._copied_from: dict[int, int] = {}

    # ---- Whole tensors ----

    def put(
        self,
        key: Key,
        array: Any,
        *,
        shared: bool = False,
        sharded: bool = False,
        replace: bool = False,
        transient: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Stores a copy of ``array`` under ``key``: a numpy array, a torch tensor or any other buffer of bytes.

        After the call the daemon has the bytes, and ``array`` may change. ``AlreadyExists``: the key has a tensor, and
        ``replace`` is false, or another rank is just creating it. ``Stale``: another rank has replaced the tensor while
        it was written. ``NoSpace``: RAM and SSD together cannot hold the tensor; nothing was written. With
        ``replace``, a tensor of the same size is overwritten in place, and is ``Torn`` where that fails or its
        ``timeout`` passes half way. A tensor of another size is freed once the new one has room; where the write fails
        after that, both are lost, and the error says so. A job may have tensors under nearly 4 Mi string keys, 64 MiB
        together (else ``NoMemory``).

        ``sharded``, with ``shared``: ranks divide the tensor, and each writes a part of it (``lease(write=True)``) and
        marks its steps with the same numbers (:meth:`step`). Such a tensor is ``Torn`` also when one of them ends while
        the steps in which they wrote last differ. A tensor that is overwritten in place stays as it was created.
        ``transient``: of no use to a later run. :meth:`persist` leaves it out, unless it is named there.
        """
        tensor, flags = self.tensor_id(key), library.flags_of(shared, sharded, transient)
        with layouts.readable(array) as memory:
            if memory.size == 0:
                raise Invalid(f"the array for {key!r} holds no bytes; a tensor must")
            if replace or memory.stream is not None:
                if not replace and self._exists(tensor, shared):
                    raise AlreadyExists(f"a tensor {key!r} exists: pass replace=True to store another in its place")
                self._swap("tier_swap_out", tensor, memory, flags, timeout)
            else:
                take = self._taker(flags, timeout)
                free = functools.partial(self._free_quietly, tensor, library.flags_of(shared))
                ranges.fill_new(take, tensor, key, memory, free)
                _count(self._copied_to, memory.size)
            self._layouts[tensor, shared] = memory.layout

    def start_put(self, key: Key, array: Any, *, transient: bool = False, timeout: float | None = None) -> PendingPut:
        """Starts to store ``array``, a contiguous torch tensor of float32, bfloat16 or float16, under ``key``, in place
        of what is there. Returns at once: ``array`` must not change until :meth:`PendingPut.wait`, which tells how many
        elements are not finite and what the sum of their squares is. Both come from the pass that copies them.
        ``transient``: as for :meth:`put`."""
        tensor = self.tensor_id(key)
        with layouts.readable(array) as memory:
            element = library.ELEMENTS.get(str(memory.layout.dtype).removeprefix("torch."))
            if element is None:
                raise Invalid(f"elements of {memory.layout.dtype} cannot be checked while they are copied")
            if memory.size == 0:
                raise Invalid(f"the array for {key!r} holds no bytes; a tensor must")
            options = self._copy_options(memory, library.flags_of(transient=transient), timeout, waits_for_own=True)
            options.memory_type = options.tensor_type = element
            options.check_finite = options.sum_squares = 1
            operation = self._session.start_copy(
                "tier_swap_out", tensor, memory.address, memory.size, options, memory.owner
            )
            return PendingPut(self._session, operation, memory.size, Settling(self._layouts, tensor, memory.layout))

    def get(
        self,
        key: Key,
        dtype: Any = None,
        shape: Sequence[int] | int | None = None,
        *,
        shared: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Returns a copy of the tensor: an array like the one that this client put, or one of the given ``dtype``
        (numpy's or torch's) and ``shape``. Of a tensor that another process put, this client knows neither: give them,
        or get a ``bytearray``. A shared tensor that was put as an array needs them too, as other ranks may have
        replaced it (else ``Invalid``)."""
        tensor = self.tensor_id(key)
        layout = None if dtype is not None or shape is not None else self._layout_of(tensor, shared)
        if layout is layouts.UNCERTAIN:
            put = self._layouts[tensor, shared]
            if put is layouts.UNCERTAIN:
                raise Invalid(f"a put of {key!r} has not ended: wait for it, or state dtype and shape")
            raise Invalid(
                f"any rank may have replaced {key!r}, which is shared: state dtype and shape (this client put "
                f"{layouts.dtype_name(put)} of shape {put.shape})"
            )
        if layout is None:
            return self._copy_of(key, dtype, shape, shared, timeout)
        return self._filled(key, layout, shared, timeout)

    def get_into(self, key: Key, out: Any, *, shared: bool = False, timeout: float | None = None) -> None:
        """Copies the tensor's bytes into ``out``, an array that is contiguous and has as many bytes as the tensor.
        torch's autograd sees a change in place. ``Invalid`` where this client put the tensor with another dtype than
        that of ``out``; an array of uint8, or a buffer, takes the bytes of any. tierd stores no dtype: of a shared
        tensor, and of one that another process put, the caller has to know it."""
        with layouts.writable(out) as memory:
            if not shared:  # Else another rank may have replaced it.
                layouts.require_same_dtype(key, self._layouts.get((self.tensor_id(key), False)), memory.layout)
            self._fill(key, memory, shared, timeout)

    def delete(self, *keys: Key, shared: bool = False) -> None:
        """Frees tensors, in RAM and on SSD. Waits until other clients and threads have ended their leases on them;
        ``WouldDeadlock`` where only leases of this client are left and no other thread can end them."""
        ids = [self.tensor_id(key) for key in keys]
        if not ids:
            return
        self._tensors_call("tier_free", ids, shared)
        for tensor in ids:
            self._layouts.pop((tensor, shared), None)
        for key in (key for key in keys if isinstance(key, str)):
            self._session.ids.pop(key, None)  # The daemon may drop the key: ask again.

    def discard(self, tensor: int) -> None:
        """Frees a tensor of this session that is under no lease. For finalizers: it does not handle signals."""
        self._session.call("tier_free", tensor, 0)
        self._layouts.pop((tensor, False), None)

    def discard_unwaited(self, tensors: Sequence[int]) -> None:
        """Sends a request to free tensors of this session, and does not wait. For finalizers, which may run in the
        middle of any call, on any thread."""
        self._session.free_unwaited(tensors, 0)
        for tensor in tensors:
            self._layouts.pop((tensor, False), None)

    # ---- In place ----

    def lease(
        self,
        key: Key,
        write: bool = False,
        *,
        offset: int = 0,
        length: int = 0,
        shared: bool = False,
        discard: bool = False,
        timeout: float | None = None,
    ) -> Lease:
        """Returns a lease: the right to read ``length`` bytes (0: to the end) of a tensor from ``offset`` on, in the
        daemon's memory, once they are in RAM. With ``write`` the lease is exclusive, and allows writing; ``discard``
        then says that the old bytes are not needed, so that they are not read from SSD.

        ``with client.lease("w") as lease: a = lease.numpy(); ...; del a``
        """
        flags = library.flags_of(shared) | (library.WRITE if write else 0) | (library.DISCARD if discard else 0)
        grant = self._grant_one(Part(key, offset, length), flags, timeout)
        return Lease(grant, key, write, self._layout_of(self.tensor_id(key), shared))

    def create(
        self,
        key: Key,
        shape: Sequence[int] | int,
        dtype: Any = None,
        *,
        shared: bool = False,
        sharded: bool = False,
        transient: bool = False,
        timeout: float | None = None,
    ) -> Lease:
        """Creates a tensor of ``shape`` and ``dtype`` (none: bytes) and returns a write lease on all of it, to be
        filled in place. Its bytes are not defined at first. Others can get it once the lease has ended. ``sharded``,
        ``transient``: as for :meth:`put`."""
        layout = layouts.declared(dtype, shape, None)
        if layout.size == 0:
            raise Invalid(f"the tensor {key!r} would hold no bytes; it must")
        grant = self._grant_one(Part(key, size=layout.size), library.flags_of(shared, sharded, transient), timeout)
        self._layouts[self.tensor_id(key), shared] = layout
        return Lease(grant, key, True, layout)

    def lease_many(
        self,
        parts: Sequence[Part],
        write: bool = False,
        *,
        shared: bool = False,
        sharded: bool = False,
        timeout: float | None = None,
    ) -> list[Lease]:
        """Returns leases on several ranges, by one request: all of them or none. A part with a ``size`` creates its
        tensor (``sharded``: as for :meth:`put`); either all parts have a size or none has."""
        creating = {part.size > 0 for part in parts}
        if len(creating) != 1:
            raise Invalid("state at least one part; either all of them create a tensor or none does")
        name = "tier_create" if creating.pop() else "tier_acquire"
        write = write or name == "tier_create"
        flags = library.flags_of(shared, sharded) | (library.WRITE if write and name == "tier_acquire" else 0)
        grants = self._session.grant(name, [self._range(part) for part in parts], flags, milliseconds(timeout))
        leases: list[Lease] = []
        try:
            for part, grant in zip(parts, grants, strict=True):
                leases.append(Lease(grant, part.key, write, self._layout_of(self.tensor_id(part.key), shared)))
        except BaseException:
            for grant in grants:  # Untouched: a tensor that was never filled does not stay.
                grant.drop()
            raise
        return leases

    # ---- Hints and durability ----

    def prefetch(self, keys: Key | Part | Iterable[Key | Part], *, shared: bool = False) -> None:
        """A hint: tensors, or parts of them, will be used soon, in this order, and should be read into RAM. Returns at
        once. What was read stays in RAM for its use until the next ``step`` of the job, or for 10 seconds."""
        parts = [key if isinstance(key, Part) else Part(key) for key in _several(keys)]
        for begin in range(0, len(parts), library.BATCH_MAX):
            batch = [self._range(part) for part in parts[begin : begin + library.BATCH_MAX]]
            array = (library.Range * len(batch))(*batch)
            self._session.call("tier_prefetch", array, len(batch), library.flags_of(shared))

    def step(self, step: int | None = None) -> None:
        """Marks the end of training step ``step`` (none: the next number). It finishes the updates of this session:
        tensors that it changed in part before the step are not ``Torn`` when the session ends. A session begins with
        the highest number of its job; ranks that divide a ``sharded`` tensor give the same numbers."""
        number = library.NEXT_STEP if step is None else unsigned("step", step)
        self._session.call("tier_step", number)

    def persist(self, *keys: Key, shared: bool = False) -> None:
        """Makes tensors (no key: all of the job) durable in one atomic step: they survive the end of the daemon and a
        loss of power. It replaces all that the job persisted before, so name every key in one call. No key also leaves
        out what is ``transient``. A ``named`` job keeps it for ``mode="resume"``; what a job that is not named
        persisted is deleted with the job, and the first call says so by a ``RuntimeWarning``. ``Denied``: the private
        daemon has no ``data_directory``. The deadline is the daemon's ``engine.deadline`` (60 s by default), then
        ``Timeout``: where its sentence says so, the manifest may be committed yet."""
        keeps, self._keeps = self._keeps, None
        if keeps is not None and not keeps(self):
            warnings.warn(
                f"job {self.session.job!r} is not named: what it persists ends with it; connect with named=True",
                RuntimeWarning,
                stacklevel=2,
            )
        self._tensors_call("tier_persist", [self.tensor_id(key) for key in keys], shared)

    def flush(self, *keys: Key, shared: bool = False) -> None:
        """Returns when the tensors (no key: all of this session) have a copy on SSD. That does not make them durable:
        see :meth:`persist`. The deadline is ``engine.deadline``, for each 1023 keys."""
        self._tensors_call("tier_flush", [self.tensor_id(key) for key in keys], shared)

    def drop(self, *keys: Key, shared: bool = False) -> None:
        """A hint: the tensors (no key: all of this session) will not be used soon. Drops RAM copies that are on SSD
        too and under no lease."""
        ids = [self.tensor_id(key) for key in keys]
        self._session.call("tier_drop", (ctypes.c_uint64 * len(ids))(*ids), len(ids), library.flags_of(shared))

    def accept(self, key: Key, *, shared: bool = False) -> None:
        """Declares the content that a :class:`tierd.Torn` tensor has now to be right."""
        self._session.call("tier_accept", self.tensor_id(key), library.flags_of(shared))

    # ---- Figures ----

    def stats(self) -> Stats:
        """What this client has done since it connected, and what it holds now. Sends no request: it also answers when
        the daemon has ended."""
        fields = library.StatsFields(struct_size=ctypes.sizeof(library.StatsFields))
        self._session.call("tier_stats", ctypes.byref(fields))
        fields.copied_to_tensors_bytes += sum(list(self._copied_to.values()))
        fields.copied_from_tensors_bytes += sum(list(self._copied_from.values()))
        return Stats(*(int(getattr(fields, field.name)) for field in dataclasses.fields(Stats)))

    def tensor(self, key: Key, *, shared: bool = False) -> TensorState:
        """The size of a tensor, and how much of it lies in RAM and on SSD. ``NotFound`` if there is none."""
        fields = library.TensorFields(struct_size=ctypes.sizeof(library.TensorFields))
        self._session.call("tier_tensor", self.tensor_id(key), library.flags_of(shared), ctypes.byref(fields))
        return TensorState(
            fields.size, fields.generation, fields.ram_bytes, fields.ssd_bytes, bool(fields.sealed), bool(fields.torn)
        )

    @property
    def session(self) -> SessionState:
        """The daemon, the job and its token, and whether the session still is there, at the moment of the question.
        Sends no request; ``connected`` is false when the daemon has ended, or has ended the session."""
        fields = library.SessionFields(struct_size=ctypes.sizeof(library.SessionFields))
        self._session.call("tier_session", ctypes.byref(fields))
        return SessionState(
            fields.epoch, fields.session, fields.window_size,
            (fields.job or b"").decode(), (fields.token or b"").decode(), os.fsdecode(fields.socket or b""),
            bool(fields.connected), bool(fields.resumed), fields.request_timeout_ms / 1000,
        )  # fmt: skip

    def tensor_id(self, key: Key) -> int:
        """The 64-bit id of a key."""
        if isinstance(key, str):
            known = self._session.ids.get(key)
            return self._session.intern(key) if known is None else known
        number = index(key)
        if number is None:
            raise Invalid(f"a key is an int or a str, not {type(key).__name__}")
        if not 0 <= number < 1 << 64:
            raise Invalid(f"key {number} does not fit into 64 bits")
        return number

    # ---- The end ----

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called. A session that the daemon has ended is not closed: see ``connected`` of
        :attr:`session`."""
        return self._session.closed

    def close(self) -> None:
        """Ends the session, which frees its tensors, when the calls of other threads have ended. The end of the last
        session of a job that is not named frees all tensors of the job. While arrays over leases are alive it warns,
        and the session ends when the last of them is gone."""
        alive = self._session.close()
        if alive:
            warnings.warn(
                f"closed with {alive} lease{'s' if alive > 1 else ''} alive; the session ends with the last of them",
                ResourceWarning,
                stacklevel=2,
            )

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        session = getattr(self, "_session", None)
        if session is not None:
            session.close()

    def __reduce__(self) -> str:
        raise Invalid(
            "a client is a session of its process and cannot be pickled or copied: call tierd.connect() there"
        )

    def __repr__(self) -> str:
        if self._session.closed:
            return "<tierd.Client closed>"
        if self._session.forked:
            return "<tierd.Client of the parent process>"
        state = self.session
        return f"<tierd.Client job {state.job!r} at {state.socket}>"

    # ---- Within ----

    def _layout_of(self, tensor: int, shared: bool) -> Layout | None:
        known = self._layouts.get((tensor, shared))
        if not shared or known is None:
            return known
        return None if known.kind == "bytes" else layouts.UNCERTAIN  # Another rank may have put another number of them.

    def _copy_of(
        self, key: Key, dtype: Any, shape: Sequence[int] | int | None, shared: bool, timeout: float | None
    ) -> Any:
        """A copy of a tensor whose size has to be asked for. A rank that replaces it meanwhile may change that."""
        while True:
            size = self.tensor(key, shared=shared).size
            layout = layouts.declared(dtype, shape, size)
            try:
                return self._filled(key, layout, shared, timeout)
            except Invalid:
                if self.tensor(key, shared=shared).size == size:
                    raise

    def _filled(self, key: Key, layout: Layout, shared: bool, timeout: float | None) -> Any:
        array = layouts.empty(layout)
        with layouts.writable(array) as memory:
            self._fill(key, memory, shared, timeout)
        return array

    def _exists(self, tensor: int, shared: bool) -> bool:
        try:
            self.tensor(tensor, shared=shared)
        except NotFound:
            return False
        return True

    def _range(self, part: Part) -> library.Range:
        figures = [unsigned(name, getattr(part, name)) for name in ("offset", "length", "size")]
        return library.Range(self.tensor_id(part.key), *figures)

    def _grant_one(self, part: Part, flags: int, timeout: float | None) -> Grant:
        name = "tier_create" if part.size else "tier_acquire"
        if not part.size:
            flags &= ~library.SHARDED  # Said once, with the first range.
        return self._session.grant(name, [self._range(part)], flags, milliseconds(timeout))[0]

    def _tensors_call(self, name: str, ids: list[int], shared: bool) -> None:
        if name == "tier_persist" and len(ids) > library.BATCH_MAX:
            raise Invalid(f"persist is one manifest: at most {library.BATCH_MAX} keys, or none for all of the job")
        for begin in range(0, max(1, len(ids)), library.BATCH_MAX):
            self._session.call_waiting(name, ids[begin : begin + library.BATCH_MAX], library.flags_of(shared))

    def _swap(self, name: str, tensor: int, memory: layouts.Memory, flags: int, timeout: float | None) -> None:
        options = self._copy_options(memory, flags, timeout)
        self._session.copy(name, tensor, memory.address, memory.size, options, memory.owner)

    def _copy_options(
        self, memory: layouts.Memory, flags: int, timeout: float | None, waits_for_own: bool = False
    ) -> library.CopyOptions:
        if not waits_for_own and self._session.blocks_itself():
            flags |= library.NO_WAIT_OWN
        return library.CopyOptions(
            struct_size=ctypes.sizeof(library.CopyOptions),
            stream=memory.stream,
            flags=flags | (library.NO_WAIT if timeout == 0 else 0),
            timeout_ms=milliseconds(timeout) or 0,  # To libtier, 0 is the daemon's default.
            whole=1,
        )

    def _fill(self, key: Key, memory: layouts.Memory, shared: bool, timeout: float | None) -> None:
        tensor, flags = self.tensor_id(key), library.flags_of(shared)
        take = self._taker(flags, timeout)
        deadline = ranges.Deadline(take.timeout)
        if memory.stream is not None:
            self._swap("tier_swap_in", tensor, memory, flags, timeout)
        elif memory.size > ranges.RANGE_BYTES:
            self._swap_in(tensor, memory, flags, take.timeout)
        else:
            try:
                ranges.read_whole(take, tensor, key, memory, deadline)
            except (NoMemory, WouldDeadlock):
                if memory.size <= ranges.BLOCK:
                    raise
                # RAM cannot hold it at once: a swap reads one content of it in parts.
                self._swap_in(tensor, memory, flags, deadline.left())
                return
            _count(self._copied_from, memory.size)

    def _swap_in(self, tensor: int, memory: layouts.Memory, flags: int, seconds: float) -> None:
        """Fills ``memory`` in one copy. Room for a range is waited for half of the time: the rest is for a shorter
        one."""
        half = seconds / 2
        try:
            self._swap("tier_swap_in", tensor, memory, flags, half)
        except Timeout:  # Not for room.
            if half == 0:
                raise
            self._swap("tier_swap_in", tensor, memory, flags, half)

    def _taker(self, flags: int, timeout: float | None) -> ranges.Take:
        milliseconds(timeout)  # Raises if it is wrong.
        seconds = self._session.deadline_ms / 1000 if timeout is None else timeout
        return ranges.Take(lambda part, more, left: self._grant_one(part, flags | more, left), seconds)

    def _free_quietly(self, tensor: int, flags: int) -> None:
        """Removes the tensor that an interrupted put has left; a failure here is not reported."""
        try:
            self._session.call("tier_free", tensor, flags)
        except Exception:  # noqa: S110
            pass


def _several(keys: Key | Part | Iterable[Key | Part]) -> Iterable[Key | Part]:
    if isinstance(keys, (str, bytes)) or not isinstance(keys, Iterable):
        return [keys]  # type: ignore[list-item]  # What is no key is refused as one.
    return keys


def _count(table: dict[int, int], nbytes: int) -> None:
    thread = threading.get_ident()
    table[thread] = table.get(thread, 0) + nbytes
