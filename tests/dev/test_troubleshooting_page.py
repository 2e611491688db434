"""docs/troubleshooting.md has a section for each code, with its number, its name in C and its exception."""

from __future__ import annotations

import ast
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/troubleshooting.md").read_text()
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def codes() -> dict[str, int]:
    """Name and number of each code of proto/codes.h but OK."""
    header = (ROOT / "proto/codes.h").read_text()
    numbers = [int(number) for number in re.findall(r"^  k\w+ = (\d+),", header, re.MULTILINE)]
    (table,) = re.findall(r"kNames\[kCodeCount\] = \{(.*?)\}", header, re.DOTALL)
    return dict(list(zip(re.findall(r'"(\w+)"', table), numbers, strict=True))[1:])


def exceptions() -> dict[str, str]:
    """The class of each exception of tierd, and the name of its code."""
    found = {}
    for node in ast.parse((ROOT / "bindings/python/tierd/errors.py").read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name != "Error":
            for line in node.body:
                if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "name":
                    found[node.name] = str(ast.literal_eval(line.value))
    return found


def test_every_code_has_a_section_in_the_order_of_their_numbers() -> None:
    assert len(codes()) == 15 and list(SECTIONS) == list(codes())


def test_every_section_begins_with_the_number_and_the_name_in_c() -> None:
    header = (ROOT / "libclient/include/tier/tier.h").read_text()
    named = {int(number): name for name, number in re.findall(r"^  (TIER_\w+) = (\d+)\b,? +/\*", header, re.MULTILINE)}
    for name, number in codes().items():
        assert SECTIONS[name].lstrip().startswith(f"{number}, `{named[number]}`, `tierd."), name


def test_every_exception_is_named_in_the_section_of_its_code() -> None:
    assert len(exceptions()) == 16
    for kind, name in exceptions().items():
        assert f"`tierd.{kind}`" in SECTIONS[name], kind


def test_what_it_links_to_is_there() -> None:
    links = re.findall(r"\]\(([\w./]+)(?:#([\w-]+))?\)", PAGE)
    assert len(links) > 3
    for path, anchor in links:
        text = (ROOT / "docs" / path).read_text()
        headings = [
            re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in re.findall(r"^#+ (.*)", text, re.M)
        ]
        assert not anchor or anchor in headings, (path, anchor)
