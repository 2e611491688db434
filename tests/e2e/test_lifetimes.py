"""What happens to a client when something else ends: a signal, a fork, the daemon, a lease's holder."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from typing import Any

import launcher
import numpy
import pytest

import tierd


def child(source: str, **environment: str) -> subprocess.Popen[str]:
    """A Python program of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(source)], env=launcher.environment(**environment),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        pytest.fail(f"the child said nothing: {process.communicate()[1]}")
    return line


@pytest.mark.parametrize("call", ["client.lease('key', write=True, shared=True)", "client.delete('key', shared=True)"])
def test_an_interrupt_ends_a_wait_within_a_second(client: tierd.Client, daemon: launcher.Running, call: str) -> None:
    client.put("key", b"x" * 100, shared=True)
    with client.lease("key", shared=True):
        waiter = child(
            f"""
            import tierd
            client = tierd.connect(job={client.session.job!r}, token={client.session.token!r}, socket={daemon.socket!r})
            poll = client._session.library.tier_poll

            def announced(operation, timeout):
                client._session.library.tier_poll = poll
                print("waiting", flush=True)
                return poll(operation, timeout)

            client._session.library.tier_poll = announced
            try:
                {call}
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            client.put("after", b"still usable")
            print(client.get("after").decode(), flush=True)
            """
        )
        assert line_of(waiter) == "waiting"
        begin = time.monotonic()
        waiter.send_signal(signal.SIGINT)
        assert line_of(waiter) == "interrupted"
        assert time.monotonic() - begin < 1
        assert line_of(waiter) == "still usable"
    waiter.communicate(timeout=20)
    assert waiter.returncode == 0


def test_a_storm_of_signals_loses_no_lease_and_no_copy(client: tierd.Client, daemon: launcher.Running) -> None:
    program = child(
        f"""
        import random, signal, numpy, tierd
        client = tierd.connect(job="storm", socket={daemon.socket!r})
        order = random.Random(3)

        class Alarm(Exception):
            pass

        def handler(number, frame):
            while frame is not None:  # What is raised in a finalizer, Python reports and drops.
                if frame.f_code.co_name == "__del__" or frame.f_code.co_filename.endswith("weakref.py"):
                    return
                frame = frame.f_back
            raise Alarm

        def lease():
            with client.lease(order.randrange(3), write=True) as lease:
                lease.numpy("u1")[:] = 9

        def replace():
            client.put(order.randrange(3), numpy.full(order.randrange(1, 9 << 18), 9, "u1"), replace=True)

        def get():
            assert (client.get(order.randrange(3), "u1") == 9).all()

        signal.signal(signal.SIGALRM, handler)
        interrupted = 0
        for key in range(3):
            client.put(key, numpy.full(1000, 9, "u1"))
        for turn in range(1500):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, order.uniform(1e-6, 1e-3))
                    order.choice([replace, replace, get, lease])()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Alarm:
                interrupted += 1
            except (tierd.Torn, tierd.NotFound):  # A replacing, or a write lease, that was given up.
                for key in range(3):
                    client.put(key, numpy.full(1000, 9, "u1"), replace=True)
        print(interrupted > 100, client.stats().leases_open, len(client._session._calls))
        client.close()
        """
    )
    out, err = program.communicate(timeout=120)
    assert (program.returncode, out) == (0, "True 0 0\n"), err


def test_a_daemon_that_dies_is_noticed_within_a_second_by_who_waits(own_daemon: launcher.Running) -> None:
    holder = tierd.connect(job="j", socket=own_daemon.socket)
    waiter = tierd.connect(job="j", token=holder.session.token, socket=own_daemon.socket)
    holder.put("key", numpy.arange(1000), shared=True)
    view = holder.lease("key", shared=True).numpy("i8")
    ended: list[tuple[BaseException, float]] = []
    entered = threading.Event()

    def wait() -> None:
        entered.set()
        try:
            waiter.lease("key", write=True, shared=True)
        except BaseException as error:
            ended.append((error, time.monotonic()))

    thread = threading.Thread(target=wait)
    thread.start()
    entered.wait()
    own_daemon.process.kill()
    begin = time.monotonic()
    own_daemon.process.wait()
    thread.join(5)
    ((error, at),) = ended
    assert isinstance(error, tierd.Disconnected)
    assert at - begin < 1
    assert (view == numpy.arange(1000)).all()  # What was leased is there while it is leased.
    with pytest.raises(tierd.Disconnected):
        holder.put("another", b"x")
    assert not holder.session.connected
    del view
    holder.close()
    waiter.close()


def test_a_call_without_a_time_waits_for_the_daemons_deadline(socket_folder: pathlib.Path) -> None:
    with launcher.start(socket_folder, arena="32MiB", settings={"engine": {"deadline": "300ms"}}) as daemon:
        with tierd.connect(job="j", socket=daemon.socket) as holder:
            waiter = tierd.connect(job="j", token=holder.session.token, socket=daemon.socket)
            holder.put("key", bytes(1000), shared=True)
            assert waiter.session.request_timeout == 0.3
            begin = time.monotonic()
            with holder.lease("key", write=True, shared=True):
                for call in (
                    lambda: waiter.lease("key", shared=True),
                    lambda: waiter.get_into("key", bytearray(1000), shared=True),
                    lambda: waiter.put("key", bytes(1000), shared=True, replace=True),
                ):
                    with pytest.raises(tierd.Timeout):
                        call()
            assert time.monotonic() - begin < 30, "not the default of a minute"
            launcher.tierctl(daemon, "config", "set", "engine.deadline", "70s")
            assert waiter.session.request_timeout == 0.3, "what a session began with"
            waiter.close()
            with tierd.connect(job="other", socket=daemon.socket) as later:
                assert later.session.request_timeout == 70


def test_a_forked_child_has_no_client_and_the_parent_goes_on(client: tierd.Client, daemon: launcher.Running) -> None:
    program = child(
        f"""
        import os, numpy, tierd
        client = tierd.connect(job="forking", socket={daemon.socket!r})
        client.put("key", numpy.arange(10))
        view = client.lease("key").numpy()
        pid = os.fork()
        if pid == 0:
            try:
                client.get("key")
            except tierd.Disconnected as error:
                print("child:", "forked" in str(error), flush=True)
            own = tierd.connect(job="forking-child", socket={daemon.socket!r})
            own.put("key", b"mine")
            print("child:", own.get("key").decode(), flush=True)
            own.close()
            del view
            client.close()
            os._exit(0)
        os.waitpid(pid, 0)
        print("parent:", view.sum(), client.get("key").sum(), flush=True)
        """
    )
    out, err = program.communicate(timeout=60)
    assert out.splitlines() == ["child: True", "child: mine", "parent: 45 45"], err
    assert program.returncode == 0


def test_a_leaseholder_that_is_killed_frees_its_lease(client: tierd.Client, daemon: launcher.Running) -> None:
    client.put("key", b"x" * 100, shared=True)
    victim = child(
        f"""
        import tierd
        client = tierd.connect(job={client.session.job!r}, token={client.session.token!r}, socket={daemon.socket!r})
        lease = client.lease("key", shared=True)
        print("holding", flush=True)
        input()
        """
    )
    assert line_of(victim) == "holding"
    with pytest.raises(tierd.Timeout):
        client.lease("key", write=True, shared=True, timeout=0.05)
    victim.kill()
    victim.communicate()
    with client.lease("key", write=True, shared=True, timeout=5) as lease:
        assert lease.nbytes == 100


def test_a_writer_that_is_killed_leaves_torn_or_the_old_content(client: tierd.Client, daemon: launcher.Running) -> None:
    client.put("key", b"a" * 100, shared=True)
    client.flush("key", shared=True)
    victim = child(
        f"""
        import tierd
        client = tierd.connect(job={client.session.job!r}, token={client.session.token!r}, socket={daemon.socket!r})
        with client.lease("key", write=True, shared=True) as lease:
            lease.memoryview()[:50] = b"b" * 50
            print("writing", flush=True)
            input()
        """
    )
    assert line_of(victim) == "writing"
    victim.kill()
    victim.communicate()
    try:
        assert client.get("key", shared=True) == b"a" * 100
    except tierd.Torn:
        client.accept("key", shared=True)
        assert len(client.get("key", shared=True)) == 100


@pytest.mark.parametrize("way", ["put", "discard", "accept"])
def test_a_shared_tensor_that_is_torn_is_whole_again_by_what_the_page_says(
    client: tierd.Client, daemon: launcher.Running, way: str
) -> None:
    half = 2 << 20  # A piece.
    client.put("key", b"a" * 2 * half, shared=True)
    victim = child(
        f"""
        import tierd
        client = tierd.connect(job={client.session.job!r}, token={client.session.token!r}, socket={daemon.socket!r})
        with client.lease("key", write=True, length={half}, shared=True) as lease:
            lease.memoryview()[:] = b"b" * {half}
        print("half way", flush=True)
        input()
        """
    )
    assert line_of(victim) == "half way"
    victim.kill()
    victim.communicate()
    launcher.wait_for("the end of the writer", lambda: client.tensor("key", shared=True).torn)
    with pytest.raises(tierd.Torn):
        client.lease("key", write=True, shared=True)
    if way == "put":
        client.put("key", b"c" * 2 * half, replace=True, shared=True)
    elif way == "discard":
        with client.lease("key", write=True, discard=True, shared=True) as lease:
            lease.memoryview()[:] = b"c" * 2 * half
    else:
        client.accept("key", shared=True)
    expected = b"b" * half + b"a" * half if way == "accept" else b"c" * 2 * half
    assert client.get("key", shared=True) == expected


def test_nothing_is_said_at_interpreter_shutdown(daemon: launcher.Running) -> None:
    program = child(
        f"""
        import numpy, tierd
        client = tierd.connect(job="leaving", socket={daemon.socket!r})
        client.put("key", numpy.arange(10))
        view = client.lease("key").numpy()
        """
    )
    out, err = program.communicate(timeout=60)
    assert (program.returncode, out, err) == (0, "", "")


def test_what_was_persisted_is_there_for_the_next_run_of_the_same_daemon(daemon: launcher.Running) -> None:
    """The trainer's own tensors go with its process; the manifest keeps them, and the next one replaces it."""
    run = f"""
        import os, signal, tierd
        client = tierd.connect(job="kept", socket={daemon.socket!r}, named=True)
        client.put("weights", bytes(range(200)) * 30_000)
        client.put("common", b"first", shared=True)
        client.persist()
        client.put("weights", b"never persisted", replace=True)
        client.put("common", b"second", shared=True, replace=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    program = child(run)
    assert program.wait(timeout=60) == -signal.SIGKILL, program.communicate()[1]
    with tierd.connect(job="kept", socket=daemon.socket, named=True) as client:
        assert bytes(client.get("common", shared=True)) == b"second"
        with pytest.raises(tierd.Denied, match="mode resume"):
            client.persist()
    with tierd.connect(job="kept", socket=daemon.socket, mode="resume") as client:
        assert bytes(client.get("weights")) == bytes(range(200)) * 30_000
        assert bytes(client.get("common", shared=True)) == b"first", "one whole manifest"
        client.delete("weights")
        client.put("more", b"bytes", shared=True)
        client.persist()
    with tierd.connect(job="kept", socket=daemon.socket, mode="resume") as client:
        assert bytes(client.get("more", shared=True)) == b"bytes"
        assert bytes(client.get("common", shared=True)) == b"first"
        with pytest.raises(tierd.NotFound):
            client.get("weights")


def test_one_line_serves_the_first_run_and_the_next(daemon: launcher.Running) -> None:
    with pytest.raises(tierd.NotFound, match="nothing is persisted of job .*: open it with mode resume_or_create"):
        tierd.connect(job="again", socket=daemon.socket, mode="resume")
    for run in range(3):
        with tierd.connect(job="again", socket=daemon.socket, mode="resume_or_create") as client:
            assert client.session.resumed == (run > 0)
            if run:
                assert client.get("run", dtype="uint8").tolist() == [run - 1]
            client.put("run", bytes([run]), replace=True)
            client.persist()


def test_all_ranks_of_a_run_resume(daemon: launcher.Running) -> None:
    with tierd.connect(job="ranks", socket=daemon.socket, named=True) as client:
        for rank in range(3):
            client.put(f"state of {rank}", bytes([rank]) * 5000)
        client.persist()
    resume = f"""
        import os, sys, tierd
        client = tierd.connect(job="ranks", socket={daemon.socket!r}, mode="resume")
        rank = int(os.environ["RANK"])
        assert bytes(client.get(f"state of {{rank}}")) == bytes([rank]) * 5000
        print("resumed", flush=True)
        sys.stdin.readline()  # Until all ranks are there.
        client.put(f"state of {{rank}}", b"trained", replace=True)
        """
    launch = {"WORLD_SIZE": "3", "TORCHELASTIC_RUN_ID": "run", "MASTER_ADDR": "here", "MASTER_PORT": "1"}
    ranks = [child(resume, RANK=str(rank), TORCHELASTIC_RESTART_COUNT="0", **launch) for rank in range(3)]
    assert [line_of(process).split() for process in ranks] == [["resumed"]] * 3
    for process in ranks:
        _, errors = process.communicate("\n", timeout=20)
        assert process.returncode == 0, errors


def test_a_named_job_survives_an_elastic_restart(daemon: launcher.Running) -> None:
    """Torchrun counts restarts, and each launch gets another token: the next run's ranks find the job of the last."""
    rank = f"""
        import sys, tierd
        client = tierd.connect(job="elastic", socket={daemon.socket!r}, named=True)
        if client.session.token == sys.stdin.readline().strip():
            sys.exit("the token of the run before")
        try:
            print(client.get("state", shared=True).decode(), client.session.token, flush=True)
        except tierd.NotFound:
            client.put("state", b"trained", shared=True)
            print("new", client.session.token, flush=True)
        sys.stdin.readline()  # Until all ranks are there.
        """
    token, states = "", []
    for restart, world in enumerate((2, 2, 1)):
        ranks = []
        for number in range(world):
            environment = {"RANK": str(number), "WORLD_SIZE": str(world), "TORCHELASTIC_RESTART_COUNT": str(restart)}
            process = child(rank, TORCHELASTIC_RUN_ID="run", MASTER_ADDR="here", MASTER_PORT="1", **environment)
            assert process.stdin is not None
            process.stdin.write(f"{token}\n")
            process.stdin.flush()
            ranks.append((process, line_of(process).split()))
        assert len({line[1] for _, line in ranks}) == 1
        states.append([line[0] for _, line in ranks])
        token = ranks[0][1][1]
        for process, _ in ranks:
            process.communicate("\n", timeout=20)
            assert process.returncode == 0
    assert states == [["new", "trained"], ["trained", "trained"], ["trained"]]


def test_who_persists_in_a_job_without_a_name_is_told_once_that_nothing_stays(daemon: launcher.Running) -> None:
    with tierd.connect(job="passing", socket=daemon.socket) as client:
        client.put("key", b"x")
        with pytest.warns(RuntimeWarning, match=r"job 'passing' is not named.*named=True") as told:
            client.persist()
            client.persist()
        assert [warning.filename for warning in told] == [__file__]
    with pytest.raises(tierd.NotFound):
        tierd.connect(job="passing", named=True, mode="resume", socket=daemon.socket)


def test_who_persists_in_a_named_job_is_told_nothing(daemon: launcher.Running) -> None:
    """Also a process that joined it without the word."""
    options: dict[str, Any] = {"job": "named-elsewhere", "socket": daemon.socket}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with tierd.connect(named=True, **options) as first:
            first.put("key", b"x", shared=True)
            first.persist()
            with tierd.connect(token=first.session.token, **options) as second:
                second.persist()
        for mode in ("resume", "resume_or_create"):
            with tierd.connect(mode=mode, **options) as next_run:
                next_run.persist()
