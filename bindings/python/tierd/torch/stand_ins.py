"""StandIns: lets a library save a model in tierd under its own names and rules, without the model's values.

The idea: in place of its values, each entry of the state dict is one integer, its number; tied weights have the same
one. The library drops entries, renames them, and writes small files. ``fill`` reads from these which entry it saved
under which name, and writes the files again with the values, tensor by tensor.
"""

from __future__ import annotations

import collections
import os
import pathlib

import torch

from ..errors import Invalid
from .checkpoint_file import save_weights
from .file_tensor import read_safetensors
from .safetensors_file import SafetensorsFile


class StandIns:
    """``state_dict`` is for the library. Use between steps, from the thread that trains."""

    def __init__(self, model: torch.nn.Module) -> None:
        numbers: dict[int, torch.Tensor] = {}
        self._values: list[torch.Tensor] = []
        self.state_dict: collections.OrderedDict[str, torch.Tensor] = collections.OrderedDict()
        for name, value in model.state_dict(keep_vars=True).items():
            if not isinstance(value, torch.Tensor):
                raise Invalid(f"{name!r} in the state of this model is a {type(value).__name__}, not a tensor")
            if id(value) not in numbers:
                numbers[id(value)] = torch.tensor([len(self._values)], device="cpu")
                self._values.append(value)
            self.state_dict[name] = numbers[id(value)]

    def fill(self, folder: str | os.PathLike[str]) -> None:
        """Gives the files that the library has written below ``folder`` the values."""
        for path in pathlib.Path(folder).rglob("*.safetensors"):
            found = read_safetensors(path)
            if all(value.dtype is torch.int64 and value.shape == (1,) for value in found.values()):
                values = {name: self._values[int(number)] for name, number in found.items()}
                save_weights(values, path, _metadata(path))


def _metadata(path: pathlib.Path) -> dict[str, str]:
    with SafetensorsFile(path) as file:
        return file.metadata
