"""What MKL keeps for threads that have multiplied matrices: megabytes for each of an OpenMP pool, until they end."""

from __future__ import annotations

import ctypes
import functools
import pathlib

import torch


def free_thread_buffers() -> None:
    """Frees what is kept for any thread and not in use; the next product makes it again, in no time that could be
    measured. Without effect where torch has no MKL."""
    free = mkl_function("free_buffers")
    if free is not None:
        free()


@functools.cache
def mkl_function(name: str) -> ctypes._NamedFuncPointer | None:
    """One of MKL's services in torch's library."""
    try:
        library = ctypes.CDLL(str(pathlib.Path(torch.__file__).parent / "lib/libtorch_cpu.so"))
    except OSError:
        return None
    return getattr(library, f"mkl_serv_{name}", None)
