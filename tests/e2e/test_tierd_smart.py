"""tierd-smart as root's timer runs it: from the configuration to the file, which a daemon then reads."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import time

import launcher
import pytest

PROGRAM = launcher.BUILD / "tools/smart/tierd-smart"

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=f"needs a build: {PROGRAM} is not there")


def run(*arguments: str | pathlib.Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False, timeout=30)


def configuration(folder: pathlib.Path, text: str) -> pathlib.Path:
    path = folder / "tierd.toml"
    path.write_text(text)
    return path


def test_a_device_that_is_no_nvme_device_is_told_and_left_out(tmp_path: pathlib.Path) -> None:
    (tmp_path / "tier.ssd").write_bytes(b"")
    devices = json.dumps(["/dev/no-such-device", "/proc/self/status"])
    config = configuration(tmp_path, f'[ssd]\ndevices = {devices}\nsmart_file = "{tmp_path}/devices"\n')
    done = run("--config", config)
    assert done.returncode == 0
    assert "nothing is known of /dev/no-such-device: No such file or directory" in done.stderr
    assert "/proc/self/status: it is on no block device" in done.stderr
    first, stamp, end = (tmp_path / "devices").read_text().splitlines()
    assert (first, end) == ("tierd-smart 2", "end 0")
    assert abs(int(stamp.removeprefix("time ")) - time.time()) < 60


def test_what_a_device_said_before_stays_where_it_does_not_answer(tmp_path: pathlib.Path) -> None:
    out, silent = tmp_path / "devices", tmp_path / "loop"
    silent.symlink_to(silent)  # Which device that is, or that none is there, cannot be told.
    said = "device 1764266400 4 311 5 10 97 1000 2 nvme0n1 S1"
    known, absent, other = f"{said} {silent}", f"{said} /dev/no-such-device", f"{said} /dev/not-configured"
    out.write_text(f"tierd-smart 2\ntime 1764266400\n{known}\n{absent}\n{other}\nend 3\n")
    devices = json.dumps([str(silent), "/dev/no-such-device"])
    config = configuration(tmp_path, f'[ssd]\ndevices = {devices}\nsmart_file = "{out}"\n')
    for _ in range(2):
        done = run("--config", config)
        assert done.returncode == 0 and f"nothing new is known of {silent}: Too many levels" in done.stderr
        assert "nothing is known of /dev/no-such-device: No such file" in done.stderr
        _, stamp, *lines = out.read_text().splitlines()
        assert lines == [known, "end 1"], "what is not there any more, or not configured, leaves the file"
        assert abs(int(stamp.removeprefix("time ")) - time.time()) < 60
    out.write_text("tierd-smart 2\nnonsense\n")
    done = run("--config", config)
    assert done.returncode == 0 and "the last report is left out: " in done.stderr
    assert out.read_text().splitlines()[2:] == ["end 0"]


def test_what_it_did_not_write_is_left_as_it_is(tmp_path: pathlib.Path) -> None:
    fifo, text = tmp_path / "fifo", tmp_path / "text"
    os.mkfifo(fifo)
    text.write_text("the only copy\n")
    for out in (fifo, text):
        named = configuration(tmp_path, f'[ssd]\ndevices = ["none"]\nsmart_file = "{out}"\n')
        other = tmp_path / "other.toml"
        other.write_text('[ssd]\ndevices = ["none"]\n')
        for done in (run("--config", named), run("--config", other, "--out", out)):
            assert done.returncode == 78 and f"{out} is left untouched" in done.stderr, done
    assert fifo.is_fifo() and text.read_text() == "the only copy\n"
    assert not list(tmp_path.glob("*.new"))


def test_an_empty_name_of_the_file_means_that_none_is_written(tmp_path: pathlib.Path) -> None:
    done = run("--config", configuration(tmp_path, '[ssd]\nsmart_file = ""\n'))
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["tierd.toml"]


def test_a_mistake_ends_it_with_the_status_of_its_kind(tmp_path: pathlib.Path) -> None:
    config = configuration(tmp_path, "[ssd]\ndevices = 7\n")
    assert run("--config", config).returncode == 78
    assert run("--config", tmp_path / "absent").returncode == 78
    assert run("--frobnicate").returncode == 2
    config = configuration(tmp_path, '[ssd]\ndevices = ["none"]\n')
    done = run("--config", config, "--out", tmp_path / "no/such/folder")
    assert done.returncode == 1 and "No such file or directory" in done.stderr
    assert run("--version").stdout.startswith("tierd-smart ")


def test_another_file_is_read_from_then_on(tmp_path: pathlib.Path, socket_folder: pathlib.Path) -> None:
    with launcher.disk_folder() as disk:
        device, smart, now = disk / "tier.ssd", tmp_path / "devices", int(time.time())
        told = f"device {now} 0 311 100 10 42 1000 0 nvme0n1 S1 {device}"
        smart.write_text(f"tierd-smart 2\ntime {now}\n{told}\nend 1\n")
        ssd = {"file_size": "256MiB", "devices": [str(device)], "smart_file": ""}
        name = 'tierd_device_smart_used_ratio{device="0"}'
        with launcher.start(socket_folder, arena="32MiB", settings={"ssd": ssd}) as daemon:
            config = daemon.directory / "tierd.toml"
            text = config.read_text()
            assert name not in launcher.metrics(daemon) and text.count('smart_file = ""') == 1
            for other, why in (("devices", "is not an absolute path"), ("/dev/zero", "is left untouched")):
                refused = launcher.run_tierctl(daemon, "config", "set", "ssd.smart_file", other)
                assert refused.returncode == 2 and why in refused.stderr, refused
            launcher.tierctl(daemon, "config", "set", "ssd.smart_file", str(smart))
            launcher.wait_for("the health of the device", lambda: launcher.metrics(daemon).get(name) == 0.42)
            os.kill(daemon.pid, signal.SIGHUP)
            launcher.wait_for("the file's own value", lambda: name not in launcher.metrics(daemon))
            config.write_text(text.replace('smart_file = ""', f'smart_file = "{smart}"'))
            os.kill(daemon.pid, signal.SIGHUP)
            launcher.wait_for("the health of the device", lambda: launcher.metrics(daemon).get(name) == 0.42)


def test_the_daemon_tells_what_the_file_says(tmp_path: pathlib.Path, socket_folder: pathlib.Path) -> None:
    with launcher.disk_folder() as disk:
        device, smart = disk / "tier.ssd", tmp_path / "devices"
        now = int(time.time())
        told = f"device {now} 9 311 5 10 97 1000 2 nvme0n1 S1 {device}"
        smart.write_text(f"tierd-smart 2\ntime {now}\n{told}\nend 1\n")
        ssd = {"file_size": "256MiB", "devices": [str(device)], "smart_file": str(smart)}
        with launcher.start(socket_folder, arena="32MiB", settings={"ssd": ssd}) as daemon:
            deadline = time.monotonic() + 30
            name = 'tierd_device_smart_warning{device="0",cause="read_only"}'
            while name not in (metrics := launcher.metrics(daemon)):
                assert time.monotonic() < deadline
                time.sleep(0.1)
            assert metrics[name] == 1
            assert metrics['tierd_device_smart_used_ratio{device="0"}'] == 0.97
            assert metrics['tierd_device_smart_temperature_celsius{device="0"}'] == 38
            assert metrics['tierd_device_smart_stale{device="0"}'] == 0
            listed = launcher.tierctl(daemon, "device", "list")
            assert "READ P50 / P99" in listed and "DWPD" in listed
            assert "device 0 warns of: spare, read_only" in listed
            assert "has used 97 % of its endurance, and has 5 % of its spare left, and 2 media errors" in listed
            document = launcher.tierctl(daemon, "device", "list", "--json")
            assert json.loads(document)["devices"][0]["smart"]["warnings"] == ["spare", "read_only"]
            shown = launcher.tierctl(daemon, "device", "show", device)
            assert "in use by tierd as device 0: reads" in shown and "drive writes a day" in shown
