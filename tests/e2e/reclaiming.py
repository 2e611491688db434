"""A daemon that takes guarantees back within seconds from jobs of another user, and what it says of windows that their
processes keep."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator, Mapping

import launcher

OTHER_USER = 61234
DEADLINE_S = 3.0
# Beyond it: windows are asked for, punched, made again and filled, on a machine that does other things too.
MARGIN_S = 5.0


@contextlib.contextmanager
def daemon(socket_folder: pathlib.Path, jobs: Mapping[str, str]) -> Iterator[launcher.Running]:
    """With these further settings of ``jobs``."""
    launcher.need_user(OTHER_USER)
    settings = {"jobs": {"reclaim_deadline": f"{DEADLINE_S:g}s", **jobs}}
    with launcher.start(socket_folder, "32MiB", "256MiB", settings, keeps_processes=True) as running:
        socket_folder.chmod(0o755)
        yield running


def kept(running: launcher.Running) -> float:
    """The bytes of windows that processes keep, as the last look found them, one of every second."""
    return launcher.metrics(running)["tierd_arena_kept_bytes"]
