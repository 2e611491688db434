"""docs/configuration.md is what tools/dev.d/configuration_page.py makes of the table of options."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/dev.d"))

import configuration_page  # noqa: E402

PAGE = (ROOT / "docs/configuration.md").read_text()
PROGRAM = pathlib.Path(os.environ.get("TIERD_BUILD", ROOT / "build/release")) / "daemon/tierd"


def test_the_page_is_up_to_date() -> None:
    if not PROGRAM.exists():
        pytest.skip(f"needs a build: {PROGRAM} is not there")
    printed = subprocess.run([PROGRAM, "--print-default-config"], capture_output=True, text=True, check=True).stdout
    assert configuration_page.page(printed) == PAGE, "run tools/dev.d/configuration_page.py"
    script = ROOT / "tools/dev.d/configuration_page.py"
    assert subprocess.run([script], input=printed, capture_output=True, text=True, check=True).stdout == PAGE


def test_the_page_has_every_option_of_the_table() -> None:
    table = (ROOT / "daemon/config/options.cc").read_text()
    keys = re.findall(r'^    \{"(\w+\.\w+)", Kind::', table, re.MULTILINE)
    assert len(keys) > 30 and re.findall(r"^### (\S+)$", PAGE, re.MULTILINE) == keys


@pytest.mark.parametrize(
    ("printed", "refusal"),
    [("# x\n\n[arena]\nminimum = 0\n", "nothing explains"), ("# x\n\n# y\nminimum = 0\n", "nothing explains"),
     ("# x\n\n[arena]\nnonsense\n", "no line")],
)  # fmt: skip
def test_what_is_not_explained_is_refused(printed: str, refusal: str) -> None:
    with pytest.raises(ValueError, match=refusal):
        configuration_page.page(printed)
