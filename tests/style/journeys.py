"""The journeys in docs/architecture.md: lists of units, held to the tree.

A step is a fenced block with one unit in each line. The unit above it that is less deep calls it. Behind the unit stand
words; `again` and `through UNIT` come first among them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from source_tree import Finding
from unit_rules import Graph

_HEADING = "## Four journeys"
_INDENT = 2


@dataclasses.dataclass(frozen=True)
class Stop:
    """One line of a step."""

    line: int
    unit: str
    caller: str  # Empty: the step begins here.
    again: bool
    through: str  # The interface by which the caller calls it; empty: the caller includes it.


def steps(text: str) -> Iterator[list[Stop]]:
    """The fenced blocks of the section on journeys."""
    block: list[Stop] | None = None
    inside = False
    above: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("## "):
            inside = line == _HEADING
        if not inside:
            continue
        if line.startswith("```"):
            if block is not None:
                yield block
            block = [] if block is None else None
            above = []
        elif block is not None:
            depth = (len(line) - len(line.lstrip())) // _INDENT
            unit, *words = line.replace(";", " ").replace(":", " ").split()
            again = words[:1] == ["again"]
            how = words[1:] if again else words
            through = how[1] if how[:1] == ["through"] else ""
            block.append(Stop(number, unit, above[depth - 1] if 0 < depth <= len(above) else "", again, through))
            above = [*above[:depth], unit]


def _reached(graph: Graph, unit: str) -> set[str]:
    found = {unit}
    left = [unit]
    while left:
        fresh = graph.get(left.pop(), set()) - found
        found |= fresh
        left.extend(fresh)
    return found


def _calls(graph: Graph, stop: Stop) -> bool:
    if not stop.through:
        return stop.unit in graph.get(stop.caller, ())
    seen = stop.through in _reached(graph, stop.caller)
    return seen and (stop.through in graph.get(stop.unit, ()) or stop.unit in graph.get(stop.through, ()))


def findings(path: str, text: str, graph: Graph) -> list[Finding]:
    """Units that are not there, arrows without an include, and units entered twice in a step without `again`."""
    found = []
    for step in steps(text):
        entered: set[str] = set()
        for index, stop in enumerate(step):
            if stop.unit not in graph:
                found.append(Finding("journey", path, stop.line, f"no unit {stop.unit}"))
            elif index != 0 and not _calls(graph, stop):
                found.append(
                    Finding("journey", path, stop.line, f"{stop.caller or 'nothing'} does not see {stop.unit}")
                )
            if stop.again != (stop.unit in entered):
                word = "lacks `again`" if not stop.again else "is not entered before"
                found.append(Finding("journey", path, stop.line, f"{stop.unit} {word}"))
            entered.add(stop.unit)
    return found
