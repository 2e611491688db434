"""`ssd.file_size` changes between the starts of a real daemon: the file grows, keeps its size, and loses nothing."""

from __future__ import annotations

import hashlib
import os
import pathlib
import signal
import subprocess
from typing import Any

import launcher
import tierd

MIB = 1 << 20
WEIGHTS = {f"layer-{i}": os.urandom((5 << 20) + 4097 * i) for i in range(6)}


def settings(sockets: pathlib.Path, disk: pathlib.Path, size: str) -> dict[str, dict[str, object]]:
    return {
        "daemon": {"socket_directory": str(sockets), "data_directory": str(disk / "data")},
        "ssd": {"file_size": size},
        "metrics": {"listen": "127.0.0.1:0"},
    }


def start(sockets: pathlib.Path, disk: pathlib.Path, size: str) -> Any:
    return launcher.start(sockets, arena="32MiB", settings=settings(sockets, disk, size))


def persist(daemon: launcher.Running) -> None:
    with tierd.connect(job="training", socket=daemon.socket, named=True) as client:
        for key, value in WEIGHTS.items():
            client.put(key, value)
        client.persist()
    launcher.tierctl(daemon, "job", "remove", "training")


def expect_whole(daemon: launcher.Running) -> None:
    with tierd.connect(job="training", socket=daemon.socket, mode="resume") as client:
        for key, value in WEIGHTS.items():
            assert hashlib.sha256(bytes(client.get(key))).digest() == hashlib.sha256(value).digest(), key
    launcher.tierctl(daemon, "job", "remove", "training")


def capacity(daemon: launcher.Running) -> float:
    return launcher.metrics(daemon)['tierd_device_capacity_bytes{device="0"}']


def log(daemon: launcher.Running) -> str:
    return (daemon.directory / "tierd.log").read_text()


def check_config(daemon: launcher.Running) -> str:
    """Of the file as it is, beside the daemon."""
    program = str(launcher.need_build())
    config = str(daemon.directory / "tierd.toml")
    done = subprocess.run([program, "--check-config", "--config", config], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    return done.stdout


def test_a_larger_one_grows_the_file_and_what_was_persisted_is_there(socket_folder: pathlib.Path) -> None:
    with launcher.disk_folder() as disk:
        with start(socket_folder, disk, "128MiB") as daemon:
            persist(daemon)
            assert capacity(daemon) == 126 * MIB
        for _ in range(2):
            with start(socket_folder, disk, "256MiB") as daemon:
                assert capacity(daemon) == 254 * MIB
                expect_whole(daemon)
                assert launcher.metrics(daemon)['tierd_ssd_mode{mode="full"}'] == 1
                # More than the old file holds.
                with tierd.connect(job="large", socket=daemon.socket) as client:
                    for key in range(20):
                        client.put(key, bytes([key]) * (8 * MIB))
                    for key in range(20):
                        assert bytes(client.get(key)) == bytes([key]) * (8 * MIB)


def test_the_steps_of_the_guide_install_then_size_then_restart_end_in_a_daemon_that_serves(
    socket_folder: pathlib.Path,
) -> None:
    """A reload says what the restart will do, and so does the check before it."""
    with launcher.disk_folder() as disk:
        with start(socket_folder, disk, "128MiB") as daemon:
            config = daemon.directory / "tierd.toml"
            text = config.read_text()
            assert text.count('"128MiB"') == 1
            config.write_text(text.replace('"128MiB"', '"192MiB"'))
            grows = f"{disk}/data/tier.ssd grows from 128 MiB to 192 MiB at the next start"
            assert f"ssd.file_size: {grows}\n" in check_config(daemon)
            os.kill(daemon.pid, signal.SIGHUP)
            launcher.wait_for("the reload", lambda: f"reload: {grows}" in log(daemon))
            assert capacity(daemon) == 126 * MIB
        with start(socket_folder, disk, "192MiB") as daemon:
            assert capacity(daemon) == 190 * MIB
            assert "its file grew from 128 MiB" in log(daemon)


def test_a_smaller_one_keeps_the_file_and_is_told(socket_folder: pathlib.Path) -> None:
    with launcher.disk_folder() as disk:
        with start(socket_folder, disk, "256MiB") as daemon:
            persist(daemon)
        with start(socket_folder, disk, "128MiB") as daemon:
            keeps = f"{disk}/data/tier.ssd keeps its 256 MiB, for a file does not shrink, and ssd.file_size is 128 MiB"
            assert keeps in log(daemon)
            assert keeps in check_config(daemon)
            assert capacity(daemon) == 254 * MIB
            expect_whole(daemon)


def test_without_the_room_the_daemon_serves_as_before_and_says_why(socket_folder: pathlib.Path) -> None:
    with launcher.disk_folder() as disk:
        with start(socket_folder, disk, "128MiB") as daemon:
            persist(daemon)
        with start(socket_folder, disk, "1000TiB") as daemon:
            assert capacity(daemon) == 126 * MIB
            assert launcher.metrics(daemon)['tierd_ssd_mode{mode="reduced"}'] == 1
            assert launcher.metrics(daemon)['tierd_degraded{cause="ssd_size"}'] == 1
            assert "keeps its 128 MiB, and ssd.file_size is 1000 TiB" in log(daemon)
            status = launcher.run_tierctl(daemon, "status")
            assert status.returncode == launcher.DEGRADED, status
            assert "less SSD space than configured: " in status.stdout and "do not fit into" in status.stdout
            expect_whole(daemon)


def test_starts_that_are_killed_while_the_file_grows_lose_nothing(socket_folder: pathlib.Path) -> None:
    """Each once the file is longer, before or after the superblock says so; then one is left alone."""
    kills = 3
    program = str(launcher.need_build())
    with launcher.disk_folder() as disk:
        with start(socket_folder, disk, "128MiB") as daemon:
            persist(daemon)
            config = daemon.directory / "tierd.toml"
            text = config.read_text()
        file = disk / "data" / "tier.ssd"
        for round_ in range(kills):
            config.write_text(text.replace('"128MiB"', f'"{256 + 128 * round_}MiB"'))
            before = file.stat().st_size
            process = subprocess.Popen([program, "--config", str(config)], stderr=subprocess.DEVNULL)
            try:

                def grows(process: subprocess.Popen[bytes] = process, before: int = before) -> bool:
                    return file.stat().st_size > before or process.poll() is not None

                launcher.wait_for("the file to grow", grows)
            finally:
                process.kill()
                process.wait()
        with start(socket_folder, disk, f"{256 + 128 * kills}MiB") as daemon:
            assert capacity(daemon) == (254 + 128 * kills) * MIB
            expect_whole(daemon)
