"""Progress is for a person at a terminal: it is silent in logs, and without rich."""

from __future__ import annotations

import os
import pathlib
import pty
import subprocess
import sys
import types
import warnings
from typing import Any

import pytest
import torch

import tierd
import tierd.torch
from tierd import progress
from tierd.progress import counted, shown, wanted

LARGE = progress.SHOWN_FROM_BYTES + 1
PROGRAM = """
import sys
from tierd.progress import shown
with shown("moving", int(sys.argv[1]), None) as advance:
    advance(int(sys.argv[1]))
"""


@pytest.mark.parametrize(("total", "drawn"), [(LARGE, True), (LARGE - 1, False)])
def test_a_terminal_sees_large_copies(total: int, drawn: bool) -> None:
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PROGRAM, str(total)]
    program = subprocess.Popen(command, stdout=follower, stderr=follower, env=environment)
    os.close(follower)
    told = b""
    try:
        while part := os.read(leader, 4096):
            told += part
    except OSError:  # Linux's end of a terminal without a program.
        pass
    os.close(leader)
    assert program.wait() == 0
    assert (b"tierd: moving" in told and b"1.0/1.0 GiB" in told) if drawn else told == b""


def test_a_log_sees_none_unless_it_is_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    with shown("moving", LARGE, None) as advance:
        advance(LARGE)
    with shown("moving", LARGE, False) as advance:
        advance(LARGE)
    assert capfd.readouterr() == ("", "")
    with shown("moving", 10, True) as advance:
        advance(10)
    told = capfd.readouterr()
    assert told.out == "" and "tierd: moving" in told.err


def test_a_notebook_is_known_by_its_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    shell: list[object] = [None]
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell[0]))
    assert not wanted(None, LARGE)
    shell[0] = object()
    assert wanted(None, LARGE) and not wanted(None, LARGE - 1) and not wanted(False, LARGE)


@pytest.mark.parametrize("terminal", ["xterm", "dumb"])
def test_a_notebook_without_widgets_has_a_line_and_no_advice(
    terminal: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", terminal)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with shown("moving", LARGE, True) as advance:
            advance(LARGE)
    told = capfd.readouterr()
    assert told.out == "" and "tierd: moving" in told.err and "ipywidgets" not in told.err


def test_without_rich_there_is_none(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    with shown("moving", 10, True) as advance:
        advance(10)
    assert capfd.readouterr() == ("", "")


def test_an_error_passes_and_the_bar_ends(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(tierd.NoSpace), shown("moving", 10, True):
        raise tierd.NoSpace("full")
    with pytest.raises(tierd.Invalid, match="progress is 'yes'"), shown("moving", 10, "yes"):  # type: ignore[arg-type]
        pass


@pytest.mark.parametrize("shard", ["1GB", "100B"])
def test_weights_that_are_read_and_written_are_shown(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str], shard: str
) -> None:
    model = torch.nn.Linear(16, 16)  # 1,088 bytes.
    tierd.torch.save_safetensors(model, tmp_path, max_shard_bytes=shard, progress=True)
    tierd.torch.load_safetensors(model, tmp_path, progress=True)
    told = capfd.readouterr().err
    assert "writing weights" in told and "reading weights" in told and told.count("1.1/1.1 KiB") == 2


@pytest.mark.parametrize(("last", "drawn"), [(40, False), (41, True)])
def test_where_the_total_is_not_known_it_is_shown_when_much_has_moved(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], last: int, drawn: bool
) -> None:
    monkeypatch.setattr(progress, "SHOWN_FROM_BYTES", 100)
    monkeypatch.setattr(progress, "_is_terminal", lambda: True)
    with counted("making", None) as advance:
        advance(60)
        advance(last)
        assert capfd.readouterr() == ("", "")  # As it is no terminal in truth, it is written at the end.
    assert ("tierd: making" in (told := capfd.readouterr().err)) == ("101/? bytes" in told) == drawn
    with pytest.raises(tierd.Invalid, match="progress is 'yes'"), counted("making", "yes"):  # type: ignore[arg-type]
        pass


def test_a_model_that_is_made_in_tierd_is_shown(client: tierd.Client, capfd: pytest.CaptureFixture[str]) -> None:
    with tierd.torch.creating(client=client, min_bytes=1, progress=True):
        model = torch.nn.Linear(16, 16)  # 1,088 bytes, which leave once more after this.
        torch.nn.init.ones_(model.weight)
    told = capfd.readouterr().err
    assert "tierd: creating a model" in told and "1.1/? KiB" in told


def test_a_shared_tensor_is_shown_to_the_rank_that_copies_it(
    client: tierd.Client, capfd: pytest.CaptureFixture[str]
) -> None:
    def load() -> None:
        given: dict[str, Any] = {"shape": [5 << 17], "dtype": torch.float32, "progress": True}
        tierd.torch.load_shared(client, "base", lambda: torch.ones(5 << 17), **given)

    load()
    told = capfd.readouterr().err
    assert "tierd: copying 'base'" in told and "2.5/2.5 MiB" in told
    load()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("ours", [True, False])
def test_the_state_of_an_optimizer_that_is_read_and_written_is_shown(
    client: tierd.Client, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str], ours: bool
) -> None:
    model = torch.nn.Linear(16, 16)
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    if ours:
        _, optimizer = tierd.torch.offload(model, tierd.torch.AdamW, client=client, min_bytes=1)
    model(torch.ones(2, 16)).sum().backward()
    optimizer.step()
    tierd.torch.save_state(optimizer, tmp_path / "state", progress=True)
    tierd.torch.load_state(optimizer, tmp_path / "state", progress=True)
    told = capfd.readouterr().err
    for what in ("writing the optimizer's state", "reading the optimizer's state"):
        (line,) = (line for line in told.splitlines() if what in line)
        assert "2.1/2.1 KiB" in line
