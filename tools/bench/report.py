"""The table and the JSON lines: rows of figures, each with its ceiling, what was promised, and whether it held."""

from __future__ import annotations

import json
import math
import os
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table


Arm = TypeVar("Arm")

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Report:
    """Rows as they come: printed at once, written to a file of JSON lines, and shown as one table at the end.

    ``folder``: for what else a part writes, beside that file. ``doubts``: why figures of this run are not to be quoted.
    """

    def __init__(self, path: pathlib.Path | None, who: str = "") -> None:
        self.rows: list[dict[str, Any]] = []
        self.doubts: list[str] = []
        self.who = who
        self.folder = path.parent if path else ROOT / "build/reports"
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
        quotable: bool = True,
        detail: dict[str, Any] | None = None,
    ) -> None:
        """A figure. ``at_least`` or ``at_most``: what is promised of it. Not ``quotable``: the table says so."""
        held, bound = None, ""
        if at_least is not None:
            held, bound = value >= at_least, f"≥ {figure(at_least)} {unit}"
        if at_most is not None:
            held, bound = value <= at_most, f"≤ {figure(at_most)} {unit}"
        row = {"what": self.who + what, "value": value, "unit": unit, "ceiling": ceiling, "bound": bound, "held": held}
        self._take(row | ({} if quotable else {"quotable": False}) | (detail or {}))

    def note(self, what: str, facts: dict[str, Any]) -> None:
        """What was measured, and how: versions, configurations. Printed, and a line of the file; no row."""
        if self.file:
            print(json.dumps({"note": self.who + what} | facts), file=self.file, flush=True)
        for name, fact in facts.items():
            words = fact if isinstance(fact, str) else json.dumps(fact, ensure_ascii=False)
            print(f"  {self.who}{what}: {name}: {words}", flush=True)

    def doubt(self, why: str) -> None:
        self.doubts.append(why)

    def add_lines(self, lines: str) -> None:
        """Rows another run of this program wrote."""
        for row in map(json.loads, lines.splitlines()):
            if "what" in row:
                self._take(row)

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
            if not row.get("quotable", True):
                mark = f"{mark}, not quotable".removeprefix(", ")
            table.add_row(row["what"], f"{figure(row['value'])} {row['unit']}", row["ceiling"], row["bound"], mark)
        console = Console(width=190)
        console.print(table)
        for why in self.doubts:
            console.print(f"[red]not quotable[/red]: {why}")


def turn(arms: Sequence[Arm], number: int) -> list[Arm]:
    """All arms, beginning with another one each time."""
    first = number % len(arms)
    return [*arms[first:], *arms[:first]]


def figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1e4 else f"{value:.4g}"


def paired(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """Median and quartiles of the ratios of figures that were measured in turn."""
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    q1, median, q3 = statistics.quantiles(ratios, n=4)
    return {"q1": q1, "median": median, "q3": q3}


def quartiles(samples: dict[str, float]) -> str:
    return f"quartiles {samples['q1']:.3g}–{samples['q3']:.3g}"


def interval_of_median(values: Sequence[float]) -> tuple[float, float]:
    """The narrowest pair of order statistics, equally far from both ends, that has the median with 95 %."""
    ordered = sorted(values)
    count = len(ordered)
    below, cut = 0.0, 0
    while cut < count // 2:
        below += math.comb(count, cut) / 2**count
        if 2 * below > 0.05:
            break
        cut += 1
    return (ordered[cut - 1], ordered[count - cut]) if cut else (-math.inf, math.inf)


def interval(values: Sequence[float]) -> str:
    """The same in words; of fewer than six values there is none."""
    low, high = interval_of_median(values)
    if not math.isfinite(low):
        return f"{len(values)} pairs: too few for an interval"
    return f"95 % interval {low:.3f}–{high:.3f} of {len(values)} pairs"
