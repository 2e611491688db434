"""What libtier's optimizer kernels compute, written in torch and numpy: each operation in fp32, rounded by itself."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy
import torch


def philox(counter: numpy.ndarray[Any, Any], key: tuple[int, int]) -> numpy.ndarray[Any, Any]:
    """Philox 4x32-10 (Salmon et al. 2011) of counters of shape (n, 4): their words, of the same shape."""
    c0, c1, c2, c3 = (counter[:, word].astype(numpy.uint64) for word in range(4))
    k0, k1 = key
    low, shift = numpy.uint64(0xFFFFFFFF), numpy.uint64(32)
    for _ in range(10):
        p0, p1 = c0 * numpy.uint64(0xD2511F53), c2 * numpy.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (
            (p1 >> shift) ^ c1 ^ numpy.uint64(k0), p1 & low, (p0 >> shift) ^ c3 ^ numpy.uint64(k1), p0 & low
        )  # fmt: skip
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return numpy.stack([c0, c1, c2, c3], axis=1)


def random_bits(count: int, seed: int, parameter: int, step: int) -> torch.Tensor:
    """16 random bits for each of a parameter's elements, as int32: element 16·h + i of chunk c of 128 has the half h of
    what counter 16·c + i gives."""
    chunks = -(-count // 128)
    counter = numpy.zeros((chunks * 16, 4), numpy.uint64)
    counter[:, 0], counter[:, 2] = numpy.arange(chunks * 16), step
    halves = philox(counter, (seed, parameter)).astype("<u4").view("<u2").reshape(chunks, 16, 8)
    return torch.from_numpy(halves.transpose(0, 2, 1).reshape(-1)[:count].astype(numpy.int32))


def rounded_at_random(exact: torch.Tensor, bits: torch.Tensor) -> torch.Tensor:
    """bf16 values of fp32 ones: the upper half of pattern and random bits added."""
    pattern = exact.view(torch.int32) + bits
    return (pattern & ~0xFFFF).view(torch.float32).to(torch.bfloat16)


class Reference(torch.optim.Optimizer):
    kinds: tuple[str, ...]

    def __init__(self, params: Any, **options: Any) -> None:
        self.state_dtype = options.pop("state_dtype", None)
        self.rounding, self.seed = options.pop("rounding", "nearest"), options.pop("seed", 0)
        super().__init__(params, {**self.options, **options})

    options: dict[str, Any]

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        number = 0
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.update(parameter, group, number)
                number += 1

    def update(self, parameter: torch.Tensor, group: dict[str, Any], number: int) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros(())
            dtype = parameter.dtype if self.state_dtype is None else _dtype_of(self.state_dtype)
            for kind in self.kinds:
                state[kind] = torch.zeros_like(parameter, dtype=dtype)
        state["step"] += 1
        gradient = parameter.grad.float() * (-1 if group["maximize"] else 1)  # type: ignore[union-attr]
        moments = {kind: state[kind].float() for kind in self.kinds}
        exact = self.formula(parameter.float(), gradient, moments, {**group, "step": state["step"].item()})
        for kind, moment in moments.items():
            state[kind].copy_(moment)
        if self.rounding == "stochastic":
            bits = random_bits(exact.numel(), self.seed, number, int(state["step"].item()))
            exact = rounded_at_random(exact, bits.view(exact.shape))
        parameter.copy_(exact)

    def formula(
        self, value: torch.Tensor, gradient: torch.Tensor, moments: dict[str, torch.Tensor], group: dict[str, Any]
    ) -> torch.Tensor:
        raise NotImplementedError

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Without torch's casts of the state to the parameter's dtype."""
        given = copy.deepcopy(state_dict)
        super().load_state_dict(state_dict)
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for index, state in given["state"].items():
            self.state[parameters[index]] = state


class ReferenceAdam(Reference):
    options = {
        "lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0, "amsgrad": False, "maximize": False,
        "decoupled": False,
    }  # fmt: skip

    def __init__(self, params: Any, **options: Any) -> None:
        self.kinds = ("exp_avg", "exp_avg_sq") + ("max_exp_avg_sq",) * bool(options.get("amsgrad"))
        super().__init__(params, **options)

    def formula(
        self, value: torch.Tensor, gradient: torch.Tensor, moments: dict[str, torch.Tensor], group: dict[str, Any]
    ) -> torch.Tensor:
        beta1, beta2 = group["betas"]
        if group["decoupled"]:
            value = value * (1 - group["lr"] * group["weight_decay"])
        elif group["weight_decay"]:
            gradient = gradient + value * group["weight_decay"]
        first, second = moments["exp_avg"], moments["exp_avg_sq"]
        first = first + (gradient - first) * (1 - beta1)
        second = second * beta2 + (gradient * (1 - beta2)) * gradient
        moments["exp_avg"], moments["exp_avg_sq"] = first, second
        if group["amsgrad"]:
            second = moments["max_exp_avg_sq"] = torch.maximum(moments["max_exp_avg_sq"], second)
        root = second.double().sqrt().float()  # Rounded right, which torch's own fp32 one is not always.
        root = root * (1 / math.sqrt(1 - beta2 ** group["step"]))
        return value - (first * (group["lr"] / (1 - beta1 ** group["step"]))) / (root + group["eps"])


class ReferenceAdamW(ReferenceAdam):
    options = {**ReferenceAdam.options, "weight_decay": 1e-2, "decoupled": True}


class ReferenceLion(Reference):
    kinds = ("exp_avg",)
    options = {"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0, "maximize": False}

    def formula(
        self, value: torch.Tensor, gradient: torch.Tensor, moments: dict[str, torch.Tensor], group: dict[str, Any]
    ) -> torch.Tensor:
        beta1, beta2 = group["betas"]
        moment = moments["exp_avg"]
        direction = moment * beta1 + gradient * (1 - beta1)
        moments["exp_avg"] = moment * beta2 + gradient * (1 - beta2)
        change = torch.where(direction > 0, group["lr"], torch.where(direction < 0, -group["lr"], direction))
        return value * (1 - group["lr"] * group["weight_decay"]) - change


def _dtype_of(name: str | torch.dtype) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, name) if isinstance(name, str) else name
    return dtype
