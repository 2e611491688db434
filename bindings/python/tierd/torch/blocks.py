"""Blocks: the modules of a model that are run one after the other, such as the layers of a transformer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch

from ..errors import Invalid

Blocks: TypeAlias = "str | Sequence[torch.nn.Module] | None"
_CHAINS = (torch.nn.ModuleList, torch.nn.Sequential)
_WHAT = "a list of modules, or the name of a ModuleList or Sequential of the model"


def blocks_of(model: torch.nn.Module, blocks: Blocks = None) -> list[torch.nn.Module]:
    """The modules that ``blocks`` gives or names. By default the longest chain (a ``ModuleList`` or ``Sequential`` of
    two modules or more) of a single class, that is not inside of another such chain; where there is none, the chain
    with the most parameters."""
    if blocks is None:
        return list(_found(model))
    chosen = _named(model, blocks) if isinstance(blocks, str) else blocks
    if not isinstance(chosen, (*_CHAINS, list, tuple)):
        raise Invalid(f"blocks is a {type(chosen).__name__}: pass {_WHAT}")
    inside = set(model.modules())
    for block in chosen:
        if not isinstance(block, torch.nn.Module) or block not in inside:
            raise Invalid(f"a {type(block).__name__} of blocks is not a module of the model: pass {_WHAT}")
    if not chosen:
        raise Invalid(f"blocks is empty: pass {_WHAT}")
    return list(chosen)


def _named(model: torch.nn.Module, name: str) -> torch.nn.Module:
    try:
        return model.get_submodule(name)
    except AttributeError as error:
        raise Invalid(f"the model has no module {name!r}: pass {_WHAT}") from error


def _found(model: torch.nn.Module) -> torch.nn.ModuleList | torch.nn.Sequential:
    chains = [module for module in model.modules() if isinstance(module, _CHAINS) and len(module) >= 2]
    if not chains:
        raise Invalid(f"no ModuleList or Sequential of two modules was found in the model: pass blocks=, {_WHAT}")
    of_one_class = [chain for chain in chains if len({type(block) for block in chain}) == 1]
    inside = {module for chain in of_one_class for block in chain for module in block.modules()}
    outer = [chain for chain in of_one_class if chain not in inside]
    if outer:
        return max(outer, key=len)
    return max(chains, key=lambda chain: sum(parameter.numel() for parameter in chain.parameters()))
