"""A copy of the rules in which a minute is a second, an hour twenty, and a day so many hours, for alerts that are to
fire in a test."""

from __future__ import annotations

import re
from typing import Any

import yaml  # type: ignore[import-untyped]
from surroundings import ROOT

RULES = ROOT / "deploy/prometheus/rules.yml"
# A scrape and an evaluation less than two evaluations: whatever their phases are, that is what an alert may take
# beyond its `for`.
SCRAPE_SECONDS, EVALUATION_SECONDS = 0.5, 1.0
_SECONDS = {"m": 1, "h": 20, "d": 24 * 20}
# Of a range, the range and the step of a subquery, and of an offset.
_DURATION = re.compile(r"(?<=[\[:])\d+[mhd](?=[\]:])|(?<=offset )\d+[mhd]\b")
# How long TierdRestarted tells of a start: a number of seconds in its expression.
_RESTARTED_SECONDS, _RESTARTED_SHORT = 900, 15
# How many requests there are to be in ten minutes, and in ten seconds.
_LEAST_REQUESTS, _LEAST_REQUESTS_SHORT = ">= 20", ">= 3"
_OF_REQUESTS = ("TierdSlowAcquires", "device:tierd_device_request_seconds:p99_10m")


def seconds(duration: str) -> int:
    """Of `5m` in the rules: 5 in the copy."""
    found = re.fullmatch(r"(\d+)([mhd])", duration)
    assert found, f"{duration}: the copy knows minutes, hours and days"
    return int(found[1]) * _SECONDS[found[2]]


def shortened() -> dict[str, Any]:
    page = yaml.safe_load(RULES.read_text())
    for group in page["groups"]:
        for rule in group["rules"]:
            rule["expr"] = _DURATION.sub(lambda found: f"{seconds(found[0])}s", rule["expr"])
            if rule.get("alert", rule.get("record")) in _OF_REQUESTS:
                assert _LEAST_REQUESTS in rule["expr"]
                rule["expr"] = rule["expr"].replace(_LEAST_REQUESTS, _LEAST_REQUESTS_SHORT)
            if "for" in rule:
                rule["for"] = f"{seconds(rule['for'])}s"
            if rule.get("alert") == "TierdRestarted":
                assert f"< {_RESTARTED_SECONDS}" in rule["expr"]
                rule["expr"] = rule["expr"].replace(f"< {_RESTARTED_SECONDS}", f"< {_RESTARTED_SHORT}")
    return dict(page)


def alert_seconds() -> dict[str, int]:
    """The `for` of each alert in the copy."""
    rules = [rule for group in shortened()["groups"] for rule in group["rules"]]
    return {rule["alert"]: int(rule.get("for", "0s").rstrip("s")) for rule in rules if "alert" in rule}


def recorded() -> list[str]:
    return [rule["record"] for group in shortened()["groups"] for rule in group["rules"] if "record" in rule]


CONFIGURATION = f"""
global:
  scrape_interval: {int(SCRAPE_SECONDS * 1000)}ms
  evaluation_interval: {int(EVALUATION_SECONDS * 1000)}ms
rule_files: [rules.yml]
scrape_configs:
  - job_name: tierd
    file_sd_configs: [{{files: [nodes.yml]}}]
"""
