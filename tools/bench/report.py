"""The table and the JSON lines: rows of figures, each with its ceiling, what was promised, and whether it held."""

from __future__ import annotations

import json
import os
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


class Report:
    """Rows as they come: printed at once, written to a file of JSON lines, and shown as one table at the end."""

    def __init__(self, path: pathlib.Path | None, who: str = "") -> None:
        self.rows: list[dict[str, Any]] = []
        self.who = who
        self.file = path.open("w") if path else None

    def add(
        self,
        what: str,
        value: float,
        unit: str,
        *,
        ceiling: str = "",
        at_least: float | None = None,
        at_most: float | None = None,
        detail: dict[str, Any] | None = None,
    ) -> None:
        """A figure. ``at_least`` or ``at_most``: what is promised of it."""
        held, bound = None, ""
        if at_least is not None:
            held, bound = value >= at_least, f"≥ {figure(at_least)} {unit}"
        if at_most is not None:
            held, bound = value <= at_most, f"≤ {figure(at_most)} {unit}"
        row = {"what": self.who + what, "value": value, "unit": unit, "ceiling": ceiling, "bound": bound, "held": held}
        self._take(row | (detail or {}))

    def add_lines(self, lines: str) -> None:
        """Rows another run of this program wrote."""
        for line in lines.splitlines():
            self._take(json.loads(line))

    def _take(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        if self.file:
            print(json.dumps(row), file=self.file, flush=True)
        beside = f"  ({row['ceiling']})" if row["ceiling"] else ""
        print(f"  {row['what']}: {figure(row['value'])} {row['unit']}{beside}", flush=True)

    def show(self) -> None:
        cpus = len(os.sched_getaffinity(0))
        table = Table(title=f"tierd on {cpus} CPUs, uid {os.geteuid()}")
        table.add_column("what")
        table.add_column("figure", justify="right")
        table.add_column("ceiling in the same run")
        table.add_column("promised")
        table.add_column("")
        for row in self.rows:
            mark = {True: "held", False: "[red]missed[/red]", None: ""}[row["held"]]
            table.add_row(row["what"], f"{figure(row['value'])} {row['unit']}", row["ceiling"], row["bound"], mark)
        Console(width=190).print(table)


def figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1e4 else f"{value:.4g}"


def paired(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """Median and quartiles of the ratios of figures that were measured in turn."""
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    q1, median, q3 = statistics.quantiles(ratios, n=4)
    return {"q1": q1, "median": median, "q3": q3}


def quartiles(samples: dict[str, float]) -> str:
    return f"quartiles {samples['q1']:.3g}–{samples['q3']:.3g}"
