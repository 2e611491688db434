"""The wheel in a virtual environment with nothing else in it."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import zipfile

import launcher
import pytest

GLIBC = ("libc.", "libm.", "libdl.", "libpthread.", "librt.", "libresolv.")

SWAP = """
import hashlib, os, sys
import tierd
from tierd.daemon import Daemon

settings = {
    "daemon": {"private": True, "starter_pid": os.getpid(), "socket_directory": sys.argv[1],
               "data_directory": sys.argv[2]},
    "arena": {"maximum": "256MiB"},
    "ssd": {"file_size": "2GiB"},
}
with Daemon(sys.argv[1], settings), tierd.connect(job="wheel", socket=sys.argv[1] + "/tierd.sock") as client:
    content = os.urandom(1 << 30)
    before = hashlib.sha256(content).digest()
    client.put("content", content)
    del content
    out = client.get("content")
    assert hashlib.sha256(out).digest() == before
    print(len(out), "bytes, digest equal")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    launcher.need_build()
    if subprocess.run(["sh", "-c", "command -v patchelf"], capture_output=True).returncode != 0:
        pytest.skip("needs patchelf: tools/dev setup installs it")
    out = tmp_path_factory.mktemp("dist")
    script = launcher.ROOT / "bindings/python/build_wheel.py"
    command = [sys.executable, script, "--build", launcher.BUILD, "--out", out]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (found,) = out.glob("tierd-*-py3-none-manylinux_2_36_x86_64.whl")
    return found


def test_the_wheel_carries_everything_it_needs(wheel: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        archive.extractall(tmp_path)
    bundled = tmp_path / "tierd" / "bundled"
    names = {path.name for path in bundled.iterdir()}
    assert {"libtier.so.0", "tierd", "tierctl", "control.binpb"} <= names
    for program in ("tierd", "tierctl"):
        (bundled / program).chmod(0o755)
        found = subprocess.run(["ldd", bundled / program], capture_output=True, text=True, check=True).stdout
        for line in found.splitlines():
            name, _, place = line.strip().partition(" => ")
            if place and not name.startswith(GLIBC):
                assert place.startswith(str(bundled)), line


def test_a_gibibyte_of_noise_goes_through_a_quarter_of_it(
    wheel: pathlib.Path, tmp_path: pathlib.Path, socket_folder: pathlib.Path
) -> None:
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", wheel], check=True,
                   env={"PATH": "/usr/bin:/bin"})  # fmt: skip
    with launcher.disk_folder() as disk:
        done = subprocess.run([python, "-c", SWAP, socket_folder, disk], capture_output=True, text=True, check=False,
                              env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}, timeout=300)  # fmt: skip
    assert done.stdout == "1073741824 bytes, digest equal\n", done.stderr
    version = subprocess.run([environment / "bin" / "tierd", "--version"], capture_output=True, text=True, check=True)
    assert "0.1.0" in version.stdout
