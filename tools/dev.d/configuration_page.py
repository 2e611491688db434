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
`tierd --check-config --config FILE` finds mistakes before a restart or a reload does. The file is a regular one, or a
link to one, of at most 1 MiB: no FIFO and no device.

A reload (SIGHUP, `systemctl reload tierd`) reads the file again. Each option below says whether its change takes
effect then, in all of the daemon and for all jobs, or waits for a restart; the log and an event name those that wait.
Only `engine.deadline` is for processes that attach from then on. A file with a mistake, or that asks for what tierd
has no right to or the machine no memory for, changes nothing: log, event and `tierctl config diff` say why, and
`systemctl status tierd`, which every user may read, and the metric `tierd_config_reload_failed` that it was refused.
What jobs have beyond a lowered limit stays. `tierctl config set OPTION VALUE` changes one option of the running daemon
and not the file, and returns when it holds; the next reload or restart puts back what the file says, or the command
line of a daemon without one.
`tierctl config diff` shows where the daemon, the file and the defaults differ.
"""


TAIL = """## quota

What all jobs of one user may have together. A quota stands in a section of its own: `[quota.default]` for every user,
`[quota.user."NAME"]` for one, `[quota.group."NAME"]` for the members of a group; a number in place of the name is the
uid or gid, and NAME may be the owner of a socket (`tierctl socket open`). An owner is written by its name: uids from
4026531840 to 4294967293, which stand for owners, are refused here, and by `tierctl quota set` where no owner has the
number. Each key is decided by itself: by the
quota of the user, else by the most generous one of its groups, else by the default, else by `jobs.max_ssd_per_uid`
and `jobs.max_jobs_per_uid`. Sizes are written as above; `0` is nothing: who may have nothing of RAM or SSD is refused
each tensor with the code below. `"unlimited"` is no bound. (Of a job's own limit, `tierctl job set --limit`, `0` is no
limit.)

```toml
[quota.default]
ram = "64GiB"
ssd = "1TiB"
guarantee = 0
jobs = 8

[quota.group."phd"]
guarantee = "32GiB"

[quota.user."alice"]
ram = "unlimited"
```

| key | what it bounds |
| --- | --- |
| `ram` | RAM of all the user's jobs. Each has its guarantee and an equal part of the rest; a job without a session \
leaves its part to those that have one. A job that had more before others came gives it to those that ask. Requests \
beyond the part get NO_MEMORY. |
| `ssd` | Tensors of all its jobs, what these are guaranteed of SSD, and what they persisted. A tensor counts whole, \
wherever it lies: also what is in RAM alone. *keeps* in `tierctl job show` is that sum for one job. \
Beyond it new tensors get NO_SPACE. |
| `guarantee` | Guarantees of RAM of all its jobs; never more than `ram`. Beyond it a job is refused with NO_MEMORY. |
| `jobs` | Open jobs. Beyond it a new one is DENIED. |

A quota that is lowered takes nothing that is guaranteed, and no tensor: RAM beyond it is evicted, and no more is given.
SIGHUP takes over a change. `tierctl quota set` changes quotas at run time; what it sets comes before the file, on the
same level, until `tierctl quota clear`. Groups are those that the user database names (`getent initgroups USER`),
looked up at most once a minute. A user or group that the system does not know is told in the log.
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
    if not words or not words[0].startswith("Quotas: "):
        raise ValueError("the file does not end with quotas")
    return "\n".join([*lines, TAIL])


if __name__ == "__main__":
    sys.stdout.write(page(sys.stdin.read()))
