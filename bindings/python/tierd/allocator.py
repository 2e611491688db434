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
# Take the allocator's place themselves, or watch it.
_OTHERS = ("jemalloc", "tcmalloc", "mimalloc", "tbbmalloc", "snmalloc", "hoard", "heaptrack", "asan", "tsan")
_ADDED = "TIERD_PRELOADED"  # Names what of LD_PRELOAD was added here.


def library() -> str | None:
    """What the loader is to load: the library beside this Python, such as conda's, else the system's; ``None``: there
    is none."""
    for prefix in (sys.prefix, sys.base_prefix):
        own = pathlib.Path(prefix) / "lib" / _FILE
        if own.is_file():
            return str(own)
    return ctypes.util.find_library("jemalloc")


def prepared(environment: Mapping[str, str], loaded: str | None) -> dict[str, str]:
    """``environment`` as a process is to have it that trains. ``loaded``: :func:`library`. Where it names an allocator,
    that one stays; options of jemalloc's that it has count before those that are added."""
    found = {"OMP_WAIT_POLICY": "PASSIVE", **environment}
    if loaded is not None and not is_chosen(found):
        others = found.get("LD_PRELOAD", "")
        found["LD_PRELOAD"] = f"{loaded}:{others}" if others else loaded
        found[_ADDED] = loaded
        own = found.get("MALLOC_CONF", "")
        found["MALLOC_CONF"] = f"{_OPTIONS},{own}" if own else _OPTIONS  # The last word counts.
    return found


def is_chosen(environment: Mapping[str, str]) -> bool:
    """Whether it names an allocator."""
    return any(name in pathlib.PurePath(word).name for word in _preloaded(environment) for name in _OTHERS)


def leave_out(environment: MutableMapping[str, str]) -> None:
    """Takes what :func:`prepared` has added of the allocator out of what a child process is given that is no trainer: a
    daemon has its own settings."""
    added = environment.pop(_ADDED, None)
    if added is None:
        return
    kept = [word for word in _preloaded(environment) if word != added]
    options = environment.get("MALLOC_CONF", "").removeprefix(_OPTIONS).removeprefix(",")
    for name, value in (("LD_PRELOAD", ":".join(kept)), ("MALLOC_CONF", options)):
        environment.pop(name, None)
        if value:
            environment[name] = value


def _preloaded(environment: Mapping[str, str]) -> list[str]:
    return environment.get("LD_PRELOAD", "").replace(":", " ").split()
