"""tierd for torch on CPU: optimizers whose state lives in tierd, and activations that wait there for backward.

    client = tierd.connect(job="gpt")
    optimizer = tierd.torch.AdamW(model.parameters(), lr=3e-4, client=client)
    with tierd.torch.offload_activations(client, model=model):
        loss = model(batch)
    loss.backward()
    optimizer.step()

Both give the same bits as plain torch: ``AdamW`` here as ``torch.optim.AdamW(fused=True)``.
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

from .activations import offload_activations
from .malloc import return_freed_memory
from .offload import gathered, gradient_of, offload, persist, resumed
from .optimizer import Adam, AdamW

__all__ = [
    "Adam",
    "AdamW",
    "gathered",
    "gradient_of",
    "offload",
    "offload_activations",
    "persist",
    "resumed",
    "return_freed_memory",
]
