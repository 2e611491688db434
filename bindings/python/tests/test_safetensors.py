"""Safetensors files: weights and optimizer state, streamed, whole or not at all; nothing in a file is trusted."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pathlib
import struct
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from test_creating import Odd, created, plain
from test_offload import Net, assert_same, new_client, offloaded, train
from torch import nn

import tierd
import tierd.torch
from tierd.torch import ranges_in_tierd, safetensors_file
from tierd.torch.placeholder import Placeholder
from tierd.torch.safetensors_file import SafetensorsFile

Arms = dict[str, Callable[[Callable[[], nn.Module]], nn.Module]]
ARMS: Arms = {
    "offloaded": lambda make: offloaded(plain(make), new_client()[0])[0],
    "created": lambda make: created(make, new_client()[0]),
    "plain": plain,
}


def changed(make: Callable[[], nn.Module]) -> nn.Module:
    """Other values than the model is made with."""
    model = plain(make)
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if not nn.parameter.is_lazy(tensor):
                tensor.copy_(torch.randn(tensor.shape))
    return model


class Mixed(Odd):
    """Of several layouts and dtypes, with buffers."""

    def __init__(self) -> None:
        super().__init__()
        del self.lazy, self.normed
        self.bn = nn.BatchNorm1d(4)
        self.register_buffer("empty", torch.empty(0, 3))
        self.register_buffer("scalar", torch.tensor(3, dtype=torch.int64))


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("make, shard", [(Net, 10**9), (Net, 3000), (Mixed, 10**9), (Mixed, 100)])
def test_weights_round_trip(tmp_path: pathlib.Path, arm: str, make: Callable[[], nn.Module], shard: int) -> None:
    theirs = changed(make)
    tierd.torch.save_safetensors(theirs, tmp_path / "a", max_shard_bytes=shard)
    ours = ARMS[arm](make)
    assert tierd.torch.load_safetensors(ours, tmp_path / "a") == ([], [])
    assert_same(ours, theirs)
    assert all(torch.equal(a, b) for a, b in zip(ours.buffers(), theirs.buffers(), strict=True))
    tierd.torch.save_safetensors(ours, tmp_path / "b", max_shard_bytes=shard)
    files = sorted(each.name for each in (tmp_path / "a").iterdir())
    assert files == sorted(each.name for each in (tmp_path / "b").iterdir())
    assert all((tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in files)
    assert (len(files) == 1) == (shard == 10**9)
    if make is Net:  # Tied: written once.
        with contextlib.ExitStack() as opened:
            parts = [opened.enter_context(SafetensorsFile(tmp_path / "a" / f)) for f in files if f[-4:] != "json"]
            names = [name for part in parts for name in part.entries]
        assert "embed.weight" in names and "head.weight" not in names
        assert sorted([*names, "head.weight"]) == sorted(theirs.state_dict())


def test_values_are_converted_as_load_state_dict_does(tmp_path: pathlib.Path) -> None:
    wide = nn.Linear(64, 64).double()
    tierd.torch.save_safetensors(wide, tmp_path)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        theirs = nn.Linear(64, 64).to(dtype)
        theirs.load_state_dict(wide.state_dict())
        for how in ("offloaded", "created"):
            ours = ARMS[how](lambda dtype=dtype: nn.Linear(64, 64).to(dtype))
            tierd.torch.load_safetensors(ours, tmp_path / "model.safetensors")
            assert_same(ours, theirs)


def test_tensors_of_many_ranges_are_never_whole_in_the_process(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges_in_tierd, "BLOCK", 4096)
    theirs = changed(lambda: nn.Linear(63, 65).double())
    ours, _ = offloaded(nn.Linear(63, 65), new_client()[0])
    tierd.torch.save_safetensors(theirs, tmp_path / "wide")
    lengths: list[int] = []
    read_into = SafetensorsFile.read_into

    def watched(self: SafetensorsFile, entry: Any, offset: int, memory: memoryview) -> None:
        lengths.append(len(memory))
        read_into(self, entry, offset, memory)

    monkeypatch.setattr(SafetensorsFile, "read_into", watched)
    monkeypatch.setattr(SafetensorsFile, "tensor", None)
    tierd.torch.load_safetensors(ours, tmp_path / "wide")
    theirs = theirs.float()
    assert_same(ours, theirs)
    monkeypatch.setattr(type(ours.weight._tierd_stored), "copy", None)
    tierd.torch.save_safetensors(ours, tmp_path / "ours")
    tierd.torch.load_safetensors(ours, tmp_path / "ours")
    assert max(lengths) == 8192 and len(lengths) > 8
    monkeypatch.undo()
    assert_same(ours, theirs)


def test_names_and_shapes_are_checked_before_anything_changes(tmp_path: pathlib.Path) -> None:
    theirs = changed(Net)
    tierd.torch.save_safetensors(theirs, tmp_path / "net")
    ours, _ = offloaded(plain(Net), new_client()[0])
    before = ours.state_dict()
    wrong: list[tuple[Callable[[nn.Module], object], str]] = [
        (lambda model: setattr(model, "more", nn.Parameter(torch.ones(3))), "unexpected: more"),
        (lambda model: delattr(model, "scale"), "missing: scale"),
        (lambda model: setattr(model, "scale", nn.Parameter(torch.ones(1, 16))), r"\(1, 16\), the model in \(16,\)"),
    ]
    for number, (change, sentence) in enumerate(wrong):
        other = changed(Net)
        change(other)
        tierd.torch.save_safetensors(other, tmp_path / str(number))
        with pytest.raises(tierd.Invalid, match=sentence):
            tierd.torch.load_safetensors(ours, tmp_path / str(number))
    assert all(torch.equal(before[key], value) for key, value in ours.state_dict().items())
    assert tierd.torch.load_safetensors(ours, tmp_path / "0", strict=False) == ([], ["more"])
    assert tierd.torch.load_safetensors(ours, tmp_path / "1", strict=False) == (["scale"], [])
    for absent in ("nothing", ""):
        with pytest.raises(tierd.NotFound):
            tierd.torch.load_safetensors(ours, tmp_path / absent)
    with pytest.raises(tierd.Invalid, match="regular"):
        tierd.torch.load_safetensors(ours, os.devnull)


def file_of(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(begin: int, end: int, shape: object = (2,), dtype: object = "F32", **more: object) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end], **more}


HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "half a length": b"\0\0\0",
    "a length beyond the file": file_of({"a": entry(0, 8)}, bytes(8), 1 << 20),
    "the largest length": file_of({"a": entry(0, 8)}, bytes(8), (1 << 64) - 1),
    "no JSON": file_of(b"{nothing}"),
    "no UTF-8": file_of(b'{"\xff": 1}'),
    "deep JSON": file_of(b"[" * 100_000),
    "a list": file_of([]),
    "a number of many digits": file_of(b'{"a": ' + b"9" * 5000 + b"}"),
    "NaN": file_of(b'{"a": NaN}'),
    "a name twice": file_of(b'{"a": %b, "a": %b}' % ((json.dumps(entry(0, 8)).encode(),) * 2), bytes(8)),
    "no fields": file_of({"a": 3}),
    "a field too many": file_of({"a": entry(0, 8, more=1)}, bytes(8)),
    "a dtype that is none": file_of({"a": entry(0, 8, dtype="F33")}, bytes(8)),
    "a dtype that is a list": file_of({"a": entry(0, 8, dtype=["F32"])}, bytes(8)),
    "a negative extent": file_of({"a": entry(0, 8, shape=[-2, -1])}, bytes(8)),
    "an extent that is true": file_of({"a": entry(0, 4, shape=[True])}, bytes(4)),
    "a fraction": file_of({"a": entry(0, 8, shape=[2.0])}, bytes(8)),
    "an extent beyond 64 bits": file_of({"a": entry(0, 0, shape=[0, 1 << 70])}),
    "a shape of 80,000 extents": file_of({"a": entry(0, 0, shape=[(1 << 53) + 1] * 80_000)}),
    "a size that overflows": file_of({"a": entry(0, 0, shape=[1 << 32, 1 << 32])}),
    "a size of another dtype": file_of({"a": entry(0, 8, dtype="F64")}, bytes(8)),
    "an end before its begin": file_of({"a": entry(8, 0)}, bytes(8)),
    "a negative offset": file_of({"a": entry(-8, 0)}, bytes(8)),
    "bytes beyond the file": file_of({"a": entry(0, 8)}, bytes(4)),
    "bytes of nobody at the end": file_of({"a": entry(0, 8)}, bytes(12)),
    "a hole": file_of({"a": entry(0, 8), "b": entry(12, 20)}, bytes(20)),
    "an overlap": file_of({"a": entry(0, 8), "b": entry(4, 12)}, bytes(12)),
    "the same bytes": file_of({"a": entry(0, 8), "b": entry(0, 8)}, bytes(8)),
    "metadata of numbers": file_of({"__metadata__": {"a": 1}, "a": entry(0, 8)}, bytes(8)),
    "metadata of a list": file_of({"__metadata__": [], "a": entry(0, 8)}, bytes(8)),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_file_is_refused(tmp_path: pathlib.Path, what: str) -> None:
    (tmp_path / "a.safetensors").write_bytes(HOSTILE[what])
    with pytest.raises(tierd.Invalid, match="a.safetensors"):
        SafetensorsFile(tmp_path / "a.safetensors")


def test_a_good_file_is_not_refused(tmp_path: pathlib.Path) -> None:
    header = {"__metadata__": {"a": "b"}, "b": entry(8, 16), "none": entry(8, 8, [0, 4]), "a": entry(0, 8)}
    (tmp_path / "a").write_bytes(file_of(header, struct.pack("<4f", 1, 2, 3, 4)))
    with SafetensorsFile(tmp_path / "a") as file:
        assert file.metadata == {"a": "b"} and file.tensor("none").shape == (0, 4)
        assert file.tensor("b").tolist() == [3, 4]
        os.truncate(tmp_path / "a", 20)
        with pytest.raises(tierd.IoError, match="changed while"):
            file.tensor("b")


def test_a_save_removes_nothing_but_weights_that_the_index_names(tmp_path: pathlib.Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "old.safetensors").write_bytes(b"")
    named = {"a": "config.json", "b": "old.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": named}))
    tierd.torch.save_safetensors(nn.Linear(2, 2), tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize(
    "index",
    [
        {},
        {"weight_map": []},
        {"weight_map": {}},
        {"weight_map": {"a": 3}},
        {"weight_map": {"a": "../x/a.safetensors"}},
        {"weight_map": {"a": "/etc/passwd"}},
        {"weight_map": {"a": ".."}},
        {"weight_map": {"a": "a.safetensors", "more": "a.safetensors"}},
        {"weight_map": {"b": "b.safetensors"}},
        {"weight_map": {"a": "a.safetensors", "b": "a.safetensors"}},
    ],
)
def test_a_hostile_index_is_refused(tmp_path: pathlib.Path, index: object) -> None:
    (tmp_path / "a.safetensors").write_bytes(file_of({"a": entry(0, 8)}, bytes(8)))
    (tmp_path / "b.safetensors").write_bytes(file_of({"b": entry(0, 8), "c": entry(8, 16)}, bytes(16)))
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(tierd.Invalid, match=r"model.safetensors.index.json|b.safetensors"):
        tierd.torch.load_safetensors(nn.Linear(2, 2), tmp_path, strict=False)


def test_a_later_save_replaces_an_earlier_one_of_any_form(tmp_path: pathlib.Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    for shard in (3000, 3000, 10**9, 5000, 10**9):
        model = changed(Net)
        tierd.torch.save_safetensors(model, tmp_path, max_shard_bytes=shard)
        ours = plain(Net)
        tierd.torch.load_safetensors(ours, tmp_path)
        assert_same(ours, model)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


@contextlib.contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, at: int, error: BaseException) -> Iterator[None]:
    """The ``at``-th call by which a save changes the disk fails."""
    calls = iter(range(1, 10_000))

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any) -> Any:
            if next(calls) == at:
                raise error
            return function(*args)

        return wrapped

    with monkeypatch.context() as patch:
        for name in ("fsync", "replace"):
            patch.setattr(safetensors_file.os, name, wrap(getattr(os, name)))
        patch.setattr(ranges_in_tierd, "bytes_of", wrap(ranges_in_tierd.bytes_of))
        yield


@pytest.mark.parametrize("before, after", [(3000, 3000), (10**9, 10**9), (10**9, 3000), (3000, 10**9)])
def test_a_save_that_fails_leaves_the_one_before(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, before: int, after: int
) -> None:
    old, new, ours = changed(Net), changed(Net), plain(Net)
    failures = {"old": 0, "new": 0}
    for at in range(1, 200):
        folder = tmp_path / str(at)
        tierd.torch.save_safetensors(old, folder, max_shard_bytes=before)
        error = [OSError(errno.ENOSPC, "full"), KeyboardInterrupt(), OSError(errno.EIO, "bad")][at % 3]
        expected = [(tierd.NoSpace, OSError), KeyboardInterrupt, OSError][at % 3]
        try:
            with failing(monkeypatch, at, error):
                tierd.torch.save_safetensors(new, folder, max_shard_bytes=after)
        except expected:  # type: ignore[misc]
            pass
        else:
            break
        assert not list(folder.glob(".*"))
        tierd.torch.load_safetensors(ours, folder)
        which = "old" if torch.equal(ours.embed.weight, old.embed.weight) else "new"
        failures[which] += 1
        assert_same(ours, {"old": old, "new": new}[which])
        assert which == "new" or failures["new"] == 0
    assert failures["old"] > 10 and failures["new"] <= 3  # Behind the last rename, the new one is there.


def test_no_room_is_said_before_a_byte_is_written(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Figures:
        f_bavail, f_frsize = 1, 512

    monkeypatch.setattr(safetensors_file.os, "statvfs", lambda path: Figures)
    with pytest.raises(tierd.NoSpace, match="are free"):
        tierd.torch.save_safetensors(plain(Net), tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written_is_refused(tmp_path: pathlib.Path) -> None:
    class Extra(nn.Linear):
        def get_extra_state(self) -> object:
            return {"a": 1}

    with pytest.raises(tierd.Invalid, match="_extra_state"):
        tierd.torch.save_safetensors(Extra(2, 2), tmp_path)
    with pytest.raises(tierd.Invalid, match="initialise"):
        tierd.torch.save_safetensors(nn.LazyLinear(3), tmp_path)
    with pytest.raises(tierd.Invalid, match="complex128"):
        tierd.torch.save_safetensors(nn.Linear(2, 2).to(torch.complex128), tmp_path)
    resuming = created(lambda: nn.Linear(2, 2), new_client()[0], resume=True)
    with pytest.raises(tierd.Invalid, match="resume"):
        tierd.torch.save_safetensors(resuming, tmp_path)
    assert not list(tmp_path.iterdir())


def test_files_interchange_with_the_safetensors_package(tmp_path: pathlib.Path) -> None:
    theirs_of = pytest.importorskip("safetensors.torch", reason="the package safetensors is not installed")
    model, ours, again = changed(Net), ARMS["created"](Net), plain(Net)
    theirs_of.save_model(model, str(tmp_path / "theirs.safetensors"))
    tierd.torch.load_safetensors(ours, tmp_path / "theirs.safetensors")
    assert_same(ours, model)
    tierd.torch.save_safetensors(ours, tmp_path)
    assert theirs_of.load_model(again, str(tmp_path / "model.safetensors")) == (set(), [])
    assert_same(again, model)
    mixed = changed(Mixed)
    tierd.torch.save_safetensors(mixed, tmp_path)
    for name, value in theirs_of.load_file(tmp_path / "model.safetensors").items():
        assert torch.equal(value, mixed.state_dict()[name])


# ---- The state of optimizers ----


def arms(**options: Any) -> tuple[tuple[nn.Module, Any], tuple[nn.Module, Any]]:
    ours, theirs = plain(Net), plain(Net)
    groups = lambda model: [  # noqa: E731
        {"params": list(model.blocks.parameters()), "betas": (0.8, 0.99), "weight_decay": 0.1},
        {"params": [model.embed.weight, model.scale], "lr": torch.tensor(1e-3)},
    ]
    _, optimizer = offloaded(ours, new_client()[0], groups=groups, **options)
    return (ours, optimizer), (theirs, torch.optim.AdamW(groups(theirs), lr=1e-2, fused=True, **options))


def assert_same_state(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert a["state"].keys() == b["state"].keys()
    for index, state in a["state"].items():
        assert state.keys() == b["state"][index].keys()
        for kind, value in state.items():
            other = b["state"][index][kind]
            assert torch.equal(value, other) and value.dtype == other.dtype and value.shape == other.shape
    for one, other in zip(a["param_groups"], b["param_groups"], strict=True):
        assert one == other and {k: type(v) for k, v in one.items()} == {k: type(v) for k, v in other.items()}


@pytest.mark.parametrize("amsgrad", [False, True])
def test_the_state_of_an_optimizer_goes_out_and_in(tmp_path: pathlib.Path, amsgrad: bool) -> None:
    (ours, optimizer), (theirs, other) = arms(amsgrad=amsgrad)
    schedules = [torch.optim.lr_scheduler.StepLR(o, 1, gamma=0.3) for o in (optimizer, other)]
    assert train(ours, optimizer) == train(theirs, other)
    for schedule in schedules:
        schedule.step()
    tierd.torch.save_state(optimizer, tmp_path / "ours")
    tierd.torch.save_state(other, tmp_path / "theirs")
    for file in ("ours", "theirs"):
        assert_same_state(tierd.torch.read_state(tmp_path / file), other.state_dict())
        (second, ours_again), (third, theirs_again) = arms(amsgrad=amsgrad)
        for model, into in ((second, ours_again), (third, theirs_again)):
            model.load_state_dict(theirs.state_dict())
            tierd.torch.load_state(into, tmp_path / file)
            assert_same_state(into.state_dict(), other.state_dict())
        assert train(second, ours_again, first=9) == train(third, theirs_again, first=9)
    assert not list(tmp_path.glob(".*"))


def test_a_state_is_read_tensor_by_tensor(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (ours, optimizer), _ = arms()
    train(ours, optimizer)
    kept: list[weakref.ref[torch.Tensor]] = []
    tensor = SafetensorsFile.tensor
    monkeypatch.setattr(type(optimizer), "state_dict", None)
    monkeypatch.setattr(tierd.Client, "get_into", None)
    tierd.torch.save_state(optimizer, tmp_path / "a")
    monkeypatch.undo()

    def watched(self: SafetensorsFile, name: str) -> torch.Tensor:
        assert len([each for each in kept if each() is not None]) <= 1
        values = tensor(self, name)
        kept.append(weakref.ref(values))
        return values

    monkeypatch.setattr(SafetensorsFile, "tensor", watched)
    tierd.torch.load_state(optimizer, tmp_path / "a")
    assert len(kept) > 20


@pytest.mark.parametrize(
    "kind, options",
    [
        (tierd.torch.SGD, {"momentum": 0.9}),
        (tierd.torch.SGD, {}),
        (tierd.torch.Lion, {}),
        (tierd.torch.AdamW, {"state_dtype": "bfloat16"}),
    ],
)
def test_other_optimizers_and_types_of_state(tmp_path: pathlib.Path, kind: Any, options: dict[str, Any]) -> None:
    def make() -> tuple[nn.Module, Any]:
        return tierd.torch.offload(plain(Net), kind, client=new_client()[0], min_bytes=1, lr=1e-2, **options)

    (ours, optimizer), (second, again) = make(), make()
    train(ours, optimizer)
    tierd.torch.save_state(optimizer, tmp_path / "state")
    second.load_state_dict(ours.state_dict())
    tierd.torch.load_state(again, tmp_path / "state")
    assert_same_state(again.state_dict(), optimizer.state_dict())
    assert train(second, again, first=3) == train(ours, optimizer, first=3)


def test_master_weights_and_other_layouts(tmp_path: pathlib.Path) -> None:
    def make() -> tuple[nn.Module, Any]:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last), nn.Flatten(), nn.Linear(16, 2))
        return offloaded(model.bfloat16(), new_client()[0], master_weights=True)

    def steps(model: nn.Module, optimizer: Any) -> None:
        for seed in range(2):
            x = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(seed)).bfloat16()
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    (ours, optimizer), (second, again) = make(), make()
    assert type(ours[0].weight) is Placeholder
    steps(ours, optimizer)
    tierd.torch.save_state(optimizer, tmp_path / "state")
    tierd.torch.save_safetensors(ours, tmp_path)
    tierd.torch.load_safetensors(second, tmp_path)
    tierd.torch.load_state(again, tmp_path / "state")
    assert_same_state(again.state_dict(), optimizer.state_dict())
    assert_same_state(tierd.torch.read_state(tmp_path / "state"), optimizer.state_dict())
    for each in ((ours, optimizer), (second, again)):
        steps(*each)
    assert all(torch.equal(value, second.state_dict()[key]) for key, value in ours.state_dict().items())


def test_a_state_that_does_not_fit_is_refused(tmp_path: pathlib.Path) -> None:
    (ours, optimizer), (theirs, other) = arms()
    tierd.torch.save_state(optimizer, tmp_path / "new")  # Before the first step.
    assert_same_state(tierd.torch.read_state(tmp_path / "new"), other.state_dict())
    train(ours, optimizer)
    before = optimizer.state_dict()
    tierd.torch.save_safetensors(theirs, tmp_path)
    with pytest.raises(tierd.Invalid, match="save_state"):
        tierd.torch.load_state(optimizer, tmp_path / "model.safetensors")
    small = nn.Linear(3, 3)
    lone = torch.optim.AdamW([{"params": [small.weight]}, {"params": [small.bias]}], fused=True)
    small(torch.ones(3)).sum().backward()
    lone.step()
    tierd.torch.save_state(lone, tmp_path / "lone")
    with pytest.raises(ValueError, match=r"group|exp_avg has shape"):
        tierd.torch.load_state(optimizer, tmp_path / "lone")
    assert_same_state(optimizer.state_dict(), before)
    lone.param_groups[0]["odd"] = object()
    with pytest.raises(tierd.Invalid, match="'odd'"):
        tierd.torch.save_state(lone, tmp_path / "lone")
    content = (tmp_path / "new").read_bytes()
    for old, new in ((b"tuple", b"nuple"), (b"float32", b"float3x"), (b'\\"groups', b'\\"troops')):
        assert old in content
        (tmp_path / "damaged").write_bytes(content.replace(old, new))
        with pytest.raises(tierd.Invalid, match="damaged"):
            tierd.torch.load_state(optimizer, tmp_path / "damaged")


def test_a_living_view_is_found_before_the_first_tensor_is_written(tmp_path: pathlib.Path) -> None:
    client, _ = new_client()
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tierd.torch.save_safetensors(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), tmp_path)
    offloaded(model, client)
    before = model.state_dict()
    kept: list[torch.Tensor] = []
    model[1].register_forward_hook(lambda module, *_: kept.append(module.weight.detach()), prepend=True)
    model(torch.ones(1, 4))
    with pytest.raises(tierd.Invalid, match="still alive"):
        tierd.torch.load_safetensors(model, tmp_path)
    kept.clear()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    tierd.torch.load_safetensors(model, tmp_path)
    assert not torch.equal(model.state_dict()["0.weight"], before["0.weight"])
