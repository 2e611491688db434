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
from email.message import Message

import launcher
import pytest
from components import agreed_record, read_list
from notices import notice_text
from page_blocks import run_by

SYSTEM = ("libc.", "libm.", "libdl.", "libpthread.", "librt.", "libresolv.", "libstdc++.", "libgcc_s.", "libz.")

SWAP = """
import hashlib, os, sys
import tierd
from tierd.daemon import Daemon

settings = {
    "daemon": {"private": True, "starter_pid": os.getpid(), "socket_directory": sys.argv[1],
               "data_directory": sys.argv[2]},
    "arena": {"maximum": int(sys.argv[3]) // 4},
    "ssd": {"file_size": "2GiB"},
}
with Daemon(sys.argv[1], settings), tierd.connect(job="wheel", socket=sys.argv[1] + "/tierd.sock") as client:
    content = os.urandom(int(sys.argv[3]))
    before = hashlib.sha256(content).digest()
    client.put("content", content)
    del content
    out = client.get("content")
    assert hashlib.sha256(out).digest() == before
    print(len(out), "bytes, digest equal")
"""


PACKAGING = launcher.ROOT / ".cache/packaging/bin"
PYPROJECT = launcher.ROOT / "bindings/python/pyproject.toml"


def need_tools() -> None:
    launcher.need_build()
    if not (launcher.BUILD / "daemon/tierd.linkmap").exists():
        pytest.skip(f"needs a build with the linker's maps: {launcher.BUILD} is older")
    if shutil.which("dpkg-query") is None:
        pytest.skip("needs dpkg-query: Debian")
    if not (PACKAGING / "auditwheel").exists():
        pytest.skip("needs the tools of .cache/packaging: tools/dev setup --full")


def build_wheel(out: pathlib.Path) -> pathlib.Path:
    script = launcher.ROOT / "bindings/python/build_wheel.py"
    command = [PACKAGING / "python", script, "--build", launcher.BUILD, "--out", out]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    (found,) = out.glob("tierd-*-py3-none-manylinux_2_36_x86_64.whl")
    assert done.stdout == f"{found}\n"
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    need_tools()
    return build_wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def metadata(wheel: pathlib.Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


def check(*command: str | pathlib.Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PYPROJECT.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_carries_everything_it_needs(wheel: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Except what PEP 600 lets a wheel take from every system: glibc, GCC's runtime libraries, zlib."""
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        archive.extractall(tmp_path)
    bundled = tmp_path / "tierd" / "bundled"
    names = {path.name for path in bundled.iterdir()}
    assert names == {"libtier.so.0", "tierd", "tierctl", "control.binpb", "proto"}
    source = "proto/tier/v1/control.proto"
    assert (bundled / source).read_bytes() == (launcher.ROOT / source).read_bytes()
    assert [path.relative_to(bundled).as_posix() for path in bundled.rglob("*.proto")] == [source]
    for program in ("tierd", "tierctl", "libtier.so.0"):
        (bundled / program).chmod(0o755)
        found = subprocess.run(["ldd", bundled / program], capture_output=True, text=True, check=True).stdout
        for line in found.splitlines():
            name, _, place = line.strip().partition(" => ")
            if place and not name.startswith(SYSTEM):
                assert pathlib.Path(place.split(" (")[0]).resolve().parent == tmp_path / "tierd.libs", line


def test_the_same_input_makes_the_same_bytes(wheel: pathlib.Path, tmp_path: pathlib.Path) -> None:
    assert build_wheel(tmp_path).read_bytes() == wheel.read_bytes()


def test_the_wheel_has_exactly_the_declared_extras(metadata: Message) -> None:
    """pip asks the index for whatever an extra names: a name that nobody declared may be anybody's project."""
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    assert metadata["License-Expression"] == project["license"]
    declared = project["optional-dependencies"]
    assert metadata.get_all("Provides-Extra") == list(declared)
    assert sorted(metadata.get_all("Requires-Dist", [])) == sorted(
        f"{requirement}; extra == '{extra}'" for extra, requirements in declared.items() for requirement in requirements
    )
    assert (metadata["Name"], metadata["Version"]) == (project["name"], project["version"])


def test_the_wheel_says_what_it_is(wheel: pathlib.Path, metadata: Message) -> None:
    assert metadata["Author-email"] == "The tierd authors <tierd@users.noreply.github.com>"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert str(metadata.get_payload()).startswith("# tierd\n")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/WHEEL")]
        lines = archive.read(name).decode().splitlines()
    assert "Root-Is-Purelib: false" in lines and "Tag: py3-none-manylinux_2_36_x86_64" in lines


def test_tools_of_others_find_nothing_wrong(wheel: pathlib.Path) -> None:
    assert "PASSED" in check(PACKAGING / "twine", "check", "--strict", wheel)
    assert check(PACKAGING / "check-wheel-contents", wheel).strip() == f"{wheel}: OK"
    assert '"manylinux_2_36_x86_64"' in check(PACKAGING / "auditwheel", "show", wheel)


def test_the_wheel_has_the_notices_of_all_that_it_carries(wheel: pathlib.Path, metadata: Message) -> None:
    with zipfile.ZipFile(wheel) as archive:
        folder = f"tierd-{metadata['Version']}.dist-info/licenses/"
        names = [name for name in archive.namelist() if not name.endswith("/")]
        files = {name.removeprefix(folder): archive.read(name).decode() for name in names if folder in name}
        libraries = {name for name in names if name.startswith("tierd.libs/")}
    assert sorted(metadata.get_all("License-File", [])) == sorted(files)
    components = read_list().components
    assert {name for name in files if "third-party/" in name} == {f"third-party/{c.source}.txt" for c in components}
    record = agreed_record(read_list(), launcher.BUILD)
    carried = [c for c in components if "shared" in c.ways]
    assert len(libraries) == sum(len(record[c.source]["shared"].files) for c in carried) > 5
    for component in components:
        text = files[f"third-party/{component.source}.txt"]
        assert text.startswith(f"{component.name}: {component.licence}\n")
        assert notice_text(component, min(record[component.source][component.ways[0]].packages)) in text
        for name in re.findall(
            r"/usr/share/common-licenses/\S+ is beside this folder: (common-licenses/\S+|LICENSE)", text
        ):
            assert len(files[name]) > 5000, name
        for name in re.findall(r"/usr/share/common-licenses/([\w.-]*\w)", text):
            assert f"/usr/share/common-licenses/{name} is beside this folder" in text
    assert "Apache License" in files["LICENSE"]


def test_nothing_is_made_of_the_source_folder_alone(tmp_path: pathlib.Path) -> None:
    """Installed from there, the package would find neither library nor daemon."""
    need_tools()
    copy = tmp_path / "python"
    shutil.copytree(PYPROJECT.parent, copy, ignore=shutil.ignore_patterns("__pycache__", "bundled"))
    for kind in (["-m", "pip", "wheel", "--no-index", "--no-deps", "--no-build-isolation", "-w", tmp_path, copy],
                 ["-m", "build", "--sdist", "--no-isolation", copy]):  # fmt: skip
        done = subprocess.run([PACKAGING / "python", *kind], capture_output=True, text=True, check=False)
        assert done.returncode != 0
        assert "this folder alone makes no package that works" in done.stdout + done.stderr
        assert "tools/dev package wheel" in done.stdout + done.stderr
    assert not list(tmp_path.rglob("*.whl")) and not list(tmp_path.rglob("*.tar.gz"))


def test_an_editable_install_finds_the_sources(tmp_path: pathlib.Path) -> None:
    need_tools()
    script = "import hatchling.build, sys; print(hatchling.build.build_editable(sys.argv[1]))"
    name = check(PACKAGING / "python", "-c", script, tmp_path).strip()
    with zipfile.ZipFile(tmp_path / name) as archive:
        (link,) = [name for name in archive.namelist() if name.endswith(".pth")]
        assert archive.read(link).decode().strip() == str(PYPROJECT.parent)


def swap(size: int, python: list[str | pathlib.Path], sockets: pathlib.Path, disk: pathlib.Path) -> None:
    """So many bytes of noise through an arena of a quarter of it."""
    done = subprocess.run([*python, "-c", SWAP, sockets, disk, str(size)], capture_output=True, text=True, check=False,
                          env={"PATH": "/usr/bin:/bin", "HOME": "/tmp"}, timeout=300)  # fmt: skip
    assert done.stdout == f"{size} bytes, digest equal\n", done.stderr


def test_a_gibibyte_of_noise_goes_through_a_quarter_of_it(
    wheel: pathlib.Path, tmp_path: pathlib.Path, socket_folder: pathlib.Path
) -> None:
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", wheel], check=True,
                   env={"PATH": "/usr/bin:/bin"})  # fmt: skip
    with launcher.disk_folder() as disk:
        swap(1 << 30, [python], socket_folder, disk)
    version = subprocess.run([environment / "bin" / "tierd", "--version"], capture_output=True, text=True, check=True)
    assert "0.1.0" in version.stdout


def pages_lines() -> dict[str, str]:
    """What pages type to install it, without numpy, which is downloaded."""
    (readme,) = re.findall(r"`([^`]*\bpip install dist/[^`]*) numpy`", (launcher.ROOT / "README.md").read_text())
    (block,) = run_by(__file__)
    build, *install = block.text.splitlines()
    assert build == "tools/dev package wheel", "which runs build_wheel.py"
    return {"README.md": readme, block.page: "\n".join(install).removesuffix(" numpy")}


@pytest.mark.parametrize("page", ["README.md", "docs/quick-start.md"])
def test_the_pages_lines_install_it(wheel: pathlib.Path, tmp_path: pathlib.Path, page: str) -> None:
    """With the system's Python, which takes no packages itself."""
    line = pages_lines()[page]
    (tmp_path / "dist").symlink_to(wheel.parent)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PIP_NO_INDEX": "1"}
    done = subprocess.run(
        ["sh", "-ec", line], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
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
    swap(256 << 20, [*inside, "/venv/bin/python"], pathlib.Path("/run/tier"), pathlib.Path("/srv/tier"))
