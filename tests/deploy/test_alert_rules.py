"""The recording and alert rules: what each needs to fire, how soon it does, and that it clears; by promtool."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import subprocess
from typing import Any

import short_rules
import yaml  # type: ignore[import-untyped]
from page_blocks import texts
from promtool import DEVICE, INTERVAL, JOB, RULES, Case, beside_each_other, firing, promtool_test, quiet_for
from surroundings import ROOT, find_tool

RUNBOOKS = ROOT / "docs/runbooks"


@dataclasses.dataclass(frozen=True)
class Level:
    """A gauge, without the cause and with it."""

    well: float
    ill: float


@dataclasses.dataclass(frozen=True)
class Rate:
    """A counter: how much it rises from one scrape to the next."""

    well: float
    ill: float


@dataclasses.dataclass(frozen=True)
class Cause:
    series: dict[str, Level | Rate]
    labels: dict[str, str] = dataclasses.field(default_factory=dict)  # Of the alert, beside instance and severity.
    settle: int = 0  # Minutes that a range in the expression keeps the alert behind the end of its cause,
    late: int | None = None  # and behind its beginning, where that is something else.


OF_DEVICE = {"device": "0"}
MEDIA_ERRORS = "tierd_device_smart_media_errors_total"
READS = 'direction="read", class="demand"'
CAUSES: dict[str, Cause] = {
    "TierdDown": Cause({'up{job="tierd", instance="n"}': Level(1, 0)}, {"job": "tierd"}),
    "TierdDraining": Cause({'tierd_draining{instance="n"}': Level(0, 1)}),
    "TierdConfigReloadFailed": Cause({'tierd_config_reload_failed{instance="n"}': Level(0, 1)}),
    "TierdUnpinned": Cause({'tierd_degraded{instance="n", cause="memory"}': Level(0, 1)}, {"cause": "memory"}),
    "TierdThreadsMode": Cause({'tierd_io_mode{instance="n", mode="threads"}': Level(0, 1)}, {"mode": "threads"}),
    "TierdNoSsdTier": Cause({'tierd_degraded{instance="n", cause="ssd_tier"}': Level(0, 1)}, {"cause": "ssd_tier"}),
    "TierdSsdReduced": Cause({'tierd_degraded{instance="n", cause="ssd_size"}': Level(0, 1)}, {"cause": "ssd_size"}),
    "TierdSsdDrained": Cause(
        {'tierd_degraded{instance="n", cause="ssd_drained"}': Level(0, 1)}, {"cause": "ssd_drained"}
    ),
    "TierdIndexFailed": Cause({'tierd_degraded{instance="n", cause="index"}': Level(0, 1)}, {"cause": "index"}),
    "TierdDeviceMissing": Cause({'tierd_missing_devices{instance="n"}': Level(0, 1)}),
    "TierdTornTensors": Cause({'tierd_torn_tensors{instance="n"}': Level(0, 3)}),
    "TierdDeviceErrors": Cause({f"tierd_device_errors_total{{{DEVICE}}}": Rate(0, 1)}, OF_DEVICE, settle=15),
    "TierdDeviceCorrupt": Cause({f"tierd_device_corrupt_pieces_total{{{DEVICE}}}": Rate(0, 1)}, OF_DEVICE, settle=60),
    "TierdDeviceQuarantined": Cause({f"tierd_device_quarantined_bytes{{{DEVICE}}}": Level(0, 4096)}, OF_DEVICE),
    "TierdDeviceNotOnline": Cause({f'tierd_device_state{{{DEVICE}, state="offline"}}': Level(0, 1)}, OF_DEVICE),
    "TierdDeviceFailing": Cause({f"tierd_device_failing{{{DEVICE}}}": Level(0, 1)}, OF_DEVICE),
    "TierdSsdNearlyFull": Cause(
        {
            f"tierd_device_live_bytes{{{DEVICE}}}": Level(50, 95),
            f"tierd_device_capacity_bytes{{{DEVICE}}}": Level(100, 100),
        },
        OF_DEVICE,
    ),
    "TierdArenaSaturated": Cause(
        {
            'tierd_waiting_requests{instance="n", cause="ram"}': Level(0, 2),
            'tierd_waiting_seconds_total{instance="n", cause="ram"}': Rate(0, INTERVAL),
        },
        {"cause": "ram"},
        settle=1,  # The time of the last minute.
        late=0,
    ),
    "TierdForcedReturns": Cause(
        {'tierd_forced_returns_total{instance="n", kind="session"}': Rate(0, 1)}, {"kind": "session"}, settle=15
    ),
    "TierdSlowAcquires": Cause(
        {
            'tierd_acquire_wait_seconds_bucket{instance="n", le="1"}': Rate(10, 10),
            'tierd_acquire_wait_seconds_bucket{instance="n", le="10"}': Rate(10, 20),
            'tierd_acquire_wait_seconds_bucket{instance="n", le="+Inf"}': Rate(10, 20),
        },
        settle=10,
    ),
    "TierdJobStalls": Cause(
        {
            f"tierd_job_stall_seconds_total{{{JOB}}}": Rate(1, 2 * INTERVAL),  # Both processes, all the time.
            f"tierd_job_sessions{{{JOB}}}": Level(2, 2),
        },
        {"tierd_job": "train", "uid": "1000"},
        settle=5,
        late=0,
    ),
    "TierdDriveWrites": Cause(
        {
            f"tierd_device_written_bytes_total{{{DEVICE}}}": Rate(15, 150),
            f"tierd_device_capacity_bytes{{{DEVICE}}}": Level(86400, 86400),
        },
        OF_DEVICE,
        settle=60,
    ),
    "TierdWriteBudgetExceeded": Cause(
        {
            f"tierd_device_written_bytes_total{{{DEVICE}}}": Rate(15, 150),
            'tierd_write_budget_bytes_per_day{instance="n"}': Level(200000, 200000),
            'tierd_write_budget_left_bytes{instance="n"}': Level(0, -200000 / 24),
        },
        settle=60,
    ),
    "TierdDeviceSlow": Cause(
        {
            f'tierd_device_request_seconds_bucket{{{DEVICE}, {READS}, le="0.001"}}': Rate(99, 0),
            f'tierd_device_request_seconds_bucket{{{DEVICE}, {READS}, le="0.1"}}': Rate(100, 0),
            f'tierd_device_request_seconds_bucket{{{DEVICE}, {READS}, le="0.5"}}': Rate(100, 100),
            f'tierd_device_request_seconds_bucket{{{DEVICE}, {READS}, le="+Inf"}}': Rate(100, 100),
        },
        {**OF_DEVICE, "direction": "read", "class": "demand"},
        settle=10,
    ),
    "TierdDeviceWarns": Cause(
        {f'tierd_device_smart_warning{{{DEVICE}, cause="spare"}}': Level(0, 1)}, {**OF_DEVICE, "cause": "spare"}
    ),
    "TierdDeviceSmartStale": Cause({f"tierd_device_smart_stale{{{DEVICE}}}": Level(0, 1)}, OF_DEVICE),
    "TierdDeviceSpareLow": Cause(
        {
            f"tierd_device_smart_available_spare_ratio{{{DEVICE}}}": Level(1, 0.15),
            f"tierd_device_smart_spare_threshold_ratio{{{DEVICE}}}": Level(0.1, 0.1),
        },
        OF_DEVICE,
    ),
    "TierdDeviceWorn": Cause({f"tierd_device_smart_used_ratio{{{DEVICE}}}": Level(0.9, 0.91)}, OF_DEVICE),
    "TierdDeviceMediaErrors": Cause({f"{MEDIA_ERRORS}{{{DEVICE}}}": Rate(0, 1)}, OF_DEVICE, settle=60, late=0),
    "TierdHostShort": Cause({'tierd_host_memory_short{instance="n"}': Level(0, 1)}),
}


def alerts() -> dict[str, Any]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


def minutes(text: str) -> float:
    number, unit = re.fullmatch(r"(\d+)([smh])", text).groups()  # type: ignore[union-attr]
    return int(number) * {"s": 1 / 60, "m": 1, "h": 60}[unit]


def written(values: Level | Rate, minutes_well_ill_well: tuple[float, float, float]) -> str:
    """The values at each scrape, in promtool's notation."""
    parts, at = [], 0.0
    for step, length in zip((values.well, values.ill, values.well), minutes_well_ill_well, strict=True):
        count = round(length * 60 / INTERVAL)
        if isinstance(values, Level):
            parts.append(f"{step:g}+0x{count - 1}")
        else:
            parts.append(f"{at:g}+{step:g}x{count - 1}")
            at += step * count
    return " ".join(parts)


def test_an_alert_sees_what_was_just_recorded_for_it() -> None:
    """Rules of one group are evaluated in turn. Groups have no order: promtool draws one in each run."""
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    recorded: set[str] = set()
    for rule in group["rules"]:
        assert set(re.findall(r"\w+:\w+:\w+|\w+:tierd_\w+", rule["expr"])) <= recorded, rule
        recorded |= {rule["record"]} if "record" in rule else set()


def test_the_scrape_job_has_an_interval_that_suits_every_rate() -> None:
    """In the job itself, which is merged into files that have a `global` of their own."""
    (job,) = yaml.safe_load((RULES.parent / "prometheus.yml").read_text())["scrape_configs"]
    assert job["scrape_interval"] == f"{INTERVAL}s"
    shortest = min(minutes(text) for text in re.findall(r"\[(\d+[smh])\]", RULES.read_text()))
    assert shortest * 60 >= 4 * INTERVAL


def test_the_scrape_job_has_the_name_that_rules_and_dashboards_select() -> None:
    """With another one TierdDown never fires."""
    (shown,) = [text for text in texts("docs/operator-guide.md", "yaml") if "scrape_configs" in text]
    pages = [(RULES.parent / "prometheus.yml").read_text(), shown]
    names = [job["job_name"] for page in pages for job in yaml.safe_load(page)["scrape_configs"]]
    queries = RULES.read_text() + "".join(path.read_text() for path in (ROOT / "deploy/grafana").glob("*.json"))
    selected = re.findall(r'\bjob=~?\\?"(.+?)\\?"', queries)
    assert alerts()["TierdDown"]["expr"] == 'up{job="tierd"} == 0' and len(selected) > 2
    assert set(names) == set(selected) == {"tierd"}


def cause_and_end(name: str) -> Case:
    cause, rule = CAUSES[name], alerts()[name]
    waits = minutes(rule.get("for", "0s"))
    two_evaluations = 2 * INTERVAL / 60
    late = cause.settle if cause.late is None else cause.late
    quiet = 120.0  # Minutes without the cause, longer than every range in the rules.
    ill = waits + cause.settle + 10
    phases = (quiet, ill, cause.settle + 30.0)
    series = [{"series": labels, "values": written(values, phases)} for labels, values in cause.series.items()]
    labels = {"alertname": name, "alertstate": "firing", "instance": "n", **rule["labels"], **cause.labels}
    checks = [
        firing(name, quiet - 1, None),
        firing(name, quiet + waits - INTERVAL / 60, None),  # Not before its `for`.
        firing(name, quiet + waits + late + two_evaluations, labels),
        firing(name, quiet + ill + cause.settle + two_evaluations, None),
    ]
    return series, checks


def test_each_alert_fires_soon_after_its_cause_and_clears_after_it(tmp_path: pathlib.Path) -> None:
    """promtool names the alerts that do not."""
    promtool_test(tmp_path, beside_each_other({name: cause_and_end(name) for name in CAUSES}))


def test_a_node_without_an_ssd_tier_need_not_lock_its_memory(tmp_path: pathlib.Path) -> None:
    series = [
        {"series": 'tierd_memory_mode{instance="n", mode="unpinned"}', "values": "1+0x480"},
        {"series": 'tierd_degraded{instance="n", cause="memory"}', "values": "0+0x480"},
    ]
    checks = quiet_for("TierdUnpinned", 120)
    promtool_test(tmp_path, [{"interval": f"{INTERVAL}s", "input_series": series, "promql_expr_test": checks}])


def test_a_restart_is_told_for_a_quarter_of_an_hour(tmp_path: pathlib.Path) -> None:
    """Of tierd, by whatever scrape job it is read, and not of another exporter, on the same node or not."""
    after_one_hour, after_two = "0+0x240 3600+0x480", "0+0x480 7200+0x240"
    started = {
        'instance="n", job="tierd"': after_one_hour,
        'instance="n", job="node"': after_two,
        'instance="tiers", job="tiers"': after_one_hour,
        'instance="other", job="node"': after_one_hour,
    }
    series = [
        *({"series": f"process_start_time_seconds{{{of}}}", "values": at} for of, at in started.items()),
        *(
            {"series": f'tierd_build_info{{instance="{name}", job="{job}", version="1"}}', "values": "1+0x720"}
            for name, job in (("n", "tierd"), ("tiers", "tiers"))
        ),
    ]
    shown = {"alertname": "TierdRestarted", "alertstate": "firing", "severity": "warning"}
    both = [{**shown, "instance": "n", "job": "tierd"}, {**shown, "instance": "tiers", "job": "tiers"}]
    checks = [
        *(firing("TierdRestarted", when, None, 'instance!=""') for when in (59, 76, 121, 134)),
        *(firing("TierdRestarted", when, labels, f'job="{labels["job"]}"') for when in (61, 74) for labels in both),
        *(firing("TierdRestarted", when, None, 'job="node"') for when in (61, 74)),
    ]
    promtool_test(tmp_path, [{"interval": f"{INTERVAL}s", "input_series": series, "promql_expr_test": checks}])


def latency(of: str, parts: list[tuple[str, str]]) -> list[dict[str, str]]:
    """Buckets of a class: of 100 requests a scrape, how many were within each bound, in promtool's notation."""
    buckets = [f'tierd_device_request_seconds_bucket{{{DEVICE}, {of}, le="{bound}"}}' for bound, _ in parts]
    return [{"series": name, "values": values} for name, (_, values) in zip(buckets, parts, strict=True)]


AHEAD = 'direction="write", class="ahead"'
SLOW = {"alertname": "TierdDeviceSlow", "alertstate": "firing", "instance": "n", "severity": "warning", "device": "0"}


def test_a_device_that_is_slow_in_writes_ahead_alone_is_slow(tmp_path: pathlib.Path) -> None:
    """Jobs do not wait for these, and so the requests that they wait for tell nothing of it."""
    steps = 60 * 60 // INTERVAL  # An hour.
    series = [
        *latency(READS, [(bound, f"0+100x{6 * steps}") for bound in ("0.001", "0.1", "0.5", "+Inf")]),
        *latency(
            AHEAD,
            [
                ("0.001", f"0+99x{2 * steps} {99 * 2 * steps}+0x{4 * steps}"),
                ("0.1", f"0+100x{2 * steps} {100 * 2 * steps}+0x{4 * steps}"),
                ("0.5", f"0+100x{6 * steps}"),
                ("+Inf", f"0+100x{6 * steps}"),
            ],
        ),
    ]
    labels = {**SLOW, "direction": "write", "class": "ahead"}
    checks = [
        firing("TierdDeviceSlow", 119, None),
        firing("TierdDeviceSlow", 141, labels),
        firing("TierdDeviceSlow", 170, labels),  # And it is the only one: reads are as fast as ever.
    ]
    promtool_test(tmp_path, [{"interval": f"{INTERVAL}s", "input_series": series, "promql_expr_test": checks}])


def test_a_device_stays_slow_beyond_the_day_that_it_is_compared_with(tmp_path: pathlib.Path) -> None:
    hours, minute = 60, 60
    fast, slow = 2 * hours, 30 * hours
    series = latency(
        READS,
        [
            ("0.001", f"0+100x{fast} {100 * fast}+0x{slow} {100 * fast}+100x{2 * hours}"),
            ("0.5", f"0+100x{fast} {100 * fast}+0x{slow} {100 * fast}+100x{2 * hours}"),
            ("1", f"0+100x{fast + slow + 2 * hours}"),
            ("+Inf", f"0+100x{fast + slow + 2 * hours}"),
        ],
    )
    labels = {**SLOW, "direction": "read", "class": "demand"}
    checks = [
        firing("TierdDeviceSlow", fast - 1, None),
        *(firing("TierdDeviceSlow", fast + after, labels) for after in (30, 6 * hours, 26 * hours, slow - 1)),
        firing("TierdDeviceSlow", fast + slow + 30, None),
    ]
    test = {"interval": f"{minute}s", "input_series": series, "promql_expr_test": checks}
    promtool_test(tmp_path, [test], evaluation=minute)


def test_media_errors_of_an_earlier_life_are_not_told(tmp_path: pathlib.Path) -> None:
    """Of a drive that takes the place of another one, and of one that was not known before."""
    labels = {"alertname": "TierdDeviceMediaErrors", "alertstate": "firing", "instance": "n", "severity": "warning"}
    replaced = [{"series": f"{MEDIA_ERRORS}{{{DEVICE}}}", "values": "7+0x120 5+0x240"}]
    known_later = [{"series": f"{MEDIA_ERRORS}{{{DEVICE}}}", "values": "_x120 5+0x240"}]
    one_more = [{"series": f"{MEDIA_ERRORS}{{{DEVICE}}}", "values": "5+0x120 6+0x360"}]
    told = [
        *(firing("TierdDeviceMediaErrors", when, {**labels, **OF_DEVICE}) for when in (31, 60, 89)),
        *(firing("TierdDeviceMediaErrors", when, None) for when in (29, 92)),
    ]
    cases = {
        "replaced": (replaced, quiet_for("TierdDeviceMediaErrors", 90)),
        "known later": (known_later, quiet_for("TierdDeviceMediaErrors", 90)),
        "one more": (one_more, told),
    }
    promtool_test(tmp_path, beside_each_other(cases))


def test_the_guides_query_names_the_devices_without_figures_of_their_health(tmp_path: pathlib.Path) -> None:
    (query,) = re.findall(r"`(tierd_device_info .+)`", (ROOT / "docs/operator-guide.md").read_text())
    devices = {f'job="tierd", instance="{node}", device="{device}"' for node in ("m", "n") for device in (0, 1)}
    without = 'job="tierd", instance="n", device="1"'
    series = [{"series": f'tierd_device_info{{{each}, path="/a"}}', "values": "1+0x40"} for each in sorted(devices)]
    series += [
        {"series": f"tierd_device_smart_stale{{{each}}}", "values": "0+0x40"} for each in sorted(devices - {without})
    ]
    found = {"labels": f'tierd_device_info{{{without}, path="/a"}}', "value": 1}
    check = {"expr": query, "eval_time": "5m", "exp_samples": [found]}
    promtool_test(tmp_path, [{"interval": f"{INTERVAL}s", "input_series": series, "promql_expr_test": [check]}])


DAY = 24 * 60  # Minutes.
STEP = 5  # Minutes between two scrapes, where days pass.
DAYS = 24 * 60 // STEP  # Scrapes of a day.


def a_device_becomes_slow_for_days() -> Case:
    """A week in which it was fast, and three days in which most requests take between 50 and 250 ms."""
    fast, slow = 7 * DAYS, 3 * DAYS
    series = latency(
        READS,
        [
            ("0.001", f"0+100x{fast} {100 * fast}+0x{slow}"),
            ("0.05", f"0+100x{fast} {100 * fast}+0x{slow}"),
            ("0.25", f"0+100x{fast + slow}"),
            ("+Inf", f"0+100x{fast + slow}"),
        ],
    )
    labels = {**SLOW, "direction": "read", "class": "demand"}
    after = (45, DAY // 2, DAY, 2 * DAY, 3 * DAY - STEP)
    checks = [
        firing("TierdDeviceSlow", 7 * DAY - STEP, None),
        *(firing("TierdDeviceSlow", 7 * DAY + when, labels) for when in after),
    ]
    return series, checks


def a_device_is_slow_by_nature() -> Case:
    """A hard disk, whose slowest requests take up to 100 ms in half of each day, and up to 250 ms in the other."""
    half, days = DAYS // 2, 10
    steady = f"0+100x{days * DAYS}"
    up_to_100 = " ".join(
        f"{100 * half * day}+100x{half - 1} {100 * half * (day + 1)}+0x{half - 1}" for day in range(days)
    )
    series = latency(READS, [("0.05", f"0+0x{days * DAYS}"), ("0.1", up_to_100), ("0.25", steady), ("+Inf", steady)])
    checks = [firing("TierdDeviceSlow", when, None) for when in range(60, days * DAY, 60)]
    return series, checks


def test_a_device_that_has_become_slow_is_told_of_for_days_and_one_that_is_slow_by_nature_is_not(
    tmp_path: pathlib.Path,
) -> None:
    cases = {"has become slow": a_device_becomes_slow_for_days(), "by nature": a_device_is_slow_by_nature()}
    promtool_test(tmp_path, beside_each_other(cases, STEP * 60), evaluation=STEP * 60)


def queued(of: str, a_minute: int) -> list[dict[str, str]]:
    """Requests of a class, each of which takes up to a second, for three hours."""
    steady = f"0+{a_minute}x180"
    return latency(of, [("0.5", "0+0x180"), ("1", steady), ("+Inf", steady)])


def test_half_a_second_is_slow_only_where_jobs_wait_and_where_there_is_a_load(tmp_path: pathlib.Path) -> None:
    """A hard disk takes that long for pieces in a deep queue."""
    unasked = [*queued(AHEAD, 100), *queued('direction="write", class="background"', 100)]
    told = [firing("TierdDeviceSlow", when, {**SLOW, "direction": "read", "class": "demand"}) for when in (60, 170)]
    cases = {
        "no job waits": (unasked, quiet_for("TierdDeviceSlow", 175)),
        "jobs wait": ([*unasked, *queued(READS, 100)], told),
        "few requests": (queued(READS, 1), quiet_for("TierdDeviceSlow", 175)),
        "enough requests": (queued(READS, 3), told),
    }
    promtool_test(tmp_path, beside_each_other(cases, 60), evaluation=60)


def test_few_acquires_that_wait_long_are_not_told(tmp_path: pathlib.Path) -> None:
    def acquires(a_minute: int) -> list[dict[str, str]]:
        counts = {"1": 0, "10": a_minute, "+Inf": a_minute}
        return [
            {"series": f'tierd_acquire_wait_seconds_bucket{{instance="n", le="{le}"}}', "values": f"0+{count}x60"}
            for le, count in counts.items()
        ]

    labels = {"alertname": "TierdSlowAcquires", "alertstate": "firing", "instance": "n", "severity": "warning"}
    cases = {
        "few": (acquires(1), quiet_for("TierdSlowAcquires", 60)),
        "enough": (acquires(3), [firing("TierdSlowAcquires", when, labels) for when in (30, 55)]),
    }
    promtool_test(tmp_path, beside_each_other(cases, 60), evaluation=60)


def test_in_the_copy_with_short_times_every_time_is_short(tmp_path: pathlib.Path) -> None:
    page = short_rules.shortened()
    times = [
        time
        for group in page["groups"]
        for rule in group["rules"]
        for time in re.findall(r"(?<=[\[: ])\d+[a-z]+(?=[\]:) ]|$)", rule["expr"] + " " + rule.get("for", ""))
    ]
    assert "3360s" in times and "20s" in times, times
    assert all(time.endswith("s") for time in times), times
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump(page))
    done = subprocess.run(
        [find_tool("promtool"), "check", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tried() -> None:
    assert set(alerts()) == {*CAUSES, "TierdRestarted"}


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    pages = {path.stem for path in RUNBOOKS.glob("Tierd*.md")}
    assert pages == set(alerts())
    for name, rule in alerts().items():
        assert rule["annotations"]["runbook"] == f"/usr/share/doc/tierd/runbooks/{name}.md", "where it is installed"
        assert (RUNBOOKS / f"{name}.md").read_text().startswith(f"# {name}\n")
        assert rule["annotations"]["summary"] and rule["annotations"]["description"]
        assert rule["labels"]["severity"] in ("info", "warning", "critical")


def table_of_alerts() -> str:
    """What docs/runbooks/README.md shows: the rules' own words, with NODE, DEVICE … and N in place of what they fill
    in."""
    lines = ["| alert | severity | what it says |", "| --- | --- | --- |"]
    for name, rule in alerts().items():
        words = re.sub(
            r"\{\{ \$labels\.(?:tierd_)?(\w+) \}\}", lambda label: label[1].upper(), rule["annotations"]["summary"]
        )
        words = re.sub(r"\{\{ \$value[^}]*\}\}", "N", words).replace("INSTANCE", "NODE")
        lines.append(f"| [{name}]({name}.md) | {rule['labels']['severity']} | {words} |")
    return "\n".join(lines) + "\n"


def test_the_list_of_runbooks_has_the_severity_and_the_words_of_each_alert() -> None:
    table = table_of_alerts()
    assert "{" not in table
    assert f"\n\n{table}\n" in (RUNBOOKS / "README.md").read_text(), f"it should have:\n{table}"


def test_promtool_accepts_the_rules() -> None:
    done = subprocess.run(
        [find_tool("promtool"), "check", "rules", str(RULES)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
