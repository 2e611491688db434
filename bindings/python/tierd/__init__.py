"""tierd for Python: tensors that live in the node's memory-tiering daemon, in RAM and on SSD::

    import numpy, tierd

    with tierd.connect(job="demo") as client:
        client.put("w", numpy.arange(1000.0))
        with client.lease("w", write=True) as lease:
            lease.numpy()[:] *= 2
        print(client.get("w").sum())

``tierd.torch``, which is imported when it is first used, has optimizers and activation offload for torch.
``tierd.control`` has the control channel of the daemon; import it by itself, with the extra ``tierd[control]``.
"""

import importlib
import types
from typing import TYPE_CHECKING

from .client import Client
from .connecting import connect
from .errors import (
    AlreadyExists,
    Corrupt,
    Denied,
    Disconnected,
    Error,
    Invalid,
    IoError,
    LiveViews,
    NoMemory,
    NoSpace,
    NotFound,
    Revoked,
    Stale,
    Timeout,
    Torn,
    VersionMismatch,
    WouldDeadlock,
)
from .lease import Lease
from .states import CopyFigures, Key, Part, SessionState, Stats, TensorState

if TYPE_CHECKING:
    from . import torch as torch
else:  # Hidden from type checkers, which would take every name to be here.

    def __getattr__(name: str) -> types.ModuleType:
        """Imports ``tierd.torch``, and with it PyTorch, at its first use."""
        if name == "torch":
            return importlib.import_module(".torch", __name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__version__ = "0.1.0"

__all__ = [
    "AlreadyExists",
    "Client",
    "CopyFigures",
    "Corrupt",
    "Denied",
    "Disconnected",
    "Error",
    "Invalid",
    "IoError",
    "Key",
    "Lease",
    "LiveViews",
    "NoMemory",
    "NoSpace",
    "NotFound",
    "Part",
    "Revoked",
    "SessionState",
    "Stale",
    "Stats",
    "TensorState",
    "Timeout",
    "Torn",
    "VersionMismatch",
    "WouldDeadlock",
    "connect",
]
