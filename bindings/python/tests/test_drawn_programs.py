"""Training programs drawn from unusual and legal parts: with tierd they give the bits of plain torch."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from drawn_layers import LAYERS, Model
from drawn_steps import EVERYWHERE, STORED, Arm
from hypothesis import given, settings
from hypothesis import strategies as st
from test_offload import new_client

import tierd
import tierd.torch

OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "adamw": ("AdamW", {"weight_decay": 0.1}),
    "amsgrad": ("Adam", {"amsgrad": True, "maximize": True}),
    "sgd": ("SGD", {}),
    "momentum": ("SGD", {"momentum": 0.9, "nesterov": True}),
}
PLACES: list[dict[str, Any]] = [{}, {"activations": "device"}, {"gradients": "device"}, {"min_bytes": 64}]
shapes = st.lists(st.one_of(st.sampled_from(sorted(LAYERS)), st.integers(0, 3)), min_size=1, max_size=4)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        for each in ("Full backward hook is firing", "Anomaly Detection", "None of the inputs have requires_grad"):
            warnings.filterwarnings("ignore", each)
        yield


def _same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor):
        return ours.dtype == theirs.dtype and bool(((ours == theirs) | (ours.isnan() & theirs.isnan())).all())
    return type(ours) is type(theirs) and bool(ours == theirs)


def _may_end(step: str, ours: Any, theirs: Any) -> bool:
    """Whether the program may go no further: torch fails itself, or tierd refuses what it says that it refuses."""
    if isinstance(theirs, Exception):  # Such as its fused SGD where one of several parameters has no momentum.
        return isinstance(ours, Exception) or "NoneType" in str(theirs)
    if isinstance(ours, tierd.Invalid):  # With an update in backward.
        return "a second gradient of parameter" in str(ours)
    return step == "backward_of_kept" and ours == ["refused"]  # torch's fused optimizers do not count their changes.


def _seen_by(arm: Arm, step: str) -> Any:
    try:
        return {**EVERYWHERE, **STORED}[step](arm)
    except Exception as error:
        return error.with_traceback(None) if not arm.in_tierd else error


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_program_has_the_bits_of_plain_torch(data: st.DataObject) -> None:
    shape = data.draw(shapes, "shape")
    update = data.draw(st.sampled_from(["deferred", "step", "backward"]), "update")
    kind, options = OPTIMIZERS[data.draw(st.sampled_from(sorted(OPTIMIZERS)), "optimizer")]
    possible = sorted(EVERYWHERE if update == "backward" else {**EVERYWHERE, **STORED})
    steps = data.draw(st.lists(st.sampled_from(possible), min_size=1, max_size=8), "steps")
    placed = data.draw(st.sampled_from(PLACES), "placed")
    models = [Model(shape, seed=1) for _ in range(2)]
    if not any(parameter.requires_grad for parameter in models[0].parameters()):
        return
    client, fake = new_client()
    norm = {} if update == "backward" or "gradients" in placed else {"exact_norm": True}
    made: Any = getattr(tierd.torch, kind)
    model, ours = tierd.torch.offload(
        models[0], made, client=client, update=update, lr=0.05, **{"min_bytes": 1, **placed}, **options, **norm
    )
    theirs = getattr(torch.optim, kind)(models[1].parameters(), fused=True, lr=0.05, **options)
    arms = [Arm(models[0], ours, in_tierd=True), Arm(models[1], theirs, in_tierd=False)]
    for number, step in enumerate([*steps, "read_values"]):
        seen = [_seen_by(arm, step) for arm in arms]
        if _may_end(step, *seen):
            return
        if isinstance(seen[0], Exception):
            raise seen[0]
        assert len(seen[0]) == len(seen[1]) and all(map(_same, *seen)), f"{step}, step {number}"
    plain = [weakref.ref(parameter) for parameter in models[1].parameters()]
    del seen, arms, models, model, ours, theirs
    gc.collect()
    client.stats()  # A call: what finalizers have sent is done with it.
    assert fake.leases == {}
    if not any(parameter() is not None for parameter in plain):  # torch never frees some graphs that no backward used.
        assert fake.tensors == {}
