"""The models that the training bench trains: their shapes and what they take, without building them."""

from __future__ import annotations

import dataclasses
import json

BYTES = 256  # The vocabulary of a model of bytes.
ARENA = 192 << 20  # Of tierd, for each of them.
UPDATES = ("backward", "deferred", "step")  # Arms of offload(update=…).


@dataclasses.dataclass(frozen=True)
class Model:
    """``kind``: "gpt", the decoder of the demo; "stack", its blocks alone; "qwen", see qwen.py, whose blocks are
    checkpointed. ``feed``, ``key_value_heads``: of qwen alone. Random tokens or vectors of ``batch`` × ``context``."""

    kind: str
    layers: int
    width: int
    heads: int
    batch: int = 1
    context: int = 256
    dtype: str = "float32"
    vocabulary: int = BYTES
    feed: int = 0
    key_value_heads: int = 0

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return {"float32": 4, "bfloat16": 2}[self.dtype]

    @property
    def block_parameters(self) -> int:
        width = self.width
        if self.kind == "qwen":
            narrow = width // self.heads * self.key_value_heads
            attention = 2 * width * width + 2 * width * narrow + width + 2 * narrow
            return attention + 3 * width * self.feed + 2 * width
        return 12 * width * width + 13 * width

    @property
    def parameters(self) -> int:
        blocks = self.layers * self.block_parameters
        if self.kind == "stack":
            return blocks
        ends = 2 * self.vocabulary * self.width
        if self.kind == "qwen":
            return blocks + ends + self.width
        return blocks + ends + self.context * self.width + 2 * self.width

    @property
    def largest(self) -> int:
        """Elements of the largest parameter."""
        return self.width * max(4 * self.width, self.feed, 0 if self.kind == "stack" else self.vocabulary)

    def encoded(self) -> str:
        """For the command line of a process that builds it."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def decoded(cls, text: str) -> Model:
        return cls(**json.loads(text))


def gpt(layers: int, width: int) -> Model:
    return Model("gpt", layers, width, width // 64)


# By the names of --model. Of those of other projects, the published configuration.
MODELS = {
    "121M": gpt(17, 768),
    "353M": gpt(28, 1024),
    "1.0B": gpt(36, 1536),
    "qwen-small": Model(
        "qwen", layers=4, width=512, heads=8, key_value_heads=2, feed=2688, vocabulary=8192, dtype="bfloat16"
    ),
    "qwen2.5-7b": Model(
        "qwen", layers=28, width=3584, heads=28, key_value_heads=4, feed=18944, vocabulary=152064, dtype="bfloat16"
    ),
}
