"""Keeps torch.compile out of tierd's code, without loading its tracer.

What torch decorates for that loads ``torch._dynamo`` when it is first called, as the constructor of any optimizer does,
and with it sympy and torch.distributed: 70 MB in a process that compiles nothing. As long as it is not loaded, nothing
is traced, and the functions themselves can be called.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

from torch._compile import _disable_dynamo


_DECORATED = _disable_dynamo(lambda: None).__code__  # Of all functions with that decorator.


def tracer() -> Any:
    """``torch._dynamo``; none while it is not loaded."""
    return sys.modules.get("torch._dynamo")


def opaque(hook: Callable[..., None]) -> Callable[..., None]:
    """``hook``, into which torch.compile does not look."""
    disabled: Callable[..., None] = _disable_dynamo(hook)

    @functools.wraps(hook)
    def called(*args: Any, **kwargs: Any) -> None:
        (hook if tracer() is None else disabled)(*args, **kwargs)

    return called


def untraced(method: Any) -> Any:
    """A method of torch, without its decorator against tracing where nothing is traced."""
    function = method.__func__
    if tracer() is not None or function.__code__ is not _DECORATED:
        return method
    return types.MethodType(function.__wrapped__, method.__self__)
