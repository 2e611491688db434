"""Steps of which a test draws training loops: what users legally do between and inside of updates.

Each is a function of an Arm, which is a model and its optimizer, with tierd or without. It returns what a user would
see; the two arms have to see the same bits.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import copy
from collections.abc import Callable
from typing import Any

import torch
from drawn_layers import rows
from torch import nn

import tierd
import tierd.torch


class Arm:
    def __init__(self, model: nn.Module, optimizer: Any, in_tierd: bool) -> None:
        self.model = model
        self.optimizer = optimizer
        self.in_tierd = in_tierd
        self.seed = 0
        self.kept: torch.Tensor | None = None  # A loss of which backward comes later.
        self.saved: dict[str, torch.Tensor] | None = None
        self.saved_state: dict[str, Any] | None = None
        self.scaler = torch.amp.GradScaler("cpu", init_scale=4.0)

    def rows(self) -> torch.Tensor:
        self.seed += 1
        torch.manual_seed(self.seed)
        return rows(self.seed)

    def loss(self) -> torch.Tensor:
        loss: torch.Tensor = self.model(self.rows()).square().mean()
        return loss

    def update(self, loss: torch.Tensor) -> torch.Tensor:
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def trained(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def gathered(self, write: bool = False) -> contextlib.AbstractContextManager[None]:
        return tierd.torch.gathered(self.model, write=write) if self.in_tierd else contextlib.nullcontext()


Seen = list[Any]


def train(arm: Arm) -> Seen:
    return [arm.update(arm.loss())]


def evaluate(arm: Arm) -> Seen:
    arm.model.eval()
    with torch.no_grad():
        found = arm.model(arm.rows())
    arm.model.train()
    return [found]


def infer(arm: Arm) -> Seen:
    with torch.inference_mode():
        return [arm.model(arm.rows()).clone()]


def forward_alone(arm: Arm) -> Seen:
    return [arm.loss().detach()]


def two_losses(arm: Arm) -> Seen:
    loss = arm.loss() + 2 * arm.loss()
    return [arm.update(loss)]


def slopes(arm: Arm) -> Seen:
    """Gradients that nothing is updated by."""
    loss = arm.loss()
    found = torch.autograd.grad(loss, arm.trained(), allow_unused=True)
    return [loss.detach(), *(each for each in found if each is not None)]


def penalty(arm: Arm) -> Seen:
    x = arm.rows().requires_grad_()
    out = arm.model(x)
    (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True, allow_unused=True)
    loss = out.square().mean() + (0 if slope is None else slope.square().mean())
    return [arm.update(loss)]


def fail(arm: Arm) -> Seen:
    arm.model.fails = True
    try:
        with contextlib.suppress(ZeroDivisionError):
            arm.loss()
    finally:
        arm.model.fails = False
    return []


def other_rate(arm: Arm) -> Seen:
    for group in arm.optimizer.param_groups:
        group["lr"] *= 0.5
    return []


def change_values(arm: Arm) -> Seen:
    with arm.gathered(write=True), torch.no_grad():
        for parameter in arm.model.parameters():
            parameter.mul_(0.75)
    return []


def read_values(arm: Arm) -> Seen:
    return [value.clone() for value in arm.model.state_dict().values()]


def keep_model(arm: Arm) -> Seen:
    arm.saved = {name: value.clone() for name, value in arm.model.state_dict().items()}
    return []


def load_model(arm: Arm) -> Seen:
    if arm.saved is not None:
        arm.model.load_state_dict(arm.saved)
    return []


def keep_state(arm: Arm) -> Seen:
    arm.saved_state = copy.deepcopy(arm.optimizer.state_dict())
    return []


def load_state(arm: Arm) -> Seen:
    if arm.saved_state is not None:
        arm.optimizer.load_state_dict(copy.deepcopy(arm.saved_state))
    return []


def turn_freezing(arm: Arm) -> Seen:
    """The first parameter is trained no more, or again."""
    first = next(arm.model.parameters(), None)
    if first is not None and len(arm.trained()) > 1:
        first.requires_grad_(not first.requires_grad)
        if not first.requires_grad:
            first.grad = None
    return []


def half_types(arm: Arm) -> Seen:
    with torch.autocast("cpu", torch.bfloat16):
        loss = arm.loss().float()
    return [arm.update(loss)]


def drop_graph(arm: Arm) -> Seen:
    loss = arm.loss()
    del loss
    return []


def copy_model(arm: Arm) -> Seen:
    with arm.gathered():
        copied = copy.deepcopy(arm.model)
    torch.manual_seed(1)
    return [copied(rows(1)).detach()]


def second_order(arm: Arm) -> Seen:
    """A loss of gradients, as meta-learning has it."""
    loss = arm.loss()
    found = torch.autograd.grad(loss, arm.trained(), create_graph=True, allow_unused=True)
    norm = sum(each.square().sum() for each in found if each is not None)
    if isinstance(norm, torch.Tensor) and norm.requires_grad:
        (loss + norm).backward()
        arm.optimizer.step()
        arm.optimizer.zero_grad()
    return [loss.detach()]


def anomaly(arm: Arm) -> Seen:
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        return train(arm)


def by_slope(arm: Arm) -> Seen:
    """Backward of what is no scalar, of an input that wants its gradient too."""
    x = arm.rows().requires_grad_()
    out = arm.model(x)
    out.retain_grad()
    out.backward(torch.ones_like(out))
    arm.optimizer.step()
    arm.optimizer.zero_grad()
    return [out.detach(), x.grad, out.grad]


def part_alone(arm: Arm) -> Seen:
    """A layer called by itself."""
    loss = arm.model.layers[0](arm.rows()).float().square().mean()
    if loss.requires_grad:
        loss.backward()
        arm.optimizer.step()
        arm.optimizer.zero_grad()
    return [loss.detach()]


def in_thread(arm: Arm) -> Seen:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        loss = pool.submit(arm.loss).result()
    return [arm.update(loss)]


def train_evaluating(arm: Arm) -> Seen:
    """Gradients of a model in eval mode."""
    arm.model.eval()
    found = train(arm)
    arm.model.train()
    return found


def fail_in_backward(arm: Arm) -> Seen:
    def fails(_: torch.Tensor) -> None:
        raise ZeroDivisionError

    x = arm.rows().requires_grad_()
    out = arm.model(x)
    if out.requires_grad:
        out.register_hook(fails)
        with contextlib.suppress(ZeroDivisionError):
            out.sum().backward()
    arm.optimizer.zero_grad()
    return []


def freeze_all(arm: Arm) -> Seen:
    """For one forward."""
    was = [parameter.requires_grad for parameter in arm.model.parameters()]
    arm.model.requires_grad_(False)
    x = arm.rows().requires_grad_()
    out = arm.model(x)
    if out.requires_grad:
        out.sum().backward()
    for parameter, trained in zip(arm.model.parameters(), was, strict=True):
        parameter.requires_grad_(trained)
    return [out.detach(), x.grad]


def changed_output(arm: Arm) -> Seen:
    handles = [
        arm.model.layers[-1].register_forward_hook(lambda _, __, out: out * 2),
        arm.model.layers[0].register_forward_pre_hook(lambda _, given: (given[0] + 1,)),
    ]
    found = train(arm)
    for handle in handles:
        handle.remove()
    return found


def substituted(arm: Arm) -> Seen:
    with arm.gathered():
        values = {name: value.detach().clone() for name, value in arm.model.named_parameters()}
    return [torch.func.functional_call(arm.model, values, (arm.rows(),)).detach()]


def hooked_step(arm: Arm) -> Seen:
    seen: list[float] = []
    handle = arm.optimizer.register_step_pre_hook(lambda optimizer, *_: seen.append(optimizer.param_groups[0]["lr"]))
    found = train(arm)
    handle.remove()
    return [*found, *seen]


EVERYWHERE: dict[str, Callable[[Arm], Seen]] = {
    each.__name__: each
    for each in (
        train, evaluate, infer, forward_alone, two_losses, slopes, penalty, fail, other_rate, change_values,
        read_values, keep_model, load_model, keep_state, load_state, turn_freezing, half_types, drop_graph,
        copy_model, second_order, anomaly, by_slope, part_alone, in_thread, train_evaluating, fail_in_backward,
        freeze_all, changed_output, substituted, hooked_step,
    )
}  # fmt: skip


# Those below leave gradients, or use them.


def backward(arm: Arm) -> Seen:
    loss = arm.loss()
    loss.backward()
    return [loss.detach()]


def backward_twice(arm: Arm) -> Seen:
    loss = arm.loss()
    loss.backward(retain_graph=True)
    loss.backward()
    return [loss.detach()]


def keep_loss(arm: Arm) -> Seen:
    arm.kept = arm.loss()
    return [arm.kept.detach()]


def backward_of_kept(arm: Arm) -> Seen:
    kept, arm.kept = arm.kept, None
    if kept is None:
        return []
    try:
        kept.backward()
    except RuntimeError:  # The parameters have changed since.
        arm.optimizer.zero_grad()
        return ["refused"]
    return []


def step(arm: Arm) -> Seen:
    arm.optimizer.step()
    return []


def drop_gradients(arm: Arm) -> Seen:
    arm.optimizer.zero_grad()
    return []


def zero_gradients(arm: Arm) -> Seen:
    arm.optimizer.zero_grad(set_to_none=False)
    return []


def clip_norm(arm: Arm) -> Seen:
    return [nn.utils.clip_grad_norm_(arm.model.parameters(), 0.5)]


def read_gradients(arm: Arm) -> Seen:
    of = tierd.torch.gradient_of if arm.in_tierd else lambda parameter: parameter.grad
    return [None if (gradient := of(each)) is None else gradient.clone() for each in arm.model.parameters()]


def drop_one(arm: Arm) -> Seen:
    for parameter in arm.trained()[:1]:
        parameter.grad = None
    return []


def scaled(arm: Arm) -> Seen:
    loss = arm.loss()
    arm.scaler.scale(loss).backward()
    arm.scaler.unscale_(arm.optimizer)
    norm = nn.utils.clip_grad_norm_(arm.model.parameters(), 1.0)
    arm.scaler.step(arm.optimizer)
    arm.scaler.update()
    arm.optimizer.zero_grad()
    return [loss.detach(), norm]


def closure(arm: Arm) -> Seen:
    def once() -> torch.Tensor:
        arm.optimizer.zero_grad()
        loss = arm.loss()
        loss.backward()
        return loss

    found = arm.optimizer.step(once)
    return [found.detach()]


def some_inputs(arm: Arm) -> Seen:
    """Gradients for every second parameter alone."""
    loss = arm.loss()
    if chosen := arm.trained()[::2]:
        torch.autograd.backward(loss, inputs=chosen)
    return [loss.detach()]


def larger(arm: Arm) -> Seen:
    for parameter in arm.trained():
        if parameter.grad is not None:
            parameter.grad.mul_(2)
    return []


def drop_by_model(arm: Arm) -> Seen:
    arm.model.zero_grad()
    return []


def norms(arm: Arm) -> Seen:
    return [None if each.grad is None else each.grad.norm() for each in arm.trained()]


STORED: dict[str, Callable[[Arm], Seen]] = {
    each.__name__: each
    for each in (
        backward, backward_twice, keep_loss, backward_of_kept, step, drop_gradients, zero_gradients, clip_norm,
        read_gradients, drop_one, scaled, closure, some_inputs, larger, drop_by_model, norms,
    )
}  # fmt: skip
