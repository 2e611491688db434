"""Reads the public C++ header into its classes and their public members, for the C++ reference.

A comment belongs to the declaration directly below it, or to the field that it stands behind. Functions without a
comment are those that every move-only class has: constructors, operators, a destructor. Any other is an error with its
line.
"""

from __future__ import annotations

import dataclasses
import re

_CLASS = re.compile(r"(class|struct) (\w+)(?: : public [\w:]+)? \{\n")
_COMMENT = re.compile(r"(?:[ ]*//[^\n]*\n)+")


@dataclasses.dataclass
class Entry:
    """A class, struct, function or member, with its comment. ``kind`` is the directive of Sphinx's C++ domain, or
    prose."""

    kind: str
    signature: str
    comment: str
    members: list[Entry] = dataclasses.field(default_factory=list)


def parse(text: str) -> list[Entry]:
    """What the file says of itself, and what namespace tier has. Raises ValueError for what lacks a comment."""
    top = _COMMENT.match(text)
    found = [Entry("prose", "", _words(top[0]))] if top else []
    begin = text.index("namespace tier {\n") + len("namespace tier {\n")
    for comment, declaration, at in _declarations(text, begin, text.index("}  // namespace tier"), ""):
        head = _CLASS.match(text, at)
        if head is None:
            found.append(_entry(text, at, comment, declaration))
            continue
        end = text.index("\n};\n", at) + 1
        public = text.find("\n public:\n", at, end)
        private = text.find("\n private:\n", at, end)
        inside = (public + len("\n public:\n") if public >= 0 else head.end(), private + 1 if private >= 0 else end)
        members = [
            _entry(text, where, words, member)
            for words, member, where in _declarations(text, *inside, "  ")
            if words or not re.match(rf"(explicit )?~?{head[2]}\(|.*\boperator\b", member)
        ]
        found.append(Entry(f"cpp:{head[1]}", head[2], comment, members))
    return found


def _entry(text: str, at: int, comment: str, declaration: str) -> Entry:
    if not comment and "(" in declaration:
        raise ValueError(f"line {text.count(chr(10), 0, at) + 1}: {declaration} has no comment")
    kind = "cpp:function" if "(" in declaration else "cpp:member"
    return Entry(kind, declaration.removeprefix("inline "), comment)


def _declarations(text: str, begin: int, end: int, indent: str) -> list[tuple[str, str, int]]:
    """The comment, the words and the place of each declaration that begins with just this indent."""
    found: list[tuple[str, str, int]] = []
    at, comment = begin, ""
    while at < end:
        if text[at] == "\n":
            at, comment = at + 1, ""
        elif match := _COMMENT.match(text, at):
            at, comment = match.end(), _words(match[0])
        else:
            at += len(indent)
            stop = _end_of_head(text, at)
            head = " ".join(text[at:stop].split())
            after = _end_of_body(text, stop)
            line = text[after : text.index("\n", after)]
            behind = _words(line) if "//" in line else ""
            found.append((comment or behind, head, at))
            at, comment = text.index("\n", after) + 1, ""
    return found


def _end_of_head(text: str, at: int) -> int:
    """Where a declaration's body begins, its list of initializers, or the semicolon behind it."""
    depth = 0
    while True:
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0 and (text[at] in "{;" or re.match(r"\s+: \w+_?[({]|\s+: std::", text[at:])):
            return at
        at += 1


def _end_of_body(text: str, at: int) -> int:
    """Behind the body or the semicolon of a declaration."""
    depth = 0
    while True:
        depth += {"{": 1, "}": -1, "(": 1, ")": -1}.get(text[at], 0)
        at += 1
        if depth == 0 and (text[at - 1] == ";" or (text[at - 1] == "}" and text[at] in ";\n ")):
            return at + (text[at] == ";")


def _words(comment: str) -> str:
    return "\n".join(re.sub(r"^\s*//\s?", "", line) for line in comment.strip().splitlines())
