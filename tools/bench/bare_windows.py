"""Windows made and punched by a program that does nothing else: the ceiling of what a daemon does with its own."""

from __future__ import annotations

import copy
import pathlib

from node import BUILD, Shell

from tierd import control
from tierd.daemon import Daemon


class BareWindows:
    """So many bytes of windows, of the size and the kind of pages of this daemon's, in a process of their own: by so
    many threads, or by as many as it has workers. The daemon is to have made some windows."""

    def __init__(self, process: Daemon, total: int, threads: int = 0) -> None:
        with control.connect(str(process.directory / "tierd.sock")) as channel:
            status = channel.status()
        self.size = int(status.window_size_max_bytes)
        modes = status.DESCRIPTOR.fields_by_name["huge_page_mode"].enum_type
        self.mode = modes.values_by_number[status.huge_page_mode].name.removeprefix("HUGE_PAGE_MODE_").lower()
        self.threads = threads or workers(process.process.pid)
        words = [str(BUILD / "tools/bench/tier_bench"), "bare-windows"]
        words += ["--bytes", str(self.size), "--total", str(total), "--threads", str(self.threads)]
        self._words = words + {"thp": ["--collapse"], "hugetlb": ["--pool"]}.get(self.mode, [])
        self.shell = Shell(self._words)

    def another(self) -> BareWindows:
        """The same in another process."""
        other = copy.copy(self)
        other.shell = Shell(self._words)
        return other

    def __str__(self) -> str:
        pages = {"thp": "collapsed", "hugetlb": "in pages of the kernel's pool"}.get(self.mode, "in 4 KiB pages")
        return f"{self.threads} threads, windows of {self.size >> 20} MiB {pages}"

    def populate(self) -> float:
        """Seconds to make all of them."""
        return self.shell("populate")

    def punch(self) -> float:
        """Seconds to take their pages away. They are closed then."""
        return self.shell("punch")

    def close(self) -> None:
        self.shell.close()


def workers(pid: int) -> int:
    """How many threads of this daemon make windows."""
    names = [(task / "comm").read_text() for task in pathlib.Path(f"/proc/{pid}/task").iterdir()]
    count = sum(name.startswith("tierd-work") for name in names)
    if count == 0:
        raise SystemExit(f"the daemon has no workers: {names}")
    return count
