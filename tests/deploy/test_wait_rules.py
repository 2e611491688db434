"""The alerts about requests that wait, on invented series: which waits they tell of, and which not; by promtool."""

from __future__ import annotations

import pathlib

from promtool import INTERVAL, JOB, beside_each_other, firing, promtool_test, quiet_for


def waits(cause: str, seen: str, some_wait: float, each_wait: float = 0) -> list[dict[str, str]]:
    """Requests that wait for that, as scrapes see them; parts of the time in which at least one does, and of all."""
    figures = {"waiting": some_wait, "stall": each_wait}
    count = {"series": f'tierd_waiting_requests{{instance="n", cause="{cause}"}}', "values": f"{seen} " * 50}
    return [count] + [
        {
            "series": f'tierd_{name}_seconds_total{{instance="n", cause="{cause}"}}',
            "values": f"0+{part * INTERVAL}x200",
        }
        for name, part in figures.items()
    ]


def test_an_arena_is_saturated_by_waits_for_ram_alone(tmp_path: pathlib.Path) -> None:
    labels = {"alertname": "TierdArenaSaturated", "alertstate": "firing", "instance": "n", "severity": "warning"}
    told = [firing("TierdArenaSaturated", 20, {**labels, "cause": "ram"})]
    others = [
        each
        for cause in ("ssd_read", "ssd_write", "lease", "budget", "queue")
        for each in waits(cause, "2 2 2 2", 1, 2)
    ]
    cases = {
        "other causes": ([*others, *waits("ram", "0 0 0 0", 0)], quiet_for("TierdArenaSaturated", 45)),
        "many short waits": (waits("ram", "1 0 1 1", 0.98, 0.98), told),  # And a scrape that falls between two of them.
        "many at once now and then": (waits("ram", "0 64 0 0", 0.02, 1.28), quiet_for("TierdArenaSaturated", 45)),
        "half of the time": (waits("ram", "1 0 1 1", 0.5, 0.5), quiet_for("TierdArenaSaturated", 45)),
        "a wait without an end": (waits("ram", "1 1 1 1", 0), told),  # Its time may be told a scrape later.
    }
    promtool_test(tmp_path, beside_each_other(cases))


def test_a_job_that_waits_less_for_a_minute_is_told_of_all_the_same(tmp_path: pathlib.Path) -> None:
    """It waits two thirds of the time, and each third minute not at all: no ten minutes are without such a one."""
    scrapes = 60 // INTERVAL  # In a minute.
    at, values = 0, []
    for _ in range(8):
        for rise in (INTERVAL * 2 // 3, INTERVAL * 2 // 3, 0):
            values += [at + rise * step for step in range(scrapes)]
            at += rise * scrapes
    series = [
        {"series": f"tierd_job_stall_seconds_total{{{JOB}}}", "values": " ".join(map(str, values))},
        {"series": f"tierd_job_sessions{{{JOB}}}", "values": "1+0x200"},
    ]
    labels = {"alertname": "TierdJobStalls", "alertstate": "firing", "instance": "n", "severity": "info"}
    checks = [firing("TierdJobStalls", 20, {**labels, "tierd_job": "train", "uid": "1000"})]
    promtool_test(tmp_path, [{"interval": f"{INTERVAL}s", "input_series": series, "promql_expr_test": checks}])
