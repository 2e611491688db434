"""Keeps torch.compile out of tierd's code, without loading its tracer.

What torch decorates for that loads ``torch._dynamo`` when it is first called, as the constructor of any optimizer does,
and with it sympy and torch.distributed: 70 MB in a process that compiles nothing. As long as it is not loaded, nothing
is traced, and the functions themselves can be called. (A process that checkpoints blocks loads it nevertheless: torch's
own checkpoint() has that decorator.)
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch._compile import _disable_dynamo


_DECORATED = _disable_dynamo(lambda: None).__code__  # Of all functions with that decorator.


def tracer() -> Any:
    """``torch._dynamo``; none while it is not loaded."""
    return sys.modules.get("torch._dynamo")


def opaque(hook: Callable[..., None]) -> Callable[..., None]:
    """``hook``, a function in Python, into which torch.compile does not look: as ``torch.compiler.disable`` would have
    it, without a wrapper that needs the compiler."""
    of_frames: Any = torch._C._dynamo.eval_frame
    skip = of_frames._FrameAction.SKIP
    # Neither its frames nor those of what it calls are compiled, nor is it traced as a part of its caller.
    of_frames.set_code_exec_strategy(hook.__code__, of_frames._FrameExecStrategy(skip, skip))
    for name, value in (("disable", True), ("disable_msg", "tierd moves parameters here"), ("disable_recursive", True)):
        setattr(hook, f"_torchdynamo_{name}", value)
    return hook


def untraced(method: Any) -> Any:
    """A method of torch, without its decorator against tracing where nothing is traced."""
    function: Any = getattr(method, "__func__", None)
    if tracer() is not None or getattr(function, "__code__", None) is not _DECORATED:
        return method
    return types.MethodType(function.__wrapped__, method.__self__)
