"""Checks the arguments of the client's methods, and converts them for libtier: ``Invalid`` names a wrong one."""

from __future__ import annotations

import numbers
import operator
import os

from .errors import Invalid


def milliseconds(timeout: float | None) -> int | None:
    """Seconds to whole milliseconds; 0 means not to wait, ``None`` the default deadline."""
    if timeout is None:
        return None
    if not isinstance(timeout, numbers.Real):
        raise Invalid(f"timeout is {timeout!r}: a number of seconds")
    if not 0 <= timeout <= 4_000_000:
        raise Invalid(f"timeout is {timeout} seconds: it must lie between 0 and 4,000,000")
    return 0 if timeout == 0 else max(1, int(timeout * 1000))


def choice(name: str, value: str, values: dict[str, int]) -> int:
    if value not in values:
        raise Invalid(f"{name} is {value!r}: one of {', '.join(values)}")
    return values[value]


def index(value: object) -> int | None:
    """The integer that ``value`` is, as of numpy's types too; None if it is none."""
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]  # It is asked here.
    except TypeError:
        return None


def flag(name: str, value: bool) -> int:
    if value not in (False, True):
        raise Invalid(f"{name} is {value!r}: True or False")
    return int(value)


def count(name: str, value: int) -> int:
    number = index(value)
    if number is None or not 0 <= number < 1 << 31:
        raise Invalid(f"{name} is {value!r}: an int of at least 0")
    return number


def unsigned(name: str, value: int) -> int:
    """``value`` if it fits into 64 bits. ctypes would silently take the lowest 64 bits of any number."""
    number = index(value)
    if number is None or not 0 <= number < 1 << 64:
        raise Invalid(f"{name} is {value!r}: an int from 0 to 2^64 - 1")
    return number


def encoded(name: str, text: str | os.PathLike[str] | None) -> bytes | None:
    if text is None:
        return None
    if not isinstance(text, (str, os.PathLike)):
        raise Invalid(f"{name} is {text!r}: a str")
    encoded = os.fsencode(text)
    if b"\0" in encoded:
        raise Invalid(f"{name} is {text!r}, which holds a NUL")
    return encoded
