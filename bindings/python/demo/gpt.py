"""A byte-level GPT in plain torch: nothing in it knows of tierd."""

from __future__ import annotations

import dataclasses

import torch
from torch import nn
from torch.nn import functional

VOCABULARY = 256


@dataclasses.dataclass(frozen=True)
class Shape:
    layers: int = 8
    width: int = 512
    heads: int = 8
    context: int = 128


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.attention_norm = nn.LayerNorm(shape.width)
        self.queries_keys_values = nn.Linear(shape.width, 3 * shape.width)
        self.projection = nn.Linear(shape.width, shape.width)
        self.feed_norm = nn.LayerNorm(shape.width)
        self.widen = nn.Linear(shape.width, 4 * shape.width)
        self.narrow = nn.Linear(4 * shape.width, shape.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.queries_keys_values(self.attention_norm(x)).split(width, dim=2)
        q, k, v = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(batch, length, width))
        fed: torch.Tensor = self.narrow(functional.gelu(self.widen(self.feed_norm(x))))
        return x + fed


class Gpt(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, shape.width)
        self.positions = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, VOCABULARY, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean cross entropy, in nats, of the next byte."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1))


def parameter_count(shape: Shape) -> int:
    """Without building it."""
    width = shape.width
    block = 12 * width * width + 13 * width
    return 2 * VOCABULARY * width + shape.context * width + shape.layers * block + 2 * width
