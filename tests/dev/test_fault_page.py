"""docs/faults.md agrees with the table in tools/faults: its rows, columns, codes and times."""

from __future__ import annotations

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/faults"))

import fault_page  # noqa: E402
from fault_table import CLASSES, FAULTS, OPERATION_NAMES, time_class  # noqa: E402


def test_the_page_has_every_fault_and_every_operation() -> None:
    cells = fault_page.parse(fault_page.PAGE.read_text())
    assert set(cells) == {(fault.name, operation) for fault in FAULTS for operation in OPERATION_NAMES}


def test_the_page_tells_nothing_that_is_not_expected() -> None:
    order = [name for _, name in CLASSES]
    for (name, operation), (code, when) in fault_page.parse(fault_page.PAGE.read_text()).items():
        expected = next(fault for fault in FAULTS if fault.name == name).of(operation)
        assert code in expected.codes, (name, operation)
        latest = time_class(expected.seconds_max - 0.001)
        assert latest not in order or order.index(when) <= order.index(latest), (name, operation)


def test_the_page_explains_every_fault_in_its_words() -> None:
    page = " ".join(fault_page.PAGE.read_text().split())
    assert all(f"**{fault.name}**: {fault.text}" in page for fault in FAULTS)


def test_every_expectation_is_of_an_operation() -> None:
    assert all(set(fault.expected) <= set(OPERATION_NAMES) for fault in FAULTS)
