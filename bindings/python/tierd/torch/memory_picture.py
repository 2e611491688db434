"""How a memory report is shown: a table for terminals and notebooks, and a picture as SVG.

The table is drawn by ``rich`` where that is installed, else as plain columns. The picture needs no package.
"""

from __future__ import annotations

import html as escaping
import io
from typing import TYPE_CHECKING

from ..quantity import format_bytes

if TYPE_CHECKING:
    from .memory_report import MemoryReport

_HEAD = ("", "process", "tierd's RAM", "SSD only", "in all")
# Colours that people with colour-blindness tell apart (Okabe and Ito, "Color Universal Design", 2008).
_COLOURS = {"process": "#D55E00", "tierd's RAM": "#0072B2", "SSD only": "#999999"}
_ROW, _LABEL, _BAR, _RIGHT, _TOP = 34, 130, 420, 90, 56


def rows_of(report: MemoryReport) -> list[tuple[str, ...]]:
    """A row for each kind of tensor and one for their sum, as texts."""
    places = {**report.parts}
    first, *rest = places.values()
    places["in all"] = sum(rest, first)
    return [
        (name, *(format_bytes(size) for size in (place.process, place.ram, place.ssd, place.total)))
        for name, place in places.items()
    ]


def lines_of(report: MemoryReport) -> list[tuple[str, str]]:
    """What processes take, as names and texts."""
    arena = _known(report.arena)
    if report.arena_max is not None:
        arena += f" of at most {format_bytes(report.arena_max)}; this job holds {_known(report.held)}"
    process, daemon = report.process, report.daemon
    return [
        ("this process", "unknown" if process is None else _parts(process.anonymous, process.files)),
        ("the daemon's own", "unknown" if daemon is None else _parts(daemon.anonymous, daemon.files)),
        ("arena and rings", _known(report.memfds)),
        ("all three", _known(report.measured)),
        ("arena", arena),
        ("plain torch's tensors", format_bytes(report.plain_torch)),
    ]


def text(report: MemoryReport) -> str:
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        return _plain(report)
    table = Table(box=box.SIMPLE_HEAD)
    for number, title in enumerate(_HEAD):
        table.add_column(title, justify="right" if number else "left", no_wrap=True)
    rows = rows_of(report)
    for row in rows:
        table.add_row(*row, end_section=row is rows[-2])
    stream = io.StringIO()
    console = Console(file=stream, width=100)
    console.print(table)
    return "\n".join([stream.getvalue().strip("\n"), "", *_aligned(lines_of(report))])


def _plain(report: MemoryReport) -> str:
    table = [_HEAD, *rows_of(report)]
    widths = [max(len(row[column]) for row in table) for column in range(len(_HEAD))]
    lines = [
        "  ".join(cell.rjust(width) if column else cell.ljust(width) for column, (cell, width) in enumerate(cells))
        for cells in (list(zip(row, widths, strict=True)) for row in table)
    ]
    return "\n".join([*lines, "", *_aligned(lines_of(report))])


def _aligned(lines: list[tuple[str, str]]) -> list[str]:
    width = max(len(name) for name, _ in lines)
    return [f"  {name.ljust(width)}  {value}" for name, value in lines]


def html(report: MemoryReport) -> str:
    def row(cells: tuple[str, ...], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escaping.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    table = row(_HEAD, "th") + "".join(row(cells, "td") for cells in rows_of(report))
    lines = "".join(row(cells, "td") for cells in lines_of(report))
    return f"<table>{table}</table><table>{lines}</table>{svg(report)}"


class Picture(str):
    """The text of a picture in SVG, which a notebook draws."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)


def svg(report: MemoryReport) -> Picture:
    """A bar for each kind of tensor, one scale for all, with a legend."""
    height, width = _TOP + _ROW * len(report.parts) + 12, _LABEL + _BAR + _RIGHT
    largest = max(place.total for place in report.parts.values()) or 1
    shapes = [_text(12, 20, "Where the tensors lie", 14)]
    for number, (name, colour) in enumerate(_COLOURS.items()):
        key = _LABEL + number * 120
        shapes += [_box(key, 32, 12, 12, colour, name), _text(key + 18, 42, name)]
    for number, (name, place) in enumerate(report.parts.items()):
        top, left = _TOP + number * _ROW, float(_LABEL)
        shapes.append(_text(12, top + 17, name))
        for (where, colour), size in zip(_COLOURS.items(), (place.process, place.ram, place.ssd), strict=True):
            length = _BAR * size / largest
            if size:
                shapes.append(_box(left, top, length, 24, colour, f"{name}, {where}: {format_bytes(size)}"))
            left += length
        shapes.append(_text(left + 6, top + 17, format_bytes(place.total)))
    return Picture(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif">\n<rect width="100%" height="100%" fill="white"/>\n'
        + "\n".join(shapes)
        + "\n</svg>\n"
    )


def _box(left: float, top: float, width: float, height: float, colour: str, title: str) -> str:
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}">'
        f"<title>{escaping.escape(title)}</title></rect>"
    )


def _text(left: float, base: float, words: str, size: int = 12) -> str:
    return f'<text x="{left:.1f}" y="{base:.1f}" font-size="{size}">{escaping.escape(words)}</text>'


def _known(size: int | None) -> str:
    return "unknown" if size is None else format_bytes(size)


def _parts(anonymous: int, files: int) -> str:
    return f"{format_bytes(anonymous + files)} (anonymous {format_bytes(anonymous)}, files {format_bytes(files)})"
