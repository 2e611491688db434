"""What a build has put into the files that packages carry: archives and objects by the linker's maps, headers by
ninja's record of what each object was compiled from, shared libraries by ldd. Each file by the Debian source package
that it comes from.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import subprocess
from collections import defaultdict
from collections.abc import Collection

from debian_packages import LicenceError, Package, find_owners

ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class Program:
    name: str  # As it is installed.
    folder: str  # Of the build tree.
    target: str  # Of CMake; its map lies beside it (tier_shipped in cmake/TierTargets.cmake).
    in_wheel: bool = True


PROGRAMS = (
    Program("tierd", "daemon", "tierd"),
    Program("tierctl", "tools/tierctl", "tierctl"),
    Program("tierd-smart", "tools/smart", "tierd-smart", in_wheel=False),
    Program("libtier.so.0", "libclient", "tier"),
    Program("libtier-control.so.0", "libclient/control", "tier-control", in_wheel=False),
)
# Objects below these folders of the build tree end in one of the programs.
OBJECTS = ("daemon/", "libclient/", "proto/", "tools/smart/", "tools/tierctl/")
# What every system that the wheel's tag names has (PEP 600): auditwheel leaves these out of the wheel.
SYSTEM = re.compile(
    r"^(ld-linux-x86-64|libc|libm|libdl|libpthread|librt|libresolv|linux-vdso|libstdc\+\+|libgcc_s|libz)\.so"
)

_ARCHIVE_MEMBER = re.compile(r"^(\S[^\n]*\.a)\([^\n)]+\)", re.MULTILINE)
_LOADED_OBJECT = re.compile(r"^LOAD (\S[^\n]*\.o)$", re.MULTILINE)
# What gcc's link-time optimiser makes of our objects: ccAbC123.ltrans0.ltrans.o, ccAbC123.debug.temp.o.
_OPTIMISED = re.compile(r"cc\w{6}\.(ltrans\d+\.ltrans|debug\.temp\d*)\.o")
_OBJECT = re.compile(r"^(?P<object>\S+): #deps \d+, deps mtime \d+ \((?P<state>\w+)\)$")


@dataclasses.dataclass
class Use:
    """How files of one source package are in the programs."""

    packages: set[Package] = dataclasses.field(default_factory=set)
    files: set[str] = dataclasses.field(default_factory=set)
    programs: set[str] = dataclasses.field(default_factory=set)  # Not known for headers.


Record = dict[str, dict[str, Use]]  # Source package -> "static", "headers" or "shared" -> use.


def linked_files(linker_map: str) -> set[str]:
    """Objects that the linker was given, and archives that it took at least one member from."""
    sections = linker_map.split("\n\n")
    members = ""
    for title, section in zip(sections, sections[1:], strict=False):
        if title.strip() == "Archive member included to satisfy reference by file (symbol)":
            members = section
    return set(_ARCHIVE_MEMBER.findall(members)) | set(_LOADED_OBJECT.findall(linker_map))


def compiled_headers(dependencies: str) -> set[str]:
    """Absolute paths of what the objects in OBJECTS were compiled from, by the output of `ninja -t deps`."""
    headers: set[str] = set()
    ours = False
    for line in dependencies.splitlines():
        match = _OBJECT.match(line)
        if match:
            ours = match["object"].startswith(OBJECTS) and match["state"] == "VALID"
        elif ours and line.startswith("    /"):
            headers.add(line.strip())
    return headers


def loaded_libraries(listing: str) -> dict[str, str]:
    """Name -> place of the shared libraries that `ldd` lists, without the system's own."""
    libraries = {}
    for line in listing.splitlines():
        name, arrow, place = line.strip().partition(" => ")
        if arrow and not SYSTEM.match(name):
            if place.startswith("not found"):
                raise LicenceError(f"{name} is needed and not on this machine")
            libraries[name] = place.split(" (")[0]
    return libraries


def is_ours(path: str, build: pathlib.Path) -> bool:
    """Of this project: sources and objects, and what the link-time optimiser made of them in a temporary folder."""
    if not os.path.isabs(path) or _OPTIMISED.fullmatch(os.path.basename(path)):
        return True
    real = pathlib.Path(os.path.realpath(path))
    return real.is_relative_to(ROOT) or real.is_relative_to(build)


def _run(*command: str | pathlib.Path) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        raise LicenceError(f"{command[0]} failed: {error}") from error


def shared_libraries(build: pathlib.Path, program: Program) -> dict[str, str]:
    return loaded_libraries(_run("ldd", build / program.folder / program.name))


def _ninja(build: pathlib.Path) -> str:
    """The one that keeps the record of this build tree: another version would start it over."""
    cache = build / "CMakeCache.txt"
    found = re.search(r"^CMAKE_MAKE_PROGRAM:\w+=(.+)$", cache.read_text(), re.MULTILINE) if cache.exists() else None
    if found is None or pathlib.Path(found[1]).name != "ninja":
        raise LicenceError(f"{build} is not built by ninja: configure it with cmake --preset release")
    return found[1]


def read_record(build: pathlib.Path, loose_headers: Collection[str] = ()) -> Record:
    """All that is in the programs of a build tree, and is not of this project. Headers of these names may be of no
    Debian package; they are not in the record then."""
    build = build.resolve()
    uses: dict[tuple[str, str], set[str]] = defaultdict(set)  # Way and file -> programs.
    for program in PROGRAMS:
        linker_map = build / program.folder / f"{program.target}.linkmap"
        if not linker_map.exists():
            raise LicenceError(f"{linker_map} is missing: build {program.name} first (tools/dev build)")
        for path in linked_files(linker_map.read_text(errors="replace")):
            uses["static", path].add(program.name)
        if program.in_wheel:
            for path in shared_libraries(build, program).values():
                uses["shared", path].add(program.name)
    for path in compiled_headers(_run(_ninja(build), "-C", build, "-t", "deps")):
        if os.path.basename(path) not in loose_headers or path.startswith("/usr/include/"):
            uses["headers", path] = set()
    foreign = {use: programs for use, programs in uses.items() if not is_ours(use[1], build)}
    owners = find_owners(path for _, path in foreign)
    record: Record = defaultdict(lambda: defaultdict(Use))
    for (way, path), programs in foreign.items():
        real = os.path.realpath(path)
        use = record[owners[real].source][way]
        use.packages.add(owners[real])
        use.files.add(real)
        use.programs |= programs
    return record
