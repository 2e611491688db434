"""The engine: no state of a piece is dead, its thread reads no /proc, and no turn visits every open job."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cxx_functions import functions_of
from source_tree import Finding, SourceTree, code_of

_STATES = "daemon/tiering/tables/piece.h"
# The table of legal moves names every state, also one that no code enters any more.
_NAMES_EVERY_STATE = (_STATES, "daemon/tiering/tables/transitions.h")
_ENUM = re.compile(r"\benum\s+class\s+(Copies|Activity)\b[^{;]*\{([^}]*)\}")
_DEBUG_NAME = re.compile(r'\bcase\s+(?:\w+::)*\w+\s*:\s*return\s*""')
_HOST_READING = re.compile(r"\bRefreshHost\s*\(")
# Asking for their number visits none.
_ALL_JOBS = re.compile(r"\bjobs(?:_|\(\))?\s*(?:\.|->)\s*(?:open\(\)(?!\s*\.\s*(?:size|empty)\()|ForEach\()")


def check_states_are_used(tree: SourceTree) -> list[Finding]:
    """Each enumerator of Copies and Activity is named by code of daemon/tiering that does more than list it."""
    if _STATES not in tree:
        return []
    sources = [path for path in tree.cxx("daemon/tiering/") if path not in _NAMES_EVERY_STATE]
    code = "\n".join(_DEBUG_NAME.sub("", code_of(tree.text(path))) for path in sources)
    states = code_of(tree.text(_STATES))
    findings = []
    for match in _ENUM.finditer(states):
        line = states.count("\n", 0, match.start()) + 1
        for name in re.findall(r"\bk\w+", match.group(2)):
            state = f"{match.group(1)}::{name}"
            if not re.search(rf"\b{state}\b", code):
                findings.append(Finding("dead-state", _STATES, line, f"no source of daemon/tiering names {state}"))
    return findings


def _uses(tree: SourceTree, pattern: re.Pattern[str], under: str = "") -> Iterator[tuple[str, int, str]]:
    """(path, line, function around it) of each match in code."""
    for path in tree.cxx(under):
        code = code_of(tree.text(path))
        for match in pattern.finditer(code):
            line = code.count("\n", 0, match.start()) + 1
            around = [f.name for f in functions_of(tree.text(path)) if f.first_line <= line <= f.last_line]
            yield path, line, around[-1] if around else ""


def check_host_is_read_in_memory(tree: SourceTree) -> list[Finding]:
    """RefreshHost takes 100 us and more of the thread that calls it; StartRefresh leaves the reading to another."""
    return [
        Finding("host-reading", path, line, f"{function} waits for /proc: call StartRefresh")
        for path, line, function in _uses(tree, _HOST_READING)
        if not path.startswith(("daemon/memory/", "tests/"))
    ]


def check_loops_over_jobs(tree: SourceTree) -> list[Finding]:
    """A user may open many jobs: what visits all of them stands in exceptions.toml, with the reason why it may."""
    return [
        Finding("all-jobs", path, line, f"{function} visits every open job")
        for path, line, function in _uses(tree, _ALL_JOBS, "daemon/tiering/")
    ]
