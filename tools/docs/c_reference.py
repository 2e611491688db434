"""The directives ``c-header`` and ``cpp-header``: a public header as entries of Sphinx's C or C++ domain, from its
declarations and comments."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

from docutils import nodes  # type: ignore[import-untyped]
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import c_header
import cpp_header
from c_header import Item

INCLUDE = pathlib.Path(__file__).resolve().parents[2] / "libclient/include"
HEADERS = ("tier/tier.h", "tier/control.h")
_ROLES = {"function": "c:func", "macro": "c:macro", "struct": "c:struct", "enum": "c:enumerator"}
_WORD = re.compile(r"`([^`]+)`|\b((?:tier|TIER)_\w+)(\(\))?|([*|\\`_])")


def signature_name(signature: str) -> str:
    """The name that a function's signature declares."""
    match = re.search(r"(\w+)\(", signature)
    assert match, signature
    return match[1]


def symbols() -> dict[str, str]:
    """The name of everything that the headers declare, with the role that refers to it."""
    found: dict[str, str] = {}
    for header in HEADERS:
        for item in c_header.parse((INCLUDE / header).read_text()):
            role = _ROLES.get(item.kind, "")
            names = [signature_name(name) if item.kind == "function" else name for name in item.names]
            if item.kind == "enum":
                names = [signature.split(" = ")[0] for signatures, _ in item.members for signature in signatures]
            found.update(dict.fromkeys(names, role))
    return found


def rst(text: str, known: dict[str, str]) -> list[str]:
    """A comment's words as lines of reStructuredText: lines that are set in become a literal block."""
    lines: list[str] = []
    inside = False
    for line in text.split("\n"):
        literal = line.startswith("  ")
        if literal and not inside:
            lines += ["", "::", ""]
        elif inside and not literal:
            lines.append("")
        inside = literal
        lines.append(line if literal else _inline(line, known))
    return lines


def _inline(line: str, known: dict[str, str]) -> str:
    def word(match: re.Match[str]) -> str:
        if match[4]:
            return "\\" + match[4]
        quoted, name = match[1], match[2]
        if quoted:
            return f"``{quoted}``"
        if name in known:
            return f":{known[name]}:`{name}`"
        return name.replace("_", "\\_") + (match[3] or "")

    return _WORD.sub(word, line)


def _entry(directive: str, signatures: list[str], body: list[str]) -> list[str]:
    head = f".. {directive}:: "
    lines = [head + signatures[0], *(" " * len(head) + name for name in signatures[1:]), ""]
    return [*lines, *("   " + line if line else "" for line in body), ""]


def page(items: list[Item], known: dict[str, str]) -> Iterator[str]:
    """The header as reStructuredText."""
    for item in items:
        words = rst(item.comment, known) if item.comment else []
        if item.kind == "heading":
            yield from ("", item.comment, "-" * len(item.comment), "")
        elif item.kind == "prose":
            yield from ("", *words, "")
        elif item.kind == "enum":
            yield from ("", *words, "")
            for signatures, comment in item.members:
                yield from _entry("c:enumerator", signatures, rst(comment, known))
        elif item.kind == "struct":
            body = [*words, ""]
            for signatures, comment in item.members:
                body += _entry("c:member", signatures, rst(comment, known))
            yield from _entry("c:struct", item.names, body)
        else:
            yield from _entry(f"c:{item.kind}", item.names, words)


def cpp_page(entries: list[cpp_header.Entry], known: dict[str, str]) -> Iterator[str]:
    """The C++ header as reStructuredText: its classes in namespace tier."""
    yield from (".. cpp:namespace:: tier", "")
    for entry in entries:
        if entry.kind == "prose":
            yield from ("", *rst(entry.comment, known), "")
            continue
        body = [*rst(entry.comment, known), ""]
        for member in entry.members:
            body += _entry(member.kind, [member.signature], rst(member.comment, known))
        yield from _entry(entry.kind, [entry.signature], body)
    yield from (".. cpp:namespace:: nullptr", "")


class _Header(SphinxDirective):
    """``.. c-header:: tier/tier.h``, ``.. cpp-header:: tier/tier.hpp``"""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        path = INCLUDE / self.arguments[0]
        sources = [*(INCLUDE / header for header in HEADERS), path, __file__, c_header.__file__, cpp_header.__file__]
        for source in sources:
            self.env.note_dependency(str(source))
        text, known = path.read_text(), symbols()
        plus = self.name == "cpp-header"
        lines = cpp_page(cpp_header.parse(text), known) if plus else page(c_header.parse(text), known)
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    for name in ("c-header", "cpp-header"):
        app.add_directive(name, _Header)
    return {"parallel_read_safe": True}
