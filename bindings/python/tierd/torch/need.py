"""need: how much RAM and SSD a model takes in tierd, and whether that is there, before a byte is moved.

A private daemon is sized for the model, where the machine has the memory and the disk has the space for that. One that
was sized for an earlier model and has no room left stays, and another one is started beside it. Of a daemon that runs,
two things are asked: ``tierctl`` tells what RAM the job may have, and a tensor that is created with
the size of all the model's tensors, and given up at once, tells whether the daemon would take them in: it uses the same
table to admit that one (docs/decisions/0020). A refusal leaves model and daemon as they were.

A tensor is counted in whole pages, as the daemon counts it. Activations are not known in advance and come on top.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import pathlib
from typing import Any

import torch

from .. import autostart, private_daemons
from ..autostart import Resources
from ..client import Client
from ..connecting import connect_beside, connect_sized
from ..errors import Disconnected, Invalid, NoMemory, NoSpace, NotFound
from ..inspection import available_memory, daemon_status, job_figures
from ..quantity import format_bytes
from ..states import Part
from .offloaded_optimizer import OffloadableOptimizer
from .parameter_state import BLOCK
from .runtime import Placement, is_one_scope
from .stored_parameter import stored_of

_PAGE = 4096
_MIB = 1 << 20
_WINDOW_BYTES = 192 * _MIB  # An arena in which a model of any depth trains at speed.
_BESIDE_BYTES = 64 * _MIB  # Read ahead, updated and written back beside the tensors in use.
_ACTIVATIONS_BYTES = 1024 * _MIB
_SUPERBLOCK_BYTES = 8 * _MIB  # Of an SSD file, with the block that is kept for exchange.


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """What is to be trained, and how: the arguments of ``offload``. ``chosen`` are the parameters for tierd, with those
    that were created there."""

    model: torch.nn.Module
    chosen: list[tuple[str, torch.nn.Parameter]]
    optimizer: type[OffloadableOptimizer]
    placement: Placement
    update: str
    options: dict[str, Any]
    ranks: int = 1  # That do the same, with the same daemon.
    shared: frozenset[int] = frozenset()  # Ids of parameters that are stored once for all ranks …
    present: frozenset[int] = frozenset()  # … and of those that are in tierd already.


@dataclasses.dataclass(frozen=True, slots=True)
class Need:
    """What a training run takes of tierd, in bytes. ``tensors`` are parameters, gradients and optimizer state.

    In use at one time are the parameters of a module and those around it, or a slice of each tensor of an update.
    """

    tensors: int
    in_use: int  # With less RAM it cannot be trained.
    in_ram: int  # Of ``tensors``, those that are to stay in RAM.
    largest: int  # Parameter.
    ranks: int = 1  # For which the figures are, but ``largest``.

    @property
    def ram(self) -> int:
        """The arena of a daemon for this run alone, which trains at speed."""
        one = max(_WINDOW_BYTES, max(2 * self.largest, self.in_use // self.ranks) + _BESIDE_BYTES)
        return _arena_for(self.ranks * one, self.in_ram)

    @property
    def ram_least(self) -> int:
        """The smallest arena of a daemon for this run alone."""
        return _arena_for(self.in_use, self.in_ram)

    @property
    def ssd(self) -> int:
        """The SSD file of a daemon for this run alone, with room for 1 GiB of activations of each rank."""
        return _whole_mib(self.ssd_least + self.ranks * _ACTIVATIONS_BYTES)

    @property
    def ssd_least(self) -> int:
        """The smallest SSD file of a daemon for this run alone: a job may fill fifteen sixteenths."""
        return _whole_mib(math.ceil(self.tensors * 16 / 15) + _SUPERBLOCK_BYTES)


def required(run: Run, trained: set[int] | None = None, resume: bool = False, ssd: bool = True) -> Need:
    """``trained`` are the ids of the parameters that the optimizer has (none: all that require gradients): their state
    is in tierd, wherever they are. With ``resume``, parameters and state are there already. Without an SSD tier, all
    stays in RAM."""
    moved = {id(parameter) for _, parameter in run.chosen}
    parts = {"parameters": 0, "gradients": 0, "optimizer_state": 0}
    in_use = largest = there = 0
    for parameter in run.model.parameters():
        if torch.nn.parameter.is_lazy(parameter):
            continue  # It has no size yet, and stays in the process.
        item, count, stored = parameter.element_size(), parameter.numel(), id(parameter) in moved
        gradient = stored and parameter.requires_grad and _stores_gradients(run)
        updated = parameter.requires_grad and (trained is None or id(parameter) in trained)
        state = run.optimizer.state_bytes_per_element(parameter.dtype, run.options) if updated else 0
        sizes = {"parameters": item * stored, "gradients": item * gradient, "optimizer_state": state}
        for part, size in sizes.items():
            copies = 1 if id(parameter) in run.shared else run.ranks
            parts[part] += 0 if id(parameter) in run.present else _pages(count * size) * copies
        there += _pages(parameter.nbytes) * run.ranks if stored_of(parameter) is not None else 0
        if updated:
            in_use = max(in_use, min(count, BLOCK // item) * sum(sizes.values()))
        largest = max(largest, parameter.nbytes * stored)
    in_ram = sum(size for part, size in parts.items() if not ssd or getattr(run.placement, part) == "ram")
    return Need(
        tensors=parts["gradients"] if resume else max(0, sum(parts.values()) - there),
        in_use=max(in_use, _in_use(run.model, moved)) * run.ranks,
        in_ram=in_ram,
        largest=largest,
        ranks=run.ranks,
    )


def _stores_gradients(run: Run) -> bool:
    return run.update != "backward" and run.placement.in_tierd("gradients")


def connected(run: Run, ram: int | str | None, ssd: int | str | None) -> Client:
    """A client of the daemon that runs, or of a private one that is started with ``ram`` and ``ssd``, by default what
    the run needs. ``NoMemory`` or ``NoSpace``, and none is started, where the machine has less than that."""
    given = Resources.of(ssd, ram, None)
    need = required(run, ssd=given.ssd != 0)
    if not os.environ.get("TIERD_SOCKET"):
        _make_room(need, given, moved=_moved(run))
        if not autostart.is_running():
            _check_machine(need, given, moved=_moved(run))
    return connect_sized(_resources(need, given))


def connected_beside(
    client: Client, run: Run, at_once: Run, key: str, ram: int | str | None, ssd: int | str | None
) -> Client | None:
    """Where ``client`` is of a private daemon without room for ``run``: a client of another private daemon that has
    it. A new one is sized for ``at_once``, as by :func:`connected`. ``None``: ``client`` stays, as its daemon has room,
    or others decide on that daemon. ``key`` as for :func:`check`."""
    if os.environ.get("TIERD_SOCKET") or _has_room(client, run, key) or not _is_private(client):
        return None
    given = Resources.of(ssd, ram, None)
    need = required(at_once, ssd=given.ssd != 0)
    _check_machine(need, given, moved=_moved(run))
    return connect_beside(_resources(need, given), lambda other: _has_room(other, run, key))


def _resources(need: Need, given: Resources) -> Resources:
    """Of a private daemon: what was given, and else what is needed."""
    computed = frozenset(name for name in ("ram", "ssd") if getattr(given, name) is None)
    return Resources(
        ssd=need.ssd if given.ssd is None else given.ssd,
        ram=need.ram if given.ram is None else given.ram,
        computed=computed,
    )


def _moved(run: Run) -> int:
    """Bytes that leave the process."""
    return sum(parameter.nbytes for _, parameter in run.chosen)


def _is_private(client: Client) -> bool:
    try:
        return bool(daemon_status(client)["private_daemon"])
    except (NotFound, Disconnected):
        return False


def _has_room(client: Client, run: Run, key: str) -> bool:
    """Whether the client's job can have what the run needs now. True also where that is not known: ``check`` says."""
    need = required(run)
    try:
        _check_share(client, need)
    except NoMemory:
        return False
    except (NotFound, Disconnected):
        return True
    return not need.tensors or _fits(client, key, need.tensors) is None


def check(client: Client, run: Run, made: OffloadableOptimizer, key: str, resume: bool) -> None:
    """``NoMemory`` or ``NoSpace``, with figures, where the client's job cannot have what the run needs. ``key`` is one
    that no tensor has. ``NotFound`` or ``Disconnected``: something is to stay in RAM, and the job's figures, which say
    whether it can, are not to be had."""
    trained = {id(parameter) for group in made.param_groups for parameter in group["params"]}
    need = required(run, trained, resume)
    _check_share(client, need)
    if not need.tensors or _fits(client, key, need.tensors) is None:
        return
    fitting, refused = 0, need.tensors  # Bisected: what the daemon would take in, to a page.
    while refused - fitting > _PAGE:
        middle = (fitting + refused) // 2 // _PAGE * _PAGE
        fitting, refused = (fitting, middle) if _fits(client, key, middle) else (middle, refused)
    raise NoSpace(
        f"this model needs {format_bytes(need.tensors)} in tierd for {_what(run, resume)}, activations apart, and "
        f"{format_bytes(fitting)} are available to job {client.session.job!r}; nothing has moved. Start the daemon "
        "with a larger ssd.file_size or more ssd.devices (a private one: tierd.connect(ssd=…, data_directory=…)), "
        "or leave parts in the process. "
        f"({_fits(client, key, refused)})"
    )


def _fits(client: Client, key: str, size: int) -> NoSpace | None:
    """Why the daemon would not take in a tensor of ``size`` bytes; none where it would. The tensor is given up."""
    tensor = client.tensor_id(key)
    try:
        (lease,) = client.lease_many([Part(key, 0, min(size, _PAGE), size)])
        lease.abandon()
        lease.release()
    except NoSpace as error:
        return error
    except BaseException:  # An interrupt may have left it.
        client.discard_unwaited([tensor])
        raise
    return None


def _check_share(client: Client, need: Need) -> None:
    try:
        job = job_figures(client)
    except (NotFound, Disconnected):
        if need.in_ram:
            raise
        return  # The first lease that is too large is refused by the daemon.
    where = f"to job {job['name']!r}; nothing has moved. Raise arena.maximum of the daemon (a private one: ram=)"
    if need.in_use > job["share_bytes"]:
        raise NoMemory(
            f"this model needs {format_bytes(need.in_use)} of RAM at one time, for its largest module or update, and "
            f"{format_bytes(job['share_bytes'])} are available {where}, or the job's limit (tierctl job set --limit)"
        )
    stays = _below_eviction(need.in_ram + need.in_use)
    if need.in_ram and stays > job["promised_bytes"]:
        raise NoMemory(
            f"{format_bytes(stays)} of RAM are needed for what is to stay there ('ram'), a tenth of it free, and "
            f"{format_bytes(job['promised_bytes'])} are certain {where}, give the job a guarantee "
            "(tierd.connect(guarantee=…)), or place parts by 'auto'"
        )


def _make_room(need: Need, given: Resources, moved: int) -> None:
    """Where the machine lacks the room for a private daemon, and one of an earlier program that has too little is about
    to end: waits for that."""
    try:
        _require_room(need, given, moved)
    except (NoMemory, NoSpace):
        private_daemons.wait_for_idle(autostart.private_directories(), need.ram_least, need.ssd_least)


def _check_machine(need: Need, given: Resources, moved: int) -> None:
    """:func:`_require_room`, with what the private daemons hold that run now."""
    try:
        _require_room(need, given, moved)
    except (NoMemory, NoSpace) as error:
        raise type(error)(f"{error}{private_daemons.described(autostart.private_directories())}") from None


def _require_room(need: Need, given: Resources, moved: int) -> None:
    """Whether a private daemon can be started here. ``moved`` bytes leave the process for it."""
    if given.ram is not None and given.ram < need.ram_least:
        raise NoMemory(
            f"this model needs an arena of {format_bytes(need.ram_least)}, and ram= gives {format_bytes(given.ram)}; "
            "raise ram=, or leave it out"
        )
    available = available_memory() + moved - _host_reserve()
    if need.ram_least > available:
        raise NoMemory(
            f"this model needs {format_bytes(need.ram_least)} of RAM in tierd, and {format_bytes(max(0, available))} "
            "are available on this machine, beside the host reserve (arena.host_reserve) and with what leaves the "
            "process; place parts by 'auto' or 'ssd', or free memory"
        )
    if given.ssd == 0:
        return
    if given.ssd is not None and given.ssd < need.ssd_least:
        raise NoSpace(
            f"this model needs an SSD file of {format_bytes(need.ssd_least)}, activations apart, and ssd= gives "
            f"{format_bytes(given.ssd)}; raise ssd=, or leave it out"
        )
    directory = autostart.private_data_directory()
    wanted, free = need.ssd if given.ssd is None else given.ssd, _free_space(directory)
    if wanted > free:
        least = f", at least {format_bytes(need.ssd_least)}" if given.ssd is None else ""
        raise NoSpace(
            f"this model needs an SSD file of {format_bytes(wanted)}{least}, and {format_bytes(free)} are available at "
            f"{directory}; set ssd=, or pass client=tierd.connect(ssd=…, data_directory=…) with a path on a larger disk"
        )


def _in_use(module: torch.nn.Module, ids: set[int]) -> int:
    """Bytes of the parameters that are leased while the deepest modules run: theirs and those of all around them."""
    whole = is_one_scope(module)
    own = {id(parameter): parameter for parameter in module.parameters(recurse=whole) if id(parameter) in ids}
    size = sum(_pages(parameter.nbytes) for parameter in own.values())
    inside = ids - own.keys()
    return size + max((_in_use(child, inside) for child in ([] if whole else module.children())), default=0)


def _what(run: Run, resume: bool) -> str:
    parts = ["parameters"] if run.chosen and not resume else []
    parts += ["gradients"] if run.chosen and _stores_gradients(run) else []
    return " and ".join(parts + ([] if resume else ["optimizer state"]))


def _free_space(directory: pathlib.Path) -> int:
    """Of the file system on which ``directory`` is or will be."""
    for place in [directory, *directory.parents]:
        with contextlib.suppress(FileNotFoundError):
            found = os.statvfs(place)
            return found.f_bavail * found.f_frsize
    raise Invalid(f"{directory} is on no file system")


def _host_reserve() -> int:
    """What a daemon leaves to everybody else by default."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(max(memory // 16, 64 * _MIB), 16 << 30)


def _arena_for(window: int, in_ram: int) -> int:
    """In whole windows of the daemon's choice. What is to stay must fit the part of the arena that a job is promised,
    all but a sixteenth."""
    size = math.ceil(_below_eviction(window + in_ram) * 16 / 15) if in_ram else window
    unit = max(BLOCK, 1 << (size >> 12).bit_length())
    return max(1, -(-size // unit)) * unit


def _below_eviction(size: int) -> int:
    """The daemon makes room ahead of need where more than nine tenths of a job's share are used (engine.evict)."""
    return math.ceil(size * 10 / 9)


def _pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE


def _whole_mib(size: int) -> int:
    return -(-size // _MIB) * _MIB
