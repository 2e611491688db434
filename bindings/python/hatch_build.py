"""What hatchling asks while it builds. The package is of use only with the programs, so a build without them is
refused; with them the wheel is for one platform and every Python.
"""

from __future__ import annotations

import pathlib
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

REFUSAL = (
    "tierd: this folder alone makes no package that works: libtier, tierd and tierctl belong in it. "
    "Run `tools/dev package wheel` at the root of the repository and install dist/tierd-*.whl; "
    "to work on the sources, `pip install --editable` and set TIERD_BUILD to the build folder."
)


class BuildHook(BuildHookInterface):  # type: ignore[type-arg, misc]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        if self.target_name != "wheel" or not pathlib.Path(self.root, "tierd", "bundled", "tierd").exists():
            raise SystemExit(REFUSAL)
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-linux_x86_64"
