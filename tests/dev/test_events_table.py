"""docs/operating.md has each kind of event that the daemon tells of, and no other."""

from __future__ import annotations

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = [path for end in ("cc", "h") for path in (ROOT / "daemon").rglob(f"*.{end}")]


def kinds_of(source: str) -> set[str]:
    """Of literals that are passed as a kind, and of constants by the name of their kind."""
    passed = " ".join(re.findall(r"\b[Ee]mit(?:ForAdministrators)?\(\s*([^,;]*),", source))
    constants = re.findall(r'constexpr char k(?:EventsLost|ConfigChanged)\[\] = "(\w+)"', source)
    return {*re.findall(r'"(\w+)"', passed), *constants}


def test_every_kind_of_event_is_explained() -> None:
    emitted = set().union(*(kinds_of(path.read_text()) for path in SOURCES))
    section = (ROOT / "docs/operating.md").read_text().split("**Events.**")[1].split("**Alerts.**")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    explained = [kind for row in rows for kind in re.findall(r"`(\w+)`", row)]
    assert len(emitted) > 25 and sorted(explained) == sorted(emitted)
