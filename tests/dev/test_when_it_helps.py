"""docs/when-it-helps.md has no figure of its own: each number of it is in docs/benchmarks.md or docs/training.md."""

from __future__ import annotations

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
NUMBER = re.compile(r"(?<![\w.,-])\d[\d,]*(?:\.\d+)?(?![\w-])")


def numbers(text: str) -> set[str]:
    text = re.sub(r"^\d+\. ", "", text, flags=re.MULTILINE)  # Of a list.
    text = re.sub(r"`[^`]*`|\]\([^)]*\)|ZeRO-3", " ", text)
    return {number.rstrip(",") for number in NUMBER.findall(text)}


def test_each_figure_was_measured() -> None:
    shown = numbers((ROOT / "docs/when-it-helps.md").read_text())
    known = numbers((ROOT / "docs/benchmarks.md").read_text()) | numbers((ROOT / "docs/training.md").read_text())
    assert len(shown) > 30 and sorted(shown - known) == []


def test_a_figure_that_was_not_measured_is_found() -> None:
    assert numbers("1. It takes 1,234 MB, 0.5 of `99`, in [x](p7.md) 2 s.\n") == {"1,234", "0.5", "2"}
