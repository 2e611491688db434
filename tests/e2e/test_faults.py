"""Some cells of the fault matrix (`tools/dev faults`): one for each way in which a device or the index fails."""

from __future__ import annotations

import pathlib
import sys

import launcher
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/faults"))

from fault_table import FAULTS  # noqa: E402
from run_faults import needs  # noqa: E402

CELLS = (
    ("reads fail", "swap_in from SSD"),
    ("writes fail", "flush"),
    ("device fails", "persist"),
    ("no space beneath", "swap_out beyond RAM"),
    ("short hang", "write lease on SSD"),
    ("hang", "swap_in from RAM"),
    ("one of two fails", "swap_out beyond RAM"),
    ("both fail", "swap_in from SSD"),
    ("flipped bit", "swap_in from SSD"),
    ("device cut short", "free"),
    ("index cut short", "persist"),
    ("no descriptors", "swap_in from RAM"),
)


@pytest.mark.parametrize(("fault_name", "operation"), CELLS)
def test_a_fault_costs_what_the_table_says(fault_name: str, operation: str) -> None:
    launcher.need_build()
    fault = next(fault for fault in FAULTS if fault.name == fault_name)
    if missing := needs(fault):
        pytest.skip(f"needs {missing}: a device that fails")
    from fault_cells import measure

    cell = measure(fault, operation)
    assert not cell.wrong, cell
