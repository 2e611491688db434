"""Byte quantities as people write them: ``"64GiB"``, ``"1.5 MiB"``, ``"512"``, or a plain integer."""

from __future__ import annotations

import re

from .errors import Invalid

_UNITS = {
    "": 1, "B": 1,
    "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
}  # fmt: skip
_UNIT_NAMES = "units: B, KiB, MiB, GiB, TiB, kB, MB, GB, TB"
_PATTERN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*\Z")
_LARGEST = (1 << 63) - 1
_DIGITS_MAX = 64
_BARE_MIN = 2 << 20  # The memory of a job and of a daemon comes in blocks of this size.


def byte_count(value: int | str | None, name: str = "size") -> int:
    """``value`` in bytes; ``None`` is 0, which the daemon reads as "the default".

    Raises :class:`tierd.Invalid` naming ``name`` when it is negative, too large, or not a quantity.
    """
    if value is None:
        return 0
    if isinstance(value, str):
        match = _PATTERN.match(value)
        unit = _UNITS.get(match.group(2).upper()) if match else None
        if match is None or unit is None:
            raise Invalid(f'{name} is "{value}": write a number of bytes or a quantity such as "64GiB" ({_UNIT_NAMES})')
        # A fraction of a unit is rounded down; whole numbers stay exact at any size.
        number = match.group(1)
        if len(number) > _DIGITS_MAX:
            raise Invalid(f"{name} has {len(number)} digits: it must lie between 0 and {_LARGEST}")
        value = int(float(number) * unit) if "." in number else int(number) * unit
    elif isinstance(value, bool) or not isinstance(value, int):
        raise Invalid(f'{name} is {value!r}: write a number of bytes or a quantity such as "64GiB"')
    if not 0 <= value <= _LARGEST:
        raise Invalid(f"{name} is {value} bytes: it must lie between 0 and {_LARGEST}")
    return value


def memory_size(value: int | str | None, name: str) -> int:
    """:func:`byte_count` of memory, or of SSD space, for a job, a user or a daemon. A number without a unit that is
    less than 2 MiB is nearly always one of GiB: ``Invalid``, which says how to write it."""
    count = byte_count(value, name)
    bare = isinstance(value, int) or (isinstance(value, str) and not value.strip()[-1].isalpha())
    if bare and 0 < count < _BARE_MIN:
        text = str(value).strip()
        raise Invalid(f'{name} is {text}: {text} is {count} bytes; write "{text}GiB", or "{count}B" if it is meant')
    return count


def format_bytes(count: float) -> str:
    """``count`` as text: three significant digits and a binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 1000 else f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"
