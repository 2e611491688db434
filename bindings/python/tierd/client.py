"""Client: one session with a tierd daemon, for Python.

Keys are integers (64 bits, the tensor's id itself) or strings (given an id by the daemon, the same in every session of
the job). A tensor lives in the namespace of its session, so that ranks cannot collide, or with ``shared=True`` in the
job's, where every rank sees it. All methods may be called from any thread and let other threads run while they wait.
``timeout`` is in seconds: how long to wait for another's lease, for room in RAM or for a device (none: 60; 0: not at
all); then :class:`tierd.Timeout`, or :class:`tierd.WouldDeadlock` behind leases of this client alone. What is copied
range by range waits so long for each range, in however many requests.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import numbers
import operator
import os
import types
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from . import autostart as autostarts
from . import layout as layouts
from . import library, ranges
from .errors import AlreadyExists, Invalid, NoMemory, NotFound, Timeout, WouldDeadlock
from .layout import Layout
from .lease import Lease
from .quantity import byte_count
from .session import DEADLINE_MS, Grant, Session
from .states import Key, Part, SessionState, Stats, TensorState


def connect(
    job: str | None = None,
    socket: str | os.PathLike[str] | None = None,
    guarantee: int | str | None = None,
    limit: int | str | None = None,
    mode: str = "attach",
    autostart: bool = True,
    *,
    token: str | None = None,
    named: bool = False,
    rank: int | None = None,
    world_size: int | None = None,
    spin: str = "auto",
    copy_threads: int = 1,
    ssd: int | str | None = None,
    ram: int | str | None = None,
    data_directory: str | os.PathLike[str] | None = None,
) -> Client:
    """Opens a session with the node's daemon.

    ``socket`` defaults to ``$TIERD_SOCKET``, ``$XDG_RUNTIME_DIR/tierd/tierd.sock``, ``/run/tierd/tierd.sock``. When
    none can be connected to, none was named and ``autostart`` is left on, a private daemon is started, which says so on
    stderr and ends with its last client; never for a ``mode`` that wants a job that is there. ``guarantee`` is RAM the
    job always gets, ``limit`` RAM it never exceeds: bytes or a quantity such as ``"64GiB"``. ``mode`` is ``attach``
    (create the job, or join it), ``create``, ``join`` or ``resume`` (a named job without sessions as its last
    ``persist`` left it, for all ranks of a run; what came after is given up). ``named`` keeps the job beyond its last
    session, for this user's next run of any token and world size: its shared tensors live on, of others what was
    persisted. ``rank`` and ``world_size`` default to the launcher's environment. ``spin`` says how waiting calls wait:
    ``auto``, ``always`` or ``never``.

    ``ssd``, ``ram`` and ``data_directory`` are for a private daemon that this call starts; a daemon that runs keeps
    its own. ``ssd`` is the size of its SSD file (0: none, tensors stay in RAM; by default up to 64 GiB, a quarter of
    the free space), ``ram`` the most memory that it takes for tensors (by default a quarter of the machine's): bytes
    or quantities, as above. With ``data_directory`` the daemon keeps its file and index there, so that a ``named``
    job can persist and the next program ``resume`` it; without, it keeps nothing.
    """
    resources = autostarts.Resources.of(ssd, ram, data_directory)
    if resources != autostarts.Resources() and (socket is not None or not autostart):
        raise Invalid("ssd, ram and data_directory are for a private daemon: leave out socket, and autostart on")
    functions = library.load()
    options = library.ConnectOptions(
        struct_size=ctypes.sizeof(library.ConnectOptions),
        socket=_encoded("socket", socket),
        job=_encoded("job", job),
        token=_encoded("token", token),
        mode=_choice("mode", mode, library.MODES),
        named=int(named),
        rank=-1 if rank is None else _count("rank", rank),
        world_size=0 if world_size is None else _count("world_size", world_size),
        guarantee_bytes=byte_count(guarantee, "guarantee"),
        limit_bytes=byte_count(limit, "limit"),
        copy_threads=_count("copy_threads", copy_threads),
        spin=_choice("spin", spin, library.SPINS),
    )
    named_socket = socket is not None or bool(os.environ.get("TIERD_SOCKET"))
    may_start = autostart and not named_socket and resources.may_serve(mode)
    session = Session(functions)  # There before its handle is, so that no signal can lose that.

    def attempt() -> None:
        session.check(functions.tier_connect(ctypes.byref(options), ctypes.byref(session.handle)))

    try:
        if may_start:
            autostarts.connect(options, attempt, resources)
        else:
            attempt()
        return Client(session)
    except BaseException:
        session.close()
        raise


class Client:
    """A session with a daemon. Close it, use it as a context manager, or let it go."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._layouts: dict[tuple[int, bool], Layout] = {}

    # ---- Whole tensors ----

    def put(
        self, key: Key, array: Any, *, shared: bool = False, replace: bool = False, timeout: float | None = None
    ) -> None:
        """Stores a copy of ``array`` under ``key``: a numpy array, a torch tensor, or anything with a buffer of bytes.

        When it returns the bytes are the daemon's, and ``array`` may change. ``AlreadyExists`` when the key is taken,
        unless ``replace``; ``NoSpace`` before a byte is written when RAM and SSD together cannot hold it. One of the
        same size is overwritten in place: where that fails half way, or its ``timeout`` passes, it is ``Torn``. One of
        another size is freed when its place is taken: where the write fails after that, both are gone, as the error
        says. A job may have tensors under nearly 4 Mi string keys, 64 MiB together (else ``NoMemory``).
        """
        tensor = self.tensor_id(key)
        with layouts.readable(array) as memory:
            if memory.size == 0:
                raise Invalid(f"the array for {key!r} holds no bytes; a tensor must")
            if replace or memory.stream is not None:
                if not replace and self._exists(tensor, shared):
                    raise AlreadyExists(f"a tensor {key!r} exists: pass replace=True to store another in its place")
                self._swap("tier_swap_out", tensor, memory, _shared(shared), timeout)
            else:
                flags = _shared(shared)
                take, free = self._taker(flags, timeout), functools.partial(self._free_quietly, tensor, flags)
                ranges.fill_new(take, tensor, key, memory, free)
            self._layouts[tensor, shared] = memory.layout

    def get(
        self,
        key: Key,
        dtype: Any = None,
        shape: Sequence[int] | int | None = None,
        *,
        shared: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """A copy of the tensor, the caller's own: what was put, or an array of the ``dtype`` (numpy's or torch's) and
        ``shape`` stated. A tensor that another process put has neither here: state them, or get a ``bytearray``. What
        was put with ``shared`` as an array needs them too, as others may have replaced it (else ``Invalid``)."""
        tensor = self.tensor_id(key)
        layout = None if dtype is not None or shape is not None else self._layout_of(tensor, shared)
        if layout is layouts.UNCERTAIN:
            raise Invalid(f"any rank may have replaced {key!r}, which is shared: state dtype and shape")
        if layout is None:
            layout = layouts.declared(dtype, shape, self.tensor(key, shared=shared).size)
        array = layouts.empty(layout)
        self.get_into(key, array, shared=shared, timeout=timeout)
        return array

    def get_into(self, key: Key, out: Any, *, shared: bool = False, timeout: float | None = None) -> None:
        """Fills ``out`` (contiguous, as many bytes as the tensor) with the tensor's bytes, whatever its dtype. To
        torch's autograd that is a change in place."""
        tensor = self.tensor_id(key)
        take = self._taker(_shared(shared), timeout)
        deadline = ranges.Deadline(take.timeout)
        with layouts.writable(out) as memory:
            try:
                if memory.stream is not None:
                    self._swap("tier_swap_in", tensor, memory, _shared(shared), timeout)
                elif memory.size > ranges.RANGE_BYTES:
                    self._swap_in(tensor, memory, _shared(shared), take.timeout / 2)
                else:
                    ranges.read_whole(take, tensor, key, memory, deadline)
            except (NoMemory, WouldDeadlock):
                # What was put range by range, where RAM cannot hold it at once, comes back so too.
                if memory.stream is not None or memory.size <= ranges.BLOCK:
                    raise
                ranges.require_size(key, self.tensor(tensor, shared=shared).size, memory)
                ranges.read_ranges(take, tensor, memory, deadline)

    def delete(self, *keys: Key, shared: bool = False) -> None:
        """Frees tensors, in RAM and on SSD. Waits for other threads' leases on them; ``WouldDeadlock`` for its own."""
        ids = [self.tensor_id(key) for key in keys]
        if not ids:
            return
        self._tensors_call("tier_free", ids, shared)
        for tensor in ids:
            self._layouts.pop((tensor, shared), None)
        for key in (key for key in keys if isinstance(key, str)):
            self._session.ids.pop(key, None)  # Asked for again: the daemon may have forgotten it by then.

    def discard(self, tensor: int) -> None:
        """Frees a tensor of this session that nobody holds a lease on. For finalizers: it does not handle signals."""
        self._session.call("tier_free", tensor, 0)
        self._layouts.pop((tensor, False), None)

    def discard_unwaited(self, tensors: Sequence[int]) -> None:
        """Asks that tensors of this session be freed, and waits for nothing. For finalizers, which may run in the
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
        """A right to touch ``length`` bytes (0: to the end) from ``offset`` on where they lie, once they are in RAM;
        exclusive with ``write``. ``discard`` with ``write``: the old bytes are not needed, so they need not be read.

        ``with client.lease("w") as lease: a = lease.numpy(); ...; del a``
        """
        flags = _shared(shared) | (library.WRITE if write else 0) | (library.DISCARD if discard else 0)
        grant = self._grant_one(Part(key, offset, length), flags, timeout)
        return Lease(grant, key, write, self._layout_of(self.tensor_id(key), shared))

    def create(
        self,
        key: Key,
        shape: Sequence[int] | int,
        dtype: Any = None,
        *,
        shared: bool = False,
        timeout: float | None = None,
    ) -> Lease:
        """Makes a tensor of ``shape`` and ``dtype`` (none: bytes) and gives a write lease on all of it, to be filled in
        place. It is there for others when the lease ends; its first bytes are not defined."""
        layout = layouts.declared(dtype, shape, None)
        if layout.size == 0:
            raise Invalid(f"the tensor {key!r} would hold no bytes; it must")
        grant = self._grant_one(Part(key, size=layout.size), _shared(shared), timeout)
        self._layouts[self.tensor_id(key), shared] = layout
        return Lease(grant, key, True, layout)

    def lease_many(
        self, parts: Sequence[Part], write: bool = False, *, shared: bool = False, timeout: float | None = None
    ) -> list[Lease]:
        """Leases on several ranges in one request, all or nothing. Parts with a ``size`` are created (all or none)."""
        creating = {part.size > 0 for part in parts}
        if len(creating) != 1:
            raise Invalid("state at least one part; either all of them create a tensor or none does")
        name = "tier_create" if creating.pop() else "tier_acquire"
        write = write or name == "tier_create"
        flags = _shared(shared) | (library.WRITE if write and name == "tier_acquire" else 0)
        grants = self._session.grant(name, [self._range(part) for part in parts], flags, _milliseconds(timeout))
        leases: list[Lease] = []
        try:
            for part, grant in zip(parts, grants, strict=True):
                leases.append(Lease(grant, part.key, write, self._layout_of(self.tensor_id(part.key), shared)))
        except BaseException:
            for grant in grants:
                if name == "tier_create":
                    grant.abandon = True  # What nobody has filled is not to be there.
                grant.drop()
            raise
        return leases

    # ---- Hints and durability ----

    def prefetch(self, keys: Key | Part | Iterable[Key | Part], *, shared: bool = False) -> None:
        """Asks that tensors, or parts of them, be brought into RAM soon; returns at once."""
        parts = [key if isinstance(key, Part) else Part(key) for key in _several(keys)]
        for begin in range(0, len(parts), library.BATCH_MAX):
            batch = [self._range(part) for part in parts[begin : begin + library.BATCH_MAX]]
            self._session.call("tier_prefetch", (library.Range * len(batch))(*batch), len(batch), _shared(shared))

    def step(self, step: int | None = None) -> None:
        """Marks the end of a training step; without a number, of the next one."""
        number = library.NEXT_STEP if step is None else _unsigned("step", step)
        self._session.call("tier_step", number)

    def persist(self, *keys: Key, shared: bool = False) -> None:
        """Makes tensors (none named: all of the job) survive the machine, atomically. ``Denied`` in a private daemon
        without ``daemon.data_directory``. What the job persisted before is replaced, keys not named now included: name
        all in one call. Of an ephemeral job it goes with the job; ``named`` keeps it, for ``mode="resume"``. It takes
        no timeout of its own: ``Timeout`` when the daemon's ``engine.deadline`` (60 s by default) passes first."""
        self._tensors_call("tier_persist", [self.tensor_id(key) for key in keys], shared)

    def flush(self, *keys: Key, shared: bool = False) -> None:
        """Returns when tensors (none named: all of this session) have a copy on SSD. Its deadline is
        ``engine.deadline`` as for :meth:`persist`, beyond 1023 keys of each 1023."""
        self._tensors_call("tier_flush", [self.tensor_id(key) for key in keys], shared)

    def drop(self, *keys: Key, shared: bool = False) -> None:
        """Drops RAM copies that SSD has too: a hint that the tensors will not be used soon."""
        ids = [self.tensor_id(key) for key in keys]
        self._session.call("tier_drop", (ctypes.c_uint64 * len(ids))(*ids), len(ids), _shared(shared))

    def accept(self, key: Key, *, shared: bool = False) -> None:
        """Takes a :class:`tierd.Torn` tensor as it stands."""
        self._session.call("tier_accept", self.tensor_id(key), _shared(shared))

    # ---- Figures ----

    def stats(self) -> Stats:
        fields = library.StatsFields(struct_size=ctypes.sizeof(library.StatsFields))
        self._session.call("tier_stats", ctypes.byref(fields))
        return Stats(*(int(getattr(fields, field.name)) for field in dataclasses.fields(Stats)))

    def tensor(self, key: Key, *, shared: bool = False) -> TensorState:
        """Size and whereabouts of a tensor; ``NotFound`` if there is none."""
        fields = library.TensorFields(struct_size=ctypes.sizeof(library.TensorFields))
        self._session.call("tier_tensor", self.tensor_id(key), _shared(shared), ctypes.byref(fields))
        return TensorState(
            fields.size, fields.generation, fields.ram_bytes, fields.ssd_bytes, bool(fields.sealed), bool(fields.torn)
        )

    @property
    def session(self) -> SessionState:
        fields = library.SessionFields(struct_size=ctypes.sizeof(library.SessionFields))
        self._session.call("tier_session", ctypes.byref(fields))
        return SessionState(
            fields.epoch, fields.session, fields.window_size,
            (fields.job or b"").decode(), (fields.token or b"").decode(), os.fsdecode(fields.socket or b""),
            bool(fields.connected),
        )  # fmt: skip

    def tensor_id(self, key: Key) -> int:
        """The 64-bit id behind a key."""
        if isinstance(key, str):
            known = self._session.ids.get(key)
            return self._session.intern(key) if known is None else known
        if isinstance(key, bool) or not isinstance(key, int):
            raise Invalid(f"a key is an int or a str, not {type(key).__name__}")
        if not 0 <= key < 1 << 64:
            raise Invalid(f"key {key} does not fit into 64 bits")
        return key

    # ---- The end ----

    @property
    def closed(self) -> bool:
        return self._session.closed

    def close(self) -> None:
        """Ends the session. In an ephemeral job's last session everything stored is freed. With arrays over leases
        still alive it warns, and ends when the last of them is gone."""
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
        return layouts.UNCERTAIN if shared and known is not None and known.kind != "bytes" else known

    def _exists(self, tensor: int, shared: bool) -> bool:
        try:
            self.tensor(tensor, shared=shared)
        except NotFound:
            return False
        return True

    def _range(self, part: Part) -> library.Range:
        figures = [_unsigned(name, getattr(part, name)) for name in ("offset", "length", "size")]
        return library.Range(self.tensor_id(part.key), *figures)

    def _grant_one(self, part: Part, flags: int, timeout: float | None) -> Grant:
        name = "tier_create" if part.size else "tier_acquire"
        return self._session.grant(name, [self._range(part)], flags, _milliseconds(timeout))[0]

    def _tensors_call(self, name: str, ids: list[int], shared: bool) -> None:
        if name == "tier_persist" and len(ids) > library.BATCH_MAX:
            raise Invalid(f"persist is one manifest: at most {library.BATCH_MAX} keys, or none for all of the job")
        for begin in range(0, max(1, len(ids)), library.BATCH_MAX):
            self._session.call_waiting(name, ids[begin : begin + library.BATCH_MAX], _shared(shared))

    def _swap(self, name: str, tensor: int, memory: layouts.Memory, flags: int, timeout: float | None) -> None:
        options = library.CopyOptions(
            struct_size=ctypes.sizeof(library.CopyOptions),
            stream=memory.stream,
            flags=flags | (library.NO_WAIT if timeout == 0 else 0),
            timeout_ms=_milliseconds(timeout) or 0,  # To libtier, 0 is its default of 60 s.
            whole=1,
        )
        self._session.copy(name, tensor, memory.address, memory.size, options, memory.owner)

    def _swap_in(self, tensor: int, memory: layouts.Memory, flags: int, half: float) -> None:
        """Fills memory that could be filled by ranges too, which half of the time is kept for where room is wanting."""
        try:
            self._swap("tier_swap_in", tensor, memory, flags, half)
        except Timeout:  # Not for room.
            if half == 0:
                raise
            self._swap("tier_swap_in", tensor, memory, flags, half)

    def _taker(self, flags: int, timeout: float | None) -> ranges.Take:
        _milliseconds(timeout)  # Raises what cannot be meant.
        seconds = DEADLINE_MS / 1000 if timeout is None else timeout
        return ranges.Take(lambda part, more, left: self._grant_one(part, flags | more, left), seconds)

    def _free_quietly(self, tensor: int, flags: int) -> None:
        """Removes what an interrupted put has left. The first failure is the one to report."""
        try:
            self._session.call("tier_free", tensor, flags)
        except Exception:  # noqa: S110
            pass


def _several(keys: Key | Part | Iterable[Key | Part]) -> Iterable[Key | Part]:
    return keys if isinstance(keys, Iterable) and not isinstance(keys, str) else [keys]


def _shared(shared: bool) -> int:
    return library.SHARED if shared else 0


def _milliseconds(timeout: float | None) -> int | None:
    """Seconds to whole milliseconds; 0 means not to wait, ``None`` the default deadline."""
    if timeout is None:
        return None
    if not isinstance(timeout, numbers.Real):
        raise Invalid(f"timeout is {timeout!r}: a number of seconds")
    if not 0 <= timeout <= 4_000_000:
        raise Invalid(f"timeout is {timeout} seconds: it must lie between 0 and 4,000,000")
    return 0 if timeout == 0 else max(1, int(timeout * 1000))


def _choice(name: str, value: str, values: dict[str, int]) -> int:
    if value not in values:
        raise Invalid(f"{name} is {value!r}: one of {', '.join(values)}")
    return values[value]


def _index(value: int) -> int:  # -1 for what is no integer.
    try:
        return operator.index(value)
    except TypeError:
        return -1


def _count(name: str, value: int) -> int:
    count = -1 if isinstance(value, bool) else _index(value)
    if not 0 <= count < 1 << 31:
        raise Invalid(f"{name} is {value!r}: an int of at least 0")
    return count


def _unsigned(name: str, value: int) -> int:
    """ctypes would take the lowest 64 bits of any number."""
    number = _index(value)
    if not 0 <= number < 1 << 64:
        raise Invalid(f"{name} is {value!r}: an int from 0 to 2^64 - 1")
    return number


def _encoded(name: str, text: str | os.PathLike[str] | None) -> bytes | None:
    if text is None:
        return None
    if not isinstance(text, (str, os.PathLike)):
        raise Invalid(f"{name} is {text!r}: a str")
    encoded = os.fsencode(text)
    if b"\0" in encoded:
        raise Invalid(f"{name} is {text!r}, which holds a NUL")
    return encoded
