"""The demo, small: its verdict, its figures, and that it leaves nothing behind."""

from __future__ import annotations

import json
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence

import launcher
import pytest

MEMORY_OF_PLAIN = 0.35  # At most so much of what plain torch takes, at the demo's defaults.
SMALL = ["--steps", "4", "--layers", "4", "--width", "256", "--heads", "4", "--context", "64"]
SMALL += ["--arena", "8MiB", "--ssd", "256MiB"]


@pytest.fixture
def disk() -> Iterator[pathlib.Path]:
    launcher.need_build()
    pytest.importorskip("rich")
    with launcher.disk_folder() as folder:
        yield folder


def demo(disk: pathlib.Path, *options: str, model: Sequence[str] = SMALL) -> subprocess.Popen[str]:
    script = launcher.ROOT / "bindings/python/demo/train_gpt.py"
    command = [sys.executable, script, *model, "--directory", disk, *options]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=launcher.environment(), stdout=pipe, stderr=pipe, text=True)


def test_both_runs_agree_and_every_state_was_on_ssd(disk: pathlib.Path, tmp_path: pathlib.Path) -> None:
    report = tmp_path / "demo.jsonl"
    running = demo(disk, "--json", str(report))
    out, err = running.communicate(timeout=240)
    assert running.returncode == 0, err
    assert "losses identical, bit for bit" in out and "4 of 4" in out
    figures = json.loads(report.read_text())
    tiered = figures["tierd"]
    assert tiered["states"] == tiered["states_returned"] > 0
    assert tiered["losses"] == figures["plain"]["losses"] and tiered["digest"] == figures["plain"]["digest"]
    assert 0 < tiered["peak_memfd"] < 32 << 20 and tiered["swap_in_bytes"] > 0
    assert list(disk.iterdir()) == []


def test_the_model_of_the_demo_takes_a_third_of_plain_torchs_memory(disk: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Few steps suffice: the second finds everything that a step holds."""
    report = tmp_path / "demo.jsonl"
    running = demo(disk, "--steps", "4", "--json", str(report), model=())
    out, err = running.communicate(timeout=240)
    assert running.returncode == 0, err
    figures = json.loads(report.read_text())
    ratio = figures["tierd"]["memory"] / figures["plain"]["memory"]
    assert 0 < ratio <= MEMORY_OF_PLAIN, out
    assert f"({ratio:.2f} of plain)" in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing(disk: pathlib.Path, number: signal.Signals) -> None:
    running = demo(disk, "--no-baseline", "--steps", "10000")
    assert running.stdout is not None
    for line in running.stdout:
        if line.startswith("tierd"):
            break  # It trains.
    running.send_signal(number)
    _, err = running.communicate(timeout=60)
    assert running.returncode in (130, 143), err
    assert list(disk.iterdir()) == []


def test_a_demo_that_cannot_start_says_why(disk: pathlib.Path) -> None:
    running = demo(disk, "--no-baseline", "--ssd", "900TiB")
    _, err = running.communicate(timeout=60)
    assert running.returncode == 1 and err.startswith("demo: ")
    assert list(disk.iterdir()) == []
