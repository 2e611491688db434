"""The names under which optimizers keep their state in tierd: one optimizer of a client has a name at a time."""

from __future__ import annotations

import gc
import weakref

import torch

from ..client import Client
from ..errors import AlreadyExists

# For each client, the optimizer that has its state under a name. A freed optimizer frees the name.
_holders: weakref.WeakKeyDictionary[Client, weakref.WeakValueDictionary[str, torch.optim.Optimizer]] = (
    weakref.WeakKeyDictionary()
)


def hold_name(client: Client, name: str, optimizer: torch.optim.Optimizer) -> None:
    """Gives the name to ``optimizer`` as long as it lives. ``AlreadyExists`` while another one has it."""
    holders = _holders.setdefault(client, weakref.WeakValueDictionary())
    if holders.setdefault(name, optimizer) is optimizer:
        return
    gc.collect()  # Schedulers and their optimizer refer to each other: one that is no longer used may still exist.
    if holders.setdefault(name, optimizer) is not optimizer:
        raise AlreadyExists(
            f"another optimizer has its state under the name {name!r}: let go of it, or give this one a name of its own"
        )


def release_name(client: Client, name: str, optimizer: torch.optim.Optimizer) -> None:
    """The name is free again, where ``optimizer`` has it: frames that are kept may keep that alive."""
    holders = _holders.get(client) or weakref.WeakValueDictionary[str, torch.optim.Optimizer]()
    if holders.get(name) is optimizer:
        del holders[name]
