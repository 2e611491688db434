"""Figures as SVG files without a library: areas over time in panels, readable on a light and on a dark page."""

from __future__ import annotations

import html
from collections.abc import Sequence

FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', sans-serif"
# Names of the classes that a shape may have, with their colours on a light and on a dark page.
COLOURS = {
    "ink": ("#1f2328", "#e6edf3"),
    "quiet": ("#59636e", "#9198a1"),
    "grid": ("#d1d9e0", "#3d444d"),
    "plain": ("#6e7781", "#8b949e"),
    "peer": ("#b35900", "#f0883e"),
    "ours": ("#0969da", "#4493f8"),
    "compute": ("#1a7f37", "#3fb950"),
    "service": ("#8250df", "#ab7df8"),
    "read": ("#0969da", "#4493f8"),
    "write": ("#b35900", "#f0883e"),
}


class Drawing:
    """Shapes, written in the order in which they are added. Lengths are pixels, y grows downwards."""

    def __init__(self, width: float, height: float, title: str, description: str) -> None:
        self.width, self.height = width, height
        self._head = (title, description)
        self._shapes: list[str] = []

    def text(self, x: float, y: float, words: str, *, anchor: str = "start", kind: str = "ink", size: int = 12) -> None:
        weight = ' font-weight="600"' if size > 12 else ""
        self._shapes.append(
            f'<text x="{x:.1f}" y="{y:.1f}" class="{_known(kind)}" text-anchor="{anchor}" font-size="{size}"{weight}>'
            f"{html.escape(words)}</text>"
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "grid") -> None:
        self._shapes.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{_known(kind)}" stroke-width="1"/>'
        )

    def box(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        self._shapes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}" class="{_known(kind)}" '
            'fill-opacity="0.25" stroke-width="1"/>'
        )

    def area(self, points: Sequence[tuple[float, float]], floor: float, kind: str) -> None:
        """The points joined by lines, filled down to ``floor``."""
        if not points:
            return
        path = " ".join(f"L{x:.1f} {y:.1f}" for x, y in points)
        first, last = points[0][0], points[-1][0]
        shape = f"M{first:.1f} {floor:.1f} {path} L{last:.1f} {floor:.1f} Z"
        self._shapes.append(f'<path d="{shape}" class="{_known(kind)}" fill-opacity="0.25" stroke="none"/>')
        self._shapes.append(f'<path d="M{path[1:]}" class="{_known(kind)}" fill="none" stroke-width="1.5"/>')

    def __str__(self) -> str:
        title, description = (html.escape(words) for words in self._head)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:.0f} {self.height:.0f}" '
            f'width="{self.width:.0f}" height="{self.height:.0f}" role="img" font-family="{html.escape(FONT)}">\n'
            f"<title>{title}</title>\n<desc>{description}</desc>\n<style>\n{_style()}</style>\n"
            + "\n".join(self._shapes)
            + "\n</svg>\n"
        )


def _known(kind: str) -> str:
    if kind not in COLOURS:
        raise KeyError(f"{kind!r} has no colours: one of {', '.join(COLOURS)}")
    return kind


def _style() -> str:
    def rules(page: int) -> str:
        shapes = "".join(f".{kind}{{stroke:{pair[page]};fill:{pair[page]}}}" for kind, pair in COLOURS.items())
        return f"{shapes}text[font-size]{{stroke:none}}"

    # The attributes of a shape would lose against a rule, so what is not to be filled says so in one.
    fixed = 'path[fill="none"]{fill:none}path[stroke="none"]{stroke:none}'
    return f"{rules(0)}{fixed}\n@media (prefers-color-scheme: dark){{{rules(1)}{fixed}}}\n"


def step_of_scale(largest: float, marks: int) -> float:
    """The distance between marks of an axis from 0 to ``largest``: 1, 2 or 5 times a power of ten, at most ``marks``
    of them."""
    for exponent in range(-12, 13):
        for factor in (1, 2, 5):
            if largest / (factor * 10.0**exponent) <= marks:
                return factor * 10.0**exponent
    raise ValueError(f"{largest} is more than an axis here has")
