"""What the training bench computes from its measurements, what it draws, and when it says that it has no room."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/bench"))

sys.path.insert(0, str(ROOT / "bindings/python/tests"))

import larger  # noqa: E402
import phase_bound  # noqa: E402
import plots  # noqa: E402
import process  # noqa: E402
import svg  # noqa: E402
import train  # noqa: E402
import trainer  # noqa: E402
from activation_survey import survey_of  # noqa: E402
from fake_library import FakeLibrary  # type: ignore[import-not-found] # noqa: E402
from models import MODELS, Model  # noqa: E402
from phase_bound import Phase  # noqa: E402
from report import Report, interval  # noqa: E402

import tierd  # noqa: E402
import tierd.torch  # noqa: E402
from tierd.session import Session  # noqa: E402
from tierd.states import TensorState  # noqa: E402

GB = 1_000_000_000
SMALL = dataclasses.replace(MODELS["qwen-small"], layers=2, width=32, heads=4, key_value_heads=2, feed=48)


def test_a_survey_counts_what_was_written_and_what_was_not_in_ram_once() -> None:
    """Activation 1 is evicted before backward begins and prefetched by then; 2 is evicted only then; 3 stays in RAM."""
    torch.manual_seed(0)
    client = tierd.Client(Session(FakeLibrary(), 1))
    activations = tierd.torch.offload_activations(client, min_bytes=1)
    weight = torch.randn(64, requires_grad=True)
    with activations:
        loss = (weight.sin() * torch.randn(64)).exp().sigmoid().square().sum()
    first, second, third = [handle.key[1] for handle in activations._registry.order.handles()][:3]
    places = {first: [(0, 256), (256, 256)], second: [(256, 0), (0, 256)], third: [(256, 0), (256, 0)]}
    asked: list[int] = []

    class Places:
        """The client, which answers where an activation lies from ``places``: after the forward, and in backward."""

        def tensor(self, tensor: int) -> TensorState:
            ram, ssd = places[tensor].pop(0) if places.get(tensor) else (256, 0)
            return TensorState(256, 1, ram, ssd, True, False)

        def get_into(self, tensor: int, out: Any) -> None:
            asked.append(tensor)
            client.get_into(tensor, out)

        def __getattr__(self, name: str) -> Any:
            return getattr(client, name)

    own = Places()
    activations._registry.client = own  # type: ignore[assignment]
    with survey_of(activations) as survey:
        torch.autograd.backward(loss)
    assert {first, second, third} <= set(asked)
    assert (survey.read, survey.written) == (512, 512)
    assert activations._registry.client is own  # type: ignore[comparison-overlap]


def test_a_phase_takes_the_longer_of_computing_and_transfers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phase_bound, "cores", lambda: 2)
    computes = Phase(compute=1.0, read=GB, written=GB, rate=4.0)
    assert computes.compute_seconds == pytest.approx(1.12)  # 0.12 core seconds for each of 2 GB, on 2 processors.
    assert computes.transfer_seconds == 0.5
    assert computes.bound == computes.compute_seconds
    assert dataclasses.replace(computes, rate=1.0).bound == 2.0
    assert dataclasses.replace(computes, rate=0.0).bound == computes.compute_seconds  # Too few bytes to ask fio.


def test_the_spread_of_fio_is_that_of_its_quartiles() -> None:
    assert phase_bound.spread([4.0, 4.0, 4.0, 1.0]) == pytest.approx(4 / 3.25)
    assert phase_bound.spread([1.0, 1.0, 3.0, 3.0]) == 3.0
    assert phase_bound.spread([0.0, 0.0, 2.0]) == 1.0


def test_the_phases_of_a_step_share_all_of_its_bytes() -> None:
    from train import two_phases

    assert two_phases([(1, 2), (3, 4), (5, 6)]) == [(1, 2), (8, 10)]


def test_a_row_that_is_not_to_be_quoted_says_so(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(tmp_path / "rows.jsonl")
    report.note("arm", {"versions": {"torch": "2"}})
    report.add("step", 1.1, "of the phase bound", at_most=1.2, quotable=False)
    report.add("memory", 2.0, "of that", at_most=1.0)
    report.doubt("fio's quartiles")
    report.show()
    shown = capsys.readouterr().out
    assert "held, not quotable" in shown and "missed" in shown and "not quotable: fio's quartiles" in shown
    lines = (tmp_path / "rows.jsonl").read_text()
    assert [json.loads(line).get("held") for line in lines.splitlines()] == [None, True, False]
    again = Report(None)
    again.add_lines(lines)
    assert [row["what"] for row in again.rows] == ["step", "memory"]


def test_an_interval_needs_six_pairs() -> None:
    assert interval([1.0, 2.0, 3.0]) == "3 pairs: too few for an interval"
    assert interval([6.0, 1.0, 2.0, 3.0, 4.0, 5.0]) == "95 % interval 1.000–6.000 of 6 pairs"


def trace() -> dict[str, Any]:
    counts = [[0.1 * tick, 0.15 * tick, 0.05 * tick, 10_000_000 * tick, 5_000_000 * tick] for tick in range(11)]
    step = {"phases": ["forward", "backward", "update"], "ends": [0.3, 0.9, 1.0], "counts": counts}
    arms = {
        "plain": {"memory": [[0.0, 0], [1.0, 2 * GB]], "peak": 2 * GB, "step": None},
        "tierd step": {"memory": [[0.0, -5], [3.0, GB // 4]], "peak": GB // 4, "step": step},
    }
    return {"model": "1<2", "subtitle": "a & b", "arms": arms}


def test_the_plots_are_svg_with_the_figures_in_them(tmp_path: pathlib.Path) -> None:
    paths = plots.write_plots(trace(), tmp_path)
    assert [path.name for path in paths] == ["train-1<2-memory.svg", "train-1<2-step-tierd-step.svg"]
    memory, step = (ElementTree.fromstring(path.read_text()) for path in paths)
    words = ["".join(each.itertext()) for each in memory.iter("{http://www.w3.org/2000/svg}text")]
    assert {"2.00 GB", "0.25 GB", "plain torch", "tierd step", "a & b"} <= set(words)
    assert "forward" in "".join(step.itertext()) and "prefers-color-scheme: dark" in "".join(step.itertext())
    with pytest.raises(KeyError, match="no colours"):
        svg.Drawing(1, 1, "", "").line(0, 0, 1, 1, kind="pink")


def test_rates_are_what_a_total_grew_by_in_a_second() -> None:
    counts = trace()["arms"]["tierd step"]["step"]["counts"]
    assert {round(rate, 6) for _, rate in plots.rates(counts, 1, 1.0)} == {1.5}
    assert {round(rate, 6) for _, rate in plots.rates(counts, 3, 1e-9)} == {0.1}


@pytest.mark.parametrize(("largest", "step"), [(7.3, 2.0), (0.9, 0.2), (100.0, 20.0), (5.0, 1.0)])
def test_marks_of_an_axis_are_round(largest: float, step: float) -> None:
    assert svg.step_of_scale(largest, 5) == pytest.approx(step)


def test_a_plan_says_what_it_needs_and_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = larger.plan_of("qwen2.5-7b", MODELS["qwen2.5-7b"])
    assert plan.tier == 50 << 30
    assert plan.memory <= 4 << 30
    monkeypatch.setattr(trainer, "available_memory", lambda: 6 << 30)
    usage = type("Usage", (), {"free": 45 * GB})
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    room = trainer.Room()
    assert "needs 56.9 GB of disk space" in room.take(plan) and "45.0 GB are available" in room.take(plan)
    assert (room.memory, room.disk) == (6 << 30, 45 * GB)
    small = dataclasses.replace(plan, disk=0, tier=GB)
    assert room.take(small) == ""  # What it has set aside is not there for another.
    assert "needs 4.3 GB of memory, 2.1 GB are available" in room.take(small)


def test_plain_torch_trains_a_part_where_the_others_leave_no_memory_for_all() -> None:
    chosen = ("tierd deferred", "DeepSpeed default")
    roomy, scarce = (train.plans("353M", True, chosen, memory * GB) for memory in (64, 22))
    assert [plan.name for plan in roomy] == [plan.name for plan in scarce] == ["plain", *chosen]
    assert roomy[0].model == MODELS["353M"] and scarce[0].model.layers == MODELS["353M"].layers // train.PLAIN_PART
    assert sum(plan.memory for plan in scarce) < 22 * GB < sum(plan.memory for plan in roomy)
    (useless, *_) = train.plans("353M", True, chosen, 15 * GB)
    assert useless.model == MODELS["353M"], "a part would not make them fit either"


class FakeArm:
    """An arm that fails in its second step, or never."""

    def __init__(self, arm: str, fails: bool) -> None:
        self.name, self.plan = arm, type("Plan", (), {"arm": arm, "name": arm})
        self.steps, self._fails = 0, fails

    def step(self, sampled: bool, timed: bool) -> None:
        self.steps += 1
        if self._fails and self.steps == 2:
            raise process.Ended("bench: it ended: Traceback\nAssertionError: a buffer is taken twice")

    def resting(self) -> Any:
        return contextlib.nullcontext()


def test_a_peer_that_fails_is_left_out_and_an_arm_of_tierd_is_not() -> None:
    arms: list[Any] = [FakeArm("plain", False), FakeArm("deepspeed", True), FakeArm("tierd", False)]
    report, rounds = Report(None), []
    trainer.take_turns(arms, 3, report, between=lambda: rounds.append(len(arms)))
    assert [(arm.name, arm.steps) for arm in arms] == [("plain", 5), ("tierd", 5)]
    assert rounds == [2, 2]
    assert report.doubts == ["left out: deepspeed: it failed: AssertionError: a buffer is taken twice"]
    with pytest.raises(SystemExit, match="it ended"):
        trainer.take_turns([FakeArm("tierd", True)], 3, report)  # type: ignore[list-item]


def test_a_process_that_has_died_says_why_when_it_is_asked() -> None:
    with contextlib.ExitStack() as stack:
        died = process.Process(stack, "peer", "train_arm.py", ["no-such-arm"])
        os.waitid(os.P_PID, died.pid, os.WEXITED | os.WNOWAIT)
        died.tell("step")
        with pytest.raises(process.Ended, match="(?s)the peer ended: .*invalid choice: 'no-such-arm'"):
            died.read("step")


def test_a_process_that_hangs_is_killed_and_its_peer_left_out(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "hangs.py"
    script.write_text(
        "import signal, sys\n"
        'print(\'{"event": "idle"}\\n{"event": "ready"}\', flush=True)\n'
        "print('waits for a lock', file=sys.stderr, flush=True)\n"
        "signal.pause()\n"
    )
    report = Report(None)
    with contextlib.ExitStack() as stack:
        alive = process.Process(stack, "peer", str(script), [], patience=0.05)
        alive._patience = None  # It has yet to start.
        assert alive.read("idle") == {"event": "idle"}
        alive._patience = 0.05
        assert alive.read("ready") == {"event": "ready"}  # It lay in the buffer.
        with pytest.raises(process.Hung, match="(?s)waits for a lock.*the peer gave no 'step' in 0.05 s") as hung:
            alive.read("step")
        ended = os.waitid(os.P_PID, alive.pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None and ended.si_status == signal.SIGKILL
    peer, ours = (type("Plan", (), {"arm": arm, "name": arm}) for arm in ("deepspeed", "tierd"))
    trainer.leave_out(peer, hung.value, report)  # type: ignore[arg-type]
    assert report.doubts == ["left out: deepspeed: hung: bench: the peer gave no 'step' in 0.05 s"]
    with pytest.raises(process.Hung):
        trainer.leave_out(ours, hung.value, report)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--arm", "DeepSpeed tuned"], "'DeepSpeed tuned' needs --peers"),
        (["--model", "qwen2.5-7b", "--arm", "tierd step"], "qwen2.5-7b has one arm"),
        (["--model", "7B"], "invalid choice: '7B'"),
    ],
)
def test_options_that_measure_nothing_are_refused(words: list[str], why: str) -> None:
    program = str(ROOT / "tools/bench/options.py")
    result = subprocess.run([sys.executable, program, *words], capture_output=True, text=True)
    assert result.returncode == 2 and why in result.stderr


def test_parameters_are_counted_without_building_the_model() -> None:
    from qwen import Qwen

    assert MODELS["qwen2.5-7b"].parameters == 7_615_616_512  # The published count.
    assert sum(each.numel() for each in Qwen(SMALL).parameters()) == SMALL.parameters
    assert max(each.numel() for each in Qwen(SMALL).parameters()) == SMALL.largest
    assert Model.decoded(SMALL.encoded()) == SMALL


def test_a_qwen_sees_no_later_token_and_knows_positions_by_their_distance() -> None:
    from qwen import Qwen, rotated, rotations

    torch.manual_seed(0)
    model, tokens = Qwen(SMALL), torch.randint(0, 256, (1, 9))
    seen: list[torch.Tensor] = []
    model.norm.register_forward_hook(lambda _, args, output: seen.append(output.detach()))
    model(tokens, tokens).backward()
    model(torch.cat((tokens[:, :-1], tokens[:, -1:] + 1), dim=1), tokens)
    assert torch.equal(seen[0][:, :-1], seen[1][:, :-1]) and not torch.equal(seen[0][:, -1], seen[1][:, -1])
    assert all(each.grad is not None and bool(each.grad.any()) for each in model.parameters())

    query, key = torch.randn(2, 1, 1, 8, dtype=torch.float64).expand(2, 1, 6, 8)
    rotation = rotations(6, 8, torch.float64)
    scores = rotated(query, rotation)[0] @ rotated(key, rotation)[0].T
    torch.testing.assert_close(scores.diagonal(1), scores[0, 1].expand(5))
