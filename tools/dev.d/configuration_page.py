#!/usr/bin/env python3
"""Writes docs/configuration.md from what `tierd --print-default-config` prints: a section for each table of the file,
and below it each option with its default and its meaning.

    tierd --print-default-config | tools/dev.d/configuration_page.py > docs/configuration.md
"""

from __future__ import annotations

import re
import sys

HEAD = """# Configuration

<!-- Made by tools/dev.d/configuration_page.py from `tierd --print-default-config`: change the table of options. -->

Every option of `/etc/tierd/tierd.toml`, or of the file that `tierd --config FILE` names, with its default. An option
may also be set on the command line: `tierd --set arena.maximum=64GiB`. Sizes are written like `"64GiB"` or
`"1.5TB"`, and a number without a unit is bytes; shares like `"25%"`; times like `"250ms"`, `"60s"`, `"2min"`.
`tierd --check-config --config FILE` finds mistakes before a restart does. After SIGHUP (`systemctl reload tierd`)
the log says which changed options need a restart.
"""


def page(printed: str) -> str:
    """The page for what the program printed. Raises ValueError for an option or a section that nothing explains, and
    for a line that is none of the file's."""
    lines, words, section = [HEAD], list[str](), ""
    for line in printed.split("\n\n", 1)[1].splitlines():  # Behind the words about the file as a whole.
        if line.startswith("# "):
            words.append(line[2:])
        elif name := re.fullmatch(r"\[(\w+)\]", line):
            section = name[1]
            lines.append(f"## {section}\n")
        elif option := re.fullmatch(r"(\w+) = (.+)", line):
            if not words or not section:
                raise ValueError(f"nothing explains {line}")
            lines.append(f"### {section}.{option[1]}\n\nDefault: `{option[2]}`\n")
            lines.append("\n".join(words) + "\n")
            words = []
        elif line:
            raise ValueError(f"no line of a configuration: {line}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(page(sys.stdin.read()))
