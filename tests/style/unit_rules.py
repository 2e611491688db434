"""Units: the header and the source of one stem. No unit may need itself through others, by includes or by symbols.

A unit needs another when it includes its header, or when its object file leaves a symbol undefined that only the
other's object files define. Symbols show what includes cannot: a source that defines what some lower header declares.
An interface that is declared below and implemented above calls up on purpose; those stand in units.toml.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import pathlib
import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping

from layer_rules import includes, resolve
from source_tree import CXX_SUFFIXES, HEADER_SUFFIXES, Finding, SourceTree, code_of

UNIT_ROOTS = ("proto/", "daemon/", "libclient/", "tools/")
UPWARD_MAX = 8
_TABLE = "tests/style/units.toml"
_STRONG = frozenset("TDBRGS")  # What nm prints for a definition that no other object file may repeat.
_CLASS = re.compile(r"\b(?:class|struct)\s+(?:\[\[\w+\]\]\s*)?(?:alignas\([^)]*\)\s*)?(\w+)([^;{}()=]*)\{")
_PURE = re.compile(r"\)\s*(?:const\s*)?(?:noexcept\s*)?=\s*0\s*;")

Graph = dict[str, set[str]]


class BuildMissing(Exception):
    """The object files of some source of this tree are not there, or are older than the source."""


@dataclasses.dataclass(frozen=True)
class Upward:
    """`interface`, a class or function that unit `declared` declares and unit `implemented`, above it, implements."""

    interface: str
    declared: str
    implemented: str

    def covers(self, user: str, definer: str, included: Graph) -> bool:
        """Whether a symbol of `definer` that `user` needs may be this interface's: `user` sees its declaration."""
        return definer == self.implemented and (user == self.declared or self.declared in included.get(user, ()))


def unit_of(path: str) -> str:
    """daemon/base/check.h and daemon/base/check.cc are both daemon/base/check."""
    return next(path.removesuffix(suffix) for suffix in CXX_SUFFIXES if path.endswith(suffix))


def _sources(tree: SourceTree) -> list[str]:
    return [path for path in tree.cxx() if path.startswith(UNIT_ROOTS)]


def include_graph(tree: SourceTree) -> Graph:
    """unit -> the units whose headers its files include."""
    graph: Graph = {}
    for path in _sources(tree):
        unit = unit_of(path)
        targets = graph.setdefault(unit, set())
        for _, _, name in includes(tree, path):
            target = resolve(tree, path, name)
            if target is not None and target.startswith(UNIT_ROOTS) and unit_of(target) != unit:
                targets.add(unit_of(target))
    return graph


def object_files(tree: SourceTree, root: pathlib.Path, build: pathlib.Path) -> dict[str, list[pathlib.Path]]:
    """source -> its object files, for the sources of the tree's units that `build` compiles; else BuildMissing."""
    try:
        commands = json.loads((build / "compile_commands.json").read_text())
    except FileNotFoundError:
        raise BuildMissing(f"{build} is not configured") from None
    sources = set(_sources(tree))
    found: dict[str, list[pathlib.Path]] = {}
    for command in commands:
        file = pathlib.Path(command["file"])
        source = str(file.relative_to(root)) if file.is_relative_to(root) else ""
        if source in sources:
            words = shlex.split(command["command"])
            found.setdefault(source, []).append(pathlib.Path(command["directory"]) / words[words.index("-o") + 1])
    stale = [
        source
        for source, objects in found.items()
        for file in objects
        if not file.exists() or file.stat().st_mtime < (root / source).stat().st_mtime
    ]
    if stale or not found:
        raise BuildMissing(f"{build} lacks {len(stale)} object files of today's sources, {min(stale, default='all')}")
    return found


def symbol_graph(objects: Mapping[str, Iterable[pathlib.Path]]) -> Graph:
    """unit -> the units that alone define what its object files leave undefined. Weak symbols count for nothing."""
    unit_of_object = {str(file): unit_of(source) for source, files in objects.items() for file in files}
    nm = subprocess.run(["nm", "-A", "-P", *unit_of_object], check=False, capture_output=True, text=True)
    if nm.returncode != 0:
        raise RuntimeError(nm.stderr.strip())
    defined: dict[str, set[str]] = collections.defaultdict(set)
    undefined: dict[str, set[str]] = collections.defaultdict(set)
    for line in nm.stdout.splitlines():  # PATH: NAME TYPE [VALUE SIZE]
        file, rest = line.split(": ", 1)
        symbol, kind = rest.split(" ")[:2]
        if kind in _STRONG:
            defined[symbol].add(unit_of_object[file])
        elif kind == "U":
            undefined[symbol].add(unit_of_object[file])
    graph: Graph = {unit: set() for unit in unit_of_object.values()}
    for symbol, users in undefined.items():
        if len(defined.get(symbol, ())) == 1:
            (definer,) = defined[symbol]
            for user in users - {definer}:
                graph[user].add(definer)
    return graph


def joined(first: Graph, second: Graph) -> Graph:
    return {unit: first.get(unit, set()) | second.get(unit, set()) for unit in first.keys() | second.keys()}


def _reached(graph: Graph, start: str) -> set[str]:
    reached: set[str] = set()
    ahead = list(graph.get(start, ()))
    while ahead:
        unit = ahead.pop()
        if unit not in reached:
            reached.add(unit)
            ahead.extend(graph.get(unit, ()))
    return reached


def cycles(graph: Graph) -> list[list[str]]:
    """The sets of units that need each other, sorted."""
    reached = {unit: _reached(graph, unit) for unit in graph}
    groups = {
        tuple(sorted(other for other in reached[unit] if unit in reached.get(other, ())))
        for unit in graph
        if unit in reached[unit]
    }
    return [list(group) for group in sorted(groups)]


def _interfaces(tree: SourceTree) -> dict[str, str]:
    """Class with a pure virtual function -> the unit whose header declares it."""
    found: dict[str, str] = {}
    for path in _sources(tree):
        code = code_of(tree.text(path))
        classes = list(_CLASS.finditer(code)) if path.endswith(HEADER_SUFFIXES) else []
        for pure in _PURE.finditer(code):
            before = [opened for opened in classes if opened.start() < pure.start()]
            if before:
                found[before[-1].group(1)] = unit_of(path)
    return found


def _handles(name: str, code: str) -> bool:
    """Whether the code holds or passes a `name` by reference or pointer; a deleted copy constructor does not."""
    return re.search(rf"(?<!\(const )\b{name}\s*(\*|&(?!&)|>)", code) is not None


def upward_interfaces(tree: SourceTree, graph: Graph) -> list[Upward]:
    """Interfaces through which a unit calls one that needs it: the implementing unit reaches a user of the class."""
    declared = _interfaces(tree)
    users: dict[str, set[str]] = collections.defaultdict(set)
    implemented: set[tuple[str, str]] = set()
    for path in _sources(tree):
        code = code_of(tree.text(path))
        for name in declared.keys() & set(re.findall(r"\w+", code)):
            if _handles(name, code):
                users[name].add(unit_of(path))
        for opened in _CLASS.finditer(code):
            bases = declared.keys() & set(re.findall(r"\w+", opened.group(2)))
            implemented |= {(name, unit_of(path)) for name in bases}
    return [
        Upward(name, declared[name], unit)
        for name, unit in sorted(implemented)
        if unit != declared[name] and _reached(graph, unit) & (users[name] - {unit})
    ]


def without_upward(symbols: Graph, included: Graph, table: Iterable[Upward]) -> Graph:
    """The symbol graph less the arrows that the table allows."""
    return {
        user: {definer for definer in definers if not any(entry.covers(user, definer, included) for entry in table)}
        for user, definers in symbols.items()
    }


def _way_round(graph: Graph, start: str) -> list[str]:
    """A shortest cycle through `start`, both ends included."""
    before: dict[str, str] = {}
    ahead = collections.deque([start])
    while start not in before:
        unit = ahead.popleft()
        for target in sorted(graph.get(unit, ())):
            if target not in before:
                before[target] = unit
                ahead.append(target)
    way = [start]
    while len(way) == 1 or way[-1] != start:
        way.append(before[way[-1]])
    return way[::-1]


def cycle_findings(graph: Graph) -> list[Finding]:
    """Units in cycles."""
    cyclic = {unit for group in cycles(graph) for unit in group}
    return [Finding("unit-cycle", unit, 0, " -> ".join(_way_round(graph, unit))) for unit in sorted(cyclic)]


def upward_findings(found: Iterable[Upward], table: Iterable[Upward]) -> list[Finding]:
    """Interfaces that call up and are not in the table."""
    return [
        Finding("upward", entry.implemented, 0, f"{entry.declared} calls it through {entry.interface}")
        for entry in sorted(set(found) - set(table), key=str)
    ]


def unneeded_findings(table: Iterable[Upward], symbols: Graph, included: Graph) -> list[Finding]:
    """Entries of the table that no symbol needs: each user of the function sees the unit that defines it."""
    arrows = [
        (user, definer)
        for user, definers in symbols.items()
        for definer in definers
        if definer not in included.get(user, ())
    ]
    return [
        Finding("upward", _TABLE, 0, f"{entry.interface} of {entry.declared}: nothing needs the entry any more")
        for entry in table
        if not any(entry.covers(user, definer, included) for user, definer in arrows)
    ]
