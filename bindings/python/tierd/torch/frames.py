"""The frames of the functions under way: what they would keep, and what they tell.

An exception keeps its frames alive, and a notebook keeps the last one, with the variables of all functions that it
passed through. A view or a lease among them would be in the way of every later update.
"""

from __future__ import annotations

import functools
import sys
import traceback
import types
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def without_frames(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, by which torch or the caller enters tierd: an exception that leaves it keeps no variables of it."""

    @functools.wraps(function)
    def entered(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            traceback.clear_frames(error.__traceback__)
            del args, kwargs
            raise

    return entered


def modules_under_way() -> list[torch.nn.Module]:
    """The modules whose forward this thread is in, the innermost first. Slow: for the sentence of an error."""
    code, found = torch.nn.Module._call_impl.__code__, []
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is code:
            found.append(frame.f_locals["self"])
        frame = frame.f_back
    return found
