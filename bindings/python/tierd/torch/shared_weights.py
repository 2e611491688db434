"""Weights that the ranks of one job store once: frozen parameters, and what ``load_shared`` is given.

The idea: such a tensor is in the namespace of the job. The rank that comes first claims the key, with the size, before
it makes the values; the others wait in the daemon until the last byte is sealed. When a creator ends early, its
unfinished tensor is freed: those that waited are told that there is none, and the first of them claims the key. Nothing
polls, and no byte is written after the tensor is whole.
"""

from __future__ import annotations

import contextlib
import functools
import traceback
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch

from ..client import Client
from ..errors import AlreadyExists, Error, Invalid, NotFound, Timeout
from ..progress import Advance, shown, wanted
from ..lease import Lease
from ..states import Part
from . import parameter_state
from .frames import without_frames
from .parameter_state import BLOCK
from .creation_store import share
from .tensor_views import no_values, resolved
from .parameter_store import ParameterStore
from .stored_parameter import stored_of

Load: TypeAlias = "Callable[[str], torch.Tensor]"
Parameters: TypeAlias = "list[tuple[str, torch.nn.Parameter]]"  # With their names.


def load_shared(
    client: Client,
    key: str,
    create: Callable[[], torch.Tensor],
    *,
    shape: Sequence[int],
    dtype: torch.dtype,
    timeout: float | None = None,
    progress: bool | None = None,
) -> torch.Tensor:
    """The tensor of ``shape`` and ``dtype`` that the job has under ``key``, as a view over a read lease, which ends
    with it. Do not write to it. It must fit into the job's RAM while it is used.

    Of several ranks, the first calls ``create``, whose result is copied into tierd; the others wait until it is there.
    If the creator ends before that, one that waits takes over. A tensor that exists is used as it is, so let ``key``
    name the content. It stays until the job ends, or until ``client.delete(key, shared=True)``.

    ``timeout`` bounds, in seconds, the wait for a rank that is creating (none: as long as it lives). ``Invalid``: the
    tensor that exists, or what ``create`` returns, has another size. Any thread. ``progress`` is that of
    :func:`offload`, while the result of ``create`` is copied.
    """
    shape = torch.Size(shape)
    size = shape.numel() * dtype.itemsize
    if size == 0:
        raise Invalid(f"the tensor {key!r} would hold no bytes; it must")
    wanted(progress, size)  # Raises if it is wrong.
    with contextlib.ExitStack() as opened:
        bars: list[Advance] = []

        def values() -> torch.Tensor:
            made = checked(create(), key, shape, dtype).contiguous()
            bars.append(opened.enter_context(shown(f"copying {key!r}", size, progress)))
            return made

        require_once(client, key, size, values, timeout, lambda moved: bars[-1](moved))
    view: torch.Tensor = client.lease(key, shared=True, timeout=timeout).torch(dtype, shape)
    return view


def require_once(
    client: Client,
    key: str,
    size: int,
    create: Callable[[], torch.Tensor],
    timeout: float | None = None,
    advance: Advance = lambda moved: None,
) -> None:
    """Returns when the job has a whole tensor of ``size`` bytes under ``key``. ``advance`` is told of the bytes that
    this process copies."""
    while not _awaited(client, key, timeout):
        if create_unless_claimed(client, key, size, create, advance):
            return
    found = client.tensor(key, shared=True).size
    if found != size:
        raise Invalid(f"{key!r} has {found} bytes in this job, not the {size} that are wanted: give it another name")


def create_unless_claimed(
    client: Client, key: str, size: int, create: Callable[[], torch.Tensor], advance: Advance = lambda moved: None
) -> bool:
    """Creates the tensor, flat values in the order that they have in memory. False, without a call of ``create``, where
    the key has a tensor, whole or not."""
    try:
        lease = _claim(client, key, size)
    except AlreadyExists:
        return False
    try:
        with lease:  # Of which an exception makes nothing final.
            values = _bytes_of(create())
            if values.numel() != size:
                raise Invalid(f"the values for {key!r} have {values.numel()} bytes, not {size}")
            _copy(values[:BLOCK], lease)
            advance(min(size, BLOCK))
        for begin in range(BLOCK, size, BLOCK):
            part = values[begin : begin + BLOCK]
            with client.lease(
                key, write=True, offset=begin, length=part.numel(), shared=True, discard=True
            ) as following:
                _copy(part, following)
            advance(part.numel())
    except BaseException as error:
        del lease  # It lasts as long as what refers to it …
        if not isinstance(error, Exception):  # … as the frames of an interrupt do.
            traceback.clear_frames(error.__traceback__)
        with contextlib.suppress(Error):  # Freed with its only lease.
            client.delete(key, shared=True)
        raise
    return True


@without_frames
def _claim(client: Client, key: str, size: int) -> Lease:
    (lease,) = client.lease_many([Part(key, 0, min(size, BLOCK), size)], shared=True)
    return lease


@without_frames
def _copy(values: torch.Tensor, lease: Lease) -> None:
    lease.torch(torch.uint8).copy_(values)


def checked(values: torch.Tensor, name: str, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    if not isinstance(values, torch.Tensor) or values.shape != shape or values.dtype != dtype:
        found = f"{tuple(values.shape)}, {values.dtype}" if isinstance(values, torch.Tensor) else type(values).__name__
        raise Invalid(f"the values of {name!r} are {found}: they must be a tensor of {tuple(shape)}, {dtype}")
    return values.detach()


class FrozenWeights:
    """The frozen parameters of one model, on their way into the job's namespace. ``load`` gives the values of those on
    the meta device by name; without it the model has them. Where nothing is shared, there are none.

    A parameter on the meta device is replaced by one that has no values either, but can become a placeholder."""

    def __init__(self, model: torch.nn.Module, load: Load | None, shares: bool) -> None:
        self._model = model
        self._load = load
        self._shares = shares
        self._replaced: list[tuple[torch.nn.Parameter, torch.nn.Parameter]] = []  # Each by which.
        self._awaited: dict[int, torch.nn.Parameter] = {}  # By the id of what is in its place.
        self._made: list[str] = []  # Keys of what this process has put into the job.
        self.persisted_strides: dict[str, tuple[int, ...]] = {}  # Of the run that is resumed, by path.

    def __contains__(self, parameter: object) -> bool:
        """Whether the parameter awaits its values."""
        return id(parameter) in self._awaited

    def loads(self, parameter: torch.nn.Parameter) -> bool:
        return self._load is not None and parameter.is_meta and not parameter.requires_grad

    def load_resident(self, stays: Callable[[torch.nn.Parameter], bool]) -> None:
        """Gives values to the parameters that stay in the process."""
        for path, parameter in list(self._model.named_parameters()):
            if self.loads(parameter) and stays(parameter):
                values = self._loaded(path, parameter)
                self._replace(parameter, torch.nn.Parameter(values.clone(), requires_grad=False))

    def leave_meta(self, chosen: Parameters) -> Parameters:
        """``chosen``, with other parameters for those on the meta device."""
        return [
            (path, self._without_values(parameter) if parameter.is_meta else parameter) for path, parameter in chosen
        ]

    def shared_of(self, chosen: Parameters) -> Parameters:
        return [(path, parameter) for path, parameter in chosen if self._shares and not parameter.requires_grad]

    def not_shared_of(self, chosen: Parameters) -> Parameters:
        return [(path, parameter) for path, parameter in chosen if not self._shares or parameter.requires_grad]

    def present(self, frozen: Parameters, client: Client, prefix: str) -> Parameters:
        """Those that the job has already, whole or not."""
        return [(path, parameter) for path, parameter in frozen if exists(client, f"{prefix}/{path}", shared=True)]

    def adopt(self, frozen: Parameters, store: ParameterStore, prefix: str, advance: Callable[[int], None]) -> None:
        """Moves parameters into tierd: those that no other rank has begun first, so that ranks divide the work."""
        begun = []
        for path, parameter in frozen:
            key, values = f"{prefix}/{path}", functools.partial(self._flat, path, parameter)
            if create_unless_claimed(store.client, key, parameter.nbytes, values):
                self._made.append(key)
                self._become(path, parameter, store, key)
                advance(parameter.nbytes)
            else:
                begun.append((path, parameter, key, values))
        for path, parameter, key, values in begun:
            require_once(store.client, key, parameter.nbytes, values)
            self._become(path, parameter, store, key)
            advance(parameter.nbytes)

    def resume(self, frozen: Parameters, store: ParameterStore, prefix: str, _: Callable[[int], None]) -> None:
        """Takes what an earlier run has left, in the order in memory that it had there."""
        for path, parameter in frozen:
            self._become(path, parameter, store, f"{prefix}/{path}")

    def require_sizes(self, frozen: Parameters, client: Client, prefix: str) -> None:
        """``Invalid`` or ``NotFound`` unless an earlier run has left the bytes of each."""
        for path, parameter in frozen:
            key = f"{prefix}/{path}"
            size = client.tensor(key, shared=True).size
            if size != parameter.nbytes:
                raise Invalid(f"{key!r} has {size} bytes, the parameter {parameter.nbytes}: the model is another one")

    def claim_name(self, client: Client, prefix: str, group: str) -> None:
        """``AlreadyExists`` where the name is that of another group of ranks of this job, whose weights it would be
        given. ``group`` is this one's own."""
        key, ours = f"{prefix}/group", torch.frombuffer(bytearray(group.encode()), dtype=torch.uint8)
        if create_unless_claimed(client, key, ours.nbytes, lambda: ours):
            self._made.append(key)
            return
        require_once(client, key, ours.nbytes, lambda: ours)
        if not torch.equal(client.get(key, torch.uint8, ours.shape, shared=True), ours):
            raise AlreadyExists(
                f"another group of ranks of this job has frozen weights under {prefix!r}: pass another name"
            )

    def free_made(self, client: Client) -> None:
        """Frees what this process has put into the job, of which no rank makes use."""
        made, self._made = self._made, []
        for key in made:
            with contextlib.suppress(Error):
                client.delete(key, shared=True)

    def undo(self) -> set[int]:
        """Puts the parameters back that were on the meta device. Returns the ids of those that were in their place."""
        for old, new in self._replaced:
            _put(self._model, new, old)
        return {id(new) for _, new in self._replaced}

    def _become(self, path: str, parameter: torch.nn.Parameter, store: ParameterStore, key: str) -> None:
        created = stored_of(parameter)
        if created is not None:
            share(store, path, created, key)
            return
        strides = self.persisted_strides.get(path) or self._awaited.get(id(parameter), parameter).stride()
        store.adopt_shared(path, parameter, key, strides)

    def _without_values(self, parameter: torch.nn.Parameter) -> torch.nn.Parameter:
        made = torch.nn.Parameter(no_values(parameter.shape, parameter.dtype), requires_grad=False)
        self._awaited[id(made)] = parameter
        self._replace(parameter, made)
        return made

    def _flat(self, path: str, parameter: torch.nn.Parameter) -> torch.Tensor:
        awaited, created = self._awaited.get(id(parameter)), stored_of(parameter)
        if created is not None:
            return parameter_state.flat(created.copy())
        if awaited is None:
            return parameter_state.flat(parameter.detach())
        return parameter_state.flat_like(self._loaded(path, awaited), awaited)

    def _loaded(self, path: str, parameter: torch.nn.Parameter) -> torch.Tensor:
        assert self._load is not None
        return checked(self._load(path), path, parameter.shape, parameter.dtype)

    def _replace(self, old: torch.nn.Parameter, new: torch.nn.Parameter) -> None:
        self._replaced.append((old, new))
        _put(self._model, old, new)


def _put(model: torch.nn.Module, old: torch.nn.Parameter, new: torch.nn.Parameter) -> None:
    """``new`` for ``old``, in every module that has it."""
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is old:
                module._parameters[name] = new


def _awaited(client: Client, key: str, timeout: float | None) -> bool:
    """True when the tensor is whole; False where there is none."""
    whole = False  # Whether it was before the wait: then it is not its creation that takes so long.
    while True:
        try:
            client.lease(key, length=1, shared=True, timeout=timeout).release()  # It waits for the last byte.
            return True
        except NotFound:
            return False
        except Timeout:
            if timeout is not None or whole:
                raise
            whole = _is_whole(client, key)


def _is_whole(client: Client, key: str) -> bool:
    try:
        return client.tensor(key, shared=True).sealed
    except NotFound:
        return False


def exists(client: Client, key: str, *, shared: bool) -> bool:
    """Whether the session, or its job, has a tensor of this key, whole or not."""
    try:
        client.tensor(key, shared=shared)
    except NotFound:
        return False
    return True


def _bytes_of(values: torch.Tensor) -> torch.Tensor:
    return parameter_state.flat(resolved(values)).view(torch.uint8)
