"""Interrupts at points all over the calls around a training: what moves a model, resumes, persists, loads and saves it.

After each of them nothing is left over, in tierd or in torch, and the same call can be made again: also while a
traceback keeps the frames of the interrupted one, as a notebook does.
"""

from __future__ import annotations

import copy
import gc
import itertools
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from fake_library import FakeLibrary
from test_creating import created
from test_interrupts import PACKAGE, Interrupter
from test_offload import assert_same, new_client
from test_offload_oddities import rows
from test_shared_weights import Adapted
from torch import nn

import tierd
import tierd.torch
from tierd.torch.creating import _constructors, _thread
from tierd.torch.placeholder import Placeholder
from tierd.torch.runtime import runtime_of

pytestmark = pytest.mark.usefixtures("reported")

POINTS = 30  # Of some hundred to some thousand: all of them would take minutes.
Caught = list[BaseException]
epochs = itertools.count(1)  # Of daemons: a job of one is not that of another.
IN_TORCH = str(pathlib.Path(tierd.torch.__file__).parent)  # What the client does in a call is another test's.
OPTIONS: dict[str, Any] = {"min_bytes": 1, "lr": 1e-2, "name": "net"}


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))


def adapted(device: str = "cpu") -> nn.Module:
    return nn.Sequential(Adapted(8, device), nn.Linear(8, 8))


@pytest.fixture(scope="module", autouse=True)
def parts_of_torch_that_a_training_loads_are_not_collected() -> None:
    """There is a collection or two for each point."""
    Run().persist(1)
    gc.collect()
    gc.freeze()


def step_of(model: nn.Module, optimizer: Any, seed: int) -> None:
    model(rows(seed)).pow(2).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def interrupted(
    prepare: Callable[[], Any], call: Callable[[Any], object], within: str = IN_TORCH, points: int = POINTS
) -> Iterator[tuple[Any, Caught]]:
    """What ``prepare`` returns, for each of the points at which ``call`` of it is interrupted, and the exception: in
    the files ``within`` a folder, in every second case with the frames that it passed through, and then everywhere,
    also in torch."""
    call(prepare())  # It fills caches.
    for everywhere in (False, True):
        count = passed(prepare(), call, everywhere, within)
        stride = max(1, count // (POINTS // 10 if everywhere else points))
        for number, at in enumerate([*range(0, count - 2, stride), *range(count - 2, count + 6)]):
            prepared, caught = prepare(), []
            gc.collect()  # Of the call before: what is walked through would be more.
            with Interrupter(at, everywhere, within):
                try:
                    call(prepared)
                except KeyboardInterrupt as error:
                    caught.append(error if number % 2 and not everywhere else error.with_traceback(None))
            if caught:  # Else the call had fewer points this time, or it came in a finalizer.
                yield prepared, caught
            del prepared, caught


def passed(prepared: Any, call: Callable[[Any], object], everywhere: bool, within: str) -> int:
    """How many points there are."""
    gc.collect()
    with Interrupter(1 << 60, everywhere, within) as counting:
        call(prepared)
    assert counting.passed > 40
    return counting.passed


def assert_no_lease(fake: FakeLibrary, client: tierd.Client) -> None:
    gc.collect()
    client.stats()  # What an interrupted finalizer has left is gone with it.
    assert fake.leases == {} and fake.operations == {} and client._session.grants == {}


def assert_no_hooks(model: nn.Module) -> None:
    for module in model.modules():
        untyped: Any = module
        for hooks in ("forward_pre", "forward", "state_dict_pre", "state_dict", "load_state_dict_pre"):
            assert not getattr(untyped, f"_{hooks}_hooks"), hooks


class Moved:
    """A model that is to be moved, and plain torch's."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.client, self.fake = new_client()
        make = adapted if kind.startswith("frozen") else layers
        torch.manual_seed(1)
        self.theirs = make()
        if kind.startswith("frozen"):
            self.theirs[0].base.requires_grad_(False)
        self.ours = self._new()
        self.before = set(self.fake.tensors)

    def _new(self) -> nn.Module:
        if self.kind == "created":
            return created(layers, self.client)
        if self.kind == "frozen":
            model = copy.deepcopy(self.theirs)
            values = nn.Linear(8, 8, device="meta").requires_grad_(False)
            model[0].base = values
            return model
        return copy.deepcopy(self.theirs)

    def move(self) -> Any:
        values = self.theirs.state_dict()
        given = {"load_frozen": lambda name: values[name]} if self.kind == "frozen" else {}
        return tierd.torch.offload(self.ours, tierd.torch.AdamW, client=self.client, **OPTIONS, **given)[1]

    def assert_as_before(self) -> None:
        assert runtime_of(self.ours) is None
        assert_no_hooks(self.ours)
        kinds = [type(parameter) for parameter in self.ours.parameters()]
        assert kinds == [Placeholder if self.kind == "created" else nn.Parameter] * len(kinds)
        for (name, a), b in zip(self.ours.named_parameters(), self.theirs.parameters(), strict=True):
            if self.kind != "created" and not a.is_meta:
                assert torch.equal(a, b), name


@pytest.mark.parametrize("kind", ["plain", "created", "frozen"])
def test_an_offload_that_was_interrupted_can_be_made_again(kind: str) -> None:
    for moved, caught in interrupted(lambda: Moved(kind), Moved.move):
        moved.assert_as_before()
        optimizer = moved.move()
        caught.clear()
        gc.collect()
        plain = torch.optim.AdamW(moved.theirs.parameters(), lr=1e-2, fused=True)
        for seed in range(2):
            step_of(moved.ours, optimizer, seed)
            step_of(moved.theirs, plain, seed)
        assert_same(moved.ours, moved.theirs)
        assert_no_lease(moved.fake, moved.client)
        del moved.ours, optimizer
        assert_no_lease(moved.fake, moved.client)
        assert [key for key in moved.fake.tensors if not key[1]] == []


class Run:
    """A run of which one step is persisted, and another one made; and plain torch's states behind each step."""

    def __init__(self) -> None:
        self.client, self.fake = new_client()
        self.fake.epoch = next(epochs)
        torch.manual_seed(1)
        theirs = layers()
        self.model = copy.deepcopy(theirs)
        _, self.optimizer = tierd.torch.offload(self.model, tierd.torch.AdamW, client=self.client, **OPTIONS)
        plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
        self.states = []
        for epoch in range(2):
            step_of(theirs, plain, epoch)
            step_of(self.model, self.optimizer, epoch)
            self.states.append(copy.deepcopy(theirs))
            if epoch == 0:
                self.persist(epoch)

    def persist(self, epoch: int) -> None:
        tierd.torch.persist(self.model, self.optimizer, epoch=epoch)


class Resumed:
    """The next program of a run."""

    def __init__(self, fake: FakeLibrary) -> None:
        self.client, self.fake = new_client()
        self.fake.epoch = next(epochs)
        self.fake.names = dict(fake.names)
        self.fake.tensors = {key: FakeLibrary.tensor_of(content) for key, content in fake.persisted.items()}
        self.model = layers()

    def resume(self) -> dict[str, Any]:
        given: dict[str, Any] = {"client": self.client, "resume": True, **OPTIONS}
        _, self.optimizer = tierd.torch.offload(self.model, tierd.torch.AdamW, **given)
        return tierd.torch.resumed(self.model)


def test_a_persist_that_was_interrupted_leaves_a_whole_run_and_can_be_made_again() -> None:
    found = set()
    for run, caught in interrupted(Run, lambda run: run.persist(1)):
        end_waits()
        left = Resumed(run.fake)
        epoch = left.resume()["epoch"]
        assert_same(left.model, run.states[epoch])
        found.add(epoch)
        run.persist(1)
        caught.clear()
        assert_no_lease(run.fake, run.client)
        left = Resumed(run.fake)
        assert left.resume() == {"epoch": 1}
        assert_same(left.model, run.states[1])
    assert found == {0, 1}


def end_waits() -> None:
    """Threads that carry out an interrupted call all the same."""
    for thread in threading.enumerate():
        if thread.name == "tierd-wait":
            thread.join()


def test_a_resume_that_was_interrupted_can_be_made_again() -> None:
    run = Run()
    for resumed, caught in interrupted(lambda: Resumed(run.fake), Resumed.resume):
        if runtime_of(resumed.model) is None:
            assert_no_hooks(resumed.model)
            assert {type(parameter) for parameter in resumed.model.parameters()} == {nn.Parameter}
            assert resumed.fake.tensors.keys() == run.fake.persisted.keys()
            assert resumed.resume() == {"epoch": 0}
        caught.clear()
        assert_same(resumed.model, run.states[0])
        assert_no_lease(resumed.fake, resumed.client)


class Created:
    """A model that is made in tierd, of which something in the context keeps what there is."""

    def __init__(self) -> None:
        self.client, self.fake = new_client()
        self.kept: list[nn.Module] = []

    def create(self) -> None:
        torch.manual_seed(1)
        with tierd.torch.creating(client=self.client, min_bytes=1, window_bytes=1):
            self.kept.append(nn.Linear(8, 8))
            self.kept.append(nn.Tanh())
            self.kept.append(nn.Linear(8, 8))
            for bias in (self.kept[0].bias, self.kept[2].bias):
                nn.init.ones_(bias)


def test_a_creation_that_was_interrupted_leaves_torch_as_it_was_and_can_be_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wrap_few(self: Any, root: type) -> None:
        for each in (root, nn.Linear, nn.Tanh, nn.Sequential):  # Of hundreds.
            self._wrap(each)

    monkeypatch.setattr(type(_constructors), "_wrap_all", wrap_few)
    originals = nn.Linear.__init__, nn.Parameter.__dict__["__new__"]
    torch.manual_seed(1)
    plain = layers()
    for bias in (plain[0].bias, plain[2].bias):
        nn.init.ones_(bias)
    for made, caught in interrupted(Created, Created.create):
        assert (nn.Linear.__init__, nn.Parameter.__dict__["__new__"]) == originals
        assert _thread.stores == [] and _thread.building == [] and not _constructors._open
        for module in made.kept:
            for name, parameter in module.named_parameters():
                assert type(parameter) in (Placeholder, nn.Parameter), name
                assert (type(parameter) is Placeholder) == hasattr(parameter, "_tierd_stored"), name
        if len(made.kept) == 3:
            model = nn.Sequential(*made.kept)
            tierd.torch.offload(model, tierd.torch.AdamW, client=made.client, **OPTIONS)
            del model
        made.kept.clear()
        caught.clear()
        module = parameter = None
        assert_no_lease(made.fake, made.client)
        assert made.fake.tensors == {}
        made.create()
        ours = nn.Sequential(*made.kept)
        assert_same(ours, plain)
        made.kept.clear()
        del ours
        assert_no_lease(made.fake, made.client)
        assert made.fake.tensors == {}


class Loaded:
    """A model that is given the weights of a folder."""

    def __init__(self, folder: pathlib.Path, kind: str) -> None:
        self.folder = folder
        self.client, self.fake = new_client()
        if kind == "created":
            self.model = created(layers, self.client)
        else:
            self.model = layers()
        if kind == "offloaded":
            _, self.optimizer = tierd.torch.offload(self.model, tierd.torch.AdamW, client=self.client, **OPTIONS)

    def load(self) -> None:
        tierd.torch.load_safetensors(self.model, self.folder)


@pytest.mark.parametrize("kind", ["plain", "offloaded", "created"])
def test_a_load_that_was_interrupted_can_be_made_again(tmp_path: pathlib.Path, kind: str) -> None:
    theirs = layers()
    tierd.torch.save_safetensors(theirs, tmp_path, max_shard_bytes=100)
    for loaded, caught in interrupted(lambda: Loaded(tmp_path, kind), Loaded.load, PACKAGE):
        loaded.load()
        caught.clear()
        assert_no_lease(loaded.fake, loaded.client)
        assert_same(loaded.model, theirs)


@pytest.mark.parametrize("shard", [100, 1 << 20])
def test_a_save_that_was_interrupted_leaves_no_other_file(tmp_path: pathlib.Path, shard: int) -> None:
    old, new, found = layers(), layers(), layers()
    numbers = iter(range(1 << 30))

    def prepare() -> pathlib.Path:
        folder = tmp_path / str(next(numbers))
        tierd.torch.save_safetensors(old, folder, max_shard_bytes=shard)
        return folder

    def save(folder: pathlib.Path) -> None:
        tierd.torch.save_safetensors(new, folder, max_shard_bytes=shard)

    whole = len(list(prepare().iterdir()))
    seen = set()
    for folder, _ in interrupted(prepare, save):
        tierd.torch.load_safetensors(found, folder)
        which = old if torch.equal(found[0].weight, old[0].weight) else new
        assert_same(found, which)
        seen.add(which is new)
        names = [path.name for path in folder.iterdir()]
        assert len(names) == whole, names
        save(folder)
        tierd.torch.load_safetensors(found, folder)
        assert_same(found, new)
        assert len(list(folder.iterdir())) == whole
    assert seen == {False, True}


class Shared:
    """A tensor of two ranges that a job has once."""

    values = torch.randn(5 << 17)

    def __init__(self) -> None:
        self.client, self.fake = new_client()

    def load(self) -> torch.Tensor:
        given: dict[str, Any] = {"shape": self.values.shape, "dtype": torch.float32}
        return tierd.torch.load_shared(self.client, "base", self.values.clone, **given)


def test_a_shared_load_that_was_interrupted_can_be_made_again() -> None:
    for shared, caught in interrupted(Shared, Shared.load, PACKAGE, 8 * POINTS):
        assert all(tensor.sealed for tensor in shared.fake.tensors.values()) or caught[0].__traceback__
        assert torch.equal(shared.load(), shared.values)
        caught.clear()
        assert_no_lease(shared.fake, shared.client)
