"""The journeys that docs/architecture.md draws are those of the tree."""

from __future__ import annotations

import pathlib

import journeys
import unit_rules
from source_tree import SourceTree
from test_style import require_none

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = "docs/architecture.md"

TREE = {
    "daemon/base/port.h": "",
    "daemon/base/low.h": "",
    "daemon/base/low.cc": '#include "daemon/base/low.h"\n',
    "daemon/base/high.cc": '#include "daemon/base/low.h"\n#include "daemon/base/port.h"\n',
    "daemon/base/device.h": '#include "daemon/base/port.h"\n',
}


def found_in(*lines: str) -> list[str]:
    text = "\n".join(["## Four journeys", "```", *lines, "```", "## Other", "```", "no unit", "```"])
    graph = unit_rules.include_graph(SourceTree.of(TREE))
    return [finding.text for finding in journeys.findings(PAGE, text, graph)]


def test_the_journeys_of_the_page_are_those_of_the_tree() -> None:
    text = (ROOT / PAGE).read_text()
    drawn = list(journeys.steps(text))
    assert len(drawn) >= 8 and sum(map(len, drawn)) >= 80
    require_none(journeys.findings(PAGE, text, unit_rules.include_graph(SourceTree.read(ROOT))))


def test_a_step_down_and_through_an_interface_passes() -> None:
    assert (
        found_in("daemon/base/high", "  daemon/base/low  words", "  daemon/base/device  through daemon/base/port") == []
    )


def test_a_unit_that_is_gone_is_found() -> None:
    assert found_in("daemon/base/high", "  daemon/base/gone") == ["no unit daemon/base/gone"]


def test_an_arrow_without_an_include_is_found() -> None:
    assert found_in("daemon/base/low", "  daemon/base/high") == ["daemon/base/low does not see daemon/base/high"]
    assert found_in("daemon/base/high", "  daemon/base/device") == ["daemon/base/high does not see daemon/base/device"]
    assert found_in("daemon/base/low", "daemon/base/high") == ["nothing does not see daemon/base/high"]


def test_a_unit_that_is_entered_twice_must_say_so() -> None:
    low = "  daemon/base/low"
    assert found_in("daemon/base/high", low, low) == ["daemon/base/low lacks `again`"]
    assert found_in("daemon/base/high", low, low + "  again: words") == []
    assert found_in("daemon/base/high", low + "  again") == ["daemon/base/low is not entered before"]
