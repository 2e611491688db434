"""autograd_guard: code that autograd does not record, and that no inference mode concerns, also where a signal's
handler raises in it.

``torch.no_grad()`` and ``torch.inference_mode()`` are written in Python: an interrupt at the end of their ``__enter__``
leaves the thread as they have set it, so that nothing after it has gradients. torch's guard is of C, and a ``with``
statement enters and leaves it without a step in between. It restores all that autograd keeps by thread.

    with autograd_guard():
        stop_recording()
"""

from __future__ import annotations

import functools
from typing import Any

import torch

_C: Any = torch._C  # Some of it has no types.

autograd_guard = functools.partial(_C._InferenceMode, False)
stop_recording = functools.partial(_C._set_grad_enabled, False)
