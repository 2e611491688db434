"""Held: values of parameters that several threads use in turn, leased once for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import torch

from ..errors import NoMemory, WouldDeadlock

if TYPE_CHECKING:
    from .stored_parameter import StoredParameter

T = TypeVar("T")
HELD_BYTES = 32 << 20  # A block of a model of a few hundred million parameters.


class Held:
    """Storages over read leases, at most ``bytes_max`` bytes of them: 0 outside of ``accumulate``. Under the store's
    lock."""

    def __init__(self) -> None:
        self.bytes_max = 0
        self._storages: dict[StoredParameter, torch.UntypedStorage] = {}
        self._bytes = 0

    def keep(self, stored: StoredParameter, storage: torch.UntypedStorage) -> None:
        """Keeps it until :meth:`release`, where there is room."""
        if self._bytes + stored.nbytes <= self.bytes_max:
            self._storages[stored] = storage
            self._bytes = sum(each.nbytes for each in self._storages)

    def making_room(self, call: Callable[[], T]) -> T:
        """What ``call`` returns; where tierd has no RAM for it, once more with all of these given back."""
        try:
            return call()
        except (NoMemory, WouldDeadlock):
            if not self.release():
                raise
            return call()

    def release(self, *of: StoredParameter) -> bool:
        """Those of the parameters given, or all. Whether there were any."""
        found = [stored for stored in of or list(self._storages) if stored in self._storages]
        for stored in found:
            del self._storages[stored]
        self._bytes = sum(each.nbytes for each in self._storages)
        return bool(found)
