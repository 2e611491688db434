"""Vocabulary: words of the project's own dialect that plain technical terms have replaced.

vocabulary.toml lists them. An entry finds a word in the parts of an identifier (`name`: ForgetKept has the parts forget
and kept) or in running text and code alike (`phrase`). Names are looked for in C++, Python and proto sources and in the
paths of files, phrases in every text file.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import pathlib
import re
import tokenize
from collections.abc import Iterator
from typing import Any

from source_tree import CXX_SUFFIXES, Finding, SourceTree, code_of

TABLE = "tests/style/vocabulary.toml"
# Texts that stay as they are: the table itself, its tests, the licence, what was released and decided before.
UNTOUCHED = re.compile(
    r"(tests/style/(.*vocabulary.*|units\.toml)|LICENSE|CHANGELOG\.md|docs/decisions/000[1-7]-.*|examples/.*/LICENSE)$"
)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_PROTO_COMMENT = re.compile(r"//[^\n]*")
# Words of a phrase may be on two lines, behind the marks of a comment.
_GAP = r"(?:[ \t]+|[ \t]*\n[ \t]*(?://+|#+|\*+|>)?[ \t]*)"


@dataclasses.dataclass(frozen=True)
class Entry:
    use: str  # What is said instead.
    name: str = ""  # Regular expression of one or more parts of an identifier, joined by "_".
    phrase: str = ""  # Regular expression of whole words, in any case.
    within: tuple[str, ...] = ("",)  # Prefixes of the paths that it is looked for in.
    exempt: tuple[str, ...] = ()  # Prefixes of paths where the word is right.
    why: str = ""  # Why it is right there.
    pending: tuple[str, ...] = ()  # Prefixes of paths that still have it.

    @property
    def label(self) -> str:
        return self.name or self.phrase


def entries_of(table: dict[str, Any]) -> list[Entry]:
    entries = []
    for word in table["word"]:
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in word.items()
        }
        entries.append(Entry(**fields))
    return entries


def parts_of(identifier: str) -> str:
    """kBurialsPerTurn -> k_burials_per_turn."""
    return _HUMP.sub("_", identifier).lower()


def _python_names(text: str) -> Iterator[tuple[int, str]]:
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NAME:
                yield token.start[0], token.string
    except (tokenize.TokenError, SyntaxError):
        return  # The linter says so.


def _names_in(code: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(code.splitlines(), 1):
        for match in _IDENTIFIER.finditer(line):
            yield number, match.group(0)


def names_of(path: str, text: str) -> dict[str, set[int]]:
    """Identifier in parts -> its lines, without comments and literals; the file's own path has line 0."""
    names: Iterator[tuple[int, str]] = iter(())
    if path.endswith(CXX_SUFFIXES):
        names = _names_in(code_of(text))
    elif path.endswith(".py"):
        names = _python_names(text)
    elif path.endswith(".proto"):
        names = _names_in(_PROTO_COMMENT.sub("", text))
    lines: dict[str, set[int]] = {}
    for line, name in names:
        lines.setdefault(name, set()).add(line)
    found = {parts_of(part): {0} for part in pathlib.PurePosixPath(path).with_suffix("").parts}
    for name, numbers in lines.items():
        found.setdefault(parts_of(name), set()).update(numbers)
    return found


@functools.cache
def _name_pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?:^|_)(?:{name})(?:_|$)")


@functools.cache
def _phrase_pattern(phrase: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-])(?:{phrase.replace(' ', _GAP)})(?![\w-])", re.IGNORECASE)


def _lines_of(entry: Entry, names: dict[str, set[int]], text: str) -> list[int]:
    """The lines of a file where the entry's word is."""
    lines: set[int] = set()
    if entry.name:
        lines.update(*(numbers for name, numbers in names.items() if _name_pattern(entry.name).search(name)))
    if entry.phrase:
        lines.update(text.count("\n", 0, at.start()) + 1 for at in _phrase_pattern(entry.phrase).finditer(text))
    return sorted(lines)


def hits(tree: SourceTree, entries: list[Entry]) -> Iterator[tuple[Entry, str, list[int]]]:
    """Each entry with each file that has its word, and the lines, whether it passes there or not."""
    any_name = _name_pattern("|".join(entry.name for entry in entries if entry.name) or "(?!)")
    any_phrase = _phrase_pattern("|".join(entry.phrase for entry in entries if entry.phrase) or "(?!)")
    for path in tree.paths():
        if UNTOUCHED.match(path):
            continue
        text = tree.text(path)
        names = {name: lines for name, lines in names_of(path, text).items() if any_name.search(name)}
        if not names and not any_phrase.search(text):
            continue
        for entry in entries:
            lines = _lines_of(entry, names, text) if path.startswith(entry.within) else []
            if lines:
                yield entry, path, lines


def check_vocabulary(tree: SourceTree, entries: list[Entry]) -> list[Finding]:
    findings = []
    used: set[tuple[Entry, str]] = set()
    for entry, path, lines in hits(tree, entries):
        passes = [prefix for prefix in (*entry.exempt, *entry.pending) if path.startswith(prefix)]
        used.update((entry, prefix) for prefix in passes)
        if not passes:
            text = f"'{entry.label}' is replaced: {entry.use}"
            findings += [Finding("vocabulary", path, line, text) for line in lines]
    return findings + [
        Finding("vocabulary", TABLE, 0, f"'{entry.label}' is nowhere below {prefix} any more: delete the prefix")
        for entry in entries
        for prefix in (*entry.exempt, *entry.pending)
        if (entry, prefix) not in used
    ]
