"""ThreadState: what torch keeps by thread and a new thread lacks, such as the grad mode and autocast."""

from __future__ import annotations

from typing import Any

import torch.overrides
from torch.utils import _python_dispatch

from .saved_hooks import push_again

# Some of these have no types.
_C: Any = torch._C
_overrides: Any = torch.overrides
_autograd: Any = torch._C._autograd


class ThreadState:
    """That of the thread which makes it. Modes are shared: they are entered in the other threads as they are."""

    def __init__(self) -> None:
        self._grad = torch.is_grad_enabled()
        self._inference = torch.is_inference_mode_enabled()
        accelerator = torch.accelerator.current_accelerator()
        devices = {"cpu"} | ({accelerator.type} if accelerator is not None else set())
        self._autocast = [
            (device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in devices
        ]
        self._autocast_cache = torch.is_autocast_cache_enabled()
        self._multithreading = _C._is_multithreading_enabled()
        self._saved_hooks = _autograd._top_saved_tensors_default_hooks(True)
        self._function_modes = _overrides._get_current_function_mode_stack()
        self._dispatch_modes = _python_dispatch._get_current_dispatch_mode_stack()
        self._default_device = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)

    def apply(self) -> None:
        """Gives this thread the same, until it ends."""
        torch.get_num_threads()  # Has OpenMP take the number in this thread, before a kernel asks OpenMP itself.
        _C._set_grad_enabled(self._grad)
        for device, enabled, dtype in self._autocast:
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
        torch.set_autocast_cache_enabled(self._autocast_cache)
        _C._set_multithreading_enabled(self._multithreading)
        if self._inference:
            torch.inference_mode().__enter__()
        if self._saved_hooks is not None:
            push_again(self._saved_hooks)
        if self._default_device is not None:
            torch._GLOBAL_DEVICE_CONTEXT.device_context = self._default_device
        for mode in self._function_modes:
            _overrides._push_mode(mode)
        for mode in self._dispatch_modes:
            _python_dispatch._push_mode(mode)
