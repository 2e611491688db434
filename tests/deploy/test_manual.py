"""The manual pages: read without a warning, and with examples that the programs know."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest
from surroundings import ROOT

PAGES = ("tierd.8", "tierd-smart.8", "tierctl.1")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_read_without_a_warning(page: str) -> None:
    if shutil.which("man") is None:
        pytest.skip("needs man: Debian's man-db")
    found = subprocess.run(
        ["man", "--warnings", "--encoding=UTF-8", "--local-file", ROOT / "deploy/man" / page],
        env=dict(os.environ, LC_ALL="C.UTF-8", MANWIDTH="80", MANROFFSEQ=""),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stderr) == (0, "") and "EXAMPLES" in found.stdout


@pytest.mark.parametrize("page", PAGES)
def test_options_of_the_examples_are_explained_on_the_page(page: str) -> None:
    text = (ROOT / "deploy/man" / page).read_text().replace("\\-", "-")
    (examples,) = re.findall(r"^\.SH EXAMPLES\n(.*?)^\.SH", text, re.MULTILINE | re.DOTALL)
    commands = re.findall(rf"^\.B ({page.split('.')[0]} .*)$", examples, re.MULTILINE)
    assert len(commands) > 2
    for option in re.findall(r"--[a-z-]+", " ".join(commands)):
        assert option in text.replace(examples, ""), option
