"""The control channel beside the data path: Python's tierd.control and stock gRPC clients against a real daemon."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import threading

import launcher
import numpy
import pytest

import tierd

control = pytest.importorskip("tierd.control")
grpc = pytest.importorskip("grpc")


def test_a_job_is_opened_limited_watched_drained_and_closed(daemon: launcher.Running) -> None:
    with control.connect(daemon.directory) as channel, channel.watch() as events:
        job = channel.open_job("steered", guarantee="4MiB")
        assert job.name == "steered" and job.guarantee_bytes == 4 << 20 and len(job.token) == 64
        client = tierd.connect(job="steered", token=job.token, mode="join", socket=daemon.socket)
        stop = threading.Event()

        def swap() -> None:
            number = 0
            while not stop.is_set():
                client.put("content", numpy.full(1 << 18, number), replace=True)
                assert client.get("content")[0] == number
                number += 1

        trainer = threading.Thread(target=swap)
        trainer.start()
        try:
            assert channel.set_job("steered", limit="32MiB").limit_bytes == 32 << 20
            kinds: list[str] = []
            for event in events:
                if event.job == "steered":
                    kinds.append(event.kind)
                if event.kind == "job_changed":
                    break
            assert "job_opened" in kinds and "session_attached" in kinds
            assert [job.limit_bytes for job in channel.list_jobs() if job.name == "steered"] == [32 << 20]
        finally:
            stop.set()
            trainer.join()
        channel.drain("steered")
        (found,) = (
            channel.list_jobs()[:1]
            if len(channel.list_jobs()) == 1
            else [job for job in channel.list_jobs() if job.name == "steered"]
        )
        assert found.dirty_bytes == 0 and found.tensor_count == 1
        channel.close_job("steered")
        with pytest.raises((tierd.Revoked, tierd.Disconnected)):
            client.get("content")
        client.close()
        assert "steered" not in [job.name for job in channel.list_jobs()]


def test_a_jobs_ssd_space_is_guaranteed_limited_and_shown(daemon: launcher.Running) -> None:
    with control.connect(daemon.directory) as channel:
        job = channel.open_job("space", ssd_guarantee="4MiB", ssd_limit="8MiB")
        assert (job.ssd_guarantee_bytes, job.ssd_limit_bytes, job.logical_bytes) == (4 << 20, 8 << 20, 0)
        with tierd.connect(job="space", token=job.token, mode="join", socket=daemon.socket) as client:
            for number in range(4):
                client.put(number, bytes(2 << 20))
            with pytest.raises(tierd.NoSpace, match="by its own limit; .*tierctl job set --ssd-limit"):
                client.put("one more", b"byte")
            shown = launcher.tierctl(daemon, "job", "set", "space", "--ssd-limit", "12MiB")
            assert "8.00 MiB in tensors, SSD guarantee 4.00 MiB, SSD limit 12.0 MiB" in " ".join(shown.split()), shown
            client.put("one more", b"byte")
            with pytest.raises(tierd.Invalid, match="an SSD limit of 3 MiB is below the guarantee of 4 MiB"):
                channel.set_job("space", ssd_limit="3MiB")
            with pytest.raises(tierd.NoSpace, match="SSD guarantee of .* cannot be given"):
                channel.set_job("space", ssd_guarantee="1TiB", ssd_limit=0)
            assert bytes(client.get(3)) == bytes(2 << 20)


def test_a_watcher_that_comes_back_loses_no_event(daemon: launcher.Running) -> None:
    with control.connect(daemon.directory) as channel:
        with channel.watch() as events:
            channel.open_job("watched")
            last = next(event for event in events if event.job == "watched").sequence
        channel.set_job("watched", limit="32MiB")
        channel.close_job("watched")
        with channel.watch(since=last) as events:
            assert [next(events).kind for _ in range(2)] == ["job_changed", "job_closed"]
        with channel.watch(since=1) as events:
            first = next(events)
            assert first.kind == "events_lost" and "started since" in first.message


def test_a_list_of_jobs_has_tokens_only_where_they_are_asked_for(daemon: launcher.Running) -> None:
    with control.connect(daemon.directory) as channel:
        token = channel.open_job("quiet").token
        try:
            assert len(token) == 64
            assert channel.set_job("quiet", limit="32MiB").token == ""
            assert [job.token for job in channel.list_jobs() if job.name == "quiet"] == [""]
            assert [job.token for job in channel.list_jobs(tokens=True) if job.name == "quiet"] == [token]
        finally:
            channel.close_job("quiet")


def test_a_job_lists_the_processes_that_are_attached(daemon: launcher.Running) -> None:
    with control.connect(daemon.directory) as channel:
        token = channel.open_job("attended").token
        assert [job.sessions for job in channel.list_jobs() if job.name == "attended"] == [()]
        with tierd.connect(job="attended", token=token, mode="join", socket=daemon.socket):
            (job,) = (job for job in channel.list_jobs() if job.name == "attended")
            (session,) = job.sessions
            assert (session.rank, session.client_pid) == (-1, os.getpid())
            assert (job.reserved, job.owner) == (False, "")


def test_the_tensors_of_a_job_are_listed_by_key(client: tierd.Client, daemon: launcher.Running) -> None:
    client.put("weights/0", b"x" * 5000)
    with control.connect(daemon.directory) as channel:
        (tensor,) = channel.list_tensors(client.session.job)
        assert (tensor.key, tensor.size_bytes, tensor.sealed) == ("weights/0", 5000, True)


def test_more_tensors_than_a_page_has_are_listed_once_each(client: tierd.Client, daemon: launcher.Running) -> None:
    for number in range(1, 2501):
        client.put(number, b"x")
    job = client.session.job
    with control.connect(daemon.directory) as channel:
        assert sorted(tensor.id for tensor in channel.list_tensors(job, 9000)) == list(range(1, 2501))
        assert [len(channel.list_tensors(job, limit)) for limit in (0, 1, 1200, 2500)] == [1000, 1, 1200, 2500]
        with pytest.raises(tierd.Invalid, match="page_size is -1: it must not be negative"):
            channel.list_tensors(job, -1)
        with pytest.raises(tierd.Invalid, match="page_token is none that tierd gave: begin the list again"):
            channel._call("ListTensors", job=job, page_token="2")
    listed = [
        json.loads(launcher.tierctl(daemon, "--json", "tensor", "list", job, "--max", str(limit)))
        for limit in (1200, 2500, 9000)
    ]
    assert [len(each["tensors"]) for each in listed] == [1200, 2500, 2500]
    assert [each["truncated"] for each in listed] == [True, False, False]
    shown = json.loads(launcher.tierctl(daemon, "--json", "tensor", "show", job, "2500"))
    assert [tensor["id"] for tensor in shown["tensors"]] == ["2500"]


def test_a_mask_says_which_terms_of_a_job_change(daemon: launcher.Running) -> None:
    with control.connect(daemon.directory) as channel:
        channel.open_job("masked", guarantee="4MiB", limit="32MiB")
        try:
            change = {"name": "masked", "guarantee_bytes": 1 << 20, "limit_bytes": 16 << 20}
            job = channel._call("SetJob", **change, update_mask={"paths": ["guarantee_bytes"]}).job
            assert (job.guarantee_bytes, job.limit_bytes) == (1 << 20, 32 << 20)
            job = channel._call("SetJob", name="masked", update_mask={"paths": ["limit_bytes"]}).job
            assert (job.guarantee_bytes, job.limit_bytes) == (1 << 20, 0)
            with pytest.raises(tierd.Invalid, match="update_mask has the path 'limit': it takes guarantee_bytes"):
                channel._call("SetJob", **change, update_mask={"paths": ["limit"]})
            assert channel._call("SetJob", name="masked").job.guarantee_bytes == 1 << 20
        finally:
            channel.close_job("masked")


def test_a_job_that_is_not_there_is_not_found(daemon: launcher.Running) -> None:
    with control.connect(daemon.directory) as channel:
        for call in (lambda: channel.set_job("nobody", limit=1 << 30), lambda: channel.close_job("nobody")):
            with pytest.raises(tierd.NotFound):
                call()
        with pytest.raises(tierd.Invalid):
            channel.open_job("a name with spaces")


def test_a_wrong_token_is_refused(daemon: launcher.Running) -> None:
    with control.connect(daemon.directory) as channel:
        channel.open_job("guarded")
        try:
            with pytest.raises(tierd.Denied):
                tierd.connect(job="guarded", token="f" * 64, mode="join", socket=daemon.socket)
        finally:
            channel.close_job("guarded")


def test_another_user_is_refused(daemon: launcher.Running) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: becomes another user")
    program = f"""
import os, sys
os.setgid(65534); os.setgroups([]); os.setuid(65534)
import tierd, tierd.control
with tierd.control.connect({str(daemon.directory)!r}) as channel:
    for token in ("", "e" * 64):
        channel._metadata = [("tier-job-token", token)] if token else []
        for call in (lambda: channel.set_job("foreign", limit=1 << 30), lambda: channel.close_job("foreign"),
                     lambda: channel.drain("foreign"), lambda: channel.drain()):
            try:
                call()
            except (tierd.Denied, tierd.NotFound) as error:
                continue
            sys.exit("not refused")
        if channel.list_jobs():
            sys.exit("sees foreign jobs")
print("refused")
"""
    os.chmod(daemon.directory, 0o755)
    with control.connect(daemon.directory) as channel:
        channel.open_job("foreign")
        try:
            done = subprocess.run([sys.executable, "-c", program], env=launcher.environment(), capture_output=True,
                                  text=True, check=False, timeout=60)  # fmt: skip
            if "Permission denied" in done.stderr and "ModuleNotFound" in done.stderr:
                pytest.skip("needs a checkout that uid 65534 can read")
            assert done.stdout == "refused\n", done.stderr
            assert "foreign" in [job.name for job in channel.list_jobs()]
        finally:
            channel.close_job("foreign")


def test_health_and_reflection_answer_a_stock_client(daemon: launcher.Running) -> None:
    health = pytest.importorskip("grpc_health.v1.health_pb2")
    health_grpc = pytest.importorskip("grpc_health.v1.health_pb2_grpc")
    reflection = pytest.importorskip("grpc_reflection.v1alpha.proto_reflection_descriptor_database")
    with grpc.insecure_channel(f"unix:{daemon.directory}/control.sock") as channel:
        for service in ("", "tier.v1.ControlService"):
            answer = health_grpc.HealthStub(channel).Check(health.HealthCheckRequest(service=service), timeout=10)
            assert answer.status == health.HealthCheckResponse.SERVING
        services = reflection.ProtoReflectionDescriptorDatabase(channel).get_services()
        assert {"tier.v1.ControlService", "grpc.health.v1.Health"} <= set(services)


def test_a_refusal_has_the_standard_details_of_a_stock_client(daemon: launcher.Running) -> None:
    rpc_status = pytest.importorskip("grpc_status.rpc_status")
    details = pytest.importorskip("google.rpc.error_details_pb2")
    with control.connect(daemon.directory) as channel, grpc.insecure_channel(f"unix:{channel.path}") as stock:
        call = stock.unary_unary("/tier.v1.ControlService/CloseJob", request_serializer=bytes)
        request = channel._messages["CloseJobRequest"](name="nobody").SerializeToString()
        with pytest.raises(grpc.RpcError) as refused:
            call(request, timeout=10)
    status = rpc_status.from_call(refused.value)
    (detail,) = status.details
    reason = details.ErrorInfo()
    assert detail.Unpack(reason)
    assert (reason.reason, reason.domain) == ("NOT_FOUND", "tierd")
    assert status.code == grpc.StatusCode.NOT_FOUND.value[0] and status.message == refused.value.details()


def test_a_daemon_that_is_not_there_is_disconnected(tmp_path: pathlib.Path) -> None:
    launcher.need_build()
    with control.connect(tmp_path / "control.sock", timeout=5) as channel, pytest.raises(tierd.Disconnected):
        channel.list_jobs()
