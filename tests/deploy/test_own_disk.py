"""The operator guide's section "A disk of its own", typed under a real systemd: a file on a disk of its own and a whole
block device, both loop devices here. own_disk.sh holds the steps."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator

import pytest
from container import Container
from page_blocks import Block, blocks, run_by
from surroundings import ROOT, find_tool

PAGE = "docs/operator-guide.md"
TITLE = "### A disk of its own\n"
LANGUAGES = ["sh", "toml", "ini"]  # Of each of its two parts, in this order.
DEVICE = "/dev/nvme1n1"  # Of the page.
ARENA = '[arena]\nmaximum = "256MiB"\n'
STEPS = 19


def section() -> list[Block]:
    text = (ROOT / PAGE).read_text()
    first = text.count("\n", 0, text.index(TITLE)) + 1
    last = first + len(re.split(r"^#", text.split(TITLE)[1], flags=re.MULTILINE)[0].splitlines())
    return [block for block in blocks(PAGE) if first < block.line <= last]


@contextlib.contextmanager
def loop_device(file: pathlib.Path, size: int) -> Iterator[str]:
    """A block device of so many bytes, over a sparse file."""
    with file.open("wb") as made:
        made.truncate(size)
    command = [find_tool("losetup", "apt-get install mount"), "--find", "--show", "--direct-io=on", str(file)]
    attached = subprocess.run(command, capture_output=True, text=True, check=False)
    if attached.returncode != 0:
        pytest.skip(f"needs loop devices: {attached.stderr.strip()}")
    device = attached.stdout.strip()
    try:
        yield device
    finally:
        subprocess.run([command[0], "--detach", device], check=True)


def node_of(device: str, path: pathlib.Path) -> pathlib.Path:
    """Another node of that device, with the owner and mode that udev gives to a disk."""
    os.mknod(path, stat.S_IFBLK | 0o660, os.stat(device).st_rdev)
    shutil.chown(path, "root", "disk")
    path.chmod(0o660)
    return path


@contextlib.contextmanager
def mounted(device: str, folder: pathlib.Path) -> Iterator[pathlib.Path]:
    subprocess.run([find_tool("mkfs.ext4"), "-q", device], check=True)
    folder.mkdir()
    done = subprocess.run(["mount", device, str(folder)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"needs mounts: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_the_section_has_two_ways_each_with_commands_a_configuration_and_a_drop_in() -> None:
    assert [block.language for block in section()] == LANGUAGES * 2
    assert [str(block) for block in section() if block.language == "sh"] == [str(block) for block in run_by(__file__)]
    assert all(name in section()[i].text for i, name in enumerate(["/srv/tierd"] * 3 + ["nvme1n1"] * 3))


def test_the_service_serves_from_a_disk_of_its_own(container: Container, disk: pathlib.Path, deb: pathlib.Path) -> None:
    for block, name in zip(section(), ("file", "file", "file", "device", "device", "device"), strict=True):
        text = ARENA + block.text if block.language == "toml" else block.text
        (container.drill / f"{name}.{block.language}").write_text(text)
    with (
        loop_device(disk / "first.img", 16 << 30) as first,
        loop_device(disk / "second.img", 4 << 30) as second,
        mounted(first, disk / "srv") as srv,
    ):
        subprocess.run([find_tool("mkfs.ext4"), "-q", second], check=True)
        binds = (f"{srv}:/srv", f"{node_of(second, disk / 'node')}:{DEVICE}")
        dataclasses.replace(container, binds=binds).run("own_disk.sh", STEPS)
