"""Copies of models in tierd: made in gathered(), they are plain; elsewhere, and by pickle, a sentence."""

from __future__ import annotations

import copy
import gc
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_offload import Net, assert_same, new_client, offloaded, pair_of, tokens_of, train
from torch import nn

import tierd
import tierd.torch


def plain(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)


def saved(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def test_a_copy_of_a_gathered_model_is_a_plain_model() -> None:
    client, fake = new_client()
    ours, theirs = pair_of(Net)
    _, optimizer = offloaded(ours, client)
    train(ours, optimizer)
    train(theirs, plain(theirs))
    with tierd.torch.gathered(ours):
        copied: Any = copy.deepcopy(ours)
    assert all(type(p) is nn.Parameter and not hasattr(p, "_tierd_stored") for p in copied.parameters())
    assert copied.head.weight is copied.embed.weight
    assert train(copied, plain(copied)) == train(theirs, plain(theirs))
    assert train(ours, optimizer) != [] and copied.state_dict().keys() == theirs.state_dict().keys()
    assert_same(copied, theirs)  # Whatever its origin does.
    del ours, optimizer, _
    gc.collect()
    assert fake.tensors == {} and fake.leases == {}  # The copy's hooks hold nothing of it.
    again = copy.deepcopy(copied)
    assert torch.equal(again(tokens_of(0)), copied(tokens_of(0)))
    again = pickle.loads(pickle.dumps(copied))
    assert torch.equal(again(tokens_of(0)), copied(tokens_of(0)))


def test_a_copy_of_a_gathered_module_or_parameter_is_plain() -> None:
    client, _ = new_client()
    ours, theirs = pair_of(Net)
    offloaded(ours, client)
    ours(tokens_of(0)).sum().backward()
    with tierd.torch.gathered(ours):
        block, weight = copy.deepcopy(ours.blocks[0]), copy.deepcopy(ours.embed.weight)
        shallow = copy.copy(ours.scale)
        assert ours.embed.weight.grad is not None
        assert type(copy.deepcopy(ours.embed.weight.detach())) is torch.Tensor
    x = torch.randn(2, 3, 16)
    assert torch.equal(block(x), theirs.blocks[0](x))
    for copied, of in (
        (weight, theirs.embed.weight),
        (shallow, theirs.scale),
        (block.up.weight, theirs.blocks[0].up.weight),
    ):
        assert type(copied) is nn.Parameter and torch.equal(copied, of)
        assert copied.grad is None and copied.requires_grad
    block(x).sum().backward()
    plain(block).step()
    with tierd.torch.gathered(ours):
        assert torch.equal(ours.blocks[0].up.weight, theirs.blocks[0].up.weight)
    assert ours.embed.weight.grad is not None


def test_an_average_of_the_weights_has_torchs_bits() -> None:
    client, _ = new_client()
    ours, theirs = pair_of(Net)
    _, optimizer = offloaded(ours, client)
    other = plain(theirs)
    with tierd.torch.gathered(ours):
        averages = [torch.optim.swa_utils.AveragedModel(model) for model in (ours, theirs)]
    for _ in range(3):
        train(ours, optimizer, 1)
        train(theirs, other, 1)
        with tierd.torch.gathered(ours):
            averages[0].update_parameters(ours)
        averages[1].update_parameters(theirs)
    assert_same(*averages)
    assert torch.equal(averages[0](tokens_of(0)), averages[1](tokens_of(0)))


def test_a_gathered_parameter_is_saved_as_a_plain_one() -> None:
    client, _ = new_client()
    ours, theirs = pair_of(Net)
    offloaded(ours, client)
    with tierd.torch.gathered(ours):
        files = saved(ours.embed.weight), saved({"weight": ours.embed.weight})
        pickled = pickle.dumps(ours.embed.weight)
        made = nn.Parameter(ours.embed.weight.detach().clone())
        with pytest.raises(tierd.Invalid, match="embed.weight.*clone"):
            nn.Parameter(ours.embed.weight)
    loaded = [torch.load(io.BytesIO(file), weights_only=True) for file in files]
    for found in (loaded[0], loaded[1]["weight"], pickle.loads(pickled), made):
        assert type(found) is nn.Parameter and torch.equal(found, theirs.embed.weight)


@pytest.mark.parametrize("write", [saved, pickle.dumps])
@pytest.mark.parametrize("gather", [False, True])
def test_a_model_cannot_be_pickled(gather: bool, write: Callable[[Any], bytes]) -> None:
    client, _ = new_client()
    ours, _ = pair_of(Net)
    offloaded(ours, client)
    with tierd.torch.gathered(*([ours] if gather else [])):
        for each in (ours, ours.blocks[0], nn.Sequential(ours)):
            with pytest.raises(tierd.Invalid, match=r"pickled.*state_dict\(\)"):
                write(each)


def test_a_copy_outside_of_gathered_is_refused_with_what_works() -> None:
    client, _ = new_client()
    ours, _ = pair_of(Net)
    offloaded(ours, client)
    for each in (ours, ours.blocks[0], ours.scale):
        with pytest.raises(tierd.Invalid, match="gathered"):
            copy.deepcopy(each)
    with tierd.torch.gathered(ours.blocks[0]), pytest.raises(tierd.Invalid, match="gathered"):
        copy.deepcopy(ours)
