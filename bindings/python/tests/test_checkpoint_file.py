"""Checkpoint files of an offloaded model: plain torch reads them, and they hold what plain torch's hold."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
import torch
from test_offload import Net, new_client, pair_of, tokens_of, train

import tierd
import tierd.torch
from tierd.torch import checkpoint_file, plain_optimizer
from tierd.torch.file_tensor import FileTensor, read_safetensors


def permuted() -> torch.nn.Module:
    """Parameters whose elements have another order in memory, tied ones, and ones larger than a range."""
    net = Net(width=16)
    net.blocks[0].up.weight = torch.nn.Parameter(torch.randn(16, 64).t())
    net.wide = torch.nn.Parameter(torch.randn(1100, 1000))
    return net


def test_plain_torch_goes_on_from_the_files_and_tierd_from_plain_ones(tmp_path: pathlib.Path) -> None:
    ours, theirs = pair_of(permuted)
    ours, optimizer = tierd.torch.offload(
        ours, tierd.torch.AdamW, client=new_client()[0], min_bytes=1, lr=1e-2, amsgrad=True
    )
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, amsgrad=True, fused=True)
    theirs.wide.grad = torch.ones_like(theirs.wide)
    plain.step()
    with tierd.torch.gathered(ours.wide):
        (ours.wide.sum()).backward()
    optimizer.step()
    train(theirs, plain)
    train(ours, optimizer)

    checkpoint_file.save_weights(ours.state_dict(keep_vars=True), tmp_path / "net.safetensors", {"format": "pt"})
    found = read_safetensors(tmp_path / "net.safetensors")
    expected = theirs.state_dict()
    assert found.keys() == expected.keys() and isinstance(found["wide"], FileTensor)
    assert all(torch.equal(found[name].clone(), expected[name]) for name in found)

    checkpoint_file.save_optimizer(optimizer, tmp_path / "optimizer.pt")
    loaded, whole = torch.load(tmp_path / "optimizer.pt", weights_only=True), plain.state_dict()
    for index, state in whole["state"].items():
        assert list(loaded["state"][index]) == list(state)
        for kind, value in state.items():
            assert torch.equal(loaded["state"][index][kind], value)
            assert loaded["state"][index][kind].stride() == value.stride()
    plain.load_state_dict(loaded)
    torch.save(plain.state_dict(), tmp_path / "plain.pt")
    checkpoint_file.load_optimizer(optimizer, tmp_path / "plain.pt")
    checkpoint_file.load_weights(ours, tmp_path / "net.safetensors")
    assert train(ours, optimizer, first=3) == train(theirs, plain, first=3)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    assert torch.equal(ours(tokens_of(9)), theirs(tokens_of(9)))


def test_tensors_that_are_parts_of_others_keep_their_values(tmp_path: pathlib.Path) -> None:
    net, optimizer = tierd.torch.offload(Net(), tierd.torch.AdamW, client=new_client()[0], lr=1e-2)
    train(net, optimizer)
    rates, table = torch.tensor([0.5, 0.25]), torch.arange(6.0).reshape(2, 3)
    extra = {"lr": rates[1], "turned": table.t(), "part": table[:, 1:], "same": table[0, :1].expand(3)}
    extra["negated"] = torch._neg_view(table)
    optimizer.param_groups[0].update(extra)
    checkpoint_file.save_optimizer(optimizer, tmp_path / "optimizer.pt")
    (found,) = torch.load(tmp_path / "optimizer.pt", weights_only=True)["param_groups"]
    for name, value in extra.items():
        assert torch.equal(found[name], value), name


def test_an_optimizer_that_tierd_does_not_have_is_refused() -> None:
    model = torch.nn.Linear(4, 4)
    for made, sentence in [
        (torch.optim.RMSprop(model.parameters()), "the optimizer is RMSprop"),
        (torch.optim.AdamW(model.parameters(), capturable=True), "capturable=True"),
    ]:
        with pytest.raises(tierd.Invalid, match=sentence):
            plain_optimizer.offload_as(model, made, client=new_client()[0])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_an_optimizer_of_plain_sgd_is_taken_over(momentum: float, tmp_path: pathlib.Path) -> None:
    ours, theirs = pair_of(Net)
    options: dict[str, Any] = {"lr": 0.1, "momentum": momentum, "weight_decay": 0.1, "nesterov": momentum > 0}
    made = torch.optim.SGD(ours.parameters(), **options)
    optimizer = plain_optimizer.offload_as(ours, made, client=new_client()[0], min_bytes=1)
    plain = torch.optim.SGD(theirs.parameters(), fused=True, **options)
    assert type(optimizer) is tierd.torch.SGD
    assert train(ours, optimizer) == train(theirs, plain)
    checkpoint_file.save_optimizer(optimizer, tmp_path / "optimizer.pt")
    again = torch.optim.SGD(theirs.parameters(), fused=True, **options)
    again.load_state_dict(torch.load(tmp_path / "optimizer.pt", weights_only=True))
    assert train(ours, optimizer, first=3) == train(theirs, again, first=3)


def test_a_damaged_file_is_an_error(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "net.safetensors"
    checkpoint_file.save_weights({"a": torch.zeros(4096), "b": torch.ones(3, dtype=torch.int64)}, path)
    found = read_safetensors(path)
    assert torch.equal(found["a"] + 1, torch.ones(4096)) and torch.equal(found["b"], torch.ones(3, dtype=torch.int64))
    path.write_bytes(path.read_bytes()[:-4096])
    with pytest.raises(EOFError, match="cut short"):
        found["a"].clone()
    with pytest.raises(tierd.Invalid, match="a damaged one"):
        read_safetensors(path)
    path.write_bytes(b"not a file of that kind")
    with pytest.raises(tierd.Invalid, match="not a safetensors file"):
        read_safetensors(path)


def test_state_in_another_type_than_its_parameter(tmp_path: pathlib.Path) -> None:
    ours, _ = pair_of(Net)
    ours, optimizer = tierd.torch.offload(
        ours, tierd.torch.AdamW, client=new_client()[0], min_bytes=1, state_dtype="bfloat16"
    )
    train(ours, optimizer)
    checkpoint_file.save_optimizer(optimizer, tmp_path / "optimizer.pt")
    loaded = torch.load(tmp_path / "optimizer.pt", weights_only=True)
    for index, state in optimizer.state_dict()["state"].items():
        for kind, value in state.items():
            assert (
                torch.equal(loaded["state"][index][kind], value) and loaded["state"][index][kind].dtype == value.dtype
            )
