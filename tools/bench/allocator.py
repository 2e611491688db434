"""What trains with which memory allocator."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from node import ROOT

from tierd.allocator import library, prepared

_STARTS = {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE"}
_kind = "guide"


def choose(kind: str) -> dict[str, Any]:
    """Of all that is started from now on. "guide": a process whose model is in tierd is started as docs/training.md
    says, by ``python -m tierd.run``, and the others as torch comes; "glibc", "jemalloc": all have that. Says what it
    came to."""
    global _kind
    _kind = kind
    if kind != "glibc" and library() is None:
        raise SystemExit("bench: jemalloc is missing (apt install libjemalloc2); --malloc glibc does without")
    return {"choice": kind, "with the model in tierd": _said(in_tierd=True), "else": _said(in_tierd=False)}


def environment(in_tierd: bool, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Of a process that trains, with its model in tierd or not."""
    found = {**os.environ, **_STARTS, "PYTHONPATH": str(ROOT / "bindings/python"), **(more or {})}
    return prepared(found, library()) if _kind == "jemalloc" or (_kind == "guide" and in_tierd) else found


def _said(in_tierd: bool) -> str:
    found = environment(in_tierd)
    return f"LD_PRELOAD={found.get('LD_PRELOAD', '')} MALLOC_CONF={found.get('MALLOC_CONF', '')}"
