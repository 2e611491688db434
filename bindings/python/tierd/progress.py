"""Progress of long copies, on stderr, for a person who watches a terminal or a notebook; never in a log.

It is drawn by ``rich``; without that package there is none. Any thread may advance it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from typing import Any

from .errors import Invalid

SHOWN_FROM_BYTES = 1 << 30
Advance = Callable[[int], None]


def wanted(progress: bool | None, total: int) -> bool:
    """Whether progress is shown: as ``progress`` says; for ``None`` where more than 1 GiB moves and stderr is a
    terminal or the program runs in IPython. ``Invalid`` if ``progress`` is none of these."""
    if progress is None:
        return total > SHOWN_FROM_BYTES and (_is_terminal() or _in_ipython())
    if not isinstance(progress, bool):
        raise Invalid(f"progress is {progress!r}: True, False, or None for a terminal and large copies only")
    return progress


@contextlib.contextmanager
def shown(what: str, total: int, progress: bool | None) -> Iterator[Advance]:
    """A context that shows how many of ``total`` bytes have moved: call what it gives with the bytes of each part. The
    bar goes when the context ends; in a file, for which it must be asked, its last state is written."""
    with _drawn(what, total, wanted(progress, total)) as advance:
        yield advance


@contextlib.contextmanager
def counted(what: str, progress: bool | None) -> Iterator[Advance]:
    """The same where the total is not known before: for ``None`` it is shown from the byte on by which it is more than
    1 GiB. Used by one thread."""
    with contextlib.ExitStack() as opened:
        bars = [opened.enter_context(_drawn(what, None, True))] if wanted(progress, 0) else []
        moved = 0

        def advance(more: int) -> None:
            nonlocal moved
            moved += more
            if bars:
                bars[0](more)
            elif wanted(progress, moved):
                bars.append(opened.enter_context(_drawn(what, None, True)))
                bars[0](moved)

        yield advance


@contextlib.contextmanager
def _drawn(what: str, total: int | None, visible: bool) -> Iterator[Advance]:
    if not visible:
        yield lambda moved: None
        return
    try:
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield lambda moved: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
    console = _console()
    drawn_again = console.is_jupyter or (console.is_terminal and not console.is_dumb_terminal)  # Else once, at the end.
    with Progress(*columns, console=console, transient=drawn_again) as bar:
        task = bar.add_task(f"tierd: {what}", total=total)
        yield lambda moved: bar.advance(task, moved)


def _console() -> Any:
    """Where it is drawn: in a notebook without ipywidgets, by which rich draws there, as on a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_jupyter and importlib.util.find_spec("ipywidgets") is None:
        return Console(stderr=True, force_jupyter=False, force_terminal=True)
    return console


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # There is none, or it is closed.
        return False


def _in_ipython() -> bool:
    ipython = sys.modules.get("IPython")  # A program in IPython has imported it.
    return ipython is not None and ipython.get_ipython() is not None
