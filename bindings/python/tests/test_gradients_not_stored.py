"""Gradients for which tierd has no room: nothing is lost, and they take no more of the process than others."""

from __future__ import annotations

import pytest
import torch
from fake_library import Refusal
from test_offload import Net, assert_same, loss_of, new_client, offloaded, pair_of, tokens_of, train

import tierd


@pytest.mark.parametrize("update", ["step", "deferred"])
def test_a_step_whose_gradients_could_not_be_stored_is_continued_once_there_is_room(update: str) -> None:
    client, fake = new_client()
    ours, theirs = pair_of(Net)
    _, optimizer = offloaded(ours, client, update=update)
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
    for step in range(3):
        fake.put_refusal = Refusal(6, "full")
        loss_of(ours, tokens_of(step)).backward()
        for _ in range(2):
            with pytest.raises(tierd.NoSpace):
                optimizer.step()
        fake.put_refusal = None
        optimizer.step()
        loss_of(theirs, tokens_of(step)).backward()
        plain.step()
        optimizer.zero_grad()
        plain.zero_grad()
    assert_same(ours, theirs)


def test_gradients_that_cannot_be_stored_take_no_more_than_the_window() -> None:
    """Backward raises once it is full. After zero_grad() nothing of them is left."""
    client, fake = new_client()
    ours, theirs = pair_of(Net)
    _, optimizer = offloaded(ours, client)
    window = ours.__dict__["_tierd_runtime"]._window
    window._bytes_max = max(p.nbytes for p in ours.parameters())
    fake.put_refusal = Refusal(6, "full")
    for _ in range(2):
        with pytest.raises(tierd.NoSpace):
            loss_of(ours, tokens_of(0)).backward()
        assert 0 < window._bytes <= 2 * window._bytes_max
        optimizer.zero_grad()
        assert window._bytes == 0 and not window._under_way
    fake.put_refusal = None
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
    assert train(ours, optimizer) == train(theirs, plain)
