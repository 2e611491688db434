"""The kernel's pool of huge pages, filled for a daemon: memory that a hypervisor has backed for good.

Other memory of a virtual machine is given back to its host within seconds of being free. The host backs it again at
first touch, in ten times the time that clearing it takes: then a bench that populates windows measures the host.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator

POOL = pathlib.Path("/proc/sys/vm/nr_hugepages")
PAGE = 2 << 20


@contextlib.contextmanager
def page_pool(arena: int) -> Iterator[bool]:
    """Whether the pool has pages for an arena of so many bytes while the block runs. Only root may change it."""
    before = int(POOL.read_text())
    try:
        with contextlib.suppress(PermissionError):
            POOL.write_text(str(before + arena // PAGE))
        yield int(POOL.read_text()) >= before + arena // PAGE
    finally:
        with contextlib.suppress(PermissionError):
            POOL.write_text(str(before))


def huge_pages(filled: bool) -> str:
    """Of a daemon's configuration."""
    return "auto" if filled else "never"
