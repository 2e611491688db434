"""What the integrations for torch refuse where they are made, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tierd
import tierd.torch

OPTIMIZERS = [tierd.torch.Adam, tierd.torch.AdamW]


def parameters() -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.ones(2))]


@pytest.mark.parametrize(
    "make",
    [
        lambda client: tierd.torch.Adam(parameters(), client=client),
        lambda client: tierd.torch.AdamW(parameters(), client=client),
        tierd.torch.offload_activations,
    ],
)
@pytest.mark.parametrize("given", ["gpt", torch.nn.Linear(2, 2), None])
def test_what_is_no_client_is_refused_at_once(make: Callable[[Any], Any], given: object) -> None:
    with pytest.raises(TypeError, match=rf"client is a {type(given).__name__}: pass what tierd.connect\(\) returned"):
        make(given)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("option", [{"fused": True}, {"fused": False}, {"foreach": False}])
def test_there_is_one_implementation(client: tierd.Client, optimizer: Any, option: dict[str, bool]) -> None:
    with pytest.raises(TypeError, match=f"{optimizer.__name__} always runs torch's fused kernel: leave out fused and"):
        optimizer(parameters(), client=client, **option)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_defaults_of_torch_may_be_stated(client: tierd.Client, optimizer: Any) -> None:
    optimizer(parameters(), client=client, fused=None, foreach=None)
