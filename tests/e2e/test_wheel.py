"""The wheel in a virtual environment with nothing else in it."""

from __future__ import annotations

import email
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator

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


def test_the_wheel_has_exactly_the_declared_extras(wheel: pathlib.Path) -> None:
    """pip asks the index for whatever an extra names: a name that nobody declared may be anybody's project."""
    project = tomllib.loads((launcher.ROOT / "bindings/python/pyproject.toml").read_text())["project"]
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
    declared = project["optional-dependencies"]
    assert metadata.get_all("Provides-Extra") == list(declared)
    required = [line.split(" ; ")[0] for line in metadata.get_all("Requires-Dist", [])]
    assert required == [requirement for requirements in declared.values() for requirement in requirements]
    assert (metadata["Name"], metadata["Version"]) == (project["name"], project["version"])


def swap_a_gibibyte(python: list[str | pathlib.Path], sockets: pathlib.Path, disk: pathlib.Path) -> None:
    """1 GiB of noise through an arena of a quarter of it."""
    done = subprocess.run([*python, "-c", SWAP, sockets, disk], capture_output=True, text=True, check=False,
                          env={"PATH": "/usr/bin:/bin", "HOME": "/tmp"}, timeout=300)  # fmt: skip
    assert done.stdout == "1073741824 bytes, digest equal\n", done.stderr


def test_a_gibibyte_of_noise_goes_through_a_quarter_of_it(
    wheel: pathlib.Path, tmp_path: pathlib.Path, socket_folder: pathlib.Path
) -> None:
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", wheel], check=True,
                   env={"PATH": "/usr/bin:/bin"})  # fmt: skip
    with launcher.disk_folder() as disk:
        swap_a_gibibyte([python], socket_folder, disk)
    version = subprocess.run([environment / "bin" / "tierd", "--version"], capture_output=True, text=True, check=True)
    assert "0.1.0" in version.stdout


def test_the_readmes_line_installs_it(wheel: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """With the system's Python, which takes no packages itself; without numpy, which is downloaded."""
    (line,) = re.findall(r"`([^`]*\bpip install dist/[^`]*) numpy`", (launcher.ROOT / "README.md").read_text())
    (tmp_path / "dist").symlink_to(wheel.parent)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PIP_NO_INDEX": "1"}
    done = subprocess.run(
        ["sh", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    imported = subprocess.run([tmp_path / "tierd/bin/python", "-c", "import tierd; print(tierd.__file__)"],
                              cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)  # fmt: skip
    assert imported.stdout.startswith(str(tmp_path / "tierd/lib"))


@pytest.fixture
def bare_root() -> Iterator[pathlib.Path]:
    """A Debian 12 root with python3-venv and what that needs."""
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        pytest.skip("needs mmdebstrap: as root, after tools/dev setup --full")
    with launcher.disk_folder() as disk:
        root = disk / "root"
        command = ["mmdebstrap", "--quiet", "--variant=minbase", "--include=python3-venv", "bookworm", root]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            pytest.skip(f"needs a Debian archive: {made.stderr.strip().splitlines()[-1:]}")
        mounts = ["proc", "sys", "dev"]
        try:
            for name in mounts:
                subprocess.run(["mount", "--bind", f"/{name}", root / name], check=True)
            yield root
        finally:
            for name in mounts:
                subprocess.run(["umount", root / name], check=False)


def test_the_wheel_works_in_a_bare_root(wheel: pathlib.Path, bare_root: pathlib.Path) -> None:
    shutil.copy(wheel, bare_root / "tmp")
    inside: list[str | pathlib.Path] = ["/usr/sbin/chroot", bare_root]
    subprocess.run([*inside, "python3", "-m", "venv", "/venv"], check=True)
    subprocess.run([*inside, "/venv/bin/pip", "install", "-q", "--no-index", f"/tmp/{wheel.name}"], check=True,
                   env={"PATH": "/usr/bin:/bin"})  # fmt: skip
    for folder in ("run/tier", "srv/tier"):
        (bare_root / folder).mkdir()
    swap_a_gibibyte([*inside, "/venv/bin/python"], pathlib.Path("/run/tier"), pathlib.Path("/srv/tier"))
