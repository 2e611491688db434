"""A real daemon whose SSD is lost between two starts: gone, foreign, wiped, cut short, or another tierd's."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
from typing import Any

import launcher
import pytest
import tierd

WEIGHTS = {f"layer-{i}": os.urandom((5 << 20) + 4097 * i) for i in range(6)}


class Node:
    """Two devices, and the settings of a daemon over them."""

    def __init__(self, sockets: pathlib.Path, disk: pathlib.Path) -> None:
        self.sockets = sockets
        self.disk = disk
        self.here, self.lost = disk / "a.ssd", disk / "b.ssd"
        self.kept = disk / "b.kept"

    def settings(self, data: str, *files: pathlib.Path) -> dict[str, dict[str, object]]:
        store = {"socket_directory": str(self.sockets), "data_directory": str(self.disk / data)}
        return {"daemon": store, "ssd": {"devices": [str(file) for file in files], "file_size": "128MiB"}}

    def start(self) -> Any:
        return launcher.start(self.sockets, arena="32MiB", settings=self.settings("data", self.here, self.lost))

    def lose(self, how: str) -> bytes | None:
        """What stands at the path now, where that is not tierd's to write."""
        self.lost.rename(self.kept)
        if how == "foreign":
            self.lost.write_bytes(os.urandom(128 << 20))
        elif how == "wiped":
            with self.lost.open("wb") as file:
                file.truncate(128 << 20)
        elif how == "swapped":
            with launcher.start(self.sockets, arena="32MiB", settings=self.settings("other", self.lost)) as daemon:
                persist(daemon, "others")
        elif how == "cut short":
            shutil.copyfile(self.kept, self.lost)
            os.truncate(self.lost, 64 << 20)
        return self.lost.read_bytes() if how in ("foreign", "swapped", "cut short") else None

    def bring_back(self) -> None:
        self.kept.replace(self.lost)


def persist(daemon: launcher.Running, job: str) -> None:
    with tierd.connect(job=job, socket=daemon.socket, named=True) as client:
        for key, value in WEIGHTS.items():
            client.put(key, value)
        client.persist()
    launcher.tierctl(daemon, "job", "remove", job)


def expect_whole(daemon: launcher.Running, job: str) -> None:
    with tierd.connect(job=job, socket=daemon.socket, mode="resume") as client:
        for key, value in WEIGHTS.items():
            assert bytes(client.get(key)) == value, (job, key)
    launcher.tierctl(daemon, "job", "remove", job)


def ask(daemon: launcher.Running, *words: str) -> Any:
    return json.loads(launcher.tierctl(daemon, *words, "--json"))


def lost_jobs(daemon: launcher.Running) -> list[str]:
    answer = ask(daemon, "job", "list", "--lost")
    assert answer["jobs"] == []
    return [job["name"] for job in answer["stored_manifests"]]


@pytest.mark.parametrize("how", ["gone", "foreign", "wiped", "swapped", "cut short"])
def test_the_daemon_starts_without_a_lost_device_and_its_jobs_return_with_it(
    how: str, socket_folder: pathlib.Path
) -> None:
    with launcher.disk_folder() as disk:
        node = Node(socket_folder, disk)
        with node.start() as daemon:
            persist(daemon, "training")
            uuid = ask(daemon, "device", "list")["devices"][1]["uuid"]
        found = node.lose(how)
        for new in ("new", "newer"):
            with node.start() as daemon:
                assert lost_jobs(daemon) == ["training"]
                missing = ask(daemon, "device", "list")["missing"]
                assert [(each["uuid"], each["path"]) for each in missing] == [(uuid, str(node.lost))]
                assert missing[0]["reason"] and missing[0]["lost_job_count"] == 1
                assert uuid in launcher.tierctl(daemon, "device", "list")
                assert launcher.metrics(daemon)["tierd_missing_devices"] == 1
                assert launcher.metrics(daemon)['tierd_degraded{cause="missing_device"}'] == 1
                for mode in ("resume", "resume_or_create", "create", "attach"):
                    with pytest.raises(tierd.IoError, match=f"{uuid}.*tierctl device purge"):
                        tierd.connect(job="training", socket=daemon.socket, named=True, mode=mode)
                persist(daemon, new)
                expect_whole(daemon, new)
            if found is not None:
                assert node.lost.read_bytes() == found, "not a byte of it is tierd's"
        node.bring_back()
        with node.start() as daemon:
            assert lost_jobs(daemon) == [] and ask(daemon, "device", "list")["missing"] == []
            for job in ("training", "new", "newer"):
                expect_whole(daemon, job)


def test_a_purge_gives_the_device_up_and_nothing_else(socket_folder: pathlib.Path) -> None:
    with launcher.disk_folder() as disk:
        node = Node(socket_folder, disk)
        with node.start() as daemon:
            launcher.tierctl(daemon, "device", "drain", "1")
            persist(daemon, "whole")
            launcher.tierctl(daemon, "device", "drain", "1", "--undo")
            persist(daemon, "training")
            uuid = ask(daemon, "device", "list")["devices"][1]["uuid"]
        node.lose("gone")
        with node.start() as daemon:
            assert lost_jobs(daemon) == ["training"]
            refused = launcher.run_tierctl(daemon, "device", "purge", uuid)
            assert refused.returncode == 5 and re.search(r"^training +\d+ ", refused.stdout, re.M), refused
            said = f"what 1 job persisted on the missing device {uuid} ({node.lost}) would be lost for good; to give it"
            assert said in refused.stderr and f"type: tierctl device purge --force {uuid}" in refused.stderr, refused
            silent = launcher.run_tierctl(daemon, "--json", "device", "purge", uuid)
            assert (silent.returncode, silent.stdout) == (5, "") and said in silent.stderr, silent
            for words in ([], ["--force"]):
                absent = launcher.run_tierctl(daemon, "device", "purge", "absent", *words)
                assert absent.returncode == 3 and "no device absent is missing" in absent.stderr, absent
                other = launcher.run_tierctl(daemon.directory / "control.sock", "device", "purge", uuid, *words)
                assert other.returncode == 5 and "only an administrator may purge" in other.stderr, other
            assert lost_jobs(daemon) == ["training"], "nothing is given up yet"
            purged = ask(daemon, "device", "purge", "--force", uuid)
            assert purged["purged"] == uuid and purged["jobs"] == [f"{os.getuid()}/training"]
            (unused,) = ask(daemon, "device", "list")["missing"]
            assert lost_jobs(daemon) == [] and (unused["uuid"], unused["path"]) == ("", str(node.lost))
            assert "no job is lost" in launcher.tierctl(daemon, "job", "list", "--lost")
            expect_whole(daemon, "whole")
            persist(daemon, "training")
            assert not node.lost.exists(), "nothing is made in the place of what is needed before it is given up"
        with node.start() as daemon:
            assert ask(daemon, "device", "list")["missing"] == [] and node.lost.exists()
            expect_whole(daemon, "training")
            expect_whole(daemon, "whole")


def test_with_nothing_persisted_it_just_starts(socket_folder: pathlib.Path) -> None:
    with launcher.disk_folder() as disk:
        node = Node(socket_folder, disk)
        with node.start():
            pass
        node.lose("gone")
        with node.start() as daemon:
            assert len(ask(daemon, "device", "list")["devices"]) == 2 and ask(daemon, "device", "list")["missing"] == []
        node.lost.unlink()
        node.kept.unlink()
        node.lost.write_bytes(b"foreign" * 1000)
        with node.start() as daemon:
            missing = ask(daemon, "device", "list")["missing"]
            assert [(each["uuid"], each["path"]) for each in missing] == [("", str(node.lost))]
            persist(daemon, "new")


def test_an_index_directory_that_is_new_leaves_the_devices_alone(socket_folder: pathlib.Path) -> None:
    """Without the index nothing is known of a path: what a device holds is another index's, and refuses the start."""
    with launcher.disk_folder() as disk:
        node = Node(socket_folder, disk)
        with node.start() as daemon:
            persist(daemon, "training")
        shutil.move(disk / "data" / "index.mdb", disk / "index.kept")
        with pytest.raises(tierd.Invalid, match="belongs to the index"), node.start():
            pass
        shutil.move(disk / "index.kept", disk / "data" / "index.mdb")
        with node.start() as daemon:
            expect_whole(daemon, "training")


def test_an_index_that_is_lost_before_anything_was_persisted_is_made_again(socket_folder: pathlib.Path) -> None:
    with launcher.disk_folder() as disk:
        node = Node(socket_folder, disk)
        with node.start() as daemon, tierd.connect(job="swapping", socket=daemon.socket) as client:
            for key in range(12):
                client.put(key, bytes([key]) * (8 << 20))
            uuids = [each["uuid"] for each in ask(daemon, "device", "list")["devices"]]
        (disk / "data/index.mdb").unlink()
        with node.start() as daemon:
            assert [each["uuid"] for each in ask(daemon, "device", "list")["devices"]] == uuids
            assert "there was no index" in (daemon.directory / "tierd.log").read_text()
            persist(daemon, "training")
        with node.start() as daemon:
            expect_whole(daemon, "training")
            launcher.tierctl(daemon, "job", "remove", "--purge", "training")
        (disk / "data/index.mdb").unlink()
        with node.start() as daemon:
            persist(daemon, "again")
        (disk / "data/index.mdb").unlink()
        with pytest.raises(tierd.Invalid, match="belongs to the index"), node.start():
            pass


def test_a_check_beside_the_daemon_reads_its_index_and_changes_nothing(
    tmp_path: pathlib.Path, socket_folder: pathlib.Path
) -> None:
    with launcher.disk_folder() as disk:
        node = Node(socket_folder, disk)
        node.lost = disk / "mount/b.ssd"
        node.lost.parent.mkdir()
        with node.start() as daemon:
            persist(daemon, "job")
        shutil.rmtree(node.lost.parent)
        settings = node.settings("data", node.here, node.lost)
        lines = [
            f"[{name}]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in settings[name].items()) for name in settings
        ]
        config = tmp_path / "tierd.toml"
        config.write_text("".join(lines))
        with node.start() as daemon:
            index = disk / "data/index.mdb"
            before = hashlib.sha256(index.read_bytes()).digest(), index.stat().st_mtime_ns
            command = [launcher.need_build(), "--check-config", "--config", config]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
            assert (done.returncode, done.stderr) == (0, "")
            assert f"{node.lost}: " in done.stdout and "starts without it" in done.stdout
            assert (hashlib.sha256(index.read_bytes()).digest(), index.stat().st_mtime_ns) == before
            persist(daemon, "later")
            assert lost_jobs(daemon) == ["job"]
