"""Offloading: the steps by which ``offload`` moves a model into tierd, once its arguments are known to be valid.

What holds: until :meth:`Offloading.run` has checked that everything fits, neither the model nor the daemon has changed;
where it fails after that, :meth:`Offloading.undo` gives the values back to the parameters. Where several ranks run it,
a failure of one is raised on all of them, at the same step.
"""

from __future__ import annotations

import dataclasses
import itertools
import secrets
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ..client import Client
from ..connecting import connect
from ..errors import AlreadyExists, Invalid
from ..progress import shown, wanted
from . import need, parameter_state, resident_state
from .arguments import checked_client
from .creation_store import CreationStore, created_in, require_fitting, take_over
from .data_parallel import together
from .frames import without_frames
from .malloc import returned_at_once
from .offloaded_optimizer import OffloadableOptimizer
from .placeholder import can_be_placeholder
from .ranks import Ranks
from .reduction import Reduction
from .resume import read_record, restore_generators
from .runtime import Placement, Runtime
from .shared_weights import FrozenWeights, Parameters
from .parameter_store import ParameterStore
from .stored_parameter import StoredParameter, form_of, stored_of

LOOK_AHEAD_BYTES = 24 << 20
SLICE_BYTES = 8 << 20
_numbers = itertools.count(1)
_WHAT = "offload()"


class Offloading:
    """Used once: :meth:`take_created`, :meth:`join`, :meth:`run`, and where that fails :meth:`undo`."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: type[OffloadableOptimizer],
        placement: Placement,
        update: str,
        client: Client | None,
        *,
        min_bytes: int,
        exact_norm: bool,
        resume: bool,
        progress: bool | None,
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self._placement = placement
        self._update = update
        self._client = client
        self._min_bytes = min_bytes
        self._exact_norm = exact_norm
        self._resume = resume
        self._progress = progress
        self._created: list[tuple[str, StoredParameter]] = []
        self._chosen: list[tuple[str, torch.nn.Parameter]] = []  # Those that move.
        self._runtime: Runtime | None = None  # From when something moves.
        self._own_client = False
        self._made: OffloadableOptimizer | None = None
        self._record: dict[str, Any] | None = None  # Of the run that is resumed.
        self._undo_resident: Callable[[], None] = lambda: None  # Gives the model back what it had.
        self._group = ""  # Identifies the ranks of this call, if there are several.

    def take_created(self, of_ranks: bool, sized: bool) -> None:
        """Finds what ``creating`` has put into tierd. ``Invalid`` where the other arguments do not go with it."""
        self._created = created_in(self._model)
        require_fitting(self._created, self._client, self._resume, of_ranks)
        if not self._created:
            return
        if not self._placement.in_tierd("parameters") or sized:
            raise Invalid(
                "a model that is in tierd already: leave out parameters='device', and give creating() ram, ssd"
            )
        self._client = self._created[0][1].store.client

    def join(
        self,
        ranks: Ranks | None,
        name: str | None,
        load_frozen: Callable[[str], torch.Tensor] | None,
    ) -> None:
        """Agrees with the other ranks, if there are any, on the name of the run and on what is to be done."""
        self._ranks = ranks
        self._prefix = self._name = name or f"offload-{next(_numbers)}"
        if ranks is not None:
            # Groups of one launch have one job, and each process counts for itself.
            self._prefix = ranks.chosen_by_first(name or f"{self._name}-{secrets.token_hex(4)}", _WHAT)
            self._name = f"{self._prefix}/rank{ranks.number}"
            self._group = ranks.chosen_by_first(secrets.token_hex(8), _WHAT)
            same = [dataclasses.astuple(self._placement), self._update, self._min_bytes, self._resume]
            ranks.require_same_model(self._model, same)
        shares = ranks is not None or load_frozen is not None
        self._weights = FrozenWeights(self._model, load_frozen, shares=shares)

    @without_frames
    def run(
        self,
        ram: int | str | None,
        ssd: int | str | None,
        groups: Callable[[torch.nn.Module], Iterable[Any]] | None,
        options: dict[str, Any],
    ) -> tuple[torch.nn.Module, OffloadableOptimizer]:
        """``ram`` and ``ssd`` size a private daemon, where there is no client."""
        self._own_client = self._client is None
        options.setdefault("slice_bytes", SLICE_BYTES)
        run = self._connect(self._choose(options), ram, ssd)
        self._made = made = self._make(run, groups, options)
        if self._ranks is not None and self._record is None:
            self._ranks.spread_values(self._model, self._weights)
        return self._model, self._move(made)

    def undo(self) -> None:
        """Gives the model back what it had, and leaves the run that was to be resumed as it is."""
        if self._made is not None and self._resume:
            self._made.leave_state()
        self._made = None
        unloaded = self._weights.undo()
        if self._runtime is not None:
            self._runtime.unloaded = unloaded
            self._undo_resident()
            self._runtime.detach(resumed=self._resume)
        if self._client is None:
            return
        if self._ranks is not None:  # All of which have failed: none uses what this one has made.
            self._weights.free_made(self._client)
        if self._own_client:
            self._client.close()

    def _choose(self, options: dict[str, Any]) -> need.Run:
        with together(self._ranks, _WHAT):
            self._weights.load_resident(lambda parameter: _stays(parameter, self._min_bytes, self._placement))
            found = _chosen(self._model, self._min_bytes, self._placement, self._weights)
            self._chosen = self._weights.leave_meta(found)
            wanted(self._progress, self._moving_bytes())  # Raises if it is wrong.
        shared = _ids(self._weights.shared_of(self._in_tierd()))
        return need.Run(
            self._model, self._in_tierd(), self._optimizer, self._placement, self._update, options, shared=shared
        )

    def _moving_bytes(self) -> int:
        shared = self._weights.shared_of([(path, stored.parameter) for path, stored in self._created])
        return 0 if self._resume else sum(parameter.nbytes for _, parameter in [*self._chosen, *shared])

    def _in_tierd(self) -> list[tuple[str, torch.nn.Parameter]]:
        return [*self._chosen, *((path, stored.parameter) for path, stored in self._created)]

    def _connect(self, run: need.Run, ram: int | str | None, ssd: int | str | None) -> need.Run:
        ranks, at_once = self._ranks, None
        if self._client is None:
            at_once = dataclasses.replace(run, ranks=1 if ranks is None else ranks.on_this_machine())
            with together(ranks, _WHAT):
                self._client = need.connected(at_once, ram, ssd)
        client = checked_client(self._client)
        if ranks is not None:
            ranks.find_jobs(client)
            run = dataclasses.replace(run, ranks=ranks.in_job)
        if at_once is not None and not self._resume:
            client = self._with_room(client, run, at_once, ram, ssd)
        with together(ranks, _WHAT):
            if self._resume:
                others = (self._prefix, f"{self._prefix}/rank0")
                self._record = read_record(client, self._name, self._optimizer, others)
        if ranks is not None:
            ranks.require_one_run(None if self._record is None else self._record["extra"]["persisted"])
        return run

    def _with_room(
        self, client: Client, run: need.Run, at_once: need.Run, ram: int | str | None, ssd: int | str | None
    ) -> Client:
        """``client``; or where it is of a private daemon that has no room, as it was sized for an earlier model, a
        client of another one. The ranks of a job go there together."""
        ranks, socket = self._ranks, None
        with together(ranks, _WHAT):
            if ranks is None or ranks.leads_job:
                present = self._weights.present(self._weights.shared_of(self._in_tierd()), client, self._prefix)
                missing = dataclasses.replace(run, present=_ids(present))
                other = need.connected_beside(client, missing, at_once, f"{self._name}/needed", ram, ssd)
                if other is not None:
                    self._client, socket = other, other.session.socket
        if ranks is not None:
            socket = ranks.chosen_by_leader(socket, _WHAT)
        if socket is None:
            return client
        with together(ranks, _WHAT):
            if self._client is client:
                self._client = connect(socket=socket)
            client.close()
        assert self._client is not None
        if ranks is not None:
            ranks.find_jobs(self._client)
        return self._client

    def _make(
        self, run: need.Run, groups: Callable[[torch.nn.Module], Iterable[Any]] | None, options: dict[str, Any]
    ) -> OffloadableOptimizer:
        """The optimizer, once it is known that the daemon has room for all of it."""
        client, ranks = self._client, self._ranks
        assert client is not None
        make: Any = self._optimizer
        with together(ranks, _WHAT):
            parameters = self._model.parameters() if groups is None else groups(self._model)
            made: OffloadableOptimizer = make(parameters, client=client, name=f"{self._name}/state", **options)
            if ranks is None or ranks.leads_job:  # For all ranks of the job.
                need.check(client, self._with_present(run, client), made, f"{self._name}/needed", self._resume)
        return made

    def _with_present(self, run: need.Run, client: Client) -> need.Run:
        """``AlreadyExists``: an earlier run of these ranks has left its weights."""
        if self._resume:
            return run
        present = self._weights.present(self._weights.shared_of(self._in_tierd()), client, self._prefix)
        if self._ranks is not None and present:
            left = f"{self._prefix}/{present[0][0]}"
            raise AlreadyExists(
                f"an earlier run has left {left!r} in this job: pass resume=True to go on with it, or another name"
            )
        if self._ranks is not None and self._weights.shared_of(self._in_tierd()):
            self._weights.claim_name(client, self._prefix, self._group)
        return dataclasses.replace(run, present=_ids(present))

    def _move(self, made: OffloadableOptimizer) -> OffloadableOptimizer:
        assert self._client is not None
        store = ParameterStore(self._client, self._name, LOOK_AHEAD_BYTES)
        self._runtime = runtime = Runtime(self._model, store, self._placement, self._update, self._exact_norm)
        with together(self._ranks, _WHAT):
            self._require_same_run(store, made)
        with returned_at_once(), together(self._ranks, _WHAT):
            self._fill(store)
            runtime.reduction = None if self._ranks is None else Reduction(self._model, self._ranks)
            runtime.attach()
            if self._record is not None:
                made.adopt_state(self._record["state"])
                restore_generators(self._record)
                runtime.resumed = self._record
        runtime.serve(made)
        return made

    def _require_same_run(self, store: ParameterStore, made: OffloadableOptimizer) -> None:
        """``Invalid`` or ``NotFound`` unless the run that is resumed fits the model and the optimizer."""
        if self._record is None:
            return
        forms, keys = self._forms(), self._keys()
        for path, parameter in self._in_tierd():
            _require_form(path, parameter, forms.get(path), ordered=parameter not in self._weights)
        for path, parameter in self._weights.not_shared_of(self._in_tierd()):
            store.require_size(store.key_of(path, keys.get(path)), parameter.nbytes)
        self._weights.require_sizes(self._weights.shared_of(self._in_tierd()), store.client, self._prefix)
        made.require_adoptable(self._record["state"])

    def _forms(self) -> dict[str, list[Any]]:
        """What the bytes of its parameters mean, by their paths."""
        forms: dict[str, list[Any]] = {} if self._record is None else self._record["extra"].get("forms", {})
        return forms

    def _keys(self) -> dict[str, str]:
        """Of the parameters of the run that is resumed, by their paths."""
        keys: dict[str, str] = {} if self._record is None else self._record["extra"].get("keys", {})
        return keys

    def _fill(self, store: ParameterStore) -> None:
        """The parameters' bytes, from the process, from an earlier run, or as ``creating`` has put them."""
        weights, keys = self._weights, self._keys()
        if self._record is not None:
            weights.persisted_strides = {path: tuple(form[2]) for path, form in self._forms().items()}
            self._undo_resident = resident_state.load(self._model, self._record, set(_ids(self._in_tierd())))
        with shown("moving the model", self._moving_bytes(), self._progress) as advance:
            for path, parameter in weights.not_shared_of(self._chosen):
                advance(store.adopt(path, parameter, self._resume, keys.get(path)).nbytes)
            take = weights.resume if self._resume else weights.adopt
            take(weights.shared_of(self._in_tierd()), store, self._prefix, advance)
        shared = _ids(weights.shared_of(self._in_tierd()))
        for path, stored in self._created:
            if id(stored.parameter) not in shared:
                take_over(store, path, stored, keys.get(path))


def _require_form(path: str, parameter: torch.Tensor, was: list[Any] | None, ordered: bool) -> None:
    """``Invalid`` where a parameter would take the bytes of the run that is resumed for something else. One that is not
    ``ordered`` has no order in memory before its values are there."""
    form = form_of(parameter)
    if was is not None and not ordered:
        form[2] = was[2]
    if was is not None and was != form:
        raise Invalid(
            f"parameter {path!r} was persisted as {was[0]} of shape {tuple(was[1])} and strides {tuple(was[2])}, "
            f"and is {form[0]} of shape {tuple(form[1])} and strides {tuple(form[2])}: resume the run with the "
            "same model"
        )


def _ids(parameters: Parameters) -> frozenset[int]:
    return frozenset(id(parameter) for _, parameter in parameters)


def _stays(parameter: torch.Tensor, min_bytes: int, placement: Placement) -> bool:
    """Whether the parameter stays in the process."""
    if not placement.in_tierd("parameters") or not can_be_placeholder(parameter.dtype):
        return True
    return parameter.numel() == 0 or parameter.nbytes < min_bytes


def _chosen(
    model: torch.nn.Module, min_bytes: int, placement: Placement, weights: FrozenWeights
) -> list[tuple[str, torch.nn.Parameter]]:
    """The parameters that go into tierd, with their names. ``Invalid`` where one cannot."""
    chosen = []
    owners: dict[int, str] = {}
    for path, parameter in model.named_parameters():
        if torch.nn.parameter.is_lazy(parameter):
            raise Invalid(f"parameter {path!r} has no shape yet: call the model once before tierd.torch.offload()")
        if parameter.is_complex() and parameter.requires_grad:
            raise Invalid(
                f"parameter {path!r} is {parameter.dtype}, which torch's fused kernels do not update: train it as two "
                "real ones, or leave this model to torch.optim"
            )
    for path, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.layout is torch.strided and not tensor.is_meta and tensor.numel() and stored_of(tensor) is None:
            storage = tensor.untyped_storage()
            other = owners.setdefault(storage.data_ptr() or storage._cdata, path)  # numpy's may be in several storages.
            if other != path and placement.in_tierd("parameters"):
                raise Invalid(f"{path!r} and {other!r} share their bytes: make them one Parameter object")
    for path, parameter in model.named_parameters():
        if (stored := stored_of(parameter)) is not None:
            if isinstance(stored.store, CreationStore):
                continue
            raise Invalid(f"parameter {path!r} belongs to a model that is offloaded already")
        if parameter.is_meta and not weights.loads(parameter):
            raise Invalid(f"parameter {path!r} is on the meta device: only frozen ones may be, with load_frozen=")
        if _stays(parameter, min_bytes, placement):
            continue
        if parameter.is_meta:
            chosen.append((path, parameter))
            continue
        if parameter.layout is not torch.strided or parameter.device.type != "cpu":
            raise Invalid(f"parameter {path!r} ({parameter.layout}, {parameter.device}) cannot be stored in tierd")
        if parameter.untyped_storage().nbytes() and parameter.data_ptr() == 0:
            raise Invalid(f"parameter {path!r} of type {type(parameter).__name__} has no bytes of its own")
        parameter_state.flat(parameter.detach())
        chosen.append((path, parameter))
    return chosen
