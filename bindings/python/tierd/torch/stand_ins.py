"""StandIns: lets a library save a model in tierd under its own names and rules, without the model's values.

The idea: in place of its values, each entry of the state dict is two integers, the mark of this object and the entry's
number; tied weights have the same ones. The library drops entries, renames them, and writes small files. ``fill`` reads
from these which entry it saved under which name, and writes the files again with the values, tensor by tensor. Files
without its mark are another model's, or another save's.
"""

from __future__ import annotations

import collections
import os
import pathlib
import secrets

import torch

from ..errors import Invalid
from .checkpoint_file import save_weights
from .safetensors_file import SafetensorsFile


class StandIns:
    """``state_dict`` is for the library. Use between steps, from the thread that trains."""

    def __init__(self, model: torch.nn.Module) -> None:
        numbers: dict[int, torch.Tensor] = {}
        self._mark = secrets.randbits(63)
        self._values: list[torch.Tensor] = []
        self.state_dict: collections.OrderedDict[str, torch.Tensor] = collections.OrderedDict()
        for name, value in model.state_dict(keep_vars=True).items():
            if not isinstance(value, torch.Tensor):
                raise Invalid(f"{name!r} in the state of this model is a {type(value).__name__}, not a tensor")
            if id(value) not in numbers:
                numbers[id(value)] = torch.tensor([self._mark, len(self._values)], device="cpu")
                self._values.append(value)
            self.state_dict[name] = numbers[id(value)]

    def fill(self, folder: str | os.PathLike[str]) -> None:
        """Gives the files that the library has written below ``folder`` the values."""
        for path in pathlib.Path(folder).rglob("*.safetensors"):
            found, metadata = self._found(path)
            if found:
                save_weights({name: self._values[number] for name, number in found.items()}, path, metadata)

    def _found(self, path: pathlib.Path) -> tuple[dict[str, int], dict[str, str]]:
        """The numbers in a file of its own; none in any other one."""
        try:
            with SafetensorsFile(path) as file:
                if any(each.dtype is not torch.int64 or each.shape != (2,) for each in file.entries.values()):
                    return {}, {}
                pairs = {name: file.tensor(name).tolist() for name in file.entries}
                own = all(mark == self._mark for mark, _ in pairs.values())
                return {name: number for name, (_, number) in pairs.items()} if own else {}, file.metadata
        except Invalid:  # Left by a save that was ended.
            return {}, {}
