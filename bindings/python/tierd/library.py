"""libtier.so as Python sees it: where it lies, its structures and its signatures, in the order of ``tier/tier.h``.

Nothing here decides anything. Calls are made through :class:`ctypes.CDLL`, so the interpreter's lock is free while
they run. Loading is lazy and happens once: importing :mod:`tierd` on a machine without the library works.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import re
from collections.abc import Mapping
from ctypes import POINTER, c_char_p, c_double, c_int, c_size_t, c_uint32, c_uint64, c_void_p

from .errors import Error, NotFound, from_code

PACKAGE = pathlib.Path(__file__).resolve().parent
SONAME = "libtier.so.0"

OK = 0
NO_MEMORY = 5
WOULD_DEADLOCK = 13
TIMEOUT = 14

MODES = {"attach": 0, "create": 1, "join": 2, "resume": 3, "resume_or_create": 4}
SPINS = {"auto": 0, "always": 1, "never": 2}

# Element types of tier_copy_options.
ELEMENTS = {"float32": 1, "bfloat16": 2, "float16": 3}

# Algorithms of tier_optimizer_options.
ADAM, LION = 1, 2

WRITE = 1 << 0
SHARED = 1 << 1
ABANDON = 1 << 2
NO_WAIT_OWN = 1 << 3
DISCARD = 1 << 4
NO_WAIT = 1 << 5
FREE_AFTER = 1 << 6
UNTOUCHED = 1 << 8
SHARDED = 1 << 10
EVICT_FIRST = 1 << 12
TRANSIENT = 1 << 13
SCATTERED_OK = 1 << 16

BATCH_MAX = 1023
NEXT_STEP = (1 << 64) - 1


def flags_of(shared: bool = False, sharded: bool = False, transient: bool = False) -> int:
    """Which namespace a request means, and what it creates there."""
    return (SHARED if shared else 0) | (SHARDED if sharded else 0) | (TRANSIENT if transient else 0)


class ConnectOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("socket", c_char_p),
        ("job", c_char_p),
        ("token", c_char_p),
        ("mode", c_int),
        ("named", c_int),
        ("rank", c_int),
        ("world_size", c_int),
        ("guarantee_bytes", c_uint64),
        ("limit_bytes", c_uint64),
        ("copy_threads", c_int),
        ("spin", c_int),
    ]


class SessionFields(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("epoch", c_uint64),
        ("session", c_uint64),
        ("window_size", c_uint64),
        ("job", c_char_p),
        ("token", c_char_p),
        ("socket", c_char_p),
        ("connected", c_int),
        ("resumed", c_int),
        ("request_timeout_ms", c_uint32),
    ]


class Range(ctypes.Structure):
    _fields_ = [("tensor", c_uint64), ("offset", c_uint64), ("length", c_uint64), ("size", c_uint64)]


class Segment(ctypes.Structure):
    _fields_ = [("address", c_void_p), ("length", c_uint64), ("offset", c_uint64)]


class TensorFields(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("size", c_uint64),
        ("generation", c_uint64),
        ("ram_bytes", c_uint64),
        ("ssd_bytes", c_uint64),
        ("sealed", c_int),
        ("torn", c_int),
    ]


class CopyOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("memory_type", c_int),
        ("tensor_type", c_int),
        ("check_finite", c_int),
        ("sum_squares", c_int),
        ("stream", c_void_p),
        ("flags", c_uint32),
        ("timeout_ms", c_uint32),
        ("offset", c_uint64),
        ("whole", c_int),
    ]


class CopyOutcome(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("bytes", c_uint64),
        ("non_finite_count", c_uint64),
        ("sum_of_squares", c_double),
    ]


class OptimizerOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("algorithm", c_int),
        ("value_type", c_int),
        ("state_type", c_int),
        ("stochastic", c_int),
        ("decoupled_decay", c_int),
        ("maximize", c_int),
        ("amsgrad", c_int),
        ("threads", c_int),
        ("seed", c_uint32),
        ("learning_rate", c_double),
        ("beta1", c_double),
        ("beta2", c_double),
        ("epsilon", c_double),
        ("weight_decay", c_double),
    ]


class OptimizerSlice(ctypes.Structure):
    _fields_ = [
        ("values", c_void_p),
        ("gradients", c_void_p),
        ("exp_avg", c_void_p),
        ("exp_avg_sq", c_void_p),
        ("max_exp_avg_sq", c_void_p),
        ("count", c_uint64),
        ("first", c_uint64),
        ("parameter", c_uint32),
        ("step", c_uint32),
    ]


class StatsFields(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("copied_to_tensors_bytes", c_uint64),
        ("copied_from_tensors_bytes", c_uint64),
        ("acquires", c_uint64),
        ("acquire_waits", c_uint64),
        ("acquire_wait_ns", c_uint64),
        ("leases_open", c_uint64),
        ("windows_mapped", c_uint64),
        ("stitched_mappings", c_uint64),
        ("windows_registered", c_uint64),
    ]


_TENSORS = (c_void_p, POINTER(c_uint64), c_size_t, c_uint32)
_LEASE_MANY = (c_void_p, POINTER(Range), c_size_t, c_uint32, c_uint32, POINTER(c_void_p))

# name: (result, arguments)
SIGNATURES: dict[str, tuple[object, tuple[object, ...]]] = {
    "tier_code_name": (c_char_p, (c_int,)),
    "tier_last_error": (c_char_p, ()),
    "tier_version": (c_char_p, ()),
    "tier_connect": (c_int, (POINTER(ConnectOptions), POINTER(c_void_p))),
    "tier_close": (None, (c_void_p,)),
    "tier_session": (c_int, (c_void_p, POINTER(SessionFields))),
    "tier_create_batch": (c_int, _LEASE_MANY),
    "tier_acquire_batch": (c_int, _LEASE_MANY),
    "tier_lease_data": (c_int, (c_void_p, POINTER(c_void_p), POINTER(c_uint64))),
    "tier_lease_segments": (c_int, (c_void_p, POINTER(Segment), c_size_t, POINTER(c_size_t))),
    "tier_release": (c_int, (c_void_p, c_uint32)),
    "tier_free": (c_int, (c_void_p, c_uint64, c_uint32)),
    "tier_create_start": (c_int, (*_LEASE_MANY, POINTER(c_void_p))),
    "tier_acquire_start": (c_int, (*_LEASE_MANY, POINTER(c_void_p))),
    "tier_free_start": (c_int, (*_TENSORS, POINTER(c_void_p))),
    "tier_flush_start": (c_int, (*_TENSORS, POINTER(c_void_p))),
    "tier_persist_start": (c_int, (*_TENSORS, POINTER(c_void_p))),
    "tier_prefetch": (c_int, (c_void_p, POINTER(Range), c_size_t, c_uint32)),
    "tier_accept": (c_int, (c_void_p, c_uint64, c_uint32)),
    "tier_step": (c_int, (c_void_p, c_uint64)),
    "tier_persist": (c_int, _TENSORS),
    "tier_flush": (c_int, _TENSORS),
    "tier_drop": (c_int, _TENSORS),
    "tier_intern": (c_int, (c_void_p, c_char_p, c_size_t, POINTER(c_uint64))),
    "tier_tensor": (c_int, (c_void_p, c_uint64, c_uint32, POINTER(TensorFields))),
    "tier_swap_out": (c_int, (c_void_p, c_uint64, c_void_p, c_uint64, POINTER(CopyOptions), POINTER(c_void_p))),
    "tier_swap_in": (c_int, (c_void_p, c_uint64, c_void_p, c_uint64, POINTER(CopyOptions), POINTER(c_void_p))),
    "tier_wait": (c_int, (c_void_p, c_uint32, POINTER(CopyOutcome))),
    "tier_poll": (c_int, (c_void_p, c_uint32)),
    "tier_cancel": (None, (c_void_p,)),
    "tier_optimizer_update": (c_int, (POINTER(OptimizerOptions), POINTER(OptimizerSlice), c_size_t)),
    "tier_stats": (c_int, (c_void_p, POINTER(StatsFields))),
}


def candidates() -> list[str]:
    """The paths of the library to try, in this order: $TIERD_LIBRARY alone where that is set, else this package (the
    wheel), a build tree named by $TIERD_BUILD, and the system's search path."""
    named = os.environ.get("TIERD_LIBRARY")
    if named:
        return [named]
    places = [str(PACKAGE / "bundled" / SONAME)]
    build = os.environ.get("TIERD_BUILD")
    if build:
        places.append(str(pathlib.Path(build) / "libclient" / SONAME))
    return [place for place in places if pathlib.Path(place).exists()] + [SONAME]


@functools.cache
def load() -> ctypes.CDLL:
    """The library with its signatures set. Raises :class:`tierd.NotFound` naming every place tried."""
    tried = []
    for place in candidates():
        try:
            library = ctypes.CDLL(place)
        except OSError as error:
            tried.append(str(error))
            continue
        for name, (result, arguments) in SIGNATURES.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
        return library
    raise NotFound(
        f"libtier could not be loaded ({'; '.join(tried)}): install the wheel, or set TIERD_LIBRARY, or TIERD_BUILD to "
        "the build folder of a checkout"
    )


_TENSOR = re.compile(r"\btensor 0x([0-9a-f]{1,16})\b")


def failure(library: ctypes.CDLL, code: int, keys: Mapping[int, str]) -> Error:
    """The exception for ``code``, with the sentence that libtier left on this thread. libtier names tensors by their
    ids; here an id becomes the string key that has it in ``keys``, and stays a number if there is none."""

    def name(found: re.Match[str]) -> str:
        tensor = int(found[1], 16)
        return f"tensor {keys.get(tensor, tensor)!r}"

    return from_code(code, _TENSOR.sub(name, library.tier_last_error().decode("utf-8", "replace")))
