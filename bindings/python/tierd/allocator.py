"""The memory allocator of a process that trains, and what its OpenMP threads do while they wait: both said in its
environment.

The idea: two things that a process cannot change once it runs cost a training step about a fifth of its time. glibc
finds little room in what torch has freed (before 2.39: its bug 30723), so that ``tierd.torch`` has it return that to
the system, and each step pays for new pages; jemalloc finds it. And OpenMP's threads spin while they wait, in time that
the daemon needs.
"""

from __future__ import annotations

import ctypes.util
import pathlib
import sys
from collections.abc import Mapping, MutableMapping

_FILE = "libjemalloc.so.2"
# One arena: several keep several times as much of what is free. tierd.torch says when it is to be returned.
_OPTIONS = "narenas:1,oversize_threshold:0"
_ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc")


def library() -> str | None:
    """What the loader is to load: the library beside this Python, such as conda's, else the system's; ``None``: there
    is none."""
    own = pathlib.Path(sys.prefix) / "lib" / _FILE
    return str(own) if own.is_file() else ctypes.util.find_library("jemalloc")


def prepared(environment: Mapping[str, str], loaded: str | None) -> dict[str, str]:
    """``environment`` as a process is to have it that trains. ``loaded``: :func:`library`. Where it names an allocator,
    that one stays."""
    found = {"OMP_WAIT_POLICY": "PASSIVE", **environment}
    if loaded is not None and not is_chosen(found):
        others = found.get("LD_PRELOAD", "")
        found["LD_PRELOAD"] = f"{loaded}:{others}" if others else loaded
        found.setdefault("MALLOC_CONF", _OPTIONS)
    return found


def is_chosen(environment: Mapping[str, str]) -> bool:
    """Whether it names an allocator."""
    return any(name in environment.get("LD_PRELOAD", "") for name in _ALLOCATORS)


def leave_out(environment: MutableMapping[str, str]) -> None:
    """Takes the allocator out of what a child process is given that is no trainer: a daemon has its own settings."""
    words = environment.get("LD_PRELOAD", "").replace(":", " ").split()
    kept = [word for word in words if pathlib.PurePath(word).name != _FILE]
    if kept != words:
        environment["LD_PRELOAD"] = ":".join(kept)
        if environment.get("MALLOC_CONF") == _OPTIONS:
            del environment["MALLOC_CONF"]
    if not kept:
        environment.pop("LD_PRELOAD", None)
