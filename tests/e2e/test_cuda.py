"""Tensors of a real GPU: their bytes, the order of streams, pinned windows, and what happens without a usable driver.

Needs a CUDA device and skips without one. What only a driver that fails can show: tests/unit/libclient_cuda.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import launcher
import pytest
import torch

import tierd

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

MIB = 1 << 20
GPU = torch.device("cuda")
BUSY_CYCLES = 200_000_000  # A tenth of a second of the GPU's clock, about: longer than any call that does not wait.


def random(number: int, size: int) -> torch.Tensor:
    import torch  # Programs of their own have this function too, and some of them do without torch.

    generator = torch.Generator().manual_seed(number)
    return torch.randint(256, (size,), dtype=torch.uint8, generator=generator).to("cuda")


PRELUDE = f"""
from __future__ import annotations
import ctypes, os, sys
import tierd

{inspect.getsource(random)}
"""


def program(source: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A Python program of its own: contexts and broken drivers stay in it."""
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(source), *words],
        env=launcher.environment(**environment), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@contextlib.contextmanager
def busy_stream() -> Iterator[torch.cuda.Stream]:
    """A stream of its own whose work begins only after a while."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(BUSY_CYCLES)
        yield stream


@pytest.mark.parametrize("size", [1, 4095, 4097, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 20 * MIB + 123, 150 * MIB])
def test_what_is_put_comes_back(client: tierd.Client, size: int) -> None:
    content = random(size, size)
    client.put("key", content)
    out = torch.zeros_like(content)
    client.get_into("key", out)
    assert torch.equal(out, content)
    assert torch.equal(client.get("key"), content.cpu())
    client.delete("key")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int8, torch.bool])
def test_every_dtype_comes_back(client: tierd.Client, dtype: torch.dtype) -> None:
    content = torch.randn(3, 1000, 77, device=GPU).mul_(50).to(dtype)
    client.put("key", content)
    out = torch.empty_like(content)
    client.get_into("key", out)
    assert torch.equal(out, content)


def test_what_is_not_contiguous_is_put_in_its_order(client: tierd.Client) -> None:
    content = torch.randn(600, 500, device=GPU).t()[::3]
    client.put("key", content)
    assert torch.equal(client.get("key"), content.cpu())
    with pytest.raises(tierd.Invalid, match="must be contiguous"):
        client.get_into("key", content)


def test_a_dropped_tensor_comes_back_from_ssd(client: tierd.Client) -> None:
    content = random(1, 9 * MIB + 77)
    client.put("key", content)
    client.flush("key")
    client.drop("key")
    assert client.tensor("key").ram_bytes == 0
    out = torch.zeros_like(content)
    client.get_into("key", out)
    assert torch.equal(out, content)


def test_a_put_waits_for_the_work_before_it_on_the_callers_stream(client: tierd.Client) -> None:
    content = torch.zeros(9 * MIB, dtype=torch.uint8, device=GPU)
    torch.cuda.synchronize()
    with busy_stream():
        content.fill_(42)
        client.put("key", content)
    assert (client.get("key") == 42).all()


def test_a_put_on_the_default_stream_waits_too(client: tierd.Client) -> None:
    content = torch.zeros(9 * MIB, dtype=torch.uint8, device=GPU)
    torch.cuda._sleep(BUSY_CYCLES)
    content.fill_(43)
    client.put("key", content)
    assert (client.get("key") == 43).all()


def test_work_queued_before_a_get_does_not_overwrite_what_it_brings(client: tierd.Client) -> None:
    content = random(2, 9 * MIB)
    client.put("key", content)
    out = torch.zeros_like(content)
    torch.cuda.synchronize()
    with busy_stream():
        out.fill_(7)
        client.get_into("key", out)
    torch.cuda.synchronize()
    assert torch.equal(out, content)


def test_elements_are_checked_on_the_way_out(client: tierd.Client) -> None:
    content = torch.randn(3 * MIB, device=GPU)
    content[[5, 2 * MIB, 3 * MIB - 1]] = torch.tensor([float("inf"), float("nan"), -float("inf")], device=GPU)
    assert client.start_put("bad", content).wait().non_finite == 3
    content = torch.randn(3 * MIB, device=GPU)
    figures = client.start_put("good", content).wait()
    assert figures.non_finite == 0 and figures.nbytes == 12 * MIB
    assert figures.sum_of_squares == pytest.approx(content.double().pow(2).sum().item(), rel=1e-9)
    out = torch.zeros_like(content)
    client.get_into("good", out)
    assert torch.equal(out, content)


def test_many_threads_copy_at_once(client: tierd.Client) -> None:
    import concurrent.futures

    def there_and_back(number: int) -> bool:
        with torch.cuda.stream(torch.cuda.Stream()):
            content = random(number, 3 * MIB + number)
            out = torch.zeros_like(content)
            for _ in range(5):
                client.put(number, content, replace=True)
                client.get_into(number, out)
                if not torch.equal(out, content):
                    return False
        return True

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(there_and_back, range(1, 17)))


def test_the_windows_in_use_are_registered_and_go_back_on_request(
    connect: Callable[..., tierd.Client], daemon: launcher.Running
) -> None:
    """Another job's tensors need them: they are unregistered first, and registered again with the next copy."""
    ours = connect()
    contents = [random(number, 4 * MIB) for number in range(12)]
    for number, content in enumerate(contents, 1):
        ours.put(number, content)
    assert ours.stats().windows_registered >= 24, "48 MiB in windows of 2"
    theirs = connect(job="other")
    for number in range(1, 13):
        theirs.put(number, contents[number - 1].cpu())
    launcher.wait_for("windows are back", lambda: ours.stats().windows_registered < 24)
    for number, content in enumerate(contents, 1):
        out = torch.zeros_like(content)
        ours.get_into(number, out)
        assert torch.equal(out, content)
    for number in range(1, 13):
        assert torch.equal(theirs.get(number), contents[number - 1].cpu())


def test_a_killed_program_leaves_nothing_behind(daemon: launcher.Running) -> None:
    """In the middle of copies: its tensors and windows are the daemon's again."""
    source = """
    client = tierd.connect(job="killed", socket=sys.argv[1])
    content = random(1, 24 << 20)
    client.put("key", content)
    print("begun", flush=True)
    while True:
        client.put("key", content, replace=True)
        client.get_into("key", content)
    """
    words = [sys.executable, "-c", PRELUDE + textwrap.dedent(source), daemon.socket]
    for _ in range(5):
        with subprocess.Popen(words, env=launcher.environment(), stdout=subprocess.PIPE, text=True) as victim:
            assert victim.stdout is not None and victim.stdout.readline() == "begun\n"
            victim.send_signal(signal.SIGKILL)
    daemon.audit()


def test_no_context_is_made_for_memory_of_the_host(daemon: launcher.Running) -> None:
    done = program(
        """
        driver = ctypes.CDLL("libcuda.so.1")
        assert driver.cuInit(0) == 0
        client = tierd.connect(job="host", socket=sys.argv[1])
        client.put("key", bytes(5 << 20))
        flags, active = ctypes.c_uint(), ctypes.c_int(-1)
        assert driver.cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active)) == 0
        print(active.value, client.stats().windows_registered)
        client.close()
        """,
        daemon.socket,
    )
    assert done.stdout.split() == ["0", "0"], done.stderr


def test_a_forked_child_connects_again_and_uses_no_gpu(daemon: launcher.Running) -> None:
    done = program(
        """
        client = tierd.connect(job="forking", socket=sys.argv[1])
        content = random(1, 5 << 20)
        client.put("key", content)
        if os.fork() == 0:
            own = tierd.connect(job="child", socket=sys.argv[1])
            own.put("key", b"a" * (5 << 20))
            assert bytes(own.get("key")) == b"a" * (5 << 20)
            own.close()
            os._exit(7)
        print(os.waitstatus_to_exitcode(os.wait()[1]))
        out = content.clone().zero_()
        client.get_into("key", out)
        print((out == content).all().item())
        client.close()
        """,
        daemon.socket,
    )
    assert done.stdout.split() == ["7", "True"], done.stderr


def test_a_kernel_that_failed_is_reported_and_stores_nothing(daemon: launcher.Running) -> None:
    done = program(
        """
        import torch
        client = tierd.connect(job="failing", socket=sys.argv[1])
        content = random(1, 5 << 20)
        torch.cuda.synchronize()
        torch._assert_async(torch.zeros((), device="cuda"))
        try:
            client.put("key", content)
        except tierd.Error as error:
            print(type(error).__name__, error)
        try:
            client.tensor("key")
        except tierd.NotFound:
            print("nothing is stored")
        client.put("host", b"a" * (5 << 20))
        assert bytes(client.get("host")) == b"a" * (5 << 20)
        client.close()
        print("and memory of the host goes on")
        sys.stdout.flush()
        os._exit(0)  # torch has a broken context to undo.
        """,
        daemon.socket,
    )
    assert "CUDA_ERROR_ASSERT" in done.stdout, done.stdout + done.stderr
    assert "nothing is stored" in done.stdout and "goes on" in done.stdout, done.stdout + done.stderr


def test_where_cuda_is_switched_off_a_tensor_of_a_gpu_is_refused(daemon: launcher.Running) -> None:
    """Its address is none that this process can read."""
    done = program(
        """
        client = tierd.connect(job="off", socket=sys.argv[1])
        content = random(1, 5 << 20)
        client.put("host", bytes(5 << 20))
        for call in (
            lambda: client.put("key", content),
            lambda: client.put("key", content[:100]),
            lambda: client.get_into("host", content),
            lambda: client.start_put("key", content.float()[:100]).wait(),
        ):
            try:
                call()
            except tierd.Invalid as error:
                print("TIER_CUDA=off" in str(error))
        client.close()
        """,
        daemon.socket,
        TIER_CUDA="off",
    )
    assert done.stdout.split() == ["True"] * 4, done.stdout + done.stderr


def test_a_daemon_that_ends_and_comes_back_serves_the_program_again(
    socket_folder: pathlib.Path,
) -> None:
    for round in range(2):
        with launcher.start(socket_folder, arena="64MiB", tier="256MiB") as running:
            client = tierd.connect(job="again", socket=running.socket)
            content = random(round, 9 * MIB)
            client.put("key", content)
            out = torch.zeros_like(content)
            client.get_into("key", out)
            assert torch.equal(out, content)
            assert client.stats().windows_registered > 0
            if round == 0:
                running.process.kill()
                running.process.wait()
                with pytest.raises(tierd.Disconnected):
                    client.put("other", content)
            client.close()
    assert os.environ.get("TIER_CUDA") != "off"
