"""The fenced blocks of a page in Markdown, for the tests that run them.

A comment of the page's source may stand above a block:

    <!-- not run: REASON -->      a shell block that no test can run: what it types is looked up in each program's help
    <!-- partly run: REASON -->   the same; its lines that begin with tierctl run, without what they are piped into.
                                  tests/deploy/test_service_pages.py types those for systemd and its journal
    <!-- run by: TEST -->         a shell block that needs a host of its own: that test types it, word for word; behind
                                  the test's path stands what it leaves out, if anything
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Iterator

from launcher import ROOT

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- (not run|partly run|run by): ([^>]+?) -->\s*\Z")


@dataclasses.dataclass(frozen=True)
class Block:
    """One fenced block. ``answer``: the text block right behind it, which shows what it prints."""

    page: str
    line: int
    language: str
    text: str
    run: str = "whole run"  # Or "partly run", "not run", "run by".
    reason: str = ""  # Why no test runs all of it, or which test does.
    answer: str | None = None

    @property
    def script(self) -> str:
        """What a test runs of it."""
        if self.run == "whole run":
            return self.text
        ours = [line for line in self.text.splitlines() if self.run == "partly run" and line.startswith("tierctl ")]
        return "\n".join(line.split(" | ")[0] for line in ours)

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str) -> list[Block]:
    """The blocks of a page, by its path from the root of the repository. What Sphinx fills in is none."""
    text = (ROOT / page).read_text()
    found: list[Block] = []
    end_before = 0
    for match in _FENCE.finditer(text):
        between, language = text[end_before : match.start()], match["language"]
        end_before = match.end()
        if language.startswith("{"):
            continue
        body = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
        if language == "text" and found and found[-1].answer is None and not between.strip():
            found[-1] = dataclasses.replace(found[-1], answer=body)
            continue
        mark = _MARK.search(text[: match.start()])
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(page, line, language, body, *(mark.groups() if mark else ())))
    return found


def user_pages() -> Iterator[str]:
    """What users and operators read: all pages of docs/ except those about how tierd works within, and those that lie
    beside what they describe."""
    yield from ("README.md", "CONTRIBUTING.md", "bindings/python/DESCRIPTION.md", "examples/mlp/README.md")
    for path in sorted((ROOT / "docs").rglob("*.md")):
        page = path.relative_to(ROOT).as_posix()
        if not page.startswith("docs/decisions/") and path.name not in ("architecture.md", "formats.md"):
            yield page


def run_by(test: str) -> list[Block]:
    """The blocks that this test types, by the path of its file."""
    path = pathlib.Path(test).resolve().relative_to(ROOT).as_posix()
    return [
        block
        for page in user_pages()
        for block in blocks(page)
        if block.run == "run by" and block.reason.split()[0] == path
    ]


def texts(page: str, language: str) -> list[str]:
    """The blocks of one language, as they stand on the page."""
    return [block.text for block in blocks(page) if block.language == language]
