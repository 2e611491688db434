"""Parameters that are frozen when their model is offloaded, and trained later."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from test_offload import assert_same
from test_offload_oddities import both, rows
from torch import nn
from torch.nn import functional as F

import tierd.torch
from tierd.torch.placeholder import raw_gradient

UNFREEZE: dict[str, Callable[[nn.Module], object]] = {
    "requires_grad_": lambda model: model.requires_grad_(True),
    "requires_grad": lambda model: [setattr(each, "requires_grad", True) for each in model.parameters()],
    "gathered": lambda model: unfreeze_gathered(model),
}


def unfreeze_gathered(model: nn.Module) -> None:
    with tierd.torch.gathered(model):
        model.requires_grad_(True)


class HeadFirst(nn.Module):
    """The backbone is frozen at first, and has a weight that is used outside of its module."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.head = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)), nn.Linear(8, 4)
        self.backbone.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.backbone(x) + F.linear(x, self.backbone.get_parameter("0.weight")))


@pytest.mark.parametrize("update", ["step", "deferred", "backward"])
@pytest.mark.parametrize("how", UNFREEZE)
def test_a_parameter_that_is_unfrozen_later_leaves_no_gradient_in_the_process(update: str, how: str) -> None:
    arms = both(HeadFirst, update=update)
    for step in range(8):
        losses = []
        for model, optimizer in arms:
            if step == 2:
                UNFREEZE[how](model.backbone)
            if step == 5:
                model.backbone[0].requires_grad_(False)
            if step == 6:
                model.backbone[0].requires_grad_(True)
            loss = model(rows(step)).pow(2).sum()
            loss.backward()
            if model is arms[0][0]:
                assert all(raw_gradient(each) is None for each in model.parameters())
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        assert losses[0] == losses[1]
    assert_same(arms[0][0], arms[1][0])
