"""No cycle of units in this repository, by includes and by symbols. What may pass is in units.toml."""

from __future__ import annotations

import functools
import os
import pathlib
import tomllib
from typing import Any

import pytest
import unit_rules
from source_tree import SourceTree
from test_style import require_none
from unit_rules import Graph, Upward

ROOT = pathlib.Path(__file__).resolve().parents[2]


@functools.cache
def units_toml() -> dict[str, Any]:
    return tomllib.loads((ROOT / "tests/style/units.toml").read_text())


def allowed_upward() -> list[Upward]:
    return [
        Upward(entry["interface"], entry["declared"], implemented)
        for entry in units_toml().get("upward", [])
        for implemented in entry["implemented"]
    ]


@functools.cache
def included() -> Graph:
    return unit_rules.include_graph(SourceTree.read(ROOT))


@functools.cache
def symbols() -> Graph:
    """Of build/release. The run of all tests names its build (TIERD_BUILD) and has just made it: there it must do."""
    build = os.environ.get("TIERD_BUILD")
    try:
        objects = unit_rules.object_files(SourceTree.read(ROOT), ROOT, pathlib.Path(build or ROOT / "build/release"))
    except unit_rules.BuildMissing as missing:
        if build is None:
            pytest.skip(f"needs a build of this tree: {missing}")
        raise
    return unit_rules.symbol_graph(objects)


def test_no_unit_needs_itself_by_includes() -> None:
    require_none(unit_rules.cycle_findings(included()))


def test_no_unit_needs_itself_by_symbols() -> None:
    graph = unit_rules.joined(included(), unit_rules.without_upward(symbols(), included(), allowed_upward()))
    require_none(unit_rules.cycle_findings(graph))


def test_every_interface_that_calls_up_is_in_the_table() -> None:
    found = unit_rules.upward_interfaces(SourceTree.read(ROOT), included())
    require_none(unit_rules.upward_findings(found, allowed_upward()))


def test_every_entry_of_the_table_has_a_reason_and_is_needed() -> None:
    entries = units_toml().get("upward", [])
    assert len(entries) <= unit_rules.UPWARD_MAX
    assert [entry for entry in entries if len(entry.get("reason", "")) <= 20] == []
    found = set(unit_rules.upward_interfaces(SourceTree.read(ROOT), included()))
    others = [entry for entry in allowed_upward() if entry not in found]
    if others:  # They are needed if a symbol passes by them.
        require_none(unit_rules.unneeded_findings(others, symbols(), included()))
