"""The configuration of a running daemon: reloads under load, options that are set at run time, files with mistakes."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import launcher
import pytest

import tierd

# Of every option of these sections that changes at run time two values, which refuse nothing that the load asks for.
LEFT: dict[str, dict[str, Any]] = {
    "engine": {
        "spin": "never", "deadline": "50s", "write_behind": "10%", "evict": "50%", "prefetch_maximum": "4MiB",
        "drain_timeout": "9s",
    },
    "jobs": {
        "max_sessions": 8, "max_jobs_per_uid": 8, "max_attaches_per_second": 10, "max_tensors": 100, "max_leases": 50,
        "max_metadata": "2MiB", "max_ssd_per_uid": "200MiB", "reclaim_deadline": "5s", "idle_after": "1s",
        "stall_threshold": "5ms",
    },
    "log": {"level": "debug", "format": "journal"},
}  # fmt: skip
RIGHT: dict[str, dict[str, Any]] = {
    "engine": {
        "spin": "always", "deadline": "40s", "write_behind": "80%", "evict": "95%", "prefetch_maximum": 0,
        "drain_timeout": "8s",
    },
    "jobs": {
        "max_sessions": 100, "max_jobs_per_uid": 16, "max_attaches_per_second": 90, "max_tensors": 1000,
        "max_leases": 500, "max_metadata": "1GiB", "max_ssd_per_uid": 0, "reclaim_deadline": "60s", "idle_after": "0s",
        "stall_threshold": "1s",
    },
    "log": {"level": "info", "format": "text"},
}  # fmt: skip


class Load:
    """A process's worth of work: tensors that do not fit in RAM are put, read and compared until it is stopped."""

    def __init__(self, daemon: launcher.Running, job: str) -> None:
        self.client = tierd.connect(job=job, socket=daemon.socket)
        self.rounds = 0
        self.failures: list[BaseException] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                for key in range(12):
                    self.client.put(key, bytes([key + self.rounds % 100]) * (2 << 20), replace=True)
                for key in range(12):
                    assert bytes(self.client.get(key)) == bytes([key + self.rounds % 100]) * (2 << 20)
                self.rounds += 1
        except BaseException as failure:  # What it was is told by the test.
            self.failures.append(failure)

    def end(self) -> None:
        self._stop.set()
        self._thread.join()
        self.client.close()


@contextlib.contextmanager
def loaded(daemon: launcher.Running) -> Iterator[list[Load]]:
    loads = [Load(daemon, job) for job in ("one", "two")]
    try:
        yield loads
    finally:
        for load in loads:
            load.end()
    for load in loads:
        assert not load.failures, load.failures
        assert load.rounds > 0


def tierctl(daemon: launcher.Running, *words: str, socket: str = "admin.sock") -> subprocess.CompletedProcess[str]:
    return launcher.run_tierctl(daemon.directory / socket, *words)


def options(daemon: launcher.Running, socket: str = "admin.sock") -> dict[str, dict[str, Any]]:
    answer = tierctl(daemon, "--json", "config", "get", socket=socket)
    assert answer.returncode == 0, answer.stderr
    return {option["name"]: option for option in json.loads(answer.stdout)["options"]}


def last_event(daemon: launcher.Running, kind: str) -> dict[str, Any]:
    events = json.loads(tierctl(daemon, "--json", "events").stdout)["events"]
    return next((event for event in reversed(events) if event["kind"] == kind), {"sequence": 0, "message": ""})


def reload(daemon: launcher.Running, text: str) -> str:
    """The file is this now. What the daemon says of the reload."""
    (daemon.directory / "tierd.toml").write_text(text)
    return reload_as_it_is(daemon)


def reload_as_it_is(daemon: launcher.Running) -> str:
    kinds = ("config_reloaded", "config_reload_failed")
    before = max(last_event(daemon, kind)["sequence"] for kind in kinds)
    os.kill(daemon.pid, signal.SIGHUP)
    told: list[str] = []

    def has_told() -> bool:
        told[:] = [event["message"] for kind in kinds if (event := last_event(daemon, kind))["sequence"] > before]
        return bool(told)

    launcher.wait_for("the reload", has_told)
    return told[0]


def text_of(base: str, changes: dict[str, dict[str, Any]]) -> str:
    from tierd.daemon import toml

    return base + toml(changes)


@pytest.fixture
def node(socket_folder: pathlib.Path) -> Iterator[launcher.Running]:
    """Of 32 MiB of RAM, and an SSD tier: the load swaps."""
    with launcher.start(socket_folder, arena="32MiB", tier="256MiB") as running:
        yield running


def test_the_budget_of_writes_changes_while_the_daemon_runs(node: launcher.Running) -> None:
    capacity = launcher.metrics(node)['tierd_device_capacity_bytes{device="0"}']
    base = (node.directory / "tierd.toml").read_text()
    assert base.count("[ssd]\n") == 1

    def expect(per_day: float) -> None:
        def is_there() -> bool:
            return launcher.metrics(node)["tierd_write_budget_bytes_per_day"] == per_day

        launcher.wait_for(f"a budget of {per_day} bytes a day", is_there)

    expect(0)
    told = reload(node, base.replace("[ssd]\n", "[ssd]\ndrive_writes_per_day = 3\n"))
    assert "changed: ssd.drive_writes_per_day (0 to 3)" in told and "restart" not in told, told
    expect(3 * capacity)
    done = tierctl(node, "config", "set", "ssd.drive_writes_per_day", "0.5")
    assert done.returncode == 0, done.stderr
    expect(capacity // 2)
    assert tierctl(node, "config", "get", "ssd.drive_writes_per_day").stdout == "0.5\n"
    unknown = tierctl(node, "config", "get", "ssd.drive_writes_per_da")
    assert unknown.returncode == 3 and "did you mean 'ssd.drive_writes_per_day'?" in unknown.stderr, unknown
    assert tierctl(node, "config", "set", "ssd.drive_writes_per_day", "-1").returncode != 0
    expect(capacity // 2)
    reload(node, base)
    expect(0)


def test_reloads_under_load_end_no_job_and_fail_no_request(node: launcher.Running) -> None:
    base = (node.directory / "tierd.toml").read_text()
    with loaded(node) as loads:
        for count in range(10):
            changes = LEFT if count % 2 == 0 else RIGHT
            told = reload(node, text_of(base, changes))
            assert "was read again; changed: engine.spin" in told and "restart" not in told, told
            there = options(node)
            for section, keys in changes.items():
                for key in keys:
                    assert there[f"{section}.{key}"]["value"] == there[f"{section}.{key}"]["file_value"], key
        assert tierctl(node, "config", "get", "engine.deadline").stdout == '"40s"\n'
        rounds = [load.rounds for load in loads]

        def go_on() -> bool:
            options(node)  # A process of its own: the loads have this one meanwhile.
            assert not any(load.failures for load in loads), [load.failures for load in loads]
            return all(load.rounds > was for load, was in zip(loads, rounds, strict=True))

        launcher.wait_for("more work", go_on)
        jobs = json.loads(tierctl(node, "--json", "job", "list").stdout)["jobs"]
        assert sorted(job["name"] for job in jobs) == ["one", "two"] and all(job["session_count"] == 1 for job in jobs)


def test_every_option_that_changes_at_run_time_is_taken_over_in_a_test_above(node: launcher.Running) -> None:
    """What each then does: options_change_test.cc and engine_options_test.cc for the engine's, and below."""
    changeable = {name for name, option in options(node).items() if option["changes_at_run_time"]}
    by_itself = {"ssd.drive_writes_per_day", "arena.minimum", "arena.host_reserve"}
    by_itself |= {"jobs.on_unreturned", "ssd.smart_file"}  # In test_forced_return.py and test_tierd_smart.py.
    by_itself |= {"metrics.listen"}  # Below.
    assert changeable == {f"{section}.{key}" for section, keys in LEFT.items() for key in keys} | by_itself


def test_a_broken_file_changes_nothing_and_is_told(node: launcher.Running) -> None:
    base = (node.directory / "tierd.toml").read_text()
    before = {name: option["value"] for name, option in options(node).items()}
    told = reload(node, text_of(base, {"engine": {"deadline": "3s"}, "jobs": {"idle_after": 5}}))
    assert "the reload failed" in told and "option jobs.idle_after" in told and "stay as they are" in told
    assert {name: option["value"] for name, option in options(node).items()} == before
    diff = tierctl(node, "config", "diff")
    assert diff.returncode == 1 and "a reload refuses the file: " in diff.stdout, diff.stdout
    log = (node.directory / "tierd.log").read_text()
    assert "reload: " in log and "all settings stay as they are" in log
    assert "was read again" in reload(node, base)
    assert tierctl(node, "config", "diff").returncode == 0


def check(daemon: launcher.Running) -> subprocess.CompletedProcess[str]:
    """What `systemctl reload` asks before it sends SIGHUP."""
    command = [str(launcher.need_build()), "--check-config", "--config", str(daemon.directory / "tierd.toml")]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_what_this_host_refuses_fails_the_check_and_a_refused_reload_stays_visible(node: launcher.Running) -> None:
    base = (node.directory / "tierd.toml").read_text()

    def failed() -> float:
        return launcher.metrics(node)["tierd_config_reload_failed"]

    assert failed() == 0 and check(node).returncode == 0
    for line, sentence in (('minimum = "200GiB"', "cannot keep 200 GiB"), ('host_reserve = "900TiB"', "of 900 TiB")):
        told = reload(node, base.replace("[arena]\n", f"[arena]\n{line}\n"))
        assert sentence in told and "stay as they are" in told, told
        checked = check(node)
        assert checked.returncode == os.EX_CONFIG and sentence in checked.stderr, checked
        assert failed() == 1
        status = json.loads(tierctl(node, "--json", "status").stdout)
        assert sentence in status["reload_failure"] and status["reload_failure_time"].startswith("20"), status
        shown = " ".join(tierctl(node, "status").stdout.split())
        assert "reload refused at 20" in shown and sentence in shown, shown
        assert "the last reload was refused (see reload)" in tierctl(node, "status").stdout.splitlines()[0]
        diff = tierctl(node, "config", "diff")
        assert diff.returncode == 1 and sentence in diff.stdout and line.split('"')[1] in diff.stdout, diff.stdout
    reload(node, base)
    assert failed() == 0 and check(node).returncode == 0
    assert tierctl(node, "config", "diff").returncode == 0
    status = json.loads(tierctl(node, "--json", "status").stdout)
    assert status["reload_failure"] == "" and "reload_failure_time" not in status
    assert "refused" not in tierctl(node, "status").stdout


@pytest.mark.parametrize("kind", ["endless", "fifo", "too large"])
def test_what_is_no_configuration_file_holds_nothing_up(node: launcher.Running, kind: str) -> None:
    file = node.directory / "tierd.toml"
    base = file.read_text()
    file.unlink()
    if kind == "endless":
        file.symlink_to("/dev/zero")
    elif kind == "fifo":
        os.mkfifo(file)
    else:
        file.write_text("# " + "x" * (1 << 20) + "\n" + base)
    sentence = "name a regular file of at most 1 MiB"
    told = reload_as_it_is(node)
    assert sentence in told and "stay as they are" in told, told
    diff = tierctl(node, "config", "diff")
    assert diff.returncode == 1 and sentence in diff.stdout, diff
    checked = check(node)
    assert checked.returncode == os.EX_CONFIG and sentence in checked.stderr, checked
    started = subprocess.run(
        [str(launcher.need_build()), "--config", str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    assert started.returncode == os.EX_CONFIG and sentence in started.stderr, started
    file.unlink()
    assert "was read again" in reload(node, base)


def test_others_than_administrators_are_told_nothing_of_the_file(node: launcher.Running) -> None:
    base = (node.directory / "tierd.toml").read_text()
    assert "daemon.log" not in reload(node, base)
    assert "jobs.idle_after" in reload(node, text_of(base, {"jobs": {"idle_after": 5}}))
    assert tierctl(node, "config", "set", "jobs.max_tensors", "4711").returncode == 0
    kinds = ["config_reloaded", "config_reload_failed", "config_changed"]

    def seen(*words: str) -> list[dict[str, Any]]:
        told = json.loads(tierctl(node, "--json", "events", *words, socket="control.sock").stdout)
        return [event for event in told["events"] if event["kind"] in kinds]

    events = seen()
    assert [event["kind"] for event in events] == kinds, events
    for secret in ("tierd.toml", "idle_after", "4711", "uid"):
        assert not any(secret in event["message"] for event in events), events
    told = json.loads(tierctl(node, "--json", "status", socket="control.sock").stdout)["reload_failure"]
    assert "reload of the configuration failed" in told and "tierd.toml" not in told and "idle_after" not in told, told
    assert seen("--since", str(events[0]["sequence"])) == events[1:]


def test_what_waits_for_a_restart_is_named(node: launcher.Running) -> None:
    base = (node.directory / "tierd.toml").read_text()
    told = reload(node, text_of(base, {"engine": {"workers": 3, "deadline": "3s"}}))
    assert told.endswith("only a restart changes engine.workers"), told
    diff = [line for line in tierctl(node, "config", "diff").stdout.splitlines() if line.startswith("engine.workers ")]
    assert len(diff) == 1 and diff[0].endswith("needs a restart"), diff
    assert options(node)["engine.workers"]["value"] == "0"


def test_what_the_host_keeps_changes_and_what_cannot_be_is_refused(node: launcher.Running) -> None:
    base = (node.directory / "tierd.toml").read_text()
    assert base.count("[arena]\n") == 1
    for name, value in (("arena.minimum", "8MiB"), ("arena.host_reserve", "96MiB")):
        set_option(node, name, value)
        assert tierctl(node, "config", "get", name).stdout == f'"{value}"\n'
    with tierd.connect(job="there", socket=node.socket) as client:
        client.put("there", b"x" * (2 << 20))
    refused = tierctl(node, "config", "set", "arena.minimum", "64MiB")
    assert refused.returncode != 0 and "cannot keep 64 MiB of at most 32 MiB" in refused.stderr, refused.stderr
    told = reload(node, base.replace("[arena]\n", '[arena]\nhost_reserve = "1000TiB"\n'))
    assert "less the host reserve of 1000 TiB" in told and "stay as they are" in told, told
    assert tierctl(node, "config", "get", "arena.minimum").stdout == '"8MiB"\n'
    reload(node, base)
    assert options(node)["arena.minimum"]["value"] == "0"


def test_the_engine_waits_as_the_option_says_from_then_on(node: launcher.Running) -> None:
    def modes() -> dict[str, float]:
        found = launcher.metrics(node).items()
        return {name.split('"')[1]: value for name, value in found if name.startswith("tierd_engine_spin_mode{")}

    assert modes() == {"auto": 1, "always": 0, "never": 0}
    set_option(node, "engine.spin", "always")
    assert modes() == {"auto": 0, "always": 1, "never": 0}
    assert "spin" in tierctl(node, "config", "set", "engine.spin", "often").stderr
    assert modes()["always"] == 1


def test_an_option_is_set_until_the_next_reload(node: launcher.Running) -> None:
    base = (node.directory / "tierd.toml").read_text()
    done = tierctl(node, "config", "set", "jobs.max_tensors", "3")
    assert done.returncode == 0 and "jobs.max_tensors is 3 until the next reload or restart" in done.stdout, done
    with tierd.connect(job="few", socket=node.socket) as client:
        for key in range(3):
            client.put(key, b"x")
        with pytest.raises(tierd.NoMemory, match="at most 3"):
            client.put(4, b"x")
        assert (node.directory / "tierd.toml").read_text() == base
        diff = tierctl(node, "config", "diff").stdout
        assert any(line.startswith("jobs.max_tensors ") and "set at run time" in line for line in diff.splitlines())
        assert "uid" in last_event(node, "config_changed")["message"]
        reload(node, base)
        client.put(4, b"x")
    assert "jobs.max_tensors" not in tierctl(node, "config", "diff").stdout


@pytest.mark.parametrize(
    ("option", "value", "code", "sentence"),
    [("ssd.queue_depth", "8", 2, "changes only at a restart"), ("engine.deadlin", "8s", 2, "the nearest is"),
     ("engine.deadline", "8", 2, "option engine.deadline"), ("engine.evict", "1%", 2, "engine.write_behind")],
)  # fmt: skip
def test_a_wrong_one_is_refused(node: launcher.Running, option: str, value: str, code: int, sentence: str) -> None:
    done = tierctl(node, "config", "set", option, value)
    assert done.returncode == code and sentence in done.stderr, done


def test_others_than_administrators_see_values_and_set_none(node: launcher.Running) -> None:
    assert options(node, socket="control.sock")["engine.deadline"]["value"] == '"60s"'
    assert "file_value" not in options(node, socket="control.sock")["engine.deadline"]
    refused = tierctl(node, "config", "set", "log.level", "debug", socket="control.sock")
    assert refused.returncode == 5 and "only an administrator may set an option" in refused.stderr


def address(daemon: launcher.Running) -> str:
    return str(json.loads(tierctl(daemon, "--json", "status").stdout)["metrics_address"])


def served(at: str) -> dict[str, float]:
    return launcher.scrape(f"http://{at}/metrics")


def test_metrics_move_to_another_address_and_their_counters_go_on(node: launcher.Running) -> None:
    base = (node.directory / "tierd.toml").read_text()
    assert base.count('"127.0.0.1:0"') == 1
    with tierd.connect(job="counted", socket=node.socket) as client:
        client.put("there", b"x" * (2 << 20))
    before = address(node)
    # Scrapes that come close together get the same figures, those of the audit's first look too.
    launcher.wait_for("its bytes are counted", lambda: served(before)["tierd_sealed_bytes_total"] >= 2 << 20)
    counted = served(before)["tierd_sealed_bytes_total"]
    # The same port, and all addresses of the host.
    everywhere = before.replace("127.0.0.1", "0.0.0.0")
    told = reload(node, base.replace("127.0.0.1:0", everywhere))
    assert "changed: metrics.listen" in told and "restart" not in told, told
    assert address(node) == everywhere
    assert served(before)["tierd_sealed_bytes_total"] == counted
    set_option(node, "metrics.listen", "127.0.0.1:0")
    after = address(node)
    assert after != before and (node.directory / "metrics.port").read_text() == after.split(":")[1] + "\n"
    assert served(after)["tierd_sealed_bytes_total"] == counted
    with pytest.raises(OSError):
        served(before)
    set_option(node, "metrics.listen", "")
    assert address(node) == "" and not (node.directory / "metrics.port").exists()
    set_option(node, "metrics.listen", before)
    assert served(before)["tierd_sealed_bytes_total"] == counted


def test_an_address_that_is_taken_or_a_name_is_refused_and_changes_nothing(node: launcher.Running) -> None:
    base = (node.directory / "tierd.toml").read_text()
    before = address(node)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        told = reload(node, text_of(base, {"engine": {"deadline": "3s"}}).replace("127.0.0.1:0", listen))
        assert f"cannot serve metrics on {listen}" in told and "stay as they are" in told, told
        assert tierctl(node, "config", "get", "engine.deadline").stdout == '"60s"\n'
        diff = tierctl(node, "config", "diff")
        assert diff.returncode == 1 and f"a reload refuses the file: cannot serve metrics on {listen}" in diff.stdout, (
            diff
        )
        for value in (listen, "localhost:9464"):
            refused = tierctl(node, "config", "set", "metrics.listen", value)
            assert refused.returncode == 2 and "metrics.listen" in refused.stderr, refused
    assert address(node) == before
    assert served(before)["tierd_config_reload_failed"] == 1
    reload(node, base)
    assert served(before)["tierd_config_reload_failed"] == 0


def set_option(daemon: launcher.Running, option: str, value: str) -> None:
    done = tierctl(daemon, "config", "set", option, value)
    assert done.returncode == 0, done.stderr


def test_a_quota_holds_for_jobs_that_are_open_when_the_command_returns(node: launcher.Running) -> None:
    with tierd.connect(job="full", socket=node.socket) as client:
        client.put("there", b"x" * (4 << 20))
        for key in range(5):
            set_option(node, "jobs.max_ssd_per_uid", "4MiB")
            with pytest.raises(tierd.NoSpace, match="jobs.max_ssd_per_uid"):
                client.put(key, b"x" * (2 << 20))
            set_option(node, "jobs.max_ssd_per_uid", "0")
            client.put(key, b"x" * (2 << 20))
        assert bytes(client.get("there")) == b"x" * (4 << 20)


def test_limits_of_leases_and_sessions_hold_when_the_command_returns(node: launcher.Running) -> None:
    with tierd.connect(job="held", socket=node.socket) as client:
        for key in range(3):
            client.put(key, b"x" * 5000)
        set_option(node, "jobs.max_leases", "2")
        with client.lease(0), client.lease(1), pytest.raises(tierd.NoMemory, match="at most 2"):
            client.lease(2)
        set_option(node, "jobs.max_leases", "3")
        with client.lease(0), client.lease(1), client.lease(2):
            pass
        set_option(node, "jobs.max_sessions", "1")
        with pytest.raises(tierd.Denied, match="jobs.max_sessions"):
            tierd.connect(job="other", socket=node.socket)


def test_what_is_dirty_is_written_once_write_behind_begins_earlier(node: launcher.Running) -> None:
    set_option(node, "engine.evict", "100%")
    set_option(node, "engine.write_behind", "100%")
    with tierd.connect(job="dirty", socket=node.socket) as client:
        for key in range(4):
            client.put(key, b"x" * (2 << 20))

        def written() -> float:
            found = launcher.metrics(node).items()
            return sum(value for name, value in found if name.startswith("tierd_device_written_bytes_total"))

        before = written()
        set_option(node, "engine.write_behind", "1%")
        launcher.wait_for("writes of what is dirty", lambda: written() > before)
