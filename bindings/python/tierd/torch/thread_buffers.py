"""What libraries keep for a thread that has computed, until it ends: OpenMP the threads of a pool, and MKL some
megabytes for each of all these.
"""

from __future__ import annotations

import ctypes
import functools
import pathlib

import torch

_SOFT = 1  # omp_pause_soft


def free_thread_buffers() -> None:
    """Ends this thread's pool and frees what is kept for it; what it computes next makes them again. Not to be called
    while a pool works. Without effect where torch has neither."""
    openmp, mkl = _functions()
    if openmp is not None:
        openmp(_SOFT)
    if mkl is not None:
        mkl()


@functools.cache
def _functions() -> tuple[ctypes._NamedFuncPointer | None, ctypes._NamedFuncPointer | None]:
    try:
        library = ctypes.CDLL(str(pathlib.Path(torch.__file__).parent / "lib/libtorch_cpu.so"))
    except OSError:
        return None, None
    openmp = getattr(library, "omp_pause_resource_all", None)  # Of the OpenMP library that torch has loaded.
    if openmp is not None:
        openmp.argtypes = [ctypes.c_int]
    mkl = getattr(library, "mkl_serv_thread_free_buffers", None)
    if mkl is not None:
        mkl.argtypes, mkl.restype = [], None
    return openmp, mkl
