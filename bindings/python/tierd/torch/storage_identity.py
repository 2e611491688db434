"""StorageIdentity: which storage a tensor lies in, by a weak reference.

As long as the identity is kept, torch gives its ``key`` to no other storage, even when the storage itself is freed; an
address alone would soon belong to another tensor.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing import reductions

_reference: Any = reductions.StorageWeakRef  # torch types neither its constructor nor its methods.


class StorageIdentity:
    __slots__ = ("_weak", "key")

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self._weak = _reference(storage)
        self.key: int = self._weak.cdata

    def expired(self) -> bool:
        return bool(self._weak.expired())

    def storage(self) -> torch.UntypedStorage | None:
        """The storage while it is alive."""
        found: torch.UntypedStorage | None = torch.UntypedStorage._new_with_weak_ptr(self.key)
        return found
