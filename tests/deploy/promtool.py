"""Tests of the rules by promtool: series of an instance "n", and which alerts are to fire for it at what times."""

from __future__ import annotations

import json
import pathlib
import subprocess
from typing import Any

import yaml  # type: ignore[import-untyped]
from surroundings import ROOT, find_tool

RULES = ROOT / "deploy/prometheus/rules.yml"
INTERVAL = 15  # Seconds between two scrapes, as deploy/prometheus/prometheus.yml has it, and between two evaluations.
NODE = 'instance="n"'
DEVICE = 'instance="n", device="0"'
JOB = 'instance="n", tierd_job="train", uid="1000"'

Case = tuple[list[dict[str, str]], list[dict[str, Any]]]  # Series, and what promtool is to find.


def beside_each_other(cases: dict[str, Case], interval: int = INTERVAL) -> list[dict[str, Any]]:
    """One test of promtool, in which each case has an instance of its own name: promtool evaluates every rule at every
    step, so that many cases take little longer than one."""
    series: list[dict[str, str]] = []
    checks: list[dict[str, Any]] = []
    for name, case in cases.items():
        moved = json.loads(json.dumps(case).replace(r"instance=\"n\"", rf"instance=\"{name}\""))
        series += moved[0]
        checks += moved[1]
    return [{"interval": f"{interval}s", "input_series": series, "promql_expr_test": checks}]


def promtool_test(tmp_path: pathlib.Path, tests: list[dict[str, Any]], evaluation: int = INTERVAL) -> None:
    page = {"rule_files": [str(RULES)], "evaluation_interval": f"{evaluation}s", "tests": tests}
    path = tmp_path / "rules_test.yml"
    path.write_text(yaml.safe_dump(page))
    done = subprocess.run(
        [find_tool("promtool"), "test", "rules", str(path)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


def firing(name: str, when: float, labels: dict[str, str] | None, of: str = NODE) -> dict[str, Any]:
    """What promtool is to find of an alert after so many minutes; labels None: nothing. `of`: of which instances."""
    expression = f'ALERTS{{alertname="{name}", alertstate="firing", {of}}}'
    samples = []
    if labels is not None:
        shown = ", ".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
        samples = [{"labels": f"ALERTS{{{shown}}}", "value": 1}]
    return {"expr": expression, "eval_time": f"{round(when * 60)}s", "exp_samples": samples}


def quiet_for(name: str, minutes_: int) -> list[dict[str, Any]]:
    return [firing(name, when, None) for when in range(5, minutes_, 5)]
