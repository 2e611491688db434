"""What a model needs of tierd, and refusals where that is not there: before a byte has moved."""

from __future__ import annotations

import copy
import gc
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fake_library import FakeLibrary
from torch import nn

import tierd
import tierd.torch
from tierd import autostart, inspection, private_daemons
from tierd.autostart import Resources
from tierd.private_daemons import PrivateDaemon
from tierd.session import Session
from tierd.torch import need
from tierd.torch.runtime import Placement

MIB = 1 << 20
GIB = 1 << 30


def run_of(model: nn.Module, places: dict[str, str] | None = None, update: str = "step", **options: Any) -> need.Run:
    chosen = list(model.named_parameters()) if (places or {}).get("parameters") != "device" else []
    return need.Run(model, chosen, tierd.torch.AdamW, Placement(**(places or {})), update, options)


class Frozen(nn.Module):
    """1 MiB that is trained, 2 MiB frozen, and a tied parameter, which counts once."""

    def __init__(self) -> None:
        super().__init__()
        self.trained = nn.Linear(512, 512, bias=False)
        self.frozen = nn.Linear(512, 1024, bias=False).requires_grad_(False)
        self.tied = nn.Linear(512, 512, bias=False)
        self.tied.weight = self.trained.weight


@pytest.mark.parametrize(
    ("arguments", "mib"),
    [
        ({}, 3 + 1 + 2),
        ({"update": "backward"}, 3 + 2),
        ({"amsgrad": True}, 3 + 1 + 3),
        ({"places": {"gradients": "device"}}, 3 + 2),
        ({"places": {"parameters": "device"}}, 2),  # The state is in tierd, wherever its parameter is.
    ],
)
def test_every_tensor_in_tierd_is_counted_once(arguments: dict[str, Any], mib: int) -> None:
    assert need.required(run_of(Frozen(), **arguments)).tensors == mib * MIB


def test_what_the_optimizer_does_not_have_takes_no_state_and_a_resumed_run_only_gradients() -> None:
    run = run_of(Frozen())
    assert need.required(run, trained=set()).tensors == 4 * MIB
    assert need.required(run, resume=True).tensors == MIB
    pages = need.required(run_of(nn.Linear(1, 1, bias=False)))
    assert pages.tensors == 3 * 4096  # Value, gradient, and the state, which is counted as one.
    assert need.required(run_of(Frozen().bfloat16(), master_weights=True)).tensors == (3 * MIB + MIB) // 2 + 3 * MIB


class Nested(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.own = nn.Parameter(torch.zeros(MIB))  # 4 MiB, in use while what is inside it runs.
        self.parts = nn.ModuleList([nn.Linear(1024, 2048, bias=False), inner])


@pytest.mark.parametrize(
    ("make", "mib"),
    [
        (lambda: nn.Sequential(*[nn.Linear(1024, 4096, bias=False) for _ in range(9)]), 16),
        (lambda: nn.Sequential(*[nn.Linear(1024, 1024, bias=False) for _ in range(9)]), 8),  # Of four tensors a slice.
        (lambda: Nested(nn.Linear(1024, 1024, bias=False)), 4 + 8),
        (lambda: Nested(nn.MultiheadAttention(1024, 2, bias=False)), 4 + 12 + 4),  # One scope as a whole.
    ],
)
def test_in_use_at_one_time_is_the_deepest_scope_or_a_slice(make: Callable[[], nn.Module], mib: int) -> None:
    assert need.required(run_of(make())).in_use == mib * MIB


@pytest.mark.parametrize("tensors", [10 * MIB, 5 * GIB, 45_700_000_000])
def test_a_private_daemon_of_the_needed_size_takes_the_model_in(tensors: int) -> None:
    found = need.Need(tensors=tensors, in_use=300 * MIB, in_ram=2 * GIB, largest=100 * MIB)
    for file in (found.ssd_least, found.ssd):
        assert (file - 8 * MIB) * 15 // 16 >= tensors  # What a job may have of it (decision 0020).
    assert found.ssd >= found.ssd_least + GIB
    assert found.ram % (2 * MIB) == 0
    certain = found.ram_least * 15 // 16
    assert certain * 9 // 10 >= found.in_use + found.in_ram and found.ram > found.ram_least


# ---- Refusals of a running daemon ----


def new_model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(256, 256), nn.Linear(256, 256), nn.BatchNorm1d(256))


def assert_untouched(model: nn.Module, before: nn.Module) -> None:
    assert all(type(parameter) is nn.Parameter for parameter in model.parameters())
    for key, value in before.state_dict().items():
        assert torch.equal(model.state_dict()[key], value), key
    assert not model._forward_pre_hooks and not hasattr(model, "_tierd_runtime")


def test_a_job_without_room_is_refused_with_figures_before_anything_moves() -> None:
    fake = FakeLibrary()
    client = tierd.Client(Session(fake, 1))  # type: ignore[arg-type]
    model = new_model()
    before = copy.deepcopy(model)
    needed = need.required(run_of(model)).tensors
    client.put("other", bytes(8192))
    fake.capacity = needed + 8192 - 4096
    with pytest.raises(tierd.NoSpace, match=r"ssd=.*or leave parts in the process") as refused:
        tierd.torch.offload(model, tierd.torch.AdamW, client=client, min_bytes=1)
    assert "needs 2.05 MiB in tierd for parameters and gradients and optimizer state" in str(refused.value)
    assert "2.04 MiB are available to job 'job'" in str(refused.value)
    assert_untouched(model, before)
    assert [fake.names[b"other"]] == [tensor for tensor, _ in fake.tensors] and not fake.leases
    assert "swap_out" not in fake.calls
    fake.capacity += 8192
    _, optimizer = tierd.torch.offload(model, tierd.torch.AdamW, client=client, min_bytes=1, lr=1e-2)
    plain = torch.optim.AdamW(before.parameters(), lr=1e-2, fused=True)
    for each, step in ((model, optimizer.step), (before, plain.step)):
        each(torch.ones(2, 256)).square().sum().backward()
        step()
    for key, value in before.state_dict().items():
        assert torch.equal(model.state_dict()[key], value), key


def test_an_interrupt_of_the_check_leaves_no_tensor(
    client: tierd.Client, fake: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease_many = client.lease_many

    def interrupted(*arguments: Any) -> None:
        lease_many(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(client, "lease_many", interrupted)
    model = new_model()
    with pytest.raises(KeyboardInterrupt):
        tierd.torch.offload(model, tierd.torch.AdamW, client=client, min_bytes=1)
    assert fake.tensors == {} and not fake.leases
    assert_untouched(model, new_model())


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    figures = {"name": "job", "share_bytes": GIB, "promised_bytes": GIB}
    monkeypatch.setattr(need, "job_figures", lambda client: figures)
    return figures


def test_a_share_below_the_largest_module_is_refused(client: tierd.Client, job: dict[str, Any]) -> None:
    model = new_model()
    job["share_bytes"] = need.required(run_of(model)).in_use - 1
    with pytest.raises(tierd.NoMemory, match=r"of RAM at one time.*1024 KiB are available.*arena.maximum"):
        tierd.torch.offload(model, tierd.torch.AdamW, client=client, min_bytes=1, update="step")
    assert_untouched(model, new_model())
    job["share_bytes"] += 1
    tierd.torch.offload(model, tierd.torch.AdamW, client=client, min_bytes=1, update="step")


def test_what_is_to_stay_in_ram_fits_what_is_certain(client: tierd.Client, job: dict[str, Any]) -> None:
    model = new_model()
    whole = need.required(run_of(model, {"parameters": "ram", "optimizer_state": "ram"}))
    assert whole.in_ram == whole.tensors - need.required(run_of(model), resume=True).tensors
    job["promised_bytes"] = (whole.in_ram + whole.in_use) * 10 // 9 - 1
    with pytest.raises(tierd.NoMemory, match=r"are certain to job 'job'.*guarantee=.*'auto'"):
        tierd.torch.offload(
            model, tierd.torch.AdamW, client=client, min_bytes=1, parameters="ram", optimizer_state="ram"
        )
    assert_untouched(model, new_model())
    tierd.torch.offload(model, tierd.torch.AdamW, client=client, min_bytes=1, optimizer_state="ram")


def test_what_cannot_be_known_is_refused_only_where_it_matters(client: tierd.Client) -> None:
    model = new_model()
    with pytest.raises(tierd.NotFound, match="control socket"):
        tierd.torch.offload(model, tierd.torch.AdamW, client=client, min_bytes=1, parameters="ram")
    assert_untouched(model, new_model())
    tierd.torch.offload(model, tierd.torch.AdamW, client=client, min_bytes=1)


# ---- A private daemon ----


class Machine:
    """Stands in for the machine: what it has, and what was started on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.memory, self.disk, self.running = 64 * GIB, 64 * GIB, False
        self.fake = FakeLibrary()
        self.started: list[Resources] = []
        monkeypatch.delenv("TIERD_SOCKET", raising=False)
        monkeypatch.setattr(need, "available_memory", lambda: self.memory)
        monkeypatch.setattr(need, "_free_space", lambda directory: self.disk)
        monkeypatch.setattr(need, "connect_sized", self._connect)
        monkeypatch.setattr(autostart, "is_running", lambda: self.running)
        self.private: list[PrivateDaemon] = []
        monkeypatch.setattr(autostart, "private_directories", lambda: [each.directory for each in self.private])
        monkeypatch.setattr(private_daemons, "found_in", self._found)
        monkeypatch.setattr(private_daemons, "wait_for_end", self._end)

    def _found(self, directory: pathlib.Path) -> PrivateDaemon | None:
        return next((each for each in self.private if each.directory == directory), None)

    def _end(self, pid: int) -> bool:
        (ended,) = (each for each in self.private if each.pid == pid)
        self.private.remove(ended)
        self.memory, self.disk = self.memory + ended.ram, self.disk + ended.ssd
        self.running = bool(self.private)
        return True

    def _connect(self, resources: Resources) -> tierd.Client:
        self.started.append(resources)
        return tierd.Client(Session(self.fake, 1))  # type: ignore[arg-type]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_a_private_daemon_is_sized_for_the_model(machine: Machine) -> None:
    model = new_model()
    found = need.required(run_of(model))
    tierd.torch.offload(model, tierd.torch.AdamW, min_bytes=1)
    assert machine.started == [Resources(ssd=found.ssd, ram=found.ram, computed=frozenset({"ssd", "ram"}))]
    tierd.torch.offload(new_model(), tierd.torch.AdamW, min_bytes=1, ram="1GiB")
    assert machine.started[1] == Resources(ssd=found.ssd, ram=GIB, computed=frozenset({"ssd"}))


@pytest.mark.parametrize(
    ("has", "options", "kind", "sentence"),
    [
        ({"disk": 1 * GIB}, {}, tierd.NoSpace, r"of 1.01 GiB, at least .* 1 GiB are available at .*ssd="),
        ({"disk": 1 * GIB}, {"ssd": "2GiB"}, tierd.NoSpace, r"SSD file of 2 GiB, and 1 GiB are available"),
        ({}, {"ssd": "4MiB"}, tierd.NoSpace, r"ssd= gives 4 MiB; raise ssd="),
        ({}, {"ram": "1MiB"}, tierd.NoMemory, r"arena of 2 MiB, and ram= gives 1 MiB; raise ram="),
        ({}, {"ram": "3MiB", "ssd": 0}, tierd.NoMemory, r"ram= gives 3 MiB; raise ram="),
        ({"memory": 0}, {}, tierd.NoMemory, r"of RAM in tierd, and 0 B are available on this machine.*host_reserve"),
    ],
)  # fmt: skip
def test_a_machine_without_room_starts_no_daemon(
    machine: Machine, has: dict[str, int], options: dict[str, Any], kind: type[tierd.Error], sentence: str
) -> None:
    vars(machine).update(has)
    model = new_model()
    with pytest.raises(kind, match=sentence):
        tierd.torch.offload(model, tierd.torch.AdamW, min_bytes=1, **options)
    assert_untouched(model, new_model())
    assert machine.started == []
    machine.running = True  # Its sizes are its own: only what it offers counts.
    tierd.torch.offload(model, tierd.torch.AdamW, min_bytes=1, **options)
    assert len(machine.started) == 1


@pytest.mark.parametrize("sessions", [0, 1])
def test_a_private_daemon_that_is_about_to_end_is_waited_for_where_it_holds_the_room(
    machine: Machine, sessions: int
) -> None:
    machine.disk, machine.running = MIB, True
    machine.private = [PrivateDaemon(pathlib.Path("/run/first"), 77, sessions, 64 * MIB, 4 * MIB)]
    machine.private += [PrivateDaemon(pathlib.Path("/run/first/2"), 78, sessions, 64 * MIB, 4 * GIB)]
    tierd.torch.offload(new_model(), tierd.torch.AdamW, min_bytes=1)
    assert [each.pid for each in machine.private] == ([77, 78] if sessions else [78]), "78 has room for the model"
    machine.running = False
    words = r"; the private daemon in /run/first/2 \(pid 78\) has 64 MiB of RAM and 4 GiB of SSD space, and ends 5 s"
    with pytest.raises(tierd.NoSpace, match=words):
        tierd.torch.offload(new_model(), tierd.torch.AdamW, min_bytes=1)


def test_a_session_that_the_call_opened_ends_with_its_refusal(machine: Machine) -> None:
    machine.fake.capacity = 4096
    with pytest.raises(tierd.NoSpace):
        tierd.torch.offload(new_model(), tierd.torch.AdamW, min_bytes=1)
    assert machine.fake.closed == [1]
    machine.fake.capacity = GIB
    with pytest.raises(ValueError, match="learning rate"):
        tierd.torch.offload(new_model(), tierd.torch.AdamW, min_bytes=1, lr=-1.0)
    gc.collect()
    assert machine.fake.closed == [1, 1] and machine.fake.tensors == {}


def test_arguments_that_cannot_be_are_refused_before_a_daemon_starts(machine: Machine, client: tierd.Client) -> None:
    for options in ({"client": client, "ram": "1GiB"}, {"client": client, "ssd": 0}, {"progress": "yes"}, {"ram": "0"}):
        with pytest.raises(tierd.Invalid, match="ram|ssd|progress"):
            tierd.torch.offload(new_model(), tierd.torch.AdamW, **options)
    assert machine.started == []


# ---- The machine ----


def test_memory_is_what_the_machine_and_each_cgroup_around_it_have_left(tmp_path: pathlib.Path) -> None:
    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    write("proc/meminfo", "MemTotal: 4096 kB\nMemAvailable:    2048 kB\n")
    assert inspection.available_memory(str(tmp_path)) == 2 * MIB
    write("proc/self/cgroup", "0::/user/run\n")
    write("sys/fs/cgroup/user/run/memory.max", "max\n")
    write("sys/fs/cgroup/user/run/memory.stat", "anon 5\n")
    assert inspection.available_memory(str(tmp_path)) == 2 * MIB
    write("sys/fs/cgroup/user/memory.max", f"{MIB}\n")
    write("sys/fs/cgroup/user/memory.current", "700000\n")
    write("sys/fs/cgroup/user/memory.stat", "anon 500000\ninactive_file 200000\n")
    assert inspection.available_memory(str(tmp_path)) == MIB - 500000
    write("proc/self/cgroup", "5:cpu,memory:/old\n0::/\n")
    write("sys/fs/cgroup/memory/old/memory.limit_in_bytes", "1000\n")
    write("sys/fs/cgroup/memory/old/memory.usage_in_bytes", "5000\n")
    write("sys/fs/cgroup/memory/old/memory.stat", "total_inactive_file 10\n")
    assert inspection.available_memory(str(tmp_path)) == 0
    assert inspection.available_memory() > 0


def test_space_is_that_of_the_disk_on_which_the_directory_will_be(tmp_path: pathlib.Path) -> None:
    assert need._free_space(tmp_path / "not" / "yet") > 0


@pytest.mark.parametrize(
    ("environment", "uid", "expected"),
    [
        ({"STATE_DIRECTORY": "/one:/two", "XDG_STATE_HOME": "/x"}, 0, "/one"),
        ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, 0, "/x/tierd"),
        ({"HOME": "/h"}, 0, "/var/lib/tierd"),
        ({"HOME": "/h"}, 7, "/h/.local/state/tierd"),
        ({"HOME": "/usr/games"}, 5, "/var/tmp"),
        ({"HOME": "/usr/games", "XDG_STATE_HOME": "/x"}, 5, "/x/tierd"),
        ({}, 7, "/var/tmp"),
    ],
)
def test_a_private_daemon_has_its_file_where_the_daemon_puts_it(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], uid: int, expected: str
) -> None:
    for name in ("STATE_DIRECTORY", "XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("os.geteuid", lambda: uid)
    monkeypatch.setattr("os.access", lambda place, mode, effective_ids: not str(place).startswith("/usr"))
    assert str(autostart.private_data_directory()) == expected


def test_a_place_below_a_file_is_not_written_to(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STATE_DIRECTORY", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.geteuid", lambda: 7)
    monkeypatch.setenv("HOME", str(tmp_path / "not/yet"))
    assert autostart.private_data_directory() == tmp_path / "not/yet/.local/state/tierd"
    (tmp_path / "not").touch()
    assert str(autostart.private_data_directory()) == "/var/tmp"
