"""Gradients for which tierd has no room: nothing is lost, and they take no more of the process than others."""

from __future__ import annotations

import pytest
import torch
from fake_library import Refusal
from test_offload import Net, assert_same, loss_of, new_client, offloaded, pair_of, tokens_of, train

import tierd
import tierd.torch


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


@pytest.mark.parametrize("update", ["step", "deferred"])
def test_unscaling_that_found_no_room_has_unscaled_nothing(update: str) -> None:
    client, fake = new_client()
    ours, theirs = pair_of(Net)
    # Some gradients stay in the process.
    _, optimizer = tierd.torch.offload(
        ours, tierd.torch.AdamW, client=client, min_bytes=256, lr=1e-2, update=update, exact_norm=True
    )
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, fused=True)
    scaler, other = (torch.amp.GradScaler("cpu", init_scale=4.0) for _ in range(2))
    for step in range(2):
        fake.put_refusal = Refusal(6, "full")
        scaler.scale(loss_of(ours, tokens_of(step))).backward()
        with pytest.raises(tierd.NoSpace):
            scaler.unscale_(optimizer)
        fake.put_refusal = None
        other.scale(loss_of(theirs, tokens_of(step))).backward()
        for each, model, of in ((scaler, ours, optimizer), (other, theirs, plain)):
            each.unscale_(of)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            each.step(of)
            each.update()
            of.zero_grad()
    assert_same(ours, theirs)
