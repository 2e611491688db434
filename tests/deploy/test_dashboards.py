"""Every query of every dashboard against a real Prometheus that scrapes a daemon under load; and the metrics table."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import launcher
import pytest
import tierd
import yaml  # type: ignore[import-untyped]
from prometheus_server import Prometheus
from promtool import INTERVAL, promtool_test
from surroundings import ROOT, find_tool

DASHBOARDS = sorted((ROOT / "deploy/grafana").glob("*.json"))
SCRAPE_SECONDS_MAX = 60
_DECLARED = re.compile(r"^\| `(tierd_\w+|process_\w+)` \| (gauge|counter|histogram) \|", re.MULTILINE)


def panels() -> list[Any]:
    """(dashboard, panel title, query) of every target."""
    return [
        pytest.param(target["expr"], id=f"{path.stem}-{panel['title']}-{target['refId']}".replace(" ", "_"))
        for path in DASHBOARDS
        for panel in json.loads(path.read_text())["panels"]
        for target in panel.get("targets", ())
    ]


def drawn_annotations() -> list[Any]:
    """(dashboard, name, query) of every annotation."""
    return [
        pytest.param(each["expr"], id=f"{path.stem}-{each['name']}")
        for path in DASHBOARDS
        for each in json.loads(path.read_text())["annotations"]["list"]
    ]


def rules() -> list[Any]:
    """Every expression of the rules, with what it records or alerts."""
    groups = yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text())["groups"]
    return [
        pytest.param(rule["expr"], id=rule.get("alert") or rule["record"])
        for group in groups
        for rule in group["rules"]
    ]


class Load(threading.Thread):
    """A client that keeps more than the arena and reads it round and round, and asks for what is not there."""

    def __init__(self, socket_path: str) -> None:
        super().__init__(daemon=True)
        self._socket = socket_path
        self.ended = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._swap()
        except BaseException as failure:  # The fixture's teardown reports it.
            self.failure = failure

    def _swap(self) -> None:
        block = bytearray(range(256)) * (32 << 10)
        with tierd.connect(job="dashboards", socket=self._socket, limit="60MiB") as client:
            for index in range(24):
                client.put(index + 1, block)
            while not self.ended.is_set():
                for index in range(24):
                    client.get_into(index + 1, block)
                client.put(25, block)
                client.delete(25)
                try:
                    client.get_into(99, block)
                except tierd.NotFound:
                    pass


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[launcher.Running]:
    """With what tierd-smart would tell of its device."""
    folder = tmp_path_factory.mktemp("daemon")
    with launcher.disk_folder() as disk:
        device = disk / "tier.ssd"
        now = int(time.time())
        told = f"device {now} 0 311 100 10 2 632098304000 0 nvme0n1 S1 {device}"
        (folder / "smart").write_text(f"tierd-smart 2\ntime {now}\n{told}\nend 1\n")
        ssd = {"file_size": "1GiB", "devices": [str(device)], "smart_file": str(folder / "smart")}
        with launcher.start(folder, arena="64MiB", settings={"ssd": ssd}) as running:
            yield running


def instance_of(daemon: launcher.Running) -> str:
    """ADDRESS:PORT, which Prometheus makes the label `instance` of."""
    return urllib.parse.urlsplit(daemon.metrics_url).netloc


@pytest.fixture(scope="module")
def load(daemon: launcher.Running) -> Iterator[None]:
    client = Load(daemon.socket)
    client.start()
    yield
    client.ended.set()
    client.join(60)
    assert client.failure is None, client.failure


@pytest.fixture(scope="module")
def prometheus(daemon: launcher.Running, load: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Scrapes the daemon four times a second, by the configuration in deploy/."""
    configuration = tmp_path_factory.mktemp("prometheus") / "prometheus.yml"
    text = (ROOT / "deploy/prometheus/prometheus.yml").read_text()
    text = text.replace("127.0.0.1:9464", instance_of(daemon)).replace("scrape_interval: 15s", "scrape_interval: 250ms")
    configuration.write_text(text)
    running = Prometheus(find_tool("prometheus"), configuration)
    yield running
    running.stop()


def filled_in(expression: str, instance: str) -> str:
    """The query as Grafana would send it with everything selected."""
    for variable, value in (("$__rate_interval", "5s"), ("$instance", instance), ("$job", ".+")):
        expression = expression.replace(variable, value)
    assert "$" not in expression
    return expression


@pytest.mark.parametrize("expression", panels())
def test_the_query_of_the_panel_returns_data(daemon: launcher.Running, prometheus: Prometheus, expression: str) -> None:
    query = filled_in(expression, instance_of(daemon))
    deadline = time.monotonic() + SCRAPE_SECONDS_MAX
    values: list[float] = []
    refusal = ""
    while time.monotonic() < deadline:
        try:
            values = prometheus.query(query)
        except OSError as error:  # Not up yet.
            refusal = str(error)
        if any(value == value for value in values):  # Not only NaN.
            return
        time.sleep(0.25)
    pytest.fail(f"no data for {query}: {values} {refusal}")


# What the daemon serves only where it knows it: below some file systems there is no drive.
NOT_EVERYWHERE = {"tierd_device_drive_bytes"}
_SELECTOR = re.compile(r"\b(?:tierd|process)_\w+(?:\{[^}]*\})?")
_RECORDED = re.compile(r"\b\w+:tierd_\w+(?::\w+)?(?:\{[^}]*\})?")


@pytest.mark.parametrize("expression", rules() + drawn_annotations())
def test_prometheus_takes_the_rule_and_its_series_are_there(
    daemon: launcher.Running, prometheus: Prometheus, expression: str
) -> None:
    query = filled_in(expression, instance_of(daemon))
    without_labels = re.sub(r"\b(?:by|on) \([^)]*\)", "", query)
    asked_for = _SELECTOR.findall(_RECORDED.sub("", without_labels))  # What other rules record is theirs to show.
    series = [each for each in asked_for if each.partition("{")[0] not in NOT_EVERYWHERE]
    deadline = time.monotonic() + SCRAPE_SECONDS_MAX
    missing = series
    while time.monotonic() < deadline:
        try:
            prometheus.query(query)
            missing = [each for each in series if not prometheus.query(each)]
        except OSError:  # Not up yet.
            continue
        if not missing:
            return
        time.sleep(0.25)
    pytest.fail(f"{expression} asks for what tierd does not serve: {missing}")


def test_the_files_are_what_the_generator_makes() -> None:
    folder = ROOT / "deploy/grafana"
    # By itself: other tests have modules of these names.
    program = "import json, make_dashboards; print(json.dumps(make_dashboards.pages()))"
    made = subprocess.run(
        [sys.executable, "-B", "-c", program], cwd=folder, capture_output=True, text=True, check=True, timeout=60
    )
    pages = json.loads(made.stdout)
    for name, text in pages.items():
        assert (folder / name).read_text() == text, "run deploy/grafana/make_dashboards.py again"
    assert {path.name for path in DASHBOARDS} == set(pages)


def test_links_lead_to_dashboards_that_are_there() -> None:
    boards = [json.loads(path.read_text()) for path in DASHBOARDS]
    uids = {board["uid"] for board in boards}
    for board in boards:
        assert {link["url"].removeprefix("/d/") for link in board["links"]} == uids - {board["uid"]}


def board(name: str) -> dict[str, Any]:
    return dict(json.loads((ROOT / f"deploy/grafana/{name}.json").read_text()))


def queries_of(name: str, title: str) -> list[str]:
    panels = board(name)["panels"]
    return [target["expr"] for panel in panels if panel["title"] == title for target in panel["targets"]]


def query_of(name: str, title: str) -> str:
    (query,) = queries_of(name, title)
    return query


def told(query: str, samples: list[tuple[str, float]], after: str) -> dict[str, Any]:
    """What promtool is to find of a query after so long: each series with its value."""
    found = [{"labels": f"{{{labels}}}", "value": value} for labels, value in samples]
    return {"expr": query, "eval_time": after, "exp_samples": found}


def test_the_fleet_names_each_node_that_is_not_well(tmp_path: pathlib.Path) -> None:
    """For ten minutes all are well, except what is not tierd."""
    levels = {
        'up{job="tierd", instance="well"}': "1",
        'up{job="tierd", instance="drained"}': "1",
        'up{job="tierd", instance="dead"}': "1+0x39 0",
        'up{job="node", instance="other"}': "0",
        'tierd_draining{instance="well"}': "0",
        'tierd_draining{instance="drained"}': "0+0x39 1",
        'tierd_degraded{instance="well", cause="memory"}': "0",
        'tierd_degraded{instance="drained", cause="memory"}': "0+0x39 1",
        'tierd_degraded{instance="drained", cause="index"}': "0+0x39 1",
    }
    series = [{"series": name, "values": f"{level}+0x80"} for name, level in levels.items()]
    causes = [f'instance="drained", state="degraded", cause="{cause}"' for cause in ("memory", "index")]
    others = [('instance="drained", state="draining"', 1), ('instance="dead", state="down"', 0)]
    table, down = query_of("fleet", "Which are not"), query_of("fleet", "Down")
    checks = [
        told(table, [('state="all are well"', 1)], "5m"),
        told(table, [*((each, 1) for each in causes), *others], "15m"),
        told(down, [("", 0)], "5m"),
        told(down, [("", 1)], "15m"),
    ]
    promtool_test(tmp_path, [{"interval": f"{INTERVAL}s", "input_series": series, "promql_expr_test": checks}])


def test_what_other_exporters_on_the_node_do_is_not_drawn(tmp_path: pathlib.Path) -> None:
    """Where instances are called by their hosts, metrics of processes have the same instance in several jobs."""
    figures = {  # tierd starts again after 5 min, the other one after 10.
        "process_start_time_seconds": ("0+0x20 300+0x60", "0+0x40 600+0x40"),
        "process_cpu_seconds_total": ("0+15x80", "0+30x80"),
        "process_open_fds": ("10+0x80", "30+0x80"),
        "process_max_fds": ("100+0x80", "100+0x80"),
    }
    series = [
        {"series": f'{name}{{job="{job}", instance="n"}}', "values": values}
        for name, both in figures.items()
        for job, values in zip(("tierd", "node"), both, strict=True)
    ]
    series.append({"series": 'tierd_build_info{job="tierd", instance="n"}', "values": "1+0x80"})
    ours = 'job="tierd", instance="n"'
    checks = [
        told(query.replace("$__rate_interval", "1m").replace("$instance", "n"), [(ours, value)], "15m")
        for query, value in zip(queries_of("node", "Daemon"), (1, 0.1), strict=True)
    ]
    for name in ("fleet", "node", "job"):
        (restarts,) = [each for each in board(name)["annotations"]["list"] if each["name"] == "Restarts"]
        query = restarts["expr"].replace("$instance", "n")
        checks += [told(query, [(ours, 1)], "5m15s"), told(query, [], "10m15s")]
    promtool_test(tmp_path, [{"interval": f"{INTERVAL}s", "input_series": series, "promql_expr_test": checks}])


def test_drive_writes_are_drawn_by_the_drive_where_it_is_known(tmp_path: pathlib.Path) -> None:
    sizes = {"capacity": [86400, 86400], "drive": [4 * 86400]}  # Of device 0 and of device 1.
    series = [
        {"series": f'tierd_device_{name}_bytes{{instance="n", device="{device}"}}', "values": f"{size}+0x80"}
        for name, each in sizes.items()
        for device, size in enumerate(each)
    ]
    series += [
        {"series": f'tierd_device_written_bytes_total{{instance="n", device="{device}"}}', "values": "0+30x80"}
        for device in (0, 1)
    ]
    query = query_of("node", "Drive writes a day").replace("$__rate_interval", "1m").replace("$instance", "n")
    check = told(query, [('device="0"', 0.5), ('device="1"', 2)], "15m")
    promtool_test(tmp_path, [{"interval": f"{INTERVAL}s", "input_series": series, "promql_expr_test": [check]}])


def test_what_is_wrong_has_a_colour() -> None:
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", ()):
                if not re.search(r"torn|degraded|errors|corrupt|state!=", target["expr"]):
                    continue
                if panel["type"] == "table":
                    (coloured,) = panel["fieldConfig"]["overrides"]
                    assert coloured["properties"][0]["value"][0]["options"]["degraded"]["color"] == "red"
                else:
                    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
                    assert steps[-1]["color"] == "red", panel["title"]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_the_dashboard_is_whole(path: pathlib.Path) -> None:
    board = json.loads(path.read_text())
    variables = {variable["name"] for variable in board["templating"]["list"]}
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(set(numbers)) == len(numbers) and board["uid"] and board["schemaVersion"] >= 36
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken and place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
        if panel["type"] == "row":
            continue
        assert panel["description"] and panel["datasource"]["uid"] == "${datasource}", panel["title"]
        for target in panel["targets"]:
            used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval"}
            assert used <= variables, panel["title"]


def scrape(daemon: launcher.Running) -> str:
    with urllib.request.urlopen(daemon.metrics_url, timeout=5) as reply:
        return str(reply.read().decode())


def test_the_table_of_metrics_is_what_the_daemon_serves(daemon: launcher.Running, load: None) -> None:
    declared = dict(_DECLARED.findall((ROOT / "docs/metrics.md").read_text()))
    deadline = time.monotonic() + 10
    while "tierd_job_ram_bytes{" not in scrape(daemon) and time.monotonic() < deadline:
        time.sleep(0.1)
    served = dict(re.findall(r"^# TYPE (tierd_\w+|process_\w+) (\w+)$", scrape(daemon), re.MULTILINE))
    assert served == declared


def test_promtool_finds_nothing_to_fix(daemon: launcher.Running, load: None) -> None:
    found = subprocess.run(
        [find_tool("promtool"), "check", "metrics"], input=scrape(daemon), capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stdout + found.stderr) == (0, "")


def test_promtool_accepts_the_scrape_configuration() -> None:
    found = subprocess.run(
        [find_tool("promtool"), "check", "config", str(ROOT / "deploy/prometheus/prometheus.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
