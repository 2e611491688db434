#!/usr/bin/env python3
"""Builds the wheel: the package, and beside it libtier, tierd, tierctl and the libraries Debian has no archives of.

    build_wheel.py --build build/release --out dist

One wheel for every Python 3 on x86-64 with glibc 2.36 or later: py3-none-manylinux_2_36_x86_64. The programs get an
RPATH of $ORIGIN, by which the libraries they need, and those these need, are found beside them; what belongs to glibc
is left to the system. Needs patchelf and binutils. The archive is the same bytes for the same input.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import tomllib
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent
TAG = "py3-none-manylinux_2_36_x86_64"
# glibc's own; every manylinux system has them.
SYSTEM = re.compile(r"^(ld-linux-x86-64|libc|libm|libdl|libpthread|librt|libresolv|linux-vdso)\.so")
GLIBC_NEWEST = (2, 36)
EPOCH = (2020, 1, 1, 0, 0, 0)


def version() -> str:
    text = (ROOT / "tierd" / "__init__.py").read_text()
    found = re.search(r'^__version__ = "([^"]+)"', text, re.MULTILINE)
    assert found is not None
    return found.group(1)


def needed(binary: pathlib.Path) -> dict[str, pathlib.Path]:
    """Every shared library the dynamic linker loads for ``binary``, except the system's own."""
    lines = subprocess.run(["ldd", str(binary)], check=True, capture_output=True, text=True).stdout.splitlines()
    libraries = {}
    for line in lines:
        name, arrow, place = line.strip().partition(" => ")
        if not arrow or SYSTEM.match(name):
            continue
        path = place.split(" (")[0]
        if not os.path.exists(path):
            sys.exit(f"build_wheel: {binary} needs {name}, which is not on this machine")
        libraries[name] = pathlib.Path(path)
    return libraries


def glibc_wanted(binary: pathlib.Path) -> tuple[int, int]:
    """The newest glibc version whose symbols ``binary`` asks for."""
    text = subprocess.run(["objdump", "-T", str(binary)], check=True, capture_output=True, text=True).stdout
    versions = {(int(major), int(minor)) for major, minor in re.findall(r"\(GLIBC_(\d+)\.(\d+)", text)}
    return max(versions, default=(0, 0))


def programs(build: pathlib.Path) -> dict[str, pathlib.Path]:
    places = {
        "libtier.so.0": build / "libclient" / "libtier.so.0",
        "tierd": build / "daemon" / "tierd",
        "tierctl": build / "tools" / "tierctl" / "tierctl",
        "control.binpb": build / "bindings" / "python" / "control.binpb",
    }
    missing = [str(place) for place in places.values() if not place.exists()]
    if missing:
        sys.exit(f"build_wheel: not built: {', '.join(missing)}; run tools/dev build")
    return places


def stage(build: pathlib.Path, target: pathlib.Path) -> None:
    """The package and what it carries, into ``target``, stripped and with RPATHs."""
    ignore = shutil.ignore_patterns("__pycache__", "bundled", "README.md")
    shutil.copytree(ROOT / "tierd", target / "tierd", ignore=ignore)
    bundled = target / "tierd" / "bundled"
    bundled.mkdir()
    copies = programs(build)
    for name in ("tierd", "tierctl", "libtier.so.0"):
        copies |= needed(copies[name])
    for name, place in sorted(copies.items()):
        copy = bundled / name
        shutil.copyfile(place.resolve(), copy)
        if name == "control.binpb":
            continue
        copy.chmod(0o755)
        subprocess.run(["strip", "--strip-unneeded", str(copy)], check=True)
        # The old kind of RPATH, which also serves the libraries of libraries.
        subprocess.run(["patchelf", "--force-rpath", "--set-rpath", "$ORIGIN", str(copy)], check=True)
        if glibc_wanted(copy) > GLIBC_NEWEST:
            sys.exit(f"build_wheel: {name} wants glibc {glibc_wanted(copy)}, newer than {TAG} promises")


def core_metadata(pyproject: str) -> str:
    """METADATA of the wheel: what the ``[project]`` table says, and nothing from any other table."""
    project = tomllib.loads(pyproject)["project"]
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"License: {project['license']['text']}",
        f"Requires-Python: {project['requires-python']}",
    ]
    lines += [f"Requires-Dist: {requirement}" for requirement in project.get("dependencies", [])]
    for extra, requirements in project.get("optional-dependencies", {}).items():
        lines.append(f"Provides-Extra: {extra}")
        for requirement in requirements:
            name, _, marker = requirement.partition(";")
            condition = f"({marker.strip()}) and " if marker else ""
            lines.append(f"Requires-Dist: {name.strip()} ; {condition}extra == '{extra}'")
    return "\n".join(lines) + "\n"


def metadata(target: pathlib.Path) -> None:
    folder = target / f"tierd-{version()}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(core_metadata((ROOT / "pyproject.toml").read_text()))
    wheel = ["Wheel-Version: 1.0", "Generator: tierd", "Root-Is-Purelib: false", f"Tag: {TAG}"]
    (folder / "WHEEL").write_text("\n".join(wheel) + "\n")
    (folder / "entry_points.txt").write_text(
        "[console_scripts]\ntierd = tierd.programs:tierd\ntierctl = tierd.programs:tierctl\n"
    )
    shutil.copyfile(ROOT.parents[1] / "LICENSE", folder / "LICENSE")


def pack(target: pathlib.Path, wheel: pathlib.Path) -> None:
    record_name = f"tierd-{version()}.dist-info/RECORD"
    records = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(target.rglob("*")):
            if path.is_dir():
                continue
            name = path.relative_to(target).as_posix()
            content = path.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            records.append(f"{name},sha256={digest},{len(content)}")
            write(archive, name, content, executable=bool(path.stat().st_mode & stat.S_IXUSR))
        records.append(f"{record_name},,")
        write(archive, record_name, ("\n".join(records) + "\n").encode(), executable=False)


def write(archive: zipfile.ZipFile, name: str, content: bytes, executable: bool) -> None:
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True, help="the build tree, such as build/release")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the folder for the wheel")
    arguments = parser.parse_args()
    for tool in ("patchelf", "strip", "objdump", "ldd"):
        if shutil.which(tool) is None:
            sys.exit(f"build_wheel: {tool} is missing: tools/dev setup installs it")
    arguments.out.mkdir(parents=True, exist_ok=True)
    wheel = arguments.out / f"tierd-{version()}-{TAG}.whl"
    with tempfile.TemporaryDirectory(prefix="tierd-wheel-") as folder:
        target = pathlib.Path(folder)
        stage(arguments.build, target)
        metadata(target)
        pack(target, wheel)
    print(wheel)


if __name__ == "__main__":
    main()
