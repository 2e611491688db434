"""`tierctl pool map` of a real daemon with three jobs: text, colour, JSON, SVG, and what another user sees of it."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import tempfile
import termios
import urllib.request
import xml.etree.ElementTree
from collections.abc import Iterator
from typing import Any

import launcher
import numpy
import pytest

import tierd

BLOCK = 2 << 20
# Bytes of each tensor, by job: whole blocks, tails behind them, small tensors.
TENSORS = {"train": [3 * BLOCK + 5000] * 4 + [100] * 50, "eval": [BLOCK] * 5, "tiny": [4097]}
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def tierctl(daemon: launcher.Running, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """`tierctl pool map` with these words, of this daemon."""
    return launcher.run_tierctl(daemon, "pool", "map", *words, **options)


def pool_of(daemon: launcher.Running, **options: Any) -> Any:
    done = tierctl(daemon, "--json", **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def three_jobs() -> Iterator[launcher.Running]:
    """A daemon whose three jobs keep all of their tensors in RAM."""
    with (
        tempfile.TemporaryDirectory(prefix="tier-") as folder,
        launcher.start(pathlib.Path(folder), arena="256MiB", tier="256MiB") as running,
    ):
        clients = [tierd.connect(job=job, socket=running.socket) for job in TENSORS]
        for client, sizes in zip(clients, TENSORS.values(), strict=True):
            for number, size in enumerate(sizes):
                client.put(number, numpy.zeros(size, numpy.uint8))
        yield running
        for client in clients:
            client.close()


def pages(bytes_: int) -> int:
    return -(-bytes_ // 4096) * 4096


def test_each_job_is_shown_with_what_it_holds_to_the_byte(three_jobs: launcher.Running) -> None:
    pool = pool_of(three_jobs)
    owners = {owner["job"]: owner for owner in pool["owners"]}
    assert set(owners) == set(TENSORS)
    for job, sizes in TENSORS.items():
        owner = owners[job]
        assert owner["kind"] == "job" and owner["uid"] == os.getuid()
        assert owner["requested_bytes"] == sum(sizes)
        assert owner["requested_block_bytes"] == sum(size // BLOCK * BLOCK for size in sizes)
        assert owner["requested_tail_bytes"] == sum(size % BLOCK for size in sizes if size > BLOCK)
        assert owner["requested_slot_bytes"] == sum(size for size in sizes if size < BLOCK)
        assert owner["waste_bytes"] == owner["held_bytes"] - owner["requested_bytes"]
        place = pool["owners"].index(owner)
        windows = [window for window in pool["windows"] if window["owner"] == place]
        ready = [window for window in windows if window["condition"] == "ready"]
        assert ready and sum(window["size_bytes"] for window in ready) <= owner["held_bytes"]
        used = sum(window["block_bytes"] + window["tail_bytes"] + window["slot_bytes"] for window in windows)
        assert used == sum(size // BLOCK * BLOCK + pages(size % BLOCK) for size in sizes)
        assert used + owner["free_bytes"] == sum(window["size_bytes"] for window in ready)
    places = [window["place_bytes"] for window in pool["windows"] if window["size_bytes"]]
    assert places == sorted(places) and len(set(places)) == len(places)


def test_the_metrics_say_the_same(three_jobs: launcher.Running) -> None:
    launcher.metrics(three_jobs)  # The figures that follow are not of a moment before all of it was there.
    pool = pool_of(three_jobs)
    with urllib.request.urlopen(three_jobs.metrics_url, timeout=20) as page:
        lines = page.read().decode().splitlines()
    sums: dict[str, float] = {}
    for line in lines:
        if found := re.fullmatch(r'(tierd_\w+)\{(?:tierd_job|condition)="[^"]*".*\} (\S+)', line):
            name = found[1] + "".join(re.findall(r'tierd_job="([^"]*)"', line))
            sums[name] = sums.get(name, 0) + float(found[2])
    for owner in pool["owners"]:
        for figure in ("held", "requested", "waste", "free", "largest_run", "borrowed", "owed", "returning"):
            assert sums[f"tierd_job_{figure}_bytes{owner['job']}"] == owner[f"{figure}_bytes"], figure
    assert sums["tierd_window_conditions"] == len(pool["windows"])


def test_a_pipe_gets_plain_text(three_jobs: launcher.Running) -> None:
    done = tierctl(three_jobs, env=dict(os.environ, COLUMNS="160", LC_ALL="C"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii() and "\x1b" not in done.stdout
    head, cells = done.stdout.splitlines()[:2]
    assert head.startswith("arena ") and "(one a cell)" in head
    assert re.fullmatch(r"([ABCabc][0-9.#+<!x-])+", cells), cells
    for letter, job in zip("ABC", ("eval", "tiny", "train"), strict=True):
        assert re.search(rf"^{letter}  {os.getuid()}/{job} ", done.stdout, re.MULTILINE), done.stdout


def shown_on_terminal(daemon: launcher.Running, width: int, environment: dict[str, str]) -> str:
    """What `tierctl pool map` writes to a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    command = [launcher.need_tierctl(), "pool", "map", "--socket", daemon.directory]
    child = subprocess.Popen(command, stdout=theirs, env=environment)
    os.close(theirs)
    text = b""
    try:
        while part := os.read(ours, 65536):
            text += part
    except OSError:  # EIO: the child has closed the other end.
        pass
    os.close(ours)
    assert child.wait(20) == 0
    return text.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("width", [40, 200])
def test_a_terminal_gets_colour_and_its_width(three_jobs: launcher.Running, width: int) -> None:
    environment = {**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8"}
    environment.pop("NO_COLOR", None)
    coloured = shown_on_terminal(three_jobs, width, environment)
    plain = shown_on_terminal(three_jobs, width, {**environment, "NO_COLOR": "1"})
    assert "\x1b[38;5;33m" in coloured and "█" in coloured
    assert "\x1b" not in plain
    assert all(len(line) <= width for line in _ESCAPE.sub("", coloured).splitlines())
    assert ("   JOB" in plain) == (width == 200), "a table where it fits"


def test_the_picture_as_a_file(three_jobs: launcher.Running, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "pool.svg"
    done = tierctl(three_jobs, "--svg", str(file))
    assert done.returncode == 0 and done.stdout.startswith("arena "), done.stderr
    root = xml.etree.ElementTree.fromstring(file.read_text())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    titles = [title.text or "" for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == len(pool_of(three_jobs)["windows"])
    assert {title.split(":")[0] for title in titles} == {f"{os.getuid()}/{job}" for job in TENSORS}


def test_a_file_that_cannot_be_written_is_named(three_jobs: launcher.Running, tmp_path: pathlib.Path) -> None:
    done = tierctl(three_jobs, "--svg", str(tmp_path / "missing/pool.svg"))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"cannot write {tmp_path}/missing/pool.svg: No such file or directory" in done.stderr
    assert tierctl(three_jobs, "--svg").returncode == 2


def test_without_a_daemon_it_says_so_and_leaves_the_file(socket_folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "pool.svg"
    file.write_text("before")
    with launcher.start(socket_folder, arena="32MiB", tier="64MiB") as gone:
        pass
    done = tierctl(gone, "--svg", str(file))
    assert (done.returncode, done.stdout) == (4, "")
    assert "DISCONNECTED" in done.stderr
    assert file.read_text() == "before"


def test_another_user_sees_windows_and_no_names(three_jobs: launcher.Running) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: becomes another user")
    os.chmod(three_jobs.directory, 0o755)
    pool = pool_of(three_jobs, user=65534, group=65534, extra_groups=[])
    (others,) = pool["owners"]
    assert (others["kind"], others["job"], others["uid"]) == ("other_users", "", 0)
    assert others["requested_bytes"] == sum(map(sum, TENSORS.values()))
    assert {window["owner"] for window in pool["windows"]} == {0}
    text = tierctl(three_jobs, user=65534, group=65534, extra_groups=[]).stdout
    assert "other users" in text and not any(job in text for job in TENSORS)
