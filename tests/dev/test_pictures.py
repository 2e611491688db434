"""The pictures of docs/images: that each is what its list says, and how the screen of `tierctl top` becomes one."""

from __future__ import annotations

import pathlib
import re
import struct
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs/images"
sys.path.insert(0, str(ROOT / "tools/docs"))

import pictures  # noqa: E402


def test_the_last_whole_screen_is_drawn_and_none_of_the_cursor() -> None:
    screen = "\x1b[H{}\x1b[K\r\n\x1b[1mJOB\x1b[0m  {}\x1b[K\x1b[J"
    written = "\x1b[?1049h\x1b[?25l" + screen.format("first", "a") + screen.format("second", "b") + "\x1b[Hhalf of a"
    assert pictures.last_frame(written) == "second\n\x1b[1mJOB\x1b[0m  b"


def test_a_drawing_has_the_text_and_fetches_nothing() -> None:
    drawn = pictures.drawing("\x1b[1mJOB\x1b[0m  train", 40, "tierctl top")
    assert "JOB" in drawn and "train" in drawn and "tierctl" in drawn
    assert "url(http" not in drawn and "@font-face" not in drawn


def test_each_picture_is_in_the_list_and_has_a_size() -> None:
    listed = set(re.findall(r"`([\w-]+\.(?:png|svg))`", (IMAGES / "README.md").read_text()))
    assert {path.name for path in IMAGES.iterdir()} == {"README.md", *listed}
    for path in IMAGES.glob("*.png"):
        content = path.read_bytes()
        width, height = struct.unpack(">II", content[16:24])
        assert content.startswith(b"\x89PNG\r\n\x1a\n") and width >= 800 and height >= 300, path.name


def test_without_a_browser_the_verb_says_what_is_missing() -> None:
    script = f"""
        set -euo pipefail
        source {ROOT}/tools/dev.d/say.sh
        source {ROOT}/tools/dev.d/pictures.sh
        command() {{ return 1; }}
        dev_build() {{ exit 1; }}
        dev_pictures
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "needs chromium" in done.stdout + done.stderr, done.stderr
