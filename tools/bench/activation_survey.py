"""How many of a step's SSD bytes are those of activations: each is looked up after the forward, and again when backward
asks for it, just before it is freed.

Written: what has an SSD copy by then. Read: what was not in RAM after the forward, or is not when backward asks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tierd.errors import NotFound


class Survey:
    """Stands for the client of an ``offload_activations`` while a backward runs."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._not_in_ram: dict[int, int] = {}
        self._asked: set[int] = set()
        self.read = self.written = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def look_up(self, tensor: int) -> None:
        with contextlib.suppress(NotFound):
            state = self._client.tensor(tensor)
            self._not_in_ram[tensor] = state.size - state.ram_bytes

    def get_into(self, tensor: int, out: Any) -> Any:
        if tensor not in self._asked:  # Backward may ask again: its bytes are in RAM then.
            self._asked.add(tensor)
            state = self._client.tensor(tensor)
            self.written += state.ssd_bytes
            self.read += max(self._not_in_ram.get(tensor, 0), state.size - state.ram_bytes)
        return self._client.get_into(tensor, out)


@contextlib.contextmanager
def survey_of(activations: Any) -> Iterator[Survey]:
    """Of the ``offload_activations``, from the end of a forward to the end of its backward."""
    registry = activations._registry
    client = registry.client
    survey = Survey(client)
    for handle in registry.order.handles():
        _, tensor, _ = handle.key
        survey.look_up(tensor)
    registry.client = survey
    try:
        yield survey
    finally:
        registry.client = client
