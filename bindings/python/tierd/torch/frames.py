"""without_frames: what an exception's frames would keep alive as long as the exception.

A notebook keeps the last one, with the variables of all functions that it passed through. A view or a lease among them
would be in the way of every later update.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import ParamSpec, TypeVar

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
