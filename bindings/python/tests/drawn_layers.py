"""Layers of which a test draws models: what forwards may do to parameters, each a small module from rows to rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

WIDTH = 8


def rows(seed: int) -> torch.Tensor:
    return torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(seed))


class Scale(nn.Module):
    """Its parameter is no module's of its own kind, and is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(WIDTH) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale + self.scale.square()


class Transposed(nn.Module):
    """Its parameter lies column by column."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH).t() / 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight)


class Parts(nn.Module):
    """Its weight is put together in forward, of parameters in containers."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.ParameterList([torch.randn(WIDTH // 2, WIDTH) / 3 for _ in range(2)])
        self.more = nn.ParameterDict({"shift": torch.zeros(WIDTH)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, torch.cat(list(self.rows)), self.more["shift"])


class Momentum(nn.Module):
    """Its second layer follows the first in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.key.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            if self.training:
                for theirs, ours in zip(self.query.parameters(), self.key.parameters(), strict=True):
                    ours.mul_(0.9).add_(theirs, alpha=0.1)
            key = self.key(x)
        return self.query(x) + key


class Doubling(torch.autograd.Function):
    """Saves its weight, and reads it in backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return 2 * x @ weight

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, weight = ctx.saved_tensors
        return 2 * gradient @ weight.t(), 2 * x.t() @ gradient


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = Doubling.apply(x, self.weight)
        return y


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.part = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace=True), nn.Dropout(0.2))
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.reentrant and not x.requires_grad and torch.is_grad_enabled():
            x = x.detach().requires_grad_()
        y: torch.Tensor = checkpoint(self.part, x, use_reentrant=self.reentrant)
        return y


class Sequence(nn.Module):
    """A layer of torch with a kernel for all of its parameters, over the rows as a sequence."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if isinstance(self.layer, nn.MultiheadAttention):
            y: torch.Tensor = self.layer(x[None], x[None], x[None])[0][0]
        elif isinstance(self.layer, nn.TransformerEncoderLayer):
            y = self.layer(x[None])[0]
        else:
            y = self.layer(x[None])[0][0]
        return y


class Half(nn.Module):
    """A part in bf16."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(WIDTH, WIDTH, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.part(x.bfloat16()).float()
        return y


class Hooked(nn.Module):
    """Hooks on a parameter and on the module, which change gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(WIDTH, WIDTH)
        self.part.weight.register_hook(_tripled)
        self.part.register_full_backward_hook(_halved)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.part(x)
        return y


def _tripled(gradient: torch.Tensor) -> torch.Tensor:
    return gradient * 3


def _halved(_: nn.Module, given: Any, __: Any) -> Any:
    return tuple(None if each is None else each / 2 for each in given)


class Embedded(nn.Module):
    """Rows of a table, of which the index comes from the input."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, WIDTH, padding_idx=0, max_norm=None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        index = (x.detach().sum(-1).abs() * 3).long() % 5
        y: torch.Tensor = x + self.table(index)
        return y


class Sometimes(nn.Module):
    """A layer that a part of the inputs leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.part(x) if x.detach().sum() > 0 else x
        return y


class Tied(nn.Module):
    """Two modules with one parameter, and one of them used by its attribute alone."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.second(self.first(x)) + F.linear(x, self.second.weight.t())
        return y


class Recurrent(nn.Module):
    """The same layer several times, the last time without gradients through its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros_like(x)
        for _ in range(3):
            h = self.cell(x, h)
        with torch.no_grad():
            more = self.cell(x, h)
        return h + more


class Nested(nn.Module):
    """A checkpoint within a checkpoint, and a closure over a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.shift = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def outer(x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = checkpoint(lambda z: self.b(z) + self.shift, self.a(x), use_reentrant=False)
            return y

        y: torch.Tensor = checkpoint(outer, x, use_reentrant=False)
        return y


class Straight(nn.Module):
    """A quantised weight with a straight-through gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        coarse = (self.weight * 4).round() / 4
        return F.linear(x, self.weight + (coarse - self.weight).detach())


class Viewed(nn.Module):
    """Views of one parameter, kept from one use to the next within forward, and written into a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Parameter(torch.randn(2, WIDTH, WIDTH) / 3)
        self.register_buffer("seen", torch.zeros(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = self.both.unbind()
        with torch.no_grad():
            self.seen = self.seen * 0.5 + first.diagonal()
        return F.linear(F.linear(x, first).relu_(), second) + self.seen


class OnHost(nn.Module):
    """Activations saved by another pair of hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autograd.graph.save_on_cpu():
            y: torch.Tensor = self.part(x).tanh()
        return y


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Conv1d(1, 2, 3, padding=1)
        self.back = nn.ConvTranspose1d(2, 1, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.back(self.part(x[:, None]))[:, 0]
        return y


class Bag(nn.Module):
    """The gradient of its first layer is that of a part of it; the weight of its second is read in numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Bilinear(WIDTH, WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        largest = self.second.weight.abs().max().item()
        y: torch.Tensor = F.linear(x, self.first.weight[: WIDTH // 2])
        return self.second(torch.cat([y, y], -1), x) / (1 + largest)


def _frozen() -> nn.Module:
    return nn.Linear(WIDTH, WIDTH).requires_grad_(False)


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(WIDTH, WIDTH),
    "scale": Scale,
    "transposed": Transposed,
    "parts": Parts,
    "momentum": Momentum,
    "own function": Own,
    "checkpoint": lambda: Checkpointed(False),
    "reentrant checkpoint": lambda: Checkpointed(True),
    "layer norm": lambda: nn.LayerNorm(WIDTH),
    "batch norm": lambda: nn.BatchNorm1d(WIDTH),
    "gru": lambda: Sequence(nn.GRU(WIDTH, WIDTH, batch_first=True)),
    "attention": lambda: Sequence(nn.MultiheadAttention(WIDTH, 2, batch_first=True)),
    "encoder": lambda: Sequence(nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True, dropout=0.1)),
    "half": Half,
    "hooked": Hooked,
    "embedded": Embedded,
    "sometimes": Sometimes,
    "frozen": _frozen,
    "tied": Tied,
    "recurrent": Recurrent,
    "nested checkpoints": Nested,
    "straight through": Straight,
    "viewed": Viewed,
    "saved on the host": OnHost,
    "convolution": Convolution,
    "parts of weights": Bag,
    "dropout": lambda: nn.Dropout(0.3),
    "prelu": lambda: nn.PReLU(WIDTH),
    "weight norm": lambda: parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH)),
    "orthogonal": lambda: parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH)),
}


class Model(nn.Module):
    """``shape`` names the layers; a number instead is an earlier one once more, with its parameters."""

    def __init__(self, shape: list[str | int], seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        made: list[nn.Module] = []
        for each in shape:
            made.append(made[each % len(made)] if isinstance(each, int) and made else LAYERS[_name(each)]())
        self.layers = nn.ModuleList(made)
        self.fails = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            if self.fails and number == len(self.layers) - 1:
                raise ZeroDivisionError
            x = layer(x)
        return x


def _name(each: str | int) -> str:
    return each if isinstance(each, str) else "linear"
