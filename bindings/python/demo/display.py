"""What the person sees: a progress bar where there is a terminal, plain lines where there is none, and a table."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tierd.quantity import format_bytes

# Without a terminal: so many lines for a run, and the last.
LINES = 12


def describe(figures: dict[str, Any]) -> str:
    text = f"loss {figures['loss']:.4f}  {figures['tokens_per_second']:,.0f} tokens/s"
    if "ram_bytes" in figures:
        text += (
            f"  RAM {format_bytes(figures['ram_bytes'])}  SSD {format_bytes(figures['ssd_bytes'])}"
            f"  swap {figures['swap_rate'] / 1e9:.2f} GB/s  stalls {figures['waits']} ({figures['wait_seconds']:.1f} s)"
        )
    return text


class StepDisplay:
    """One run's progress."""

    def __init__(self, title: str, steps: int) -> None:
        self._title = title
        self._steps = steps
        self._progress: Progress | None = None
        if sys.stdout.isatty():
            self._progress = Progress(
                TextColumn(f"[bold]{title:<6}"), BarColumn(bar_width=24), TextColumn("{task.completed}/{task.total}"),
                TextColumn("{task.fields[figures]}"), TimeElapsedColumn(),
            )  # fmt: skip
            self._task = self._progress.add_task(title, total=steps, figures="starting")
            self._progress.start()

    def step(self, number: int, figures: dict[str, Any]) -> None:
        if self._progress is not None:
            self._progress.update(self._task, completed=number, figures=describe(figures))
        elif number % max(1, self._steps // LINES) == 0 or number in (1, self._steps):
            print(f"{self._title:<6} {number:>4}/{self._steps}  {describe(figures)}", flush=True)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()


def show_table(title: str, rows: list[tuple[str, str, str]]) -> None:
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("")
    table.add_column("plain torch", justify="right")
    table.add_column("with tierd", justify="right")
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 100).print(table)
