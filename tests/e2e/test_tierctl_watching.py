"""`tierctl events` and `tierctl top` beside a real daemon."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import time
from typing import Any

import launcher
import pytest
import terminal

import tierd


def command(daemon: launcher.Running, *words: object) -> list[str]:
    return [str(launcher.need_tierctl()), *map(str, words), "--socket", str(daemon.directory)]


def events(daemon: launcher.Running, *words: object) -> list[dict[str, Any]]:
    done = launcher.run_tierctl(daemon, "--json", "events", *words)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["events"]
    return found


def test_recent_events_are_printed_and_that_is_all(own_daemon: launcher.Running) -> None:
    tierd.connect(job="train", socket=own_daemon.socket).close()
    launcher.wait_for("the job's end", lambda: events(own_daemon)[-1]["kind"] == "job_closed")
    assert [event["kind"] for event in events(own_daemon)] == [
        "job_opened", "session_attached", "session_ended", "job_closed",
    ]  # fmt: skip
    done = launcher.run_tierctl(own_daemon, "events")
    (first, *_) = done.stdout.splitlines()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  job_opened        \d+/train: job 'train' of uid \d+ opened", first
    )
    assert {event["uid"] for event in events(own_daemon)} == {os.geteuid()}


def test_a_daemon_without_events_says_so_beside_its_output(own_daemon: launcher.Running) -> None:
    done = launcher.run_tierctl(own_daemon, "events")
    assert (done.returncode, done.stdout) == (0, ""), done
    said = r"tierctl: no event that you may see since tierd started at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\n"
    assert re.fullmatch(said, done.stderr), done.stderr
    told = launcher.run_tierctl(own_daemon, "--json", "events")
    assert (json.loads(told.stdout)["events"], told.stderr) == ([], "")


def test_events_since_one_are_those_behind_it(own_daemon: launcher.Running) -> None:
    tierd.connect(job="train", socket=own_daemon.socket).close()
    launcher.wait_for("the job's end", lambda: len(events(own_daemon)) == 4)
    all_of_them = events(own_daemon)
    assert events(own_daemon, "--since", all_of_them[1]["sequence"]) == all_of_them[2:]
    assert events(own_daemon, "--since", all_of_them[-1]["sequence"]) == []
    said = launcher.run_tierctl(own_daemon, "events", "--since", all_of_them[-1]["sequence"]).stderr
    assert said == f"tierctl: no event behind {all_of_them[-1]['sequence']}\n"
    gone, *rest = events(own_daemon, "--since", 5)
    assert gone["kind"] == "events_lost" and "started since" in gone["message"] and rest == all_of_them
    assert gone["event_time"] == rest[0]["event_time"], "times do not go back"
    assert "rank" not in next(event["message"] for event in rest if event["kind"] == "session_attached")
    assert events(own_daemon, "--since", "1h") == all_of_them


def test_events_since_a_time_are_those_that_came_in_it(own_daemon: launcher.Running) -> None:
    tierd.connect(job="early", socket=own_daemon.socket).close()
    launcher.wait_for("the job's end", lambda: len(events(own_daemon)) == 4)
    launcher.wait_for("six seconds", lambda: not events(own_daemon, "--since", "6s"))
    begin = time.time()
    tierd.connect(job="late", socket=own_daemon.socket).close()
    launcher.wait_for("the job's end", lambda: len(events(own_daemon)) == 8)
    late = events(own_daemon, "--since", f"{int(time.time() - begin) + 4}s")
    assert [event["job"] for event in late] == ["late"] * 4


def test_who_follows_loses_nothing_while_the_daemon_is_away(socket_folder: pathlib.Path) -> None:
    lines: list[dict[str, Any]] = []
    # Not audited: who follows outlives it.
    with launcher.start(socket_folder, arena="32MiB", tier="64MiB", audited=False) as first:
        tierd.connect(job="before", socket=first.socket).close()
        follower = subprocess.Popen(
            command(first, "--json", "events", "--follow"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert follower.stdout and follower.stderr
        # It says nothing until it is there: jobs are opened until it has seen one.
        os.set_blocking(follower.stdout.fileno(), False)

        def seen() -> bool:
            tierd.connect(job="first", socket=first.socket).close()
            return bool(follower.stdout.readline())

        launcher.wait_for("the first event", seen)
        os.set_blocking(follower.stdout.fileno(), True)
    assert "waiting for the daemon, from event" in follower.stderr.readline()
    with launcher.start(socket_folder, arena="32MiB", tier="64MiB") as second:
        tierd.connect(job="second", socket=second.socket).close()
        while not lines or lines[-1]["job"] != "second" or lines[-1]["kind"] != "job_closed":
            lines.append(json.loads(follower.stdout.readline()))
        follower.send_signal(signal.SIGINT)
        assert follower.wait(20) == -signal.SIGINT
    kinds = [line["kind"] for line in lines]
    lost = kinds.index("events_lost")
    assert "started since" in lines[lost]["message"]
    assert kinds[lost + 1 :] == ["job_opened", "session_attached", "session_ended", "job_closed"]
    assert "before" not in {line["job"] for line in lines}, "it began where it was asked to"


def test_who_follows_a_daemon_that_never_was_is_told(socket_folder: pathlib.Path) -> None:
    for words in (["events"], ["events", "--follow"], ["events", "--follow", "--since", "5"], ["top"]):
        done = launcher.run_tierctl(socket_folder / "none.sock", *words)
        assert (done.returncode, done.stdout) == (4, "") and "DISCONNECTED" in done.stderr


def end_of(follower: subprocess.Popen[str], daemon: launcher.Running) -> str:
    """What it says at its end. It looks at its output with each event: jobs are opened until it has ended."""

    def ended() -> bool:
        tierd.connect(job="train", socket=daemon.socket).close()
        return follower.poll() is not None

    launcher.wait_for("the end of who follows", ended)
    return follower.communicate()[1]


@pytest.mark.parametrize("more", [[], ["--json"]], ids=["text", "json"])
def test_who_follows_ends_where_its_output_is_full(own_daemon: launcher.Running, more: list[str]) -> None:
    with pathlib.Path("/dev/full").open("w") as full:
        following = subprocess.Popen(
            command(own_daemon, "events", "--follow", *more), stdout=full, stderr=subprocess.PIPE, text=True
        )
        watching = subprocess.run(
            command(own_daemon, "top", "--interval", "0.1", *more),
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    said = "tierctl: cannot write the output: No space left on device\n"
    assert (watching.returncode, watching.stderr) == (1, said)
    assert (end_of(following, own_daemon), following.returncode) == (said, 1)


@pytest.mark.parametrize("ignored", [False, True], ids=["ends by SIGPIPE", "SIGPIPE is ignored"])
def test_who_follows_ends_silently_with_its_reader(own_daemon: launcher.Running, ignored: bool) -> None:
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # Python's own way; a child has it if it is not restored.
    try:
        following = subprocess.Popen(
            command(own_daemon, "events", "--follow"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            restore_signals=not ignored,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGPIPE, before)
    assert following.stdout
    following.stdout.close()
    following.stdout = None
    assert end_of(following, own_daemon) == ""
    assert following.returncode == (1 if ignored else -signal.SIGPIPE)


def test_another_user_sees_nothing_of_a_job(own_daemon: launcher.Running) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: becomes another user")
    os.chmod(own_daemon.directory, 0o755)
    tierd.connect(job="secret", socket=own_daemon.socket).close()
    done = subprocess.run(
        command(own_daemon, "--json", "events"), capture_output=True, text=True, timeout=60,
        user=65534, group=65534, extra_groups=[],
    )  # fmt: skip
    assert done.returncode == 0 and "secret" not in done.stdout, done.stderr


def test_one_table_with_rates(own_daemon: launcher.Running) -> None:
    with tierd.connect(job="swapping", socket=own_daemon.socket) as client:
        for key in range(24):  # More than the arena has.
            client.put(key, bytes(2 << 20))
        reading = subprocess.Popen(
            command(own_daemon, "top", "--once", "--json", "--interval", "2"), stdout=subprocess.PIPE, text=True
        )
        while reading.poll() is None:
            for key in range(24):
                client.get(key)
        assert reading.stdout
        view = json.loads(reading.stdout.read())
        text = subprocess.run(command(own_daemon, "top", "--once", "--interval", "0.1"), capture_output=True, text=True,
                              check=True, timeout=60).stdout  # fmt: skip
    (job,) = view["jobs"]
    assert job["name"] == "swapping" and 2 <= view["interval_seconds"] < 4
    assert job["swap_in_bytes_per_second"] > 1 << 20
    assert 0 <= job["hit_ratio"] < 1
    assert view["devices"][0]["read_bytes_per_second"] > 1 << 20
    assert re.search(rf"^{os.getuid()}/swapping +\S+ MiB", text, re.M), text


def screen_of(text: str) -> str:
    return text[text.rindex("\x1b[H") :] if "\x1b[H" in text else ""


def test_the_screen_is_sorted_by_keys_and_ends_by_q(own_daemon: launcher.Running) -> None:
    with (
        tierd.connect(job="a-small", socket=own_daemon.socket) as small,
        tierd.connect(job="b-large", socket=own_daemon.socket) as large,
    ):
        small.put(1, bytes(1 << 20))
        large.put(1, bytes(8 << 20))
        screen = terminal.Terminal(command(own_daemon, "top", "--interval", "3600"), 80, 24)
        before = screen.attributes()[3]
        first = screen.read_until(lambda text: "b-large" in screen_of(text) and screen_of(text).endswith("\x1b[J"))
        assert first.startswith("\x1b[?1049h")
        assert screen_of(first).index("b-large") < screen_of(first).index("a-small"), "by RAM"
        screen.press("n")
        by_name = screen.read_until(lambda text: screen_of(text).endswith("\x1b[J"))
        assert by_name.index("a-small") < by_name.index("b-large")
        screen.press("?r")  # The first means nothing.
        launcher.wait_for(
            "sorting by RAM",
            lambda: (
                (text := screen.read_until(lambda text: screen_of(text).endswith("\x1b[J"))).rindex("b-large")
                < text.rindex("a-small")
            ),
        )
        for columns, lines in ((40, 12), (120, 50), (80, 24)):
            screen.resize(columns, lines)
            drawn = screen.read_until(lambda text: screen_of(text).endswith("\x1b[J"))
            rows = [row.rstrip("\r") for row in terminal.plain(screen_of(drawn)).split("\n")]
            assert len(rows) <= lines and max(map(len, rows)) <= columns, rows
        screen.press("q")
        status, text = screen.close()
        assert status == 0 and text.endswith("\x1b[?25h\x1b[?1049l")
        assert before is not None


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_the_terminal_as_it_was(own_daemon: launcher.Running, sent: signal.Signals) -> None:
    screen = terminal.Terminal(command(own_daemon, "top", "--interval", "0.1"), 80, 24)
    screen.read_until(lambda text: text.count("\x1b[J") >= 3)  # It is drawn again by itself.
    during = screen.attributes()
    screen.child.send_signal(sent)
    screen.child.wait(20)
    after = screen.attributes()
    status, text = screen.close()
    assert status == 0 and text.endswith("\x1b[?25h\x1b[?1049l")
    assert after != during, "lines are read whole again, and shown"


def test_the_screen_outlives_the_daemon(socket_folder: pathlib.Path) -> None:
    # Not audited: the screen outlives it.
    with launcher.start(socket_folder, arena="32MiB", tier="64MiB", audited=False) as daemon:
        screen = terminal.Terminal(command(daemon, "top", "--interval", "0.1"), 80, 24)
        screen.read_until(lambda text: "  ok" in text)
    screen.read_until(lambda text: "no answer: " in text)
    with launcher.start(socket_folder, arena="32MiB", tier="64MiB"):
        screen.read_until(lambda text: "tierd " in screen_of(text) and "no answer" not in screen_of(text))
        screen.press("q")
        assert screen.close()[0] == 0


def test_tables_for_programs_go_on_with_the_next_daemon(socket_folder: pathlib.Path) -> None:
    # Not audited: who watches outlives it.
    with launcher.start(socket_folder, arena="32MiB", tier="64MiB", audited=False) as first:
        watching = subprocess.Popen(
            command(first, "--json", "top", "--interval", "0.1"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert watching.stdout and watching.stderr
        before = json.loads(watching.stdout.readline())["epoch"]
    assert "waiting for the daemon" in watching.stderr.readline()
    assert watching.poll() is None
    with launcher.start(socket_folder, arena="32MiB", tier="64MiB"):
        views = (json.loads(line) for line in watching.stdout)
        view = next(view for view in views if view["epoch"] != before)
        assert 0.1 <= view["interval_seconds"] < 10, "of two readings of one daemon"
        watching.send_signal(signal.SIGINT)
        assert watching.wait(20) == -signal.SIGINT


def test_watching_costs_less_than_a_hundredth_of_a_core(own_daemon: launcher.Running) -> None:
    """At one reading a second; its start is not counted."""
    with tierd.connect(job="idle", socket=own_daemon.socket):
        screen = terminal.Terminal(command(own_daemon, "top"), 80, 24)
        screen.read_until(lambda text: text.count("\x1b[J") >= 2)

        def used() -> float:
            """Seconds of processor time of all its threads."""
            tasks = pathlib.Path(f"/proc/{screen.child.pid}/task").glob("*/schedstat")
            return sum(int(task.read_text().split()[0]) for task in tasks) * 1e-9

        begin, spent = time.monotonic(), used()
        screen.read_until(lambda text: text.count("\x1b[J") >= 10, 60)
        share = (used() - spent) / (time.monotonic() - begin)
        screen.press("q")
        assert screen.close()[0] == 0
    assert share <= 0.01, share
