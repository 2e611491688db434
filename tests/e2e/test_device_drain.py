"""A device of a real daemon is emptied of what a closed job persisted, taken out, and brought back."""

from __future__ import annotations

import json
import os
import pathlib
import time

import launcher
import pytest
import tierd


def figure(daemon: launcher.Running, name: str) -> list[int]:
    launcher.metrics(daemon)  # What the daemon tells from now on is not of a moment before.
    devices = json.loads(launcher.tierctl(daemon, "device", "list", "--json"))["devices"]
    return [int(device[name]) for device in devices]


def live_bytes(daemon: launcher.Running) -> list[int]:
    return figure(daemon, "live_bytes")


def traffic(daemon: launcher.Running, device: int) -> int:
    return figure(daemon, "read_bytes_total")[device]


def test_a_device_is_emptied_of_what_a_closed_job_persisted(socket_folder: pathlib.Path) -> None:
    weights = {f"layer-{i}": os.urandom((5 << 20) + 4097 * i) for i in range(6)}
    with launcher.disk_folder() as disk:
        files = [str(disk / name) for name in ("a.ssd", "b.ssd")]
        store = {"socket_directory": str(socket_folder), "data_directory": str(disk / "data")}
        both = {"daemon": store, "ssd": {"devices": files, "file_size": "256MiB"}}
        with launcher.start(socket_folder, arena="32MiB", settings=both) as daemon:
            with tierd.connect(job="training", socket=daemon.socket, named=True) as client:
                for key, value in weights.items():
                    client.put(key, value)
                client.persist()
                assert all(live_bytes(daemon))
                launcher.tierctl(daemon, "device", "drain", "1")
            launcher.tierctl(daemon, "job", "remove", "training")
            give_up = time.monotonic() + 30
            while live_bytes(daemon)[1] != 0:
                assert time.monotonic() < give_up, launcher.tierctl(daemon, "device", "list")
            assert "drained" in launcher.tierctl(daemon, "device", "list")
            with tierd.connect(job="training", socket=daemon.socket, mode="resume") as client:
                read_before = traffic(daemon, 1)
                for key, value in weights.items():
                    assert bytes(client.get(key)) == value, key
                assert traffic(daemon, 1) == read_before
        with launcher.start(socket_folder, arena="32MiB", settings=both) as daemon:
            assert live_bytes(daemon)[1] == 0
            with tierd.connect(job="training", socket=daemon.socket, mode="resume") as client:
                for key, value in weights.items():
                    assert bytes(client.get(key)) == value, key
                assert traffic(daemon, 1) == 0


def test_who_drains_the_only_device_is_told_what_follows(socket_folder: pathlib.Path) -> None:
    with launcher.start(socket_folder, arena="32MiB", tier="256MiB") as daemon:
        with tierd.connect(job="training", socket=daemon.socket, named=True) as client:
            client.put("weight", os.urandom(5 << 20))
            client.persist()
        drained = launcher.run_tierctl(daemon, "device", "drain", "0")
        assert drained.returncode == 6, "what waits for it to be empty does not begin"
        assert drained.stdout.startswith("device 0 takes no new tensors, and cannot be emptied: no other SSD device")
        assert "being emptied" not in drained.stdout and "device drain 0 --undo" in drained.stdout
        status = launcher.run_tierctl(daemon, "status")
        assert status.returncode == 6 and "no SSD device takes new tensors" in status.stdout, status.stdout
        assert "no SSD device takes new tensors" in launcher.run_tierctl(daemon, "doctor").stdout
        assert launcher.metrics(daemon)['tierd_degraded{cause="ssd_drained"}'] == 1, "as words and exit status have it"
        device = json.loads(launcher.tierctl(daemon, "device", "list", "--json"))["devices"][0]
        assert device["draining"] and "no other SSD device takes them" in device["drain_note"]
        with tierd.connect(job="next", socket=daemon.socket) as client, pytest.raises(tierd.NoSpace):
            for key in range(64):
                client.put(key, bytes(1 << 20))
        assert json.loads(launcher.tierctl(daemon, "device", "drain", "0", "--undo", "--json"))["used"] == 0
        assert "no SSD device" not in launcher.run_tierctl(daemon, "status").stdout
        assert launcher.metrics(daemon)['tierd_degraded{cause="ssd_drained"}'] == 0


def test_an_emptied_device_is_taken_out_and_comes_back(socket_folder: pathlib.Path) -> None:
    weights = {f"layer-{i}": os.urandom((5 << 20) + 4097 * i) for i in range(6)}
    with launcher.disk_folder() as disk:
        a, b, c = (str(disk / name) for name in ("a.ssd", "b.ssd", "c.ssd"))
        store = {"socket_directory": str(socket_folder), "data_directory": str(disk / "data")}

        def over(*files: str) -> dict[str, dict[str, object]]:
            return {"daemon": store, "ssd": {"devices": list(files), "file_size": "256MiB"}}

        def resumes(daemon: launcher.Running, job: str = "training") -> None:
            with tierd.connect(job=job, socket=daemon.socket, mode="resume") as client:
                for key, value in weights.items():
                    assert bytes(client.get(key)) == value, (job, key)

        with launcher.start(socket_folder, arena="32MiB", settings=over(a, b)) as daemon:
            with tierd.connect(job="training", socket=daemon.socket, named=True) as client:
                for key, value in weights.items():
                    client.put(key, value)
                client.persist()
            launcher.tierctl(daemon, "job", "remove", "training")
            assert all(live_bytes(daemon))
        with launcher.start(socket_folder, arena="32MiB", settings=over(a)) as daemon:
            assert "training" in launcher.tierctl(daemon, "job", "list", "--lost"), "it is named still"
        with launcher.start(socket_folder, arena="32MiB", settings=over(b, c, a)) as daemon:
            assert live_bytes(daemon)[1] == 0, "the new one"
            resumes(daemon)
            launcher.tierctl(daemon, "job", "remove", "training")
            launcher.tierctl(daemon, "device", "drain", "2")
            give_up = time.monotonic() + 30
            while live_bytes(daemon)[2] != 0:
                assert time.monotonic() < give_up, launcher.tierctl(daemon, "device", "list")
        with launcher.start(socket_folder, arena="32MiB", settings=over(c, b)) as daemon:
            resumes(daemon)
            with tierd.connect(job="second", socket=daemon.socket, named=True) as client:
                for key, value in weights.items():
                    client.put(key, value)
                client.persist()
        with launcher.start(socket_folder, arena="32MiB", settings=over(a, b, c)) as daemon:
            assert live_bytes(daemon)[0] == 0
            resumes(daemon)
            resumes(daemon, "second")
