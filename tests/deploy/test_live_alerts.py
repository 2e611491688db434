"""Each alert made to fire: its cause happens to a real daemon that a real Prometheus scrapes, and ends.

The rules are those of deploy/ in a copy with short times (short_rules.py); the scenes are in alert_scenes.py. All times
are those at which Prometheus evaluated.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import pathlib
import re
import threading
import time
from collections.abc import Iterator

import launcher
import pytest
import short_rules
import yaml  # type: ignore[import-untyped]
from alert_node import Needs, Node, wait_for
from alert_scenes import SCENES, Scene
from prometheus_server import Prometheus
from scene_parts import Play
from short_rules import EVALUATION_SECONDS, SCRAPE_SECONDS
from surroundings import find_tool

PLAYED_AT_A_TIME = 10
TRIES = 2  # Where other tests keep the processors, a scrape or an evaluation may be late: once more then.
WAIT_SECONDS_MAX = 60
TWO_EVALUATIONS = 2 * EVALUATION_SECONDS


@dataclasses.dataclass
class Played:
    """Seconds since the epoch. The cause began between two times: before it was made, and when the daemon showed it."""

    began: tuple[float, float]
    ended: float
    first_firing: float
    last_firing: float
    tries: int = 1


class Stage:
    """A Prometheus, and the nodes that it scrapes: one for each scene."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._nodes = folder / "nodes.yml"
        self._targets: dict[str, str] = {}
        self._lock = threading.Lock()
        self._nodes.write_text("[]\n")
        (folder / "rules.yml").write_text(yaml.safe_dump(short_rules.shortened(), sort_keys=False))
        (folder / "prometheus.yml").write_text(short_rules.CONFIGURATION)
        self.prometheus = Prometheus(find_tool("prometheus"), folder / "prometheus.yml")
        wait_for("Prometheus is ready", self.prometheus.is_ready, WAIT_SECONDS_MAX)

    def scrape(self, node: Node) -> None:
        with self._lock:
            self._targets[node.name] = f"127.0.0.1:{node.port}"
            page = [{"targets": [at], "labels": {"instance": name}} for name, at in self._targets.items()]
            written = self._nodes.with_suffix(".new")
            written.write_text(yaml.safe_dump(page))
            written.replace(self._nodes)  # Prometheus never reads half of it.

    def leave(self, node: Node) -> None:
        with self._lock:
            self._targets.pop(node.name, None)

    def firing(self, alert: str, node: Node, since: float) -> list[float]:
        selector = f'ALERTS{{alertname="{alert}", instance="{node.name}", alertstate="firing"}}'
        return [at for at, _ in self.prometheus.samples(selector, 600) if at >= since]

    def is_now(self, states: str, alert: str, node: Node) -> bool:
        """`states`: "firing", or "pending|firing": its expression holds."""
        selector = f'ALERTS{{alertname="{alert}", instance="{node.name}", alertstate=~"{states}"}}'
        return bool(self.prometheus.query(selector))

    def scrapes(self, node: Node, count: int = 1) -> bool:
        """Whether the last `count` and more of its scrapes, one after the other, had an answer."""
        seconds = int((count + 2) * SCRAPE_SECONDS) + 1
        ups = [value for _, value in self.prometheus.samples(f'up{{instance="{node.name}"}}', seconds)]
        return len(ups) >= count and all(ups[-count:])


def play(stage: Stage, alert: str, scene: Scene, number: int) -> Played:
    node = Node(f"{alert}-{number}")
    with contextlib.closing(node), contextlib.closing(scene.play(node)) as steps:
        next(steps)
        stage.scrape(node)
        try:
            return follow(stage, alert, scene, node, steps)
        finally:
            stage.leave(node)


def follow(stage: Stage, alert: str, scene: Scene, node: Node, steps: Play) -> Played:
    """From a node that is ready to an alert that has cleared."""
    usual = int(scene.usual / SCRAPE_SECONDS)
    wait_for("Prometheus scrapes the node", lambda: stage.scrapes(node, usual), WAIT_SECONDS_MAX)
    wait_for(f"{alert} is quiet", lambda: not stage.is_now("pending|firing", alert, node), WAIT_SECONDS_MAX)
    before = time.time()
    next(steps)
    began = (before, time.time())
    wait_for(f"{alert} fires", lambda: bool(stage.firing(alert, node, before)), WAIT_SECONDS_MAX)
    for _ in steps:
        raise AssertionError("a scene has two yields")
    ended = time.time()
    clear = lambda: stage.scrapes(node, 2) and not stage.is_now("firing", alert, node)  # noqa: E731
    wait_for(f"{alert} clears", clear, WAIT_SECONDS_MAX)
    times = stage.firing(alert, node, before)
    return Played(began, ended, times[0], times[-1])


def too_late(alert: str, scene: Scene, played: Played) -> str:
    """What took longer than it may; empty: nothing."""
    waits = short_rules.alert_seconds()[alert]
    took = played.first_firing - played.began[1]
    cleared = played.last_firing - played.ended
    if took > waits + TWO_EVALUATIONS:
        return f"it fires {took:.2f} s after its cause, with a `for` of {waits} s"
    if cleared > scene.settle + TWO_EVALUATIONS:
        return f"it still fires {cleared:.2f} s after the end of its cause"
    return ""


def play_in_time(stage: Stage, alert: str) -> Played:
    scene = SCENES[alert]
    for number in range(TRIES):
        played = dataclasses.replace(play(stage, alert, scene, number), tries=number + 1)
        if not too_late(alert, scene, played):
            break
    return played


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    launcher.need_build()
    made = Stage(tmp_path_factory.mktemp("alerts"))
    yield made
    made.prometheus.stop()


@pytest.fixture(scope="module")
def played(stage: Stage) -> dict[str, concurrent.futures.Future[Played]]:
    """Several scenes at a time: most of each is waiting."""
    with concurrent.futures.ThreadPoolExecutor(PLAYED_AT_A_TIME) as pool:
        return {alert: pool.submit(play_in_time, stage, alert) for alert in SCENES}


@pytest.mark.parametrize("alert", sorted(SCENES))
def test_the_alert_fires_soon_after_its_cause_and_clears_after_it(
    played: dict[str, concurrent.futures.Future[Played]], alert: str
) -> None:
    try:
        found = played[alert].result()
    except Needs as missing:
        pytest.skip(f"needs {missing}")
    waits = short_rules.alert_seconds()[alert]
    print(
        f"{alert}: `for` {waits} s; fired {found.first_firing - found.began[1]:.2f} s after its cause, "
        f"last {found.last_firing - found.ended:.2f} s after the end of it"
        f"; try {found.tries}"
    )
    assert not (late := too_late(alert, SCENES[alert], found)), late
    assert found.first_firing - found.began[0] >= waits, "before its `for`"


def test_what_fires_or_clears_late_is_told() -> None:
    alert, scene = "TierdDeviceErrors", SCENES["TierdDeviceErrors"]
    waits, settles = short_rules.alert_seconds()[alert], scene.settle
    good = Played((0.0, 1.0), 10.0, 1.0 + waits + TWO_EVALUATIONS, 10.0 + settles + TWO_EVALUATIONS)
    assert too_late(alert, scene, good) == ""
    assert "after its cause" in too_late(alert, scene, dataclasses.replace(good, first_firing=good.first_firing + 0.1))
    assert "after the end" in too_late(alert, scene, dataclasses.replace(good, last_firing=good.last_firing + 0.1))


def test_the_copy_differs_from_the_rules_in_times_and_in_how_many_requests_count() -> None:
    whole = yaml.safe_load(short_rules.RULES.read_text())["groups"]
    short = short_rules.shortened()["groups"]
    times = re.compile(r"\[\d+[smhd](?::\d+[smhd])?\]|offset \d+[smhd]|< (?:900|15)(?=\))|>= (?:20|3)$", re.MULTILINE)
    for group, copied in zip(whole, short, strict=True):
        for rule, copy in zip(group["rules"], copied["rules"], strict=True):
            assert times.sub("", rule["expr"]) == times.sub("", copy["expr"])
            assert {key for key in rule if rule[key] != copy[key]} <= {"expr", "for"}
            assert not re.search(r"(?:\[|offset )\d+[mhd]", copy["expr"])


def test_no_alert_is_left_out() -> None:
    assert set(SCENES) == set(short_rules.alert_seconds())


def test_every_rule_is_evaluated_and_records(
    stage: Stage, played: dict[str, concurrent.futures.Future[Played]]
) -> None:
    """At the end of all scenes: among them are nodes that swap."""
    rules = [rule for group in stage.prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert {rule["name"] for rule in rules} == {*short_rules.alert_seconds(), *short_rules.recorded()}
    assert [rule["name"] for rule in rules if rule["health"] != "ok" or rule.get("lastError")] == []
    empty = [name for name in short_rules.recorded() if not stage.prometheus.samples(name, 600)]
    assert empty == []
