"""The directive ``c-header``: a public C header as sections of the C domain, from its declarations and comments."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

from docutils import nodes  # type: ignore[import-untyped]
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import c_header
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


class CHeader(SphinxDirective):
    """``.. c-header:: tier/tier.h``"""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        path = INCLUDE / self.arguments[0]
        for header in HEADERS:
            self.env.note_dependency(str(INCLUDE / header))
        for module in (__file__, c_header.__file__):
            self.env.note_dependency(module)
        lines = list(page(c_header.parse(path.read_text()), symbols()))
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("c-header", CHeader)
    return {"parallel_read_safe": True}
