"""What trains with which memory allocator."""

from __future__ import annotations

import os
from collections.abc import Mapping

from node import ROOT

from tierd.allocator import library, prepared

_STARTS = {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE"}
_kind = "guide"


def choose(kind: str) -> None:
    """Of all that is started from now on. "guide": a process whose model is in tierd is started as docs/training.md
    says, by ``python -m tierd.run``, and the others with the allocator that torch comes with; "glibc", "jemalloc": all
    have that."""
    global _kind
    _kind = kind


def environment(in_tierd: bool, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Of a process that trains, with its model in tierd or not."""
    found = {**os.environ, **_STARTS, "PYTHONPATH": str(ROOT / "bindings/python"), **(more or {})}
    if _kind == "glibc" or (_kind == "guide" and not in_tierd):
        return found
    loaded = library()
    if loaded is None:
        raise SystemExit("bench: jemalloc is missing (apt install libjemalloc2); --malloc glibc does without")
    return prepared(found, loaded)
