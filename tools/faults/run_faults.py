#!/usr/bin/env python3
"""`tools/dev faults`: every fault with every operation against real daemons, beside what is expected."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from typing import TYPE_CHECKING

from fault_table import FAULTS, OPERATION_NAMES, Fault
from faulty_device import lacks

if TYPE_CHECKING:
    from fault_cells import Cell


def _word(name: str) -> str:
    return name.replace(" ", "-")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/dev faults", description=__doc__)
    faults, operations = [_word(fault.name) for fault in FAULTS], [_word(name) for name in OPERATION_NAMES]
    parser.add_argument("--only", action="append", choices=faults, metavar="FAULT", help=", ".join(faults))
    parser.add_argument("--operation", action="append", choices=operations, metavar="NAME", help=", ".join(operations))
    parser.add_argument("--write", action="store_true", help="write docs/faults.md: needs all faults and operations")
    arguments = parser.parse_args()
    if arguments.write and (arguments.only or arguments.operation):
        parser.error("--write needs every cell: leave out --only and --operation")
    return arguments


def needs(fault: Fault) -> str:
    """What the machine lacks for the fault; empty: nothing."""
    if fault.devices.get("failing") or fault.devices.get("small_index"):
        return ", ".join(lacks())
    return ""


def run(faults: list[Fault], operations: list[str]) -> tuple[list[Cell], int]:
    """The cells measured, and how many faults were skipped."""
    from fault_cells import measure

    cells, skipped = [], 0
    for fault in faults:
        if missing := needs(fault):
            print(f"{fault.name}: skipped, needs {missing}", flush=True)
            skipped += 1
            continue
        for operation in operations:
            cell = measure(fault, operation)
            cells.append(cell)
            lost = "".join(f"; {key}: {code}" for key, code in cell.lost.items())
            print(f"{fault.name:16}  {operation:22}  {cell.code}, {cell.when}{lost}", flush=True)
            for wrong in cell.wrong:
                print(f"    not as expected: {wrong}", flush=True)
    return cells, skipped


def main() -> int:
    arguments = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # Devices are taken down.
    faults = [fault for fault in FAULTS if not arguments.only or _word(fault.name) in arguments.only]
    operations = [name for name in OPERATION_NAMES if not arguments.operation or _word(name) in arguments.operation]
    begin = time.monotonic()
    cells, skipped = run(faults, operations)
    wrong = sum(bool(cell.wrong) for cell in cells)
    print(f"{len(cells)} cells in {time.monotonic() - begin:.0f} s, {wrong} not as expected, {skipped} faults skipped")
    if arguments.write and not skipped:
        from fault_page import PAGE, text_of

        PAGE.write_text(text_of(cells))
    elif arguments.write:
        print("docs/faults.md is not written: faults were skipped")
    return 1 if wrong or (arguments.write and skipped) else 0


if __name__ == "__main__":
    sys.exit(main())
