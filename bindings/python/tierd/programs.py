"""The wheel's commands: they run the programs ``tierd`` and ``tierctl`` that the wheel contains."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from .daemon import find_program


def tierd() -> NoReturn:
    _become("tierd")


def tierctl() -> NoReturn:
    _become("tierctl")


def _become(name: str) -> NoReturn:
    program = find_program(name)
    os.execv(program, [program, *sys.argv[1:]])
