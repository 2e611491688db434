"""Sizes as people write them: what is read, and what is refused with how to write it."""

from __future__ import annotations

import pytest

import tierd
from tierd.quantity import byte_count, format_bytes, memory_size


@pytest.mark.parametrize(
    ("text", "count"), [("64GiB", 64 << 30), ("1.5 MiB", 3 << 19), (" 12 ", 12), ("3kB", 3000), (None, 0), (7, 7)]
)
def test_quantities_are_read(text: str | int | None, count: int) -> None:
    assert byte_count(text) == count


@pytest.mark.parametrize("text", ["", "GiB", "1 XB", "-1", -1, True, 1.5, "1e9", 1 << 63])
def test_other_quantities_are_refused_by_name(text: object) -> None:
    with pytest.raises(tierd.Invalid, match="limit"):
        byte_count(text, "limit")  # type: ignore[arg-type]


def test_an_unknown_unit_is_told_which_there_are() -> None:
    with pytest.raises(tierd.Invalid, match='limit is "10G": .* KiB, MiB, GiB, TiB, kB, MB, GB, TB'):
        byte_count("10G", "limit")


@pytest.mark.parametrize("size", [64, "64", " 64 ", "1.5", (2 << 20) - 1])
def test_a_small_size_without_a_unit_is_refused_with_how_to_write_it(size: int | str) -> None:
    text = str(size).strip()
    with pytest.raises(
        tierd.Invalid, match=f'limit is {text}: {text} is [0-9]+ bytes; write "{text}GiB", or "[0-9]+B"'
    ):
        tierd.connect(limit=size)
    for name in ("ssd", "ram", "guarantee"):
        with pytest.raises(tierd.Invalid, match=f"{name} is {text}: "):
            tierd.connect(**{name: size})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("size", "count"), [(None, 0), (0, 0), ("0", 0), ("64B", 64), ("4KiB", 4096), (2 << 20, 2 << 20)]
)
def test_a_size_with_a_unit_or_of_nothing_is_taken_as_it_is(size: int | str | None, count: int) -> None:
    assert memory_size(size, "limit") == count


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1000, "1000 B"), (1 << 20, "1 MiB"), (1023 << 20, "1023 MiB")]
)
def test_bytes_are_written_for_people(count: int, text: str) -> None:
    assert format_bytes(count) == text
