"""The `docker run` commands of the pages, which need a runtime and an image: each of their options, places and users is
held to what the units, libtier and tierd have. An option that no check here knows fails."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator

import launcher
import pytest
import shell_words
from launcher import ROOT
from page_blocks import blocks, user_pages

import tierd.places

IMAGE = "IMAGE"  # Of the pages: the reader's own.
VALUED = ("--user", "-v", "--ulimit", "--memory")  # With a value behind; what each has to be is checked below.
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
SOCKET = str(tierd.places.SYSTEM / "tierd.sock")


def commands() -> list[list[str]]:
    """The words of each behind `docker run`."""
    typed = (block.text for page in user_pages() for block in blocks(page) if block.language == "sh")
    words = (words for text in typed for words in shell_words.commands(text))
    return [found[2:] for found in words if found[:2] == ["docker", "run"]]


def split(command: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """The options with their values, and what runs in the image."""
    at = command.index(IMAGE)
    return list(zip(command[:at:2], command[1:at:2], strict=True)), command[at + 1 :]


def values(command: list[str], option: str) -> list[str]:
    return [value for name, value in split(command)[0] if name == option]


def settings(command: list[str]) -> dict[str, str]:
    """What a tierd in the image is set to."""
    words = split(command)[1]
    return dict(words[at + 1].split("=", 1) for at, word in enumerate(words) if word == "--set")


def of_program(name: str) -> Iterator[list[str]]:
    return (command for command in commands() if split(command)[1][0] == name)


def size(text: str) -> int:
    found = re.fullmatch(r"(\d+)([KMG])(i?B)?", text.upper().replace("IB", "B"))
    assert found, text
    return int(found[1]) * UNITS[found[2]]


def test_the_pages_have_one_for_a_trainer_and_one_for_the_daemon() -> None:
    assert [split(command)[1][0] for command in commands()] == ["python3", "tierd"]


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_each_option_is_one_of_docker_and_one_that_is_checked_here(command: list[str]) -> None:
    names = [name for name, _ in split(command)[0]]
    assert set(names) <= set(VALUED)
    if shutil.which("docker") is None:
        pytest.skip("needs docker: its command line alone, for what it knows")
    known = subprocess.run(["docker", "run", "--help"], capture_output=True, text=True, check=True).stdout
    assert [name for name in names if not re.search(rf"^ +(-\w, )?{name}[ ,]", known, re.MULTILINE)] == []


def test_a_trainer_finds_the_socket_of_the_unit_where_libtier_looks() -> None:
    (command,) = of_program("python3")
    assert values(command, "-v") == [f"{SOCKET}:{SOCKET}"], "the socket alone: the folder has admin.sock as well"
    assert f"ListenSequentialPacket={SOCKET}\n" in (ROOT / "deploy/systemd/tierd.socket").read_text()
    places = (ROOT / "proto/socket_places.h").read_text()
    assert f'kSystemSocketDirectory[] = "{tierd.places.SYSTEM}"' in places
    (user,) = values(command, "--user")
    assert user.isdecimal() and int(user) > 0, "a user of the host, and not root, who would be root to tierd"


def test_the_daemon_keeps_its_data_in_the_volume_and_its_arena_below_the_limit() -> None:
    (command,) = of_program("tierd")
    (volume,) = values(command, "-v")
    assert volume.split(":")[1:] == [settings(command)["daemon.data_directory"]]
    (memory,) = values(command, "--memory")
    assert size(settings(command)["arena.maximum"]) < size(memory), "the daemon itself needs the rest"
    assert values(command, "--ulimit") == ["memlock=-1"], "the arena is locked"


def test_the_daemon_takes_its_options(tmp_path: os.PathLike[str]) -> None:
    """As in a container: without HOME. The size of the arena and the folder are a host's own."""
    (command,) = of_program("tierd")
    words = split(command)[1][1:]
    assert words == [word for name, value in settings(command).items() for word in ("--set", f"{name}={value}")]
    known = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_STATE_HOME")}
    more = {"daemon.data_directory": tmp_path, "arena.maximum": "25%", "ssd.devices": '["none"]'}
    replaced = [word for name, value in {**settings(command), **more}.items() for word in ("--set", f"{name}={value}")]
    done = subprocess.run(
        [launcher.need_build(), "--check-config", *replaced], env=known, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "no mistake found" in done.stdout, done.stdout + done.stderr
