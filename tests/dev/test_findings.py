"""tests/findings.md: a line for each finding of the reviews, and the tests that it names exist."""

from __future__ import annotations

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "tests/findings.md"
# How many of each group there were.
GROUPS = {"S1": 5, "S2": 7, "S3": 14}
OTHERS = ("H9", "H11a", "H11c")
NOT_DONE = ("H11c",)
_ROW = re.compile(r"^\| ([SH]\d+\w*(?:-\d+)?) \| (.+?) \| (.+) \|$", re.MULTILINE)
_TEST = re.compile(r"`((?:tests|bindings)/[^`]+)::([^`]+)`")
ROWS = {name: shown for name, _, shown in _ROW.findall(PAGE.read_text())}


def test_every_finding_has_a_line() -> None:
    wanted = [f"{group}-{number}" for group, count in GROUPS.items() for number in range(1, count + 1)]
    assert list(ROWS) == [*wanted, *OTHERS]


@pytest.mark.parametrize("finding", ROWS)
def test_each_test_that_it_names_exists(finding: str) -> None:
    named = _TEST.findall(ROWS[finding])
    assert named or finding in NOT_DONE
    assert ROWS[finding].count("::") == len(named), "a test is named FILE::NAME, in backquotes"
    missing = [f"{path}::{name}" for path, name in named if not exists(path, name)]
    assert missing == []


def exists(path: str, name: str) -> bool:
    file = ROOT / path
    if not file.is_file():
        return False
    if file.suffix == ".py":
        return re.search(rf"^def {re.escape(name)}\(", file.read_text(), re.MULTILINE) is not None
    suite, test = name.split(".")
    return re.search(rf"^TEST(_F|_P)?\({suite},\s+{test}\)", file.read_text(), re.MULTILINE) is not None


def test_a_test_that_is_not_there_is_missed() -> None:
    assert not exists("tests/dev/test_findings.py", "test_that_was_never_written")
    assert not exists("tests/unit/storage/sizing_test.cc", "DefaultFile.WasNeverWritten")
    assert not exists("tests/dev/test_no_such_file.py", "test_a_test_that_is_not_there_is_missed")


def test_what_is_not_done_says_so() -> None:
    assert [finding for finding, shown in ROWS.items() if "Not done" in shown] == list(NOT_DONE)
