"""The alerts about how much is written to devices, on invented series; by promtool."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

from promtool import DEVICE, INTERVAL, Case, beside_each_other, firing, promtool_test, quiet_for

HOUR = 60 * 60
BUDGET = 100  # Bytes a second that it brings.
BUDGET_OF_AN_HOUR = BUDGET * HOUR


def budget(per_day: str, left: str, written: str) -> list[dict[str, str]]:
    """Each in promtool's notation."""
    return [
        {"series": 'tierd_write_budget_bytes_per_day{instance="n"}', "values": per_day},
        {"series": 'tierd_write_budget_left_bytes{instance="n"}', "values": left},
        {"series": f"tierd_device_written_bytes_total{{{DEVICE}}}", "values": written},
    ]


# Write-behind that takes all that the budget brings: its last write may make a small debt, and a rate over scrapes is
# seldom exact.
AT_THE_BUDGET = BUDGET + 1
NEARLY_NOTHING_LEFT = " ".join(["500", "-500"] * 500)


def what_was_saved_up_is_written() -> Case:
    """Quiet for two hours; then what an hour saved up and what the next one brings, and from then on as it comes."""
    hour = HOUR // INTERVAL
    twice, then = 2 * BUDGET * INTERVAL, AT_THE_BUDGET * INTERVAL
    series = budget(
        f"{24 * BUDGET_OF_AN_HOUR}+0x{7 * hour}",
        f"{BUDGET_OF_AN_HOUR}+0x{2 * hour - 1} {BUDGET_OF_AN_HOUR}-{BUDGET * INTERVAL}x{hour - 1} "
        + NEARLY_NOTHING_LEFT,
        f"0+0x{2 * hour - 1} 0+{twice}x{hour} {twice * hour}+{then}x{4 * hour}",
    )
    checks = quiet_for("TierdWriteBudgetExceeded", 6 * 60)
    return series, checks


def the_budget_is_lowered_and_then_kept() -> Case:
    """For two hours ten times as much is allowed, and written."""
    hour = HOUR // INTERVAL
    before, then = 10 * BUDGET * INTERVAL, AT_THE_BUDGET * INTERVAL
    series = budget(
        f"{240 * BUDGET_OF_AN_HOUR}+0x{2 * hour - 1} {24 * BUDGET_OF_AN_HOUR}+0x{5 * hour}",
        NEARLY_NOTHING_LEFT + " " + NEARLY_NOTHING_LEFT,
        f"0+{before}x{2 * hour} {before * 2 * hour}+{then}x{4 * hour}",
    )
    checks = quiet_for("TierdWriteBudgetExceeded", 6 * 60)
    return series, checks


def bucket(burst_scrapes: Callable[[int], bool], scrapes: int, burst_hours: float) -> tuple[str, str]:
    """What the budget has left, and what was written, where in such scrapes writes of so many hours' budget begin that
    do not wait: as the daemon's bucket counts it."""
    left, written_, lefts, writtens = BUDGET_OF_AN_HOUR, 0, [], []
    for scrape in range(scrapes):
        left = min(left + BUDGET * INTERVAL, BUDGET_OF_AN_HOUR)
        if burst_scrapes(scrape):
            written_ += round(burst_hours * BUDGET_OF_AN_HOUR)
            left = max(left - round(burst_hours * BUDGET_OF_AN_HOUR), -BUDGET_OF_AN_HOUR)
        lefts.append(left)
        writtens.append(written_)
    return " ".join(map(str, lefts)), " ".join(map(str, writtens))


EXCEEDED = {"alertname": "TierdWriteBudgetExceeded", "alertstate": "firing", "instance": "n", "severity": "warning"}


def bursts_that_exceed_the_budget_again_and_again(hours_each: float, every: int) -> Case:
    """Half an hour after each the debt is small: what an hour brings is all that is ever owed."""
    first, last, length = 60, 360, 480  # Minutes.
    at = [minute * 60 // INTERVAL for minute in range(first, last, every)]
    left, written_ = bucket(lambda scrape: scrape in at, length * 60 // INTERVAL, hours_each)
    series = budget(f"{24 * BUDGET_OF_AN_HOUR}+0x{length * 60 // INTERVAL}", left, written_)
    ended = at[-1] * INTERVAL // 60
    begun = first if hours_each > 2 else first + every  # What was saved up pays for half of a small one.
    checks = [
        *(firing("TierdWriteBudgetExceeded", when, None) for when in range(5, begun + 120, 5)),
        *(firing("TierdWriteBudgetExceeded", when, EXCEEDED) for when in range(begun + 125, ended + 50, 5)),
        *(firing("TierdWriteBudgetExceeded", when, None) for when in range(ended + 65, length, 5)),
    ]
    return series, checks


def a_burst_after_which_the_budget_is_kept() -> Case:
    """A device is drained for half an hour: half of what the budget brings in a day."""
    scrapes, first, count = 8 * HOUR // INTERVAL, 2 * HOUR // INTERVAL, HOUR // 2 // INTERVAL
    left, written_ = bucket(lambda scrape: first <= scrape < first + count, scrapes, 12 / count)
    series = budget(f"{24 * BUDGET_OF_AN_HOUR}+0x{scrapes}", left, written_)
    checks = quiet_for("TierdWriteBudgetExceeded", 7 * 60)
    return series, checks


def the_budget_is_lowered_while_much_is_owed() -> Case:
    """The debt of the larger budget, up to an hour of the smaller one, is paid back; then the smaller one is kept."""
    half = HOUR // 2 // INTERVAL
    before, then = 10 * BUDGET * INTERVAL, AT_THE_BUDGET * INTERVAL
    series = budget(
        f"{240 * BUDGET_OF_AN_HOUR}+0x{4 * half - 1} {24 * BUDGET_OF_AN_HOUR}+0x{10 * half}",
        f"-{BUDGET_OF_AN_HOUR * 4}+0x{4 * half - 1} -{BUDGET_OF_AN_HOUR}+{BUDGET * INTERVAL}x{2 * half - 1} "
        + NEARLY_NOTHING_LEFT,
        f"0+{before}x{4 * half} {before * 4 * half}+0x{2 * half - 1} {before * 4 * half}+{then}x{8 * half}",
    )
    checks = quiet_for("TierdWriteBudgetExceeded", 6 * 60)
    return series, checks


def test_writes_that_exceed_the_budget_are_told_of_and_no_others(tmp_path: pathlib.Path) -> None:
    cases = {
        "saved up": what_was_saved_up_is_written(),
        "lowered and then kept": the_budget_is_lowered_and_then_kept(),
        "one burst": a_burst_after_which_the_budget_is_kept(),
        "lowered while much is owed": the_budget_is_lowered_while_much_is_owed(),
    }
    for hours_each, every in [(10, 45), (10, 55), (1.5, 45)]:
        case = bursts_that_exceed_the_budget_again_and_again(hours_each, every)
        cases[f"{hours_each} hours each {every} minutes"] = case
    promtool_test(tmp_path, beside_each_other(cases))


DAY_SECONDS = 24 * HOUR
DWPD = "device:tierd_drive_writes_per_day:rate1h"


def drive_writes(a_day: int, area: float, drive: str) -> list[dict[str, str]]:
    """Bytes written in a day, and the sizes of the area and of the drive, in multiples of as many bytes as a day has
    seconds; `drive` in promtool's notation, empty: it is not told."""
    length = 4 * HOUR // INTERVAL
    sizes = {"capacity": f"{area * DAY_SECONDS:g}+0x{length}"} | ({"drive": drive} if drive else {})
    return [
        {"series": f"tierd_device_written_bytes_total{{{DEVICE}}}", "values": f"0+{a_day * INTERVAL}x{length}"},
        *({"series": f"tierd_device_{name}_bytes{{{DEVICE}}}", "values": size} for name, size in sizes.items()),
    ]


def recorded(value: float) -> dict[str, Any]:
    return {
        "expr": f'{DWPD}{{instance="n"}}',
        "eval_time": "130m",
        "exp_samples": [{"labels": f"{DWPD}{{{DEVICE}}}", "value": value}],
    }


def test_drive_writes_are_by_the_drive_where_it_is_known_and_else_by_the_area(tmp_path: pathlib.Path) -> None:
    labels = {"alertname": "TierdDriveWrites", "alertstate": "firing", "instance": "n", "severity": "warning"}
    told = firing("TierdDriveWrites", 130, {**labels, "device": "0"})
    quiet = quiet_for("TierdDriveWrites", 200)
    small, large = (f"{size * DAY_SECONDS}+0x{4 * HOUR // INTERVAL}" for size in (1, 4))
    cases = {
        "a large drive": (drive_writes(4, 1, large), [recorded(1), *quiet]),
        "a small drive": (drive_writes(4, 0.25, small), [recorded(4), told]),
        "an unknown drive": (drive_writes(4, 1, ""), [recorded(4), told]),
        "an unknown drive that is written less": (drive_writes(1, 1, ""), [recorded(1), *quiet]),
        "a drive of no size": (drive_writes(4, 1, f"0+0x{4 * HOUR // INTERVAL}"), [recorded(4), told]),
    }
    promtool_test(tmp_path, beside_each_other(cases))
