"""`--check-config` refuses of SSD devices and the index what the start refuses, with the same status and sentence."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import launcher
import pytest
import tierd

MIB = 1 << 20


class Node:
    """A configuration, and what its devices and its index are made into between two starts."""

    def __init__(self, sockets: pathlib.Path, disk: pathlib.Path) -> None:
        self.sockets, self.disk = sockets, disk
        self.devices = [disk / "a.ssd", disk / "b.ssd"]
        self.index = disk / "data/index.mdb"

    def settings(self, size: str = "128MiB") -> dict[str, dict[str, Any]]:
        return {
            "daemon": {"socket_directory": str(self.sockets), "data_directory": str(self.disk / "data")},
            "arena": {"maximum": "32MiB"},
            "ssd": {"devices": [str(device) for device in self.devices], "file_size": size},
            "metrics": {"listen": "127.0.0.1:0"},
        }

    def start(self) -> Any:
        return launcher.start(self.sockets, settings=self.settings())

    def persist(self) -> None:
        with self.start() as daemon:
            with tierd.connect(job="training", socket=daemon.socket, named=True) as client:
                for key in range(8):
                    client.put(key, bytes([key]) * (4 * MIB))
                client.persist()
            launcher.tierctl(daemon, "job", "remove", "training")

    def run(self, *more: str, size: str = "128MiB") -> subprocess.CompletedProcess[str]:
        config = self.disk / "tierd.toml"
        sections = self.settings(size)
        lines = []
        for name, options in sections.items():
            lines += [f"[{name}]\n", *(f"{key} = {json.dumps(value)}\n" for key, value in options.items())]
        config.write_text("".join(lines))
        command = [launcher.need_build(), "--config", config, *more]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=60, env=launcher.environment()
        )

    def expect_refused(self, sentence: str) -> None:
        for more in (["--check-config"], []):
            done = self.run(*more)
            assert done.returncode == os.EX_CONFIG and sentence in done.stderr, (more, done)


@pytest.fixture
def node(socket_folder: pathlib.Path) -> Iterator[Node]:
    with launcher.disk_folder() as disk:
        yield Node(socket_folder, disk)


def test_one_device_that_is_named_twice(node: Node) -> None:
    node.persist()
    first, second = node.devices
    node.devices = [first, second, first]
    node.expect_refused(f"{first} is named twice")
    link = node.disk / "link.ssd"
    link.symlink_to(first)
    node.devices = [first, second, link]
    node.expect_refused(f"{first} and {link} are one device")
    link.unlink()
    shutil.copyfile(first, link)
    node.expect_refused("carry the same uuid")


def test_a_reload_refuses_one_device_that_is_named_twice(node: Node) -> None:
    with node.start() as daemon:
        config = daemon.directory / "tierd.toml"
        text = config.read_text()
        link = node.disk / "link.ssd"
        link.symlink_to(node.devices[0])
        assert str(node.devices[1]) in text
        for other, sentence in ((node.devices[0], "is named twice"), (link, "are one device")):
            config.write_text(text.replace(str(node.devices[1]), str(other)))
            diff = launcher.run_tierctl(daemon.directory / "admin.sock", "config", "diff")
            assert diff.returncode == 1 and sentence in diff.stdout, diff


def test_an_index_that_is_gone_or_empty_beside_devices_that_it_names(node: Node) -> None:
    node.persist()
    kept = node.disk / "index.kept"
    node.index.rename(kept)
    node.expect_refused("belongs to the index")
    node.index.touch()
    node.expect_refused("belongs to the index")
    node.index.unlink()
    kept.rename(node.index)
    with node.start() as daemon, tierd.connect(job="training", socket=daemon.socket, mode="resume") as client:
        assert bytes(client.get(7)) == b"\7" * (4 * MIB)


def test_a_device_that_was_cut_short_where_tierd_never_had_it(node: Node) -> None:
    node.persist()
    elsewhere = node.disk / "elsewhere.ssd"
    node.devices[1].rename(elsewhere)
    os.truncate(elsewhere, 64 * MIB)
    node.devices = [*node.devices, elsewhere]
    node.expect_refused("it was cut short")
    assert elsewhere.stat().st_size == 64 * MIB


def test_files_on_one_disk_are_promised_its_room_once(node: Node) -> None:
    """Each of two fits by itself, and both together do not."""
    node.persist()
    free = shutil.disk_usage(node.disk).free
    size = f"{free * 6 // 10 // MIB}MiB"
    done = node.run("--check-config", size=size)
    assert done.returncode == 0, done
    grows, keeps = (line for line in done.stdout.splitlines() if line.startswith("ssd.file_size: "))
    assert f"{node.devices[0]} grows from 128 MiB" in grows, done.stdout
    assert f"{node.devices[1]} keeps its 128 MiB" in keeps and "do not fit into" in keeps, done.stdout
