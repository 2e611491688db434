"""The vocabulary over this repository, and its rule over small trees with planted words."""

from __future__ import annotations

import functools
import pathlib
import tomllib

import pytest
import vocabulary_rules
from source_tree import Finding, SourceTree
from test_style import require_none
from vocabulary_rules import Entry

ROOT = pathlib.Path(__file__).resolve().parents[2]


@functools.cache
def entries() -> list[Entry]:
    return vocabulary_rules.entries_of(tomllib.loads((ROOT / vocabulary_rules.TABLE).read_text()))


def test_no_replaced_word_is_left() -> None:
    require_none(vocabulary_rules.check_vocabulary(SourceTree.read(ROOT), entries()))


def test_every_entry_says_what_is_said_instead_and_why_it_is_right_elsewhere() -> None:
    for entry in entries():
        assert entry.name or entry.phrase, entry
        assert entry.use, entry
        assert bool(entry.exempt) == (len(entry.why) > 20), entry


BURIAL = Entry(use="deferred free", name="buries|burials?", phrase="buries|burials?")
FOR_EVER = Entry(use="forever", phrase="for ever")
FORGET = Entry(use="purge", name="forgets?", phrase="--forget")


def found(files: dict[str, str], *words: Entry) -> list[tuple[str, int]]:
    findings: list[Finding] = vocabulary_rules.check_vocabulary(SourceTree.of(files), list(words))
    return [(finding.path, finding.line) for finding in findings]


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        ("daemon/base/a.h", "\nconstexpr int kBurialsPerTurn = 1;\n", 2),
        ("daemon/base/a.h", "// What this class buries, ends.\n", 1),
        ("daemon/base/burials.h", "", 0),
        ("daemon/burials/a.h", "", 0),
        ("daemon/base/a.cc", 'const char* text = "no burial";\n', 1),
        ("bindings/a.py", "burials_left = 1\n", 1),
        ("docs/a.md", "\n\nA burial a turn.\n", 3),
        ("docs/decisions/0008-later.md", "burials\n", 1),
        ("tools/tierctl/main.cc", 'Flag("--forget");\n', 1),
        ("proto/a.proto", "bool forget = 1;\n", 1),
        ("libclient/a.cc", "void ForgetKept() {}\n", 1),
        ("README.md", "This lasts for\never.\n", 1),
        ("daemon/base/a.h", "// This lasts for\n// ever.\n", 1),
    ],
)
def test_a_replaced_word_is_found(path: str, text: str, line: int) -> None:
    assert set(found({path: text}, BURIAL, FOR_EVER, FORGET)) == {(path, line)}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("daemon/base/a.h", "int unforgettable;  // They forget nothing.\n"),  # Prose may have the word, names may not.
        ("docs/a.md", "forever; for everyone; reburials\n"),
        ("docs/decisions/0004-a-restart-forgets-for-now.md", "burials\n"),
        ("CHANGELOG.md", "burials\n"),
        ("proto/a.proto", "// They forget nothing.\n"),
    ],
)
def test_other_words_pass(path: str, text: str) -> None:
    assert found({path: text}, BURIAL, FOR_EVER, FORGET) == []


def test_a_pending_or_exempt_place_passes_until_its_last_hit_is_gone() -> None:
    word = Entry(use="purge", name="forget", exempt=("proto/",), why="the protocol", pending=("daemon/tiering/",))
    left = {"daemon/tiering/a.h": "int forget;\n", "proto/a.proto": "bool forget = 1;\n"}
    assert found(left, word) == []
    assert found({**left, "daemon/base/a.h": "int forget;\n"}, word) == [("daemon/base/a.h", 1)]
    gone = vocabulary_rules.check_vocabulary(SourceTree.of({"proto/a.proto": ""}), [word])
    assert [finding.text for finding in gone] == [
        "'forget' is nowhere below proto/ any more: delete the prefix",
        "'forget' is nowhere below daemon/tiering/ any more: delete the prefix",
    ]


def test_a_word_is_looked_for_only_within_its_places() -> None:
    word = Entry(use="cost", name="looks", within=("daemon/tiering/",))
    assert found({"daemon/tiering/a.h": "int looks;\n", "tests/a.cc": "int looks;\n"}, word) == [
        ("daemon/tiering/a.h", 1)
    ]
