"""tierd for torch on CPU: a whole model in tierd, trained by the loop that it had::

    model, optimizer = tierd.torch.offload(model, tierd.torch.AdamW, lr=3e-4)
    loss = model(batch)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

Its parts work alone too: ``AdamW``, ``Adam``, ``SGD`` and ``Lion`` keep their state in tierd, ``offload_activations``
what autograd saves. All give the same bits as plain torch, the optimizers as those of ``torch.optim`` with
``fused=True``; Lion and options that torch does not have give those of a stated formula.
"""

try:
    import torch as _torch
except ModuleNotFoundError as missing:
    if missing.name != "torch":  # torch is there, and lacks something itself.
        raise
    raise ModuleNotFoundError("tierd.torch needs PyTorch: pip install torch", name="torch") from None

# Since 2.7, AdamW is an Adam: what the two have here in common rests on that.
if not issubclass(_torch.optim.AdamW, _torch.optim.Adam):
    raise ImportError(f"tierd.torch needs PyTorch 2.7 or later, this is {_torch.__version__}: pip install -U torch")

from .accumulate import accumulate
from .activations import offload_activations
from .adam import Adam, AdamW
from .data_parallel import no_sync
from .creating import creating
from .lion import Lion
from .malloc import return_freed_memory
from .memory_report import MemoryReport
from .offload import activation_bytes, gathered, gradient_of, memory_report, offload
from .optimizer_file import load_state, read_state, save_state
from .persisting import persist, resumed
from .sgd import SGD
from .shared_weights import load_shared
from .weights import load_safetensors, save_safetensors

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Lion",
    "MemoryReport",
    "accumulate",
    "activation_bytes",
    "creating",
    "gathered",
    "gradient_of",
    "load_shared",
    "load_safetensors",
    "load_state",
    "memory_report",
    "no_sync",
    "offload",
    "offload_activations",
    "persist",
    "read_state",
    "resumed",
    "return_freed_memory",
    "save_safetensors",
    "save_state",
]
