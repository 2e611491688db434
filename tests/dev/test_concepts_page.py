"""docs/concepts.md explains the words that other pages use, and its picture shows the parts that it explains."""

from __future__ import annotations

import pathlib
import re
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/concepts.md").read_text()
WORDS = (
    "arena trainer window block slot piece lease job session token guarantee share limit borrow hand-over torn".split()
    + "namespace ephemeral".split()
)
# What the first screen of `tierctl status` says beside these.
OF_STATUS = ("for blocks", "for slots", "pieces", "hand-over", "*spin*", "*SSD as configured*")


def test_every_word_of_a_user_is_explained() -> None:
    explained = " ".join(re.findall(r"\*\*(.*?)\*\*", PAGE, re.DOTALL)).lower()
    assert [word for word in WORDS if word not in explained] == []


def test_the_words_of_the_first_screen_are_explained() -> None:
    """status says them (tools/tierctl/daemon_verbs.cc, node_text.cc)."""
    shown = "".join((ROOT / "tools/tierctl" / name).read_text() for name in ("daemon_verbs.cc", "node_text.cc"))
    for words in OF_STATUS:
        assert words.lower() in PAGE.lower(), words
        assert words.strip("*").removeprefix("SSD ") in shown, words


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
