"""Tensors without bytes of their own, or with those of others: their values, or a sentence."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy
import pytest
import torch
from test_offload import new_client
from torch import nn

import tierd
import tierd.torch
from tierd.torch.file_tensor import read_safetensors


def holder(**buffers: torch.Tensor) -> nn.Module:
    model = nn.Module()
    for name, value in buffers.items():
        model.register_buffer(name, value)
    return model


class Scaled(torch.Tensor):
    """Values that are computed when they are read."""

    values: torch.Tensor

    @staticmethod
    def __new__(cls, values: torch.Tensor) -> Scaled:
        made: Any = torch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=values.dtype)
        made.values = values
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return Scaled(args[0].values)
        return func(*(each.values * 2 if isinstance(each, Scaled) else each for each in args), **(kwargs or {}))


@pytest.mark.parametrize("value", [Scaled(torch.ones(4)), torch._efficientzerotensor((4,))])
def test_what_has_no_bytes_is_refused_before_a_file_is_replaced(tmp_path: pathlib.Path, value: torch.Tensor) -> None:
    tierd.torch.save_safetensors(holder(a=torch.ones(4)), tmp_path)
    with pytest.raises(tierd.Invalid, match="'a' of type .* has no bytes of its own"):
        tierd.torch.save_safetensors(holder(a=value, b=Scaled(torch.zeros(4))), tmp_path)
    model = holder(a=torch.zeros(4))
    tierd.torch.load_safetensors(model, tmp_path)
    assert torch.equal(model.get_buffer("a"), torch.ones(4))


def test_names_of_the_same_elements_are_saved_once_and_loaded_for_all(tmp_path: pathlib.Path) -> None:
    values = torch.arange(4.0)
    model = holder(a=values, b=values.detach(), c=values[:2])
    tierd.torch.save_safetensors(model, tmp_path)
    assert sorted(read_safetensors(tmp_path / "model.safetensors")) == ["a", "c"]
    values.zero_()
    assert tierd.torch.load_safetensors(model, tmp_path) == ([], [])
    assert torch.equal(model.get_buffer("b"), torch.arange(4.0))


def test_what_a_header_cannot_have_is_refused_before_a_file_is_replaced(tmp_path: pathlib.Path) -> None:
    model = holder(a=torch.ones(4))
    tierd.torch.save_safetensors(model, tmp_path)
    untyped: Any = {"epoch": 3}
    with pytest.raises(tierd.Invalid, match="strings only"):
        tierd.torch.save_safetensors(model, tmp_path, metadata=untyped)
    with pytest.raises(tierd.Invalid, match="keep that name for themselves"):
        tierd.torch.save_safetensors(holder(__metadata__=torch.ones(3)), tmp_path)
    tierd.torch.load_safetensors(model, tmp_path)


def test_a_tensor_in_a_file_can_be_used_and_changed(tmp_path: pathlib.Path) -> None:
    tierd.torch.save_safetensors(holder(a=torch.ones(2000)), tmp_path)
    value = read_safetensors(tmp_path / "model.safetensors")["a"]
    assert torch.cat([value, value]).sum() == 4000
    assert torch.add(input=value, other=1).sum() == 4000
    value.mul_(10)
    value[0] = 7
    value *= 2
    assert value.sum() == 2 * (1999 * 10 + 7)


def test_bytes_that_two_tensors_have_from_numpy_are_found() -> None:
    values = numpy.ones((64, 64), numpy.float32)
    model = holder(seen=torch.from_numpy(values))
    model.weight = nn.Parameter(torch.from_numpy(values))
    with pytest.raises(tierd.Invalid, match="'seen' and 'weight' share their bytes"):
        tierd.torch.offload(model, tierd.torch.SGD, client=new_client()[0], lr=0.1, min_bytes=1)
