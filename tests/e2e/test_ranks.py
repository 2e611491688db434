"""Data-parallel ranks over one daemon: a rank that is killed, the resumed run, torchrun, and weights stored once."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys
import textwrap
import urllib.request

import launcher
import pytest

PLACES = [str(launcher.ROOT / "tests/e2e"), str(launcher.ROOT / "bindings/python")]

TRAINING = """
    import datetime, os, signal, sys
    sys.path[:0] = {places}
    import torch, torch.distributed as distributed, tierd, tierd.torch
    from small_gpt import gpt
    rank, mode = int(os.environ["RANK"]), {mode!r}
    store = distributed.FileStore({store!r}, 2)
    distributed.init_process_group(
        "gloo", store=store, rank=rank, world_size=2, timeout=datetime.timedelta(seconds=60)
    )
    torch.set_num_threads(1)
    def frozen_below():
        torch.manual_seed(2)
        model = gpt.Gpt(gpt.Shape(layers=2, width=512, heads=4, context=64))  # With tensors of two blocks.
        model.blocks[0].requires_grad_(False)  # Stored once for both.
        return model
    def step(model, optimizer, number):
        tokens = torch.randint(0, 256, (2, 65), generator=torch.Generator().manual_seed(2 * number + rank))
        loss = model(tokens[:, :-1], tokens[:, 1:])
        if optimizer is not plain and mode == "attach" and number == 4 and rank == 1:
            loss.grad_fn.next_functions[0][0].register_hook(die)  # In backward.
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(number, loss.item().hex(), flush=True)
    def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)
    plain = None
    if mode == "attach":
        model = torch.nn.parallel.DistributedDataParallel(frozen_below())
        plain = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        for number in range(6):
            step(model, plain, number)
    client = tierd.connect(job="run", socket={socket!r}, named=True, mode=mode)
    with tierd.torch.creating(client=client, resume=mode == "resume", process_group=True):
        model = frozen_below()
    model, optimizer = tierd.torch.offload(
        model, tierd.torch.AdamW, client=client, lr=1e-3, name="gpt", resume=mode == "resume", process_group=True
    )
    assert client.tensor("gpt/blocks.0.widen.weight", shared=True).sealed
    for number in range(tierd.torch.resumed(model).get("step", 0), 6):
        step(model, optimizer, number)
        if number == 2:
            tierd.torch.persist(model, optimizer, step=number + 1)
    distributed.destroy_process_group()  # Else threads of gloo may abort the process at its end.
"""


def run_ranks(program: str, **launch: str) -> list[subprocess.CompletedProcess[str]]:
    """Two ranks of one launch run the program to its end."""
    names = {"WORLD_SIZE": "2", "MASTER_ADDR": "here", "MASTER_PORT": "1", "TORCHELASTIC_RESTART_COUNT": "0"} | launch
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=launcher.environment(**names, RANK=str(rank)),
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        ended = [rank.communicate(timeout=120) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return [
        subprocess.CompletedProcess(rank.args, rank.returncode, out, errors)
        for rank, (out, errors) in zip(ranks, ended, strict=True)
    ]


def test_a_killed_rank_is_an_error_of_the_others_and_the_run_resumes(
    own_daemon: launcher.Running, tmp_path: pathlib.Path
) -> None:
    def run(mode: str) -> list[subprocess.CompletedProcess[str]]:
        store = str(tmp_path / mode)
        program = TRAINING.format(places=PLACES, mode=mode, store=store, socket=own_daemon.socket)
        return run_ranks(program, TORCHELASTIC_RUN_ID=mode)

    survivor, killed = run("attach")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert survivor.returncode == 1 and "tierd.errors.Disconnected: " in survivor.stderr, survivor.stderr
    assert "reduce the gradient of '" in survivor.stderr
    lines = [rank.stdout.splitlines() for rank in (survivor, killed)]
    assert [ours[6:] for ours in lines] == [plain[:4] for plain in lines]
    resumed = run("resume")
    assert [rank.returncode for rank in resumed] == [0, 0], resumed[0].stderr + resumed[1].stderr
    assert [rank.stdout.splitlines() for rank in resumed] == [plain[3:6] for plain in lines]


SHARING = """
    import copy, os, sys
    sys.path[:0] = {places}
    import torch, tierd, tierd.torch
    from torch import nn
    torch.set_num_threads(1)
    def net(device):
        torch.manual_seed(5)
        trained = [nn.Linear(256, 8), nn.Linear(8, 256)]
        frozen = [nn.Linear(256, 256, bias=False, device=device).requires_grad_(False) for _ in range(4)]
        return nn.Sequential(*frozen[:2], *trained, *frozen[2:])
    def load(name):
        print("loads", name, flush=True)
        if os.environ["RANK"] == "0":
            sys.stdin.readline()  # It has claimed the key, and is killed here.
        return plain.get_parameter(name)
    def losses(model, optimizer):
        for number in range(3):
            loss = model(torch.randn(4, 256, generator=torch.Generator().manual_seed(number))).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            yield loss.item()
    plain, model = net("cpu"), net("meta")
    for ours, theirs in zip(model, plain):
        if not ours.weight.is_meta:
            ours.load_state_dict(theirs.state_dict())
    client = tierd.connect(job="lora", socket={socket!r})
    model, optimizer = tierd.torch.offload(
        model, tierd.torch.AdamW, client=client, lr=1e-3, name="lora", load_frozen=load
    )
    print("ready", flush=True)
    sys.stdin.readline()
    keys = [f"lora/{{number}}.weight" for number in (0, 1, 4, 5)]
    before = [client.tensor(key, shared=True).generation for key in keys]
    same = list(losses(model, optimizer)) == list(
        losses(plain, torch.optim.AdamW(plain.parameters(), lr=1e-3, fused=True))
    )
    state = model.state_dict()
    same = same and all(torch.equal(state[key], value) for key, value in plain.state_dict().items())
    print("same", same, before == [client.tensor(key, shared=True).generation for key in keys], flush=True)
    sys.stdin.readline()
"""


def start_rank(socket: str, rank: int) -> subprocess.Popen[str]:
    names = {"WORLD_SIZE": "2", "MASTER_ADDR": "here", "MASTER_PORT": "1", "TORCHELASTIC_RESTART_COUNT": "0"}
    program = textwrap.dedent(SHARING.format(places=PLACES, socket=socket))
    return subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env=launcher.environment(**names, TORCHELASTIC_RUN_ID="lora", RANK=str(rank)),
    )  # fmt: skip


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        pytest.fail(f"the rank said nothing: {process.communicate()[1]}")
    return line


def test_frozen_weights_are_stored_once_and_a_killed_creator_is_replaced(own_daemon: launcher.Running) -> None:
    first = start_rank(own_daemon.socket, 0)
    ranks = [first]
    try:
        assert line_of(first) == "loads 0.weight"
        second = start_rank(own_daemon.socket, 1)
        ranks.append(second)
        assert [line_of(second) for _ in range(3)] == [f"loads {number}.weight" for number in (1, 4, 5)]
        first.kill()  # While the second waits for what it has begun, or is about to.
        assert [line_of(second) for _ in range(2)] == ["loads 0.weight", "ready"]
        first.wait()
        third = start_rank(own_daemon.socket, 0)
        ranks.append(third)
        assert line_of(third) == "ready"
        figures = urllib.request.urlopen(own_daemon.metrics_url, timeout=10).read().decode()
        stored = [
            line.split()[1]
            for line in figures.splitlines()
            if line.startswith('tierd_job_logical_bytes{tierd_job="lora"')
        ]
        assert [float(figure) for figure in stored] == [4 * 256 * 256 * 4]
        for rank in (second, third):
            assert rank.stdin is not None
            rank.stdin.write("go\n")
            rank.stdin.flush()
        assert [line_of(second), line_of(third)] == ["same True True"] * 2
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


GROUPS = """
    import os, sys
    sys.path[:0] = {places}
    import torch, torch.distributed as distributed, tierd, tierd.torch
    from torch import nn
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    distributed.init_process_group("gloo", store=distributed.FileStore({store!r}, 2), rank=rank, world_size=2)
    group = [distributed.new_group([0]), distributed.new_group([1])][rank]
    client = tierd.connect(socket={socket!r})
    def offload(**options):
        model = nn.Sequential(nn.Linear(256, 256).requires_grad_(False), nn.Linear(256, 256))
        before = model[0].weight.detach().clone()
        distributed.barrier()
        model, optimizer = tierd.torch.offload(
            model, tierd.torch.AdamW, client=client, lr=1e-3, process_group=group, **options
        )
        with tierd.torch.gathered(model):
            print(torch.equal(model[0].weight, before), flush=True)
        return model, optimizer
    torch.manual_seed(rank)
    kept = [offload() for _ in range(3)]
    try:
        kept.append(offload(name="net"))
    except tierd.AlreadyExists as error:
        print("refused:", error, flush=True)
    distributed.barrier()
    distributed.destroy_process_group()  # Else threads of gloo may abort the process at its end.
"""


def test_two_groups_of_one_launch_have_frozen_weights_of_their_own(
    own_daemon: launcher.Running, tmp_path: pathlib.Path
) -> None:
    """Also where both begin at once; of one name, only the first has it."""
    program = GROUPS.format(places=PLACES, store=str(tmp_path / "store"), socket=own_daemon.socket)
    ranks = run_ranks(program, TORCHELASTIC_RUN_ID="groups")
    assert [rank.returncode for rank in ranks] == [0, 0], ranks[0].stderr + ranks[1].stderr
    lines = [rank.stdout.splitlines() for rank in ranks]
    assert [each[:3] for each in lines] == [["True"] * 3] * 2
    last = sorted(each[3] for each in lines)
    assert last[0] == "True" and last[1].startswith("refused: ") and "another" in last[1], last
