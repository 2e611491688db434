"""Arithmetic: in which type an optimizer keeps its state, and how it rounds; and libtier's kernels for it.

torch's fused kernels keep the state in the type of the parameter and round to nearest. Anything else is computed by
``tier_optimizer_update`` of libtier, whose header states the formulas: in fp32, without fused multiply-add, then
rounded to the types. Its result does not depend on slices and threads.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch

from .. import library
from ..errors import Invalid
from .slice_update import Operands

HALVES = (torch.bfloat16, torch.float16)  # What may have a master copy.
STATE_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
ROUNDINGS = ("nearest", "stochastic")
_ELEMENTS = {dtype: library.ELEMENTS[name] for name, dtype in STATE_DTYPES.items()}
_SEEDS = 1 << 32


@dataclasses.dataclass(frozen=True, slots=True)
class Arithmetic:
    """``seed`` and the number of a parameter are the key of the random numbers of ``stochastic``; step and element are
    counted."""

    state_dtype: torch.dtype | None = None  # None: the parameter's.
    stochastic: bool = False
    seed: int = 0
    master_weights: bool = False

    @classmethod
    def of(cls, options: dict[str, Any]) -> Arithmetic:
        """Those of an optimizer's options. ``Invalid`` where they do not exist or do not go together."""
        given, rounding = options.get("state_dtype"), options.get("rounding", "nearest")
        seed, master_weights = options.get("seed", 0), bool(options.get("master_weights"))
        dtype = str(given).removeprefix("torch.") if isinstance(given, torch.dtype) else given
        if dtype is not None and dtype not in STATE_DTYPES:
            raise Invalid(f"state_dtype is {given!r}: None for the parameter's, or one of {', '.join(STATE_DTYPES)}")
        if rounding not in ROUNDINGS:
            raise Invalid(f"rounding is {rounding!r}: one of {', '.join(ROUNDINGS)}")
        if not isinstance(seed, int) or not 0 <= seed < _SEEDS:
            raise Invalid(f"seed is {seed!r}: a number from 0 to {_SEEDS - 1}")
        if master_weights and rounding == "stochastic":
            raise Invalid("stochastic rounding is for parameters without master_weights: give one of the two")
        if master_weights and dtype == "bfloat16":
            raise Invalid("master_weights keep an fp32 state: leave out state_dtype, or the master weights")
        state_dtype = None if dtype is None else STATE_DTYPES[dtype]
        return cls(state_dtype, rounding == "stochastic", seed, master_weights)

    def check(self, parameter: torch.Tensor) -> None:
        """``Invalid`` unless a parameter of this dtype can be updated so."""
        if self.stochastic and parameter.dtype != torch.bfloat16:
            raise Invalid(
                f"stochastic rounding is for bfloat16, and a parameter is {parameter.dtype}: give this one to an "
                "optimizer of its own"
            )
        if self.state_dtype is not None and not self.has_master(parameter) and parameter.dtype not in _ELEMENTS:
            raise Invalid(f"state_dtype is for parameters of float32 and bfloat16, and one is {parameter.dtype}")

    def has_master(self, parameter: torch.Tensor) -> bool:
        return self.master_weights and parameter.dtype in HALVES

    def state_of(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype of the state of a parameter of ``dtype``."""
        if self.master_weights and dtype in HALVES:
            return torch.float32
        return dtype if self.state_dtype is None else self.state_dtype

    def is_torchs(self, operands: Operands) -> bool:
        """Whether torch's fused kernel computes this."""
        dtype = operands.exact()[0][0].dtype  # A closure over the values would outlast a cleared frame.
        return not self.stochastic and all(each.dtype == dtype for each in operands.of("exp_avg"))

    def record(self) -> dict[str, Any]:
        """What a run that is resumed must have in common with it."""
        rounding = {"rounding": "stochastic", "seed": self.seed} if self.stochastic else {"rounding": "nearest"}
        names = [name for name, dtype in STATE_DTYPES.items() if dtype == self.state_dtype]
        return {"state_dtype": names[0] if names else None, "master_weights": self.master_weights, **rounding}

    def kernel_call(
        self, options: library.OptimizerOptions, operands: Operands, numbers: dict[torch.Tensor, int]
    ) -> Callable[[], object]:
        """libtier's kernel over the operands, by one call of C. ``options`` state algorithm and factors; ``numbers``
        are those of the parameters."""
        values, gradients = operands.exact()
        options.struct_size = ctypes.sizeof(options)
        options.value_type = _ELEMENTS[values[0].dtype]
        options.state_type = _ELEMENTS[operands.of("exp_avg")[0].dtype]
        options.stochastic, options.seed = self.stochastic, self.seed
        options.threads = torch.get_num_threads()
        slices = (library.OptimizerSlice * len(values))()
        for index, each in enumerate(operands.unit):
            assert values[index].is_contiguous() and gradients[index].is_contiguous()
            filled = slices[index]
            filled.values, filled.gradients = values[index].data_ptr(), gradients[index].data_ptr()
            for kind, views in operands.state.items():
                if kind in _KINDS:
                    setattr(filled, kind, views[index].data_ptr())
            filled.count, filled.first = each.count, each.begin
            filled.parameter = numbers[each.state.parameter]
            filled.step = int(operands.steps[index].item())
        libtier = library.load()
        # What could be refused is refused here: the kernel and the note that it has run are one step of C.
        if code := libtier.tier_optimizer_update(ctypes.byref(options), None, 0):
            raise library.failure(libtier, code, {})
        return functools.partial(libtier.tier_optimizer_update, ctypes.byref(options), slices, len(slices))


_KINDS = {field[0] for field in library.OptimizerSlice._fields_}
