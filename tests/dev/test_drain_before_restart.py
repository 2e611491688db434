"""A drain that fails is followed by no restart: every text that names both joins them with &&."""

from __future__ import annotations

import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
WAITED = r"drain\s+--wait"
# Up to the restart in the same sentence or code block; not the section's other commands.
JOINED = re.compile(WAITED + r"(?P<between>(?:(?!drain\s+--wait|\n\n)[^.])*?)systemctl\s+restart", re.DOTALL)
RIGHT = re.compile(r"(?:\s+--timeout\s+\d+)?\s+&&\s+(?:sudo\s+)?")


def wrong(text: str) -> list[str]:
    return [found.group() for found in JOINED.finditer(text) if not RIGHT.fullmatch(found.group("between"))]


def texts() -> list[pathlib.Path]:
    listed = subprocess.run(
        ["git", "ls-files", "docs", "deploy", "tools", "examples", "README.md", "CHANGELOG.md"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    return [ROOT / path for path in listed]


def test_no_text_restarts_after_a_drain_that_failed() -> None:
    found = 0
    for path in texts():
        text = path.read_bytes().decode(errors="replace")
        assert wrong(text) == [], path
        found += len(JOINED.findall(text))
    assert found >= 10


def test_a_restart_without_the_condition_is_found() -> None:
    for text in (
        "`tierctl drain --wait; systemctl restart tierd`",
        "`tierctl drain --wait`, then `systemctl restart tierd`",
        "tierctl drain --wait\nsudo systemctl restart tierd",
        "a restart (`tierctl drain --wait`,\n`systemctl restart tierd`)",
    ):
        assert len(wrong(text)) == 1, text
    for text in (
        "`tierctl drain --wait && systemctl restart tierd`",
        "tierctl drain --wait --timeout 7200 && sudo systemctl restart tierd",
        "`tierctl drain --wait` returns when all have left: `tierctl drain --wait && systemctl restart tierd`",
    ):
        assert wrong(text) == [], text
