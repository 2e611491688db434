#!/usr/bin/env python3
"""Checks a built site: each link within it leads to a page and an anchor that are there, and each page is reached by
links from the start page.

    tools/docs/site_links.py build/docs/html
"""

from __future__ import annotations

import dataclasses
import pathlib
import sys
import urllib.parse
from html.parser import HTMLParser

START = "index.html"
# Pages for the machinery of the site, which other pages reach by a form or by script.
GENERATED = {"search.html", "genindex.html", "py-modindex.html"}


@dataclasses.dataclass
class Page:
    """What a page links to and what may be linked to in it."""

    links: list[str] = dataclasses.field(default_factory=list)
    anchors: set[str] = dataclasses.field(default_factory=set)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.page.anchors.add(value)
            elif name in ("href", "src") and value:
                self.page.links.append(value)


def read(site: pathlib.Path) -> dict[str, Page]:
    """Every page of the site, by its path."""
    pages: dict[str, Page] = {}
    for path in sorted(site.rglob("*.html")):
        if "_static" in path.parts:
            continue
        reader = _Reader()
        reader.feed(path.read_text())
        pages[path.relative_to(site).as_posix()] = reader.page
    return pages


def is_external(link: str) -> bool:
    return bool(urllib.parse.urlsplit(link).scheme)


def target_of(page: str, link: str) -> tuple[str, str]:
    """The path within the site and the anchor that a link on ``page`` leads to."""
    parts = urllib.parse.urlsplit(link)
    folder = pathlib.PurePosixPath("/", page).parent
    names: list[str] = []
    for name in (folder / urllib.parse.unquote(parts.path)).parts[1:] if parts.path else [page]:
        names = names[:-1] if name == ".." else [*names, name]
    return "/".join(names), urllib.parse.unquote(parts.fragment)


def faults(site: pathlib.Path) -> list[str]:
    """A line for each link that leads nowhere, and for each page that no link leads to."""
    pages = read(site)
    found: list[str] = []
    reached, left = {START}, [START]
    if START not in pages:
        return [f"{START} is missing"]
    while left:
        page = left.pop()
        for link in pages[page].links:
            if is_external(link):
                continue
            target, anchor = target_of(page, link)
            if target not in pages:
                if not (site / target).is_file():
                    found.append(f"{page}: {link} is not there")
                continue
            if anchor and anchor not in pages[target].anchors:
                found.append(f"{page}: {link}: no such anchor in {target}")
            if target not in reached:
                reached.add(target)
                left.append(target)
    return sorted(set(found)) + [f"{page}: no link leads there" for page in sorted(set(pages) - reached - GENERATED)]


if __name__ == "__main__":
    broken = faults(pathlib.Path(sys.argv[1]))
    print("\n".join(broken) or "every link within the site leads somewhere, and every page is reached")
    sys.exit(bool(broken))
