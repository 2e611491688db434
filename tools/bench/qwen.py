"""A decoder of Qwen2.5's architecture (arXiv 2412.15115) in plain torch: nothing in it knows of tierd.

Blocks of grouped-query attention with rotary positions and biases on queries, keys and values, and of a gated feed
forward; root-mean-square norms; input and output embeddings apart. Each block is checkpointed.
"""

from __future__ import annotations

import torch
from models import Model
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

ROTARY_BASE = 1e6
EPSILON = 1e-6
DEVIATION = 0.02  # Of the initial weights.


class Linear(nn.Linear):
    """Drawn as a language model's layers are, by its own constructor: it is complete when that returns."""

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=DEVIATION)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class Embedding(nn.Embedding):
    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=DEVIATION)


class Attention(nn.Module):
    def __init__(self, shape: Model) -> None:
        super().__init__()
        self.heads, self.groups = shape.heads, shape.key_value_heads
        self.head = shape.width // shape.heads
        narrow = self.groups * self.head
        self.queries, self.keys = Linear(shape.width, shape.width), Linear(shape.width, narrow)
        self.values, self.output = Linear(shape.width, narrow), Linear(shape.width, shape.width, bias=False)

    def forward(self, x: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        batch, length, width = x.shape

        def heads(part: torch.Tensor, count: int) -> torch.Tensor:
            return part.view(batch, length, count, self.head).transpose(1, 2)

        queries = rotated(heads(self.queries(x), self.heads), rotation)
        keys = rotated(heads(self.keys(x), self.groups), rotation)
        attended = functional.scaled_dot_product_attention(
            queries, keys, heads(self.values(x), self.groups), is_causal=True, enable_gqa=True
        )
        found: torch.Tensor = self.output(attended.transpose(1, 2).reshape(batch, length, width))
        return found


class Block(nn.Module):
    def __init__(self, shape: Model) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.width, eps=EPSILON)
        self.attention = Attention(shape)
        self.feed_norm = nn.RMSNorm(shape.width, eps=EPSILON)
        self.gate, self.up = (Linear(shape.width, shape.feed, bias=False) for _ in range(2))
        self.down = Linear(shape.feed, shape.width, bias=False)

    def forward(self, x: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), rotation)
        y = self.feed_norm(x)
        fed: torch.Tensor = self.down(functional.silu(self.gate(y)) * self.up(y))
        return x + fed


class Qwen(nn.Module):
    def __init__(self, shape: Model) -> None:
        super().__init__()
        self.tokens = Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=EPSILON)
        self.head = Linear(shape.width, shape.vocabulary, bias=False)
        self.vocabulary, self.head_width = shape.vocabulary, shape.width // shape.heads

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean cross entropy, in nats, of the next token."""
        x = self.tokens(tokens)
        rotation = rotations(tokens.shape[1], self.head_width, x.dtype)
        for block in self.blocks:
            x = checkpoint(block, x, rotation, use_reentrant=False)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.view(-1, self.vocabulary).float(), targets.reshape(-1))


def rotations(length: int, width: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine of each position's angle for each pair of a head's elements (RoFormer, arXiv 2104.09864)."""
    frequencies = ROTARY_BASE ** (-torch.arange(0, width, 2, dtype=torch.float32) / width)
    angles = torch.arange(length, dtype=torch.float32)[:, None] * frequencies
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotated(x: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """``x`` with element i of a head's first half and element i of its second turned as a pair."""
    cosine, sine = rotation
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)
