"""Reads a public C header of libtier into declarations and their comments: the source of the C reference.

A comment belongs to the declarations that follow it without a blank line or another comment between, or to the one
that it stands behind. The headers are written for this reader, so what it does not know is an error with its line.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

_HEADING = re.compile(r"/\* -{4} (.+?) -+ \*/\n")
_COMMENT = re.compile(r"/\*(.*?)\*/[ \t]*\n?", re.DOTALL)
_TRAILING = re.compile(r"[ \t]*/\*(.*?)\*/", re.DOTALL)
_IGNORED = re.compile(
    r"#ifdef __cplusplus\n.*?#endif\n|#if defined\(__GNUC__\).*?#endif\n|#(?:ifndef|include|endif)[^\n]*\n"
    r"|#define TIER_(?:TIER|CONTROL)_H\n|\n",
    re.DOTALL,
)
_MACRO = re.compile(r"#define (TIER_\w+)((?:[^\n\\]|\\\n)*)\n")
_OPAQUE = re.compile(r"typedef struct (\w+) \1;")
_STRUCT = re.compile(r"typedef struct (\w+) \{(?:[ \t]*/\*(.*?)\*/)?\n(.*?)\n\} \1;\n", re.DOTALL)
_ENUM = re.compile(r"enum \{(.*?)\};\n", re.DOTALL)
_FUNCTION = re.compile(r"TIER_API ([^;]+);")
_ENUMERATOR = re.compile(r"\s*(\w+ = [^,/]+?)\s*(?:,|(?=/\*)|$)(?:[ \t]*/\*(.*?)\*/)?", re.DOTALL)
_FIELD = re.compile(r"\s*(?:/\*(?P<before>.*?)\*/\s*)?(?P<text>[^;/]+);(?:[ \t]*/\*(?P<behind>.*?)\*/)?", re.DOTALL)


@dataclasses.dataclass
class Item:
    """One entry of the reference. ``kind``: heading, prose, macro, struct, enum, function."""

    kind: str
    names: list[str]  # Signatures that share the comment; of a heading or prose, its text is the comment.
    comment: str = ""
    members: list[tuple[list[str], str]] = dataclasses.field(default_factory=list)  # Signatures, and their comment.


def parse(text: str) -> list[Item]:
    """The items of a header, in its order. Raises ValueError for a line that it cannot read."""
    items: list[Item] = []
    at, comment, joined = 0, "", False  # Joined: directly behind a declaration.
    while at < len(text):
        if match := _IGNORED.match(text, at):
            at = match.end()
            if comment:  # It was about no declaration.
                items.append(Item("prose", [], comment))
            comment, joined = "", False
        elif match := _HEADING.match(text, at):
            items.append(Item("heading", [], match[1]))
            at = match.end()
        elif match := _COMMENT.match(text, at):
            at, comment, joined = match.end(), words_of(match[1]), False
        else:
            item, at = _declaration(text, at)
            if joined and item.kind == items[-1].kind in ("function", "macro") and not item.comment:
                items[-1].names += item.names
            else:
                item.comment = item.comment or comment
                items.append(item)
            comment, joined = "", True
    return items


def _declaration(text: str, at: int) -> tuple[Item, int]:
    if match := _MACRO.match(text, at):
        names = [match[1]]
        of = match[1].lower().removesuffix("_init")
        return Item("macro", names, "" if of == match[1].lower() else f"The defaults of {of}."), match.end()
    if match := _STRUCT.match(text, at):
        return Item("struct", [match[1]], words_of(match[2] or ""), list(_fields(match[3]))), match.end()
    if match := _ENUM.match(text, at):
        body = match[1].strip()
        members = [([part[1]], words_of(part[2] or "")) for part in _ENUMERATOR.finditer(body) if part[1]]
        return Item("enum", [], "", members), match.end()
    for kind, pattern in (("struct", _OPAQUE), ("function", _FUNCTION)):
        if match := pattern.match(text, at):
            end, comment = match.end(), ""
            if behind := _TRAILING.match(text, end):
                end, comment = behind.end(), words_of(behind[1])
            return Item(kind, [" ".join(match[1].split())], comment), end + 1
    line = text.count("\n", 0, at) + 1
    raise ValueError(f"line {line}: no declaration that this reader knows: {text[at:].splitlines()[0]}")


def _fields(body: str) -> Iterator[tuple[list[str], str]]:
    """The fields of a struct. A comment on lines of its own is about the fields up to the next that has one."""
    group: list[str] = []
    about = ""
    for match in _FIELD.finditer(body):
        text, before, behind = match["text"].strip(), match["before"], match["behind"]
        if group and (before or behind):
            yield group, about
            group, about = [], ""
        if before:
            group, about = [text], words_of(before)
        elif group:
            group.append(text)
        else:
            yield [text], words_of(behind or "")
    if group:
        yield group, about


def words_of(comment: str) -> str:
    """The text of a comment without its marks: paragraphs as they are, lines that are set in keep their indent."""
    lines = [re.sub(r"^[ \t]*\* ?", "", line) if number else line.lstrip() for number, line in
             enumerate(comment.split("\n"))]  # fmt: skip
    if not any(re.match(r"[ \t]*\*", line) for line in comment.split("\n")[1:]):  # Behind a field.
        lines = [line.strip() for line in lines]
    return "\n".join(line.rstrip() for line in lines).strip()
