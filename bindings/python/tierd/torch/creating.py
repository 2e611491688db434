"""creating: models larger than RAM are made in tierd, module by module, by the code that makes them in memory.

The idea: while a context is open, the constructors of all module classes are wrapped. When the outermost constructor of
a module has returned, its parameters leave (``creation_store``). They were filled by the code and in the order of plain
construction, so the model has plain construction's bits.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook

from ..client import Client
from ..connecting import connect
from ..errors import NoMemory, NoSpace
from ..progress import counted
from ..quantity import byte_count
from .arguments import checked_client
from .creation_store import CreationStore
from .data_parallel import together
from .malloc import returned_at_once
from .placeholder import bring_created
from .ranks import Ranks
from .saved_hooks import watch_hooks
from .saved_tensors import saved_in_gathered

_numbers = itertools.count(1)
_WHAT = "creating()"


class _Thread(threading.local):
    """What a thread is creating."""

    def __init__(self) -> None:
        self.stores: list[CreationStore] = []  # Of the open contexts.
        self.building: list[object] = []  # Modules whose constructors run.


_thread = _Thread()


@contextlib.contextmanager
def creating(
    *,
    client: Client | None = None,
    name: str | None = None,
    min_bytes: int | str = "64KiB",
    window_bytes: int | str = "64MiB",
    ram: int | str | None = None,
    ssd: int | str | None = None,
    resume: bool = False,
    process_group: Any = None,
    progress: bool | None = None,
) -> Iterator[Client]:
    """A context in which models larger than RAM are created in tierd, with the bits that they would have in memory::

        with tierd.torch.creating(ssd="64GiB") as client:
            model = Model()
        model, optimizer = tierd.torch.offload(model, tierd.torch.AdamW, lr=3e-4)

    Each module is constructed on the CPU as usual, and its parameters of ``min_bytes`` or more leave when its
    constructor returns. Later code may use them as usual (initialise, tie, copy, convert them): their values then
    come back, up to ``window_bytes`` of them at a time or the operands of one call, and leave again. Buffers stay, and
    so do parameters whose bytes something else refers to. ``offload`` takes over what is in tierd without a copy. What
    is dropped before that is freed.

    Without ``client``, the call connects, with a private daemon of ``ram`` and ``ssd`` bytes if none runs. The size of
    a model is not known before, so its defaults are those of :func:`tierd.connect`. ``NoSpace`` where they are too
    small. The context gives the client. ``name`` is the prefix of the keys.

    With ``resume``, for ``offload(…, resume=True)``, parameters that leave are not stored, as their values come from
    the run that is resumed. Before that, they may be written to and not read (``Invalid``; what reads them in spite of
    that, below torch's calls, finds NaN).

    ``process_group`` is for models that are trained by ``offload(…, process_group=…)`` of the same group. Every rank
    enters the context, constructs the whole model, and has it in tierd under a name of its own; ``offload`` then gives
    all of them the first rank's values, of which nothing moves where all have drawn the same random numbers. They leave
    the context together: an error of one is raised on all.

    ``progress`` shows on stderr how many bytes have left (``None``: from 1 GiB on, where :func:`offload` would, too).

    It is for modules made by the thread that entered it. Contexts may be nested: the innermost one takes new modules.
    """
    least, window = byte_count(min_bytes, "min_bytes"), byte_count(window_bytes, "window_bytes")
    ranks = None if process_group is None else Ranks.of(process_group)
    own, prefix = client is None, name or f"creating-{next(_numbers)}"
    with together(ranks, _WHAT):
        client = checked_client(connect(ram=ram, ssd=ssd) if client is None else client)
    if ranks is not None:
        prefix = f"{ranks.chosen_by_first(prefix, _WHAT)}/rank{ranks.number}"
    store = CreationStore(client, prefix, max(least, 1), window, resume, of_ranks=ranks is not None)
    with returned_at_once(), together(ranks, _WHAT), counted("creating a model", progress) as store.advance:
        with _opened(store, own):
            yield client


@contextlib.contextmanager
def _opened(store: CreationStore, own: bool) -> Iterator[None]:
    """New modules of this thread are the store's."""
    failed = True
    watch_hooks()
    try:
        _constructors.wrap(store)
        _thread.stores.append(store)
        with saved_in_gathered():
            yield
        store.close(failed=False)
        failed = False
    except (NoSpace, NoMemory) as error:
        raise _explained(error, own) from error
    finally:
        try:
            _leave(store, failed)
        except BaseException:  # Once more where an interrupt ended it.
            _leave(store, failed)
            raise


def _leave(store: CreationStore, failed: bool) -> None:
    """New modules are no longer the store's. May be repeated."""
    if store in _thread.stores:
        _thread.stores.remove(store)
    _constructors.unwrap(store)
    if failed:
        store.close(failed=True)


def _explained(error: NoSpace | NoMemory, own: bool) -> Exception:
    option = "ram" if isinstance(error, NoMemory) else "ssd"
    if own:
        where = (
            f"pass creating({option}=…), which sizes the private daemon that it starts (one that runs stays as it is)"
        )
    else:
        where = f"the daemon of this client needs more {option.upper()}"
    return type(error)(f"the model does not fit into tierd: {where}. {error}")


class _Constructors:
    """The constructors of all subclasses of ``torch.nn.Module``, wrapped while a context is open on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[CreationStore] = set()
        # The constructors, and what stands for them. None: the class had none of its own.
        self._originals: dict[type, tuple[Any, Any]] = {}
        self._assigned: Any = None  # The handle of a hook.

    def wrap(self, store: CreationStore) -> None:
        """Until :meth:`unwrap`, which is to be called also where this is interrupted."""
        with self._lock:
            first = not self._open
            self._open.add(store)
            if first:
                _Module.__init_subclass__ = classmethod(self._on_subclass)
                _Parameter.__new__ = staticmethod(_new_parameter)
                self._assigned = register_module_parameter_registration_hook(_on_parameter)
                self._wrap_all(torch.nn.Module)

    def unwrap(self, store: CreationStore) -> None:
        with self._lock:
            self._open.discard(store)
            if not self._open:
                self._restore()

    def _restore(self) -> None:
        _Parameter.__new__ = _plain_new
        if self._assigned is not None:
            self._assigned.remove()
        if "__init_subclass__" in _Module.__dict__:  # Else an interrupt has come before it was there.
            del _Module.__init_subclass__
        for each, (original, wrapped) in self._originals.items():
            untyped: Any = each
            if each.__dict__.get("__init__") is not wrapped:
                continue  # Other code has replaced it meanwhile.
            if original is None:
                del untyped.__init__
            else:
                untyped.__init__ = original
        self._originals.clear()

    def _on_subclass(self, made: type[torch.nn.Module], /, **options: Any) -> None:
        super(torch.nn.Module, made).__init_subclass__(**options)
        self._wrap(made)

    def _wrap_all(self, root: type) -> None:
        seen: set[type] = {root}
        open_classes = [root]
        while open_classes:  # Bases before what inherits from them.
            each = open_classes.pop(0)
            self._wrap(each)
            subclasses: list[type] = type.__subclasses__(each)
            found = [sub for sub in subclasses if sub not in seen]
            seen.update(found)
            open_classes += found

    def _wrap(self, each: type) -> None:
        owner = next(base for base in each.__mro__ if "__init__" in base.__dict__)
        if each in self._originals or (owner is not each and issubclass(owner, torch.nn.Module)):
            return
        init = owner.__dict__["__init__"]
        untyped: Any = each
        try:
            untyped.__init__ = wrapped = _wrapped(init if owner is each else _inherited(each))
        except (AttributeError, TypeError):
            return  # Its metaclass keeps it as it is: its parameters leave with the module around it.
        self._originals[each] = (init if owner is each else None), wrapped


_Module: Any = torch.nn.Module
_Parameter: Any = torch.nn.Parameter
_plain_new: Any = torch.nn.Parameter.__dict__["__new__"]
_constructors = _Constructors()


def _new_parameter(cls: type, *args: Any, **kwargs: Any) -> Any:
    """``Parameter(other)``: torch looks at the other's class, which must be what it is with its values."""
    for value in (*args[:1], kwargs.get("data")):
        bring_created(value, torch.nn.Parameter)
    return _plain_new.__func__(cls, *args, **kwargs)


def _on_parameter(module: torch.nn.Module, name: str, parameter: torch.nn.Parameter | None) -> None:
    if _thread.stores and parameter is not None and not any(each is module for each in _thread.building):
        _thread.stores[-1].assigned(parameter)


def _inherited(each: type) -> Callable[..., None]:
    """The constructor of a class that has none of its own: the next one in the order of the object's class."""

    def inherited(self: Any, *args: Any, **kwargs: Any) -> None:
        untyped: Any = super(each, self)
        untyped.__init__(*args, **kwargs)

    return inherited


def _wrapped(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def constructed(self: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        if not _thread.stores or any(each is self for each in _thread.building):
            return init(self, *args, **kwargs)
        depth = len(_thread.building)
        try:
            _thread.building.append(self)
            init(self, *args, **kwargs)
        finally:
            del _thread.building[depth:]
        if _thread.stores:
            _thread.stores[-1].collect(self, outermost=not _thread.building)

    return constructed
