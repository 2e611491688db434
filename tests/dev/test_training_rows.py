"""The rows of the training bench: each has the figure of its promise, the bound, and whether it held; and what its arms
are asked to do."""

from __future__ import annotations

import contextlib
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/bench"))

import accumulation  # noqa: E402
import hundred_steps  # noqa: E402
import larger  # noqa: E402
import options  # noqa: E402
import run  # noqa: E402
import train  # noqa: E402
import train_arm  # noqa: E402
import train_parts  # noqa: E402
from models import ARENA, MODELS  # noqa: E402
from phase_bound import Phase  # noqa: E402
from report import Report  # noqa: E402
from trainer import Figures, Plan  # noqa: E402

from tierd.torch.runtime import Placement  # noqa: E402

MB, GB, MIB = 1_000_000, 1_000_000_000, 1 << 20
Row = tuple[Any, str, str, bool | None]


def rows(report: Report) -> dict[tuple[str, str], Row]:
    """By what was measured, and its unit."""
    return {
        (row["what"], row["unit"]): (row["value"], row["ceiling"], row["bound"], row["held"]) for row in report.rows
    }


class FakeArm:
    """One that has taken its steps."""

    def __init__(self, plan: Plan, peak: int, seconds: float, bits: Sequence[str] = ("0x1p0", "0x1p1")) -> None:
        self.name, self.plan, self.model = plan.name, plan, plan.model
        count = len(bits)
        self.figures = Figures(
            seconds=[seconds] * count, phases=[[seconds, 0.0, 0.0]] * count, read=[10.0] * count, written=[6.0] * count,
            activations=[0.0] * count, surveyed=[0.0] * count, bits=list(bits), peak=peak, steady_peak=peak,
        )  # fmt: skip


def pretend(monkeypatch: pytest.MonkeyPatch, arms: Any) -> list[list[Plan]]:
    """The parts start ``arms(plan)`` and take no step. Returns the plans of each start."""
    asked: list[list[Plan]] = []

    @contextlib.contextmanager
    def started(plans: Sequence[Plan], report: Report) -> Iterator[list[Any]]:
        asked.append(list(plans))
        yield [arms(plan) for plan in plans]

    monkeypatch.setattr(train_parts, "started", started)
    monkeypatch.setattr(train_parts, "take_turns", lambda arms, rounds, report: None)
    return asked


@pytest.mark.parametrize(
    "words", [["train", "--model", "353M", "--ram", "256MiB"], ["--only", "train", "--model=353M", "--ram=268435456"]]
)
def test_parts_are_named_by_themselves_or_by_an_option(words: list[str]) -> None:
    parsed = options.parse(words)
    assert (parsed.only, parsed.model, parsed.ram) == (["train"], "353M", 256 * MIB)


def test_parts_may_stand_between_options_and_none_means_all() -> None:
    assert options.parse(["train", "--quick", "lora", "--only", "ssd"]).only == ["train", "lora", "ssd"]
    nothing = options.parse([])
    assert (nothing.only, nothing.ram, nothing.model) == ([], None, "121M")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["trains"], "'trains' is none of ram, "),
        (["--only", "trains"], "'trains' is none of ram, "),
        (["train", "--ram", "much"], '--ram is "much": write a number of bytes'),
        (["train", "--ram", "8MiB"], "8MiB is less than 16 MiB"),
        (["ssd", "--ram", "1GiB"], "--ram is the arena of the train part, which is not measured"),
        (["train", "--arm", "DeepSpeed CPU"], "'DeepSpeed CPU' needs --peers"),
        (["lora", "--model", "qwen-small"], "lora: not of the model qwen-small"),
    ],
)
def test_words_that_measure_nothing_are_refused(words: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        options.parse(words)
    assert why in capsys.readouterr().err


def test_the_arms_that_can_be_chosen_are_those_that_are_planned() -> None:
    plain, *others = train.plans("121M", True, (), 64 * GB)
    assert plain.name == "plain" and tuple(plan.name for plan in others) == options.ARMS
    assert [plan.name for plan in train.plans("121M", False, (), 64 * GB)][1:] == list(options.ARMS[:3])


def test_the_arena_that_is_asked_for_is_that_of_each_arm_of_tierd() -> None:
    ours = [plan for plan in train.plans("121M", True, (), 64 * GB, 1 << 30) if plan.tier]
    assert len(ours) == 3 and {plan.arena for plan in ours} == {1 << 30}
    assert {plan.arena for plan in train.plans("1.0B", False, (), 64 * GB) if plan.tier} == {ARENA}
    assert all(plan.memory > plan.arena for plan in ours), "the arena was not counted"
    qwen = MODELS["qwen-small"]
    assert larger.plan_of("qwen-small", qwen, 1 << 30).arena == 1 << 30 != larger.plan_of("qwen-small", qwen).arena


@pytest.mark.parametrize(("ram", "arena"), [([], ARENA), (["--ram", "1GiB"], 1 << 30)])
def test_the_train_part_is_given_what_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, ram: list[str], arena: int
) -> None:
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(run, "fine_tuning", lambda report, *given: asked.append(given))
    monkeypatch.setattr(run, "larger_than_memory", lambda report, *given: asked.append(given))
    run.train(Report(None), options.parse(["train", "--peers", "--arm", "DeepSpeed CPU", *ram]))
    run.train(Report(None), options.parse(["train", "--model", "qwen-small", *ram]))
    assert asked == [
        (False, True, "121M", ["DeepSpeed CPU"], arena),
        ("qwen-small", 1 << 30 if ram else None),
    ]


def test_the_peer_in_memory_has_no_file_and_the_others_have_all_on_nvme() -> None:
    for config in ("default", "tuned", "pipelined"):
        zero = train_arm.configuration(config, "/disk", 1000)["zero_optimization"]
        assert {zero[part]["device"] for part in ("offload_param", "offload_optimizer")} == {"nvme"}
        assert {zero[part]["nvme_path"] for part in ("offload_param", "offload_optimizer")} == {"/disk"}
    memory = train_arm.configuration("CPU", "/disk", 1000)
    expected = {"device": "cpu", "pin_memory": False}
    zero = memory["zero_optimization"]
    assert zero == {"stage": 3, "offload_param": expected, "offload_optimizer": expected} and "aio" not in memory
    plans = {plan.name: plan for plan in train.plans("121M", True, (), 64 * GB)}
    assert plans["DeepSpeed CPU"].disk == 0 < plans["DeepSpeed default"].disk
    assert list(plans)[-1] == "DeepSpeed CPU", "where memory is short, it would displace an arm of a promise"


def test_tierds_step_is_compared_with_the_fastest_peer_on_nvme_and_with_the_one_in_memory() -> None:
    peaks = {"tierd backward": 200, "DeepSpeed default": 5000, "DeepSpeed tuned": 2000, "DeepSpeed CPU": 4000}
    seconds = {"tierd backward": 1.0, "DeepSpeed default": 4.0, "DeepSpeed tuned": 2.0, "DeepSpeed CPU": 1.25}
    plans = {plan.name: plan for plan in train.plans("121M", True, (), 64 * GB)}
    arms: list[Any] = [FakeArm(plans[name], peak * MB, seconds[name]) for name, peak in peaks.items()]
    report = Report(None)
    train.add_peers(report, "121M", arms)
    found = rows(report)
    what = "121M, tierd backward"
    assert found[f"{what}: memory", "of DeepSpeed default"][0] == pytest.approx(0.04)
    assert found[f"{what}: memory", "of DeepSpeed default"][2:] == ("≤ 0.05 of DeepSpeed default", True)
    assert found[f"{what}: memory", "of DeepSpeed CPU"] == (pytest.approx(0.05), "", "", None)
    step = found[f"{what}: step", "of DeepSpeed's fastest on NVMe"]
    assert step[0] == pytest.approx(0.5) and step[3] and "DeepSpeed tuned, 2.00 s" in step[1]
    assert found[f"{what}: step", "of DeepSpeed CPU"][0] == pytest.approx(0.8)
    alone = Report(None)
    train.add_peers(alone, "121M", [arm for arm in arms if arm.name in ("tierd backward", "DeepSpeed CPU")])
    assert (f"{what}: step", "of DeepSpeed's fastest on NVMe") not in rows(alone)


def test_a_run_in_which_no_arm_of_tierd_could_start_is_not_quotable() -> None:
    report = Report(None)
    bounds: Any = type("Bound", (), {"phases": {}})()
    train.add_bounds(report, "121M", [], bounds)
    assert report.rows == [] and report.doubts == ["121M: no arm of tierd could run"]


@pytest.mark.parametrize(("bound", "promised"), [(1.0, "≤ 0.8 of the update in step()"), (1.7, "")])
def test_the_deferred_update_is_compared_with_the_one_in_step_where_the_bound_allows_it(
    bound: float, promised: str
) -> None:
    plans = {plan.name: plan for plan in train.plans("121M", False, (), 64 * GB)}
    arms: list[Any] = [
        FakeArm(plans["tierd deferred"], GB, 1.5),
        FakeArm(plans["tierd step"], GB, 2.0, bits=("0x1p0", "0x1p2")),
    ]
    phase = [Phase(compute=bound, read=0, written=0, rate=0.0)]
    bounds: Any = type("Bound", (), {"phases": {"tierd deferred": [phase] * 2}, "spread": lambda self: 1.0})()
    report = Report(None)
    train.add_deferred(report, "121M", arms, bounds)
    (row,) = report.rows
    assert (row["value"], row["bound"], row["held"]) == (0.75, promised, True if promised else None)
    assert f"the bound allows {bound / 2:.2f}" in row["ceiling"] and "1 of 2 losses" in row["ceiling"]
    train.add_deferred(report, "121M", arms[:1], bounds)
    assert len(report.rows) == 1


def test_losses_that_differ_say_by_how_much() -> None:
    report = Report(None)
    ours, theirs = [(1.0).hex(), (2.2).hex()], [(1.0).hex(), (2.0).hex()]
    train.add_losses(report, "tierd", theirs, theirs)
    train.add_losses(report, "peer", ours, theirs, promised=False)
    found = rows(report)
    assert found["tierd: losses with plain torch's bits", "of 2"] == (2, "", "≥ 2 of 2", True)
    peer = found["peer: losses with plain torch's bits", "of 2"]
    assert peer == (1, "the first differs by 0.0e+00, the most by 1.0e-01", "", None)
    train.add_losses(report, "broken", ["nan", *ours], ["0x1p0", *theirs], promised=False)
    broken = rows(report)["broken: losses with plain torch's bits", "of 3"]
    assert broken[1] == "the first differs by nan, the most by nan"


@pytest.mark.parametrize(("highest", "held"), [(262, True), (264, False)])
def test_depths_are_compared_for_the_updates_that_people_use(
    monkeypatch: pytest.MonkeyPatch, highest: int, held: bool
) -> None:
    peaks = {12: 250, 24: 251, 48: highest}
    asked = pretend(monkeypatch, lambda plan: FakeArm(plan, peaks[plan.model.layers] * MB, 1.0))
    report = Report(None)
    train_parts.flat_in_depth(report, quick=False)
    words = [[word for plan in plans for word in plan.options if word.startswith("--update")] for plans in asked]
    assert words == [["--update=backward"] * 3, ["--update=deferred"] * 3]
    assert {plan.arena for plans in asked for plan in plans} == {ARENA}
    for update in ("backward", "deferred"):
        row = rows(report)[f"width 768, 12, 24 and 48 layers, update {update}: highest peak", "of the lowest"]
        assert row == (pytest.approx(highest / 250), f"250, 251, {highest} MB", "≤ 1.05 of the lowest", held)


def test_activation_offload_states_the_peak_of_the_whole_step_and_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks, seconds = {"kept": 4000, "offloaded": 1500}, {"kept": 20.0, "offloaded": 21.2}
    pretend(monkeypatch, lambda plan: FakeArm(plan, peaks[plan.name] * MB, seconds[plan.name]))
    report = Report(None)
    train_parts.activation_offload(report, quick=False)
    what = "activations of 12 blocks of width 768, 12 × 512, offloaded"
    peak = rows(report)[f"{what}: peak of the whole step", "of without"]
    assert (peak[0], peak[2], peak[3]) == (0.375, "≤ 0.4 of without", True)
    step = rows(report)[f"{what}: step", "of without"]
    assert (step[0], step[2], step[3]) == (pytest.approx(1.06), "≤ 1.05 of without", False)


def test_micro_batches_by_blocks_state_parameter_bytes_and_time() -> None:
    report = Report(None)
    times = {"loop": [10.0] * 6, "blocks": [5.0] * 6}
    read, moved = {"loop": [8.0 * GB], "blocks": [1.0 * GB]}, {"loop": [9 * GB], "blocks": [3 * GB]}
    accumulation.add_rows(report, "121M", times, read, moved)
    what = "121M, 8 micro-batches by blocks"
    parameters = rows(report)[f"{what}: parameter bytes read", "of a plain loop's"]
    assert (parameters[0], parameters[2], parameters[3]) == (0.125, "≤ 0.1667 of a plain loop's", True)
    step = rows(report)[f"{what}: step", "of a plain loop's"]
    assert (step[0], step[2], step[3]) == (0.5, "≤ 0.6 of a plain loop's", True)


def test_each_kind_of_accumulation_is_timed_in_the_order_that_it_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step behind one of the other kind is not timed, and no other step is left out."""
    taken: list[str] = []

    def trainer(verb: str) -> float:
        taken.append(verb)
        return float(len(taken))

    trainer.close = lambda: None  # type: ignore[attr-defined]
    monkeypatch.setattr(accumulation, "daemon", fake_daemon)
    monkeypatch.setattr(accumulation, "program", lambda *words, environment: trainer)
    monkeypatch.setattr(accumulation, "device_bytes", lambda pid: (0, 0))
    found: list[dict[str, list[float]]] = []
    monkeypatch.setattr(accumulation, "add_rows", lambda report, name, times, read, moved: found.append(times))
    accumulation.accumulation(Report(None), quick=False)
    (times,) = found
    assert [len(times[kind]) for kind in accumulation.KINDS] == [10, 10]
    for kind, seconds in times.items():
        for at in map(int, seconds):
            before = taken[at - 2].removeprefix("bytes of ")
            assert taken[at - 1] == before == kind
    assert len(taken) - sum(verb.startswith("bytes") for verb in taken) == 2 * 11 + 12


@contextlib.contextmanager
def fake_daemon(**sizes: Any) -> Iterator[tuple[Any, pathlib.Path]]:
    process = type("Process", (), {"pid": 1})
    yield type("Daemon", (), {"process": process, "directory": pathlib.Path("/nowhere")}), pathlib.Path("/nowhere")


@pytest.mark.parametrize("quick", [True, False])
def test_a_hundred_steps_are_compared_in_each_mode(monkeypatch: pytest.MonkeyPatch, quick: bool) -> None:
    asked: list[tuple[str, str]] = []

    def losses(mode: str, trained: hundred_steps.Trained, socket: str) -> list[str]:
        asked.append((mode, socket))
        return ["0x1p0"] * 109 + ["0x1p1" if mode == "activations" else "0x1p0"]

    monkeypatch.setattr(hundred_steps, "daemon", fake_daemon)
    monkeypatch.setattr(hundred_steps, "device_bytes", lambda pid: (0, 0))
    monkeypatch.setattr(hundred_steps, "train", losses)
    report = Report(None)
    hundred_steps.hundred_steps(report, quick)
    assert asked == [("plain", "")] + [(mode, "/nowhere/tierd.sock") for mode in hundred_steps.MODES]
    assert [row["what"].partition(" in tierd: losses of 100 steps and 10 evaluations")[0] for row in report.rows] == (
        list(hundred_steps.MODES)
    )
    held = {mode: row["held"] for mode, row in zip(hundred_steps.MODES, report.rows, strict=True)}
    assert [mode for mode in held if not held[mode]] == ["activations"]


def test_the_modes_of_a_hundred_steps_are_options_of_offload() -> None:
    offloaded = [given for given in hundred_steps.MODES.values() if given is not None]
    updates = {given["update"] for given in offloaded if "update" in given}
    assert updates == {"step", "deferred", "backward"}
    places = [Placement(**{part: each for part, each in given.items() if part != "update"}) for given in offloaded]
    kept = [{part for part in ("gradients", "activations") if not place.in_tierd(part)} for place in places]
    assert kept == [{"gradients", "activations"}, {"activations"}, set(), set(), set()]
