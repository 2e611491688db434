"""``.data`` of a parameter that has its values for a time.

``parameter.data`` is a tensor over the same bytes with a version of its own, so what is written through it is counted
nowhere. What forward changes in a parameter is known by that count, and is written back behind it; what nothing counts
would be lost with the lease. So ``data`` of such a parameter is its ``detach()``, which shares the count.

What holds: from the first model in tierd on, ``data`` of every ``torch.nn.Parameter`` passes through here. Of one that
is not in tierd, or has no values now, it is torch's, and so is what is assigned to it (``StoredParameter.leave`` sees
by the storage that a parameter has other bytes).
"""

from __future__ import annotations

from typing import Any

import torch

from .stored_parameter import stored_of

_Tensor: Any = torch.Tensor  # Its getters have no types.
_get_data = _Tensor.data.__get__


def watch_data() -> None:
    """From now on, what is written through ``data`` is counted. Again: nothing."""
    parameter: Any = torch.nn.Parameter
    if "data" not in vars(parameter):
        parameter.data = property(_counted, _Tensor.data.__set__, doc=_Tensor.data.__doc__)


def _counted(parameter: torch.Tensor) -> torch.Tensor:
    stored = stored_of(parameter)
    found: torch.Tensor = _get_data(parameter) if stored is None or not stored.uses else parameter.detach()
    return found
