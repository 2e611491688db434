"""Quotas of users as :mod:`tierd.control` takes and gives them, and their messages of ``tier.v1``."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from . import errors
from .quantity import memory_size

UNLIMITED: Literal["unlimited"] = "unlimited"
Most = int | Literal["unlimited"]
_LEVELS = ("default", "group", "user")
_PARTS = ("ram", "ssd", "guarantee", "jobs")


@dataclasses.dataclass(frozen=True, slots=True)
class Quota:
    """What all jobs of one user may have together. ``level`` is ``"user"``, ``"group"`` (each of its members) or
    ``"default"`` (every user that no other quota names), ``name`` a name or a number, ``at_run_time`` whether
    :meth:`tierd.control.Control.set_quota` set it and not the configuration. ``ram``, ``ssd`` and ``guarantee`` are
    bytes, ``jobs`` is a count: 0 is nothing at all, ``"unlimited"`` no bound, and ``None`` is left to a more general
    quota."""

    level: str
    name: str
    at_run_time: bool
    ram: Most | None
    ssd: Most | None
    guarantee: Most | None
    jobs: Most | None


@dataclasses.dataclass(frozen=True, slots=True)
class QuotaPart:
    """What a user has of one thing (``used``, in bytes; of jobs a count), the ``most`` of it that it may have, and the
    ``origin`` of that: ``"the quota of group 100, set at run time"``; empty where nothing bounds it."""

    used: int
    most: Most
    origin: str


@dataclasses.dataclass(frozen=True, slots=True)
class QuotaUse:
    """What all jobs of the user ``uid`` have together: ``ram`` in use, ``ssd`` of their tensors, their guarantees of
    SSD and what they persisted, ``guarantee`` of RAM, and open ``jobs``."""

    uid: int
    ram: QuotaPart
    ssd: QuotaPart
    guarantee: QuotaPart
    jobs: QuotaPart


@dataclasses.dataclass(frozen=True, slots=True)
class Quotas:
    """The ``quotas`` that there are, for administrators alone, and what the users have of them (``uses``, by uid): an
    administrator sees all that have jobs, others themselves."""

    quotas: tuple[Quota, ...]
    uses: tuple[QuotaUse, ...]


def quotas_of(message: Any) -> Quotas:
    """From a message ``tier.v1.ListQuotasResponse``."""
    return Quotas(tuple(map(_quota, message.quotas)), tuple(map(_use, message.uses)))


def target(user: str | int | None, group: str | int | None) -> dict[str, Any]:
    """The fields of a request that say whom it is for: ``Invalid`` for a user and a group at once."""
    if user is not None and group is not None:
        raise errors.Invalid(f"a quota is for user {user!r} or for group {group!r}, not for both: name one of them")
    for level, name in (("USER", user), ("GROUP", group)):
        if name is not None:
            return {"level": f"QUOTA_LEVEL_{level}", "name": str(name)}
    return {"level": "QUOTA_LEVEL_DEFAULT", "name": ""}


def limits(
    ram: int | str | None, ssd: int | str | None, guarantee: int | str | None, jobs: Most | None
) -> dict[str, Any]:
    """The fields of a ``SetQuotaRequest`` that change. ``Invalid`` where there is none, or one has no such value."""
    asked = {"ram": ram, "ssd": ssd, "guarantee": guarantee, "jobs": jobs}
    fields = {part: _limit(part, value) for part, value in asked.items() if value is not None}
    if not fields:
        raise errors.Invalid(f"nothing to change: give one of {', '.join(_PARTS)}")
    return fields


def _limit(part: str, value: int | str) -> dict[str, Any]:
    if value == UNLIMITED:
        return {"unlimited": True}
    if part != "jobs":
        return {"most": memory_size(value, part)}
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise errors.Invalid(f'jobs is {value!r}: write a number of jobs, 0 for none, or "{UNLIMITED}"')
    return {"most": value}


def _most(message: Any) -> Most:
    return UNLIMITED if message.unlimited else int(message.most)


def _quota(message: Any) -> Quota:
    most = {part: _most(getattr(message, part)) if message.HasField(part) else None for part in _PARTS}
    return Quota(_LEVELS[message.level - 1], message.name, message.at_run_time, **most)


def _use(message: Any) -> QuotaUse:
    parts = {part: getattr(message, part) for part in _PARTS}
    return QuotaUse(
        message.uid, **{part: QuotaPart(one.used, _most(one.limit), one.origin) for part, one in parts.items()}
    )
