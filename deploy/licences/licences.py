#!/usr/bin/env python3
"""Licences of what packages carry: checks the list against the build, and writes the notices.

    licences.py table --build build/release                      the list beside what is linked
    licences.py check --build build/release                      1, and a line for each disagreement
    licences.py copyright --build build/release --out copyright  for the .deb

Nothing is written when the list and the build disagree. The wheel's notices are written by build_wheel.py.
"""

from __future__ import annotations

import argparse
import pathlib
import sys

from components import LIST, WAYS, Listed, agreed_record, read_list
from debian_packages import LicenceError
from link_record import Record, read_record
from notices import copyright_file

HEAD = pathlib.Path(__file__).resolve().parents[1] / "deb" / "copyright"


def table(listed: Listed, record: Record) -> str:
    """For a reader: each component with its licence, and the linked files below it."""
    lines = []
    for component in listed.components:
        lines.append(f"{component.source:<16} {component.name}: {component.licence}")
        for way in WAYS:
            use = record.get(component.source, {}).get(way)
            if use is None:
                continue
            files = sorted(use.files)
            shown = f"{len(files)} headers, as {files[0]}" if way == "headers" else " ".join(files)
            into = f"  -> {' '.join(sorted(use.programs))}" if use.programs else ""
            lines.append(f"    {way:<8} {shown}{into}")
    lines += [f"{entry.source:<16} left out: {entry.reason}" for entry in listed.exemptions]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("verb", choices=["table", "check", "copyright"])
    parser.add_argument("--build", type=pathlib.Path, required=True, help="the build tree")
    parser.add_argument("--list", type=pathlib.Path, default=LIST, help="another list than components.toml")
    parser.add_argument("--out", type=pathlib.Path, help="what is written")
    arguments = parser.parse_args()
    if (arguments.out is None) == (arguments.verb == "copyright"):
        parser.error(f"{arguments.verb} {'needs' if arguments.out is None else 'takes no'} --out")
    try:
        listed = read_list(arguments.list)
        if arguments.verb == "table":
            print(table(listed, read_record(arguments.build, listed.loose_headers())))
        record = agreed_record(listed, arguments.build)
        if arguments.verb == "copyright":
            arguments.out.write_text(copyright_file(HEAD.read_text(), listed, record), encoding="utf-8")
    except LicenceError as error:
        sys.exit("\n".join(f"licences: {line}" for line in str(error).splitlines()))


if __name__ == "__main__":
    main()
