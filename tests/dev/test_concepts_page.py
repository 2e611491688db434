"""docs/concepts.md explains the words that other pages use, and its picture shows the parts that it explains."""

from __future__ import annotations

import pathlib
import re
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/concepts.md").read_text()
WORDS = "arena trainer window lease job session token guarantee share limit borrow torn".split()


def test_every_word_of_a_user_is_explained() -> None:
    explained = " ".join(re.findall(r"\*\*(.*?)\*\*", PAGE, re.DOTALL)).lower()
    assert [word for word in WORDS if word not in explained] == []


def test_the_picture_is_well_formed_and_its_texts_lie_inside_of_it() -> None:
    (name,) = re.findall(r"\]\((images/[\w.]+)\)", PAGE)
    picture = xml.etree.ElementTree.parse(ROOT / "docs" / name).getroot()
    _, _, width, height = (float(number) for number in picture.attrib["viewBox"].split())
    texts = picture.findall(".//{http://www.w3.org/2000/svg}text")
    for text in texts:
        half = 3.6 * len(text.text or "")  # Of a letter of 13 pixels, on average.
        x, y = float(text.attrib["x"]), float(text.attrib["y"])
        assert 0 <= x - half and x + half <= width and 13 <= y <= height, text.text
    shown = " ".join(text.text or "" for text in texts)
    assert all(word in shown for word in ("trainer", "libtier", "arena", "window", "tierd", "SSD"))
