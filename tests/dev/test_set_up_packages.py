"""What set-up installs is used: each library's headers by an #include, or the library by a line of CMake."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = re.compile(r"^/usr/include/(?:x86_64-linux-gnu/)?(.+)$")


def sources(*patterns: str) -> str:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return "\n".join((ROOT / name).read_text() for name in names if (ROOT / name).exists())


def included(text: str) -> set[str]:
    return set(re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', text, re.MULTILINE))


def named_by_cmake(text: str) -> set[str]:
    """Files that the lines of CMake ask for: packages' configurations, pkg-config's descriptions, static archives."""
    text = re.sub(r"#[^\n]*", "", text)
    names = set()
    for package in re.findall(r"find_package\(\s*([\w+-]+)", text):
        names |= {f"{package.lower()}config.cmake", f"{package.lower()}-config.cmake"}
    for modules in re.findall(r"pkg_check_modules\(\s*\w+\s+([^)]*)\)", text):
        names |= {f"{module.lower()}.pc" for module in modules.split()}
    return names | {archive.lower() for archive in re.findall(r"-l:([\w+.-]+\.a)", text)}


def is_used(files: list[str], includes: set[str], cmake: set[str]) -> bool:
    headers = {match[1] for match in map(HEADERS.match, files) if match}
    return bool(headers & includes) or any(pathlib.PurePosixPath(file).name.lower() in cmake for file in files)


def brings_library(files: list[str]) -> bool:
    return any(HEADERS.match(file) or file.endswith(".a") for file in files)


def set_up_packages() -> list[str]:
    text = (ROOT / "tools/dev.d/packages.sh").read_text()
    (block,) = re.findall(r"^BASE_PACKAGES=\((.*?)^\)", text, re.MULTILINE | re.DOTALL)
    return re.sub(r"#[^\n]*", "", block).split()


def test_every_library_that_set_up_installs_is_used() -> None:
    if shutil.which("dpkg-query") is None:
        pytest.skip("needs dpkg-query: Debian")
    includes, cmake = included(sources("*.cc", "*.h", "*.hpp", "*.c")), named_by_cmake(sources("*.cmake", "*.txt"))
    libraries, unused = [], []
    for package in set_up_packages():
        listing = subprocess.run(["dpkg-query", "-L", package], capture_output=True, text=True, check=False)
        files = listing.stdout.splitlines()
        if listing.returncode != 0:
            pytest.skip(f"needs {package}: tools/dev setup installs it")
        if brings_library(files):
            libraries.append(package)
            if not is_used(files, includes, cmake):
                unused.append(package)
    assert len(libraries) > 15, libraries
    assert not unused, "no #include and no line of CMake uses them: take them out of tools/dev.d/packages.sh"


@pytest.mark.parametrize(
    ("files", "used"),
    [
        (["/usr/include/xxhash.h", "/usr/lib/x86_64-linux-gnu/pkgconfig/libxxhash.pc"], False),
        (["/usr/include/numa.h"], True),
        (["/usr/include/x86_64-linux-gnu/numa.h"], True),
        (["/usr/include/other/numa.h"], False),
        (["/usr/lib/x86_64-linux-gnu/pkgconfig/protobuf.pc"], True),
        (["/usr/lib/x86_64-linux-gnu/libprotobuf.a"], True),
        (["/usr/lib/x86_64-linux-gnu/libprotobuf-lite.a"], False),
        (["/usr/lib/x86_64-linux-gnu/cmake/Boost-1.81.0/BoostConfig.cmake"], True),
        (["/usr/lib/x86_64-linux-gnu/cmake/benchmark/benchmarkConfig.cmake"], False),
    ],
)
def test_use_is_an_include_or_a_line_of_cmake(files: list[str], used: bool) -> None:
    cmake = named_by_cmake(
        "find_package(Boost 1.81 REQUIRED)  # find_package(benchmark)\n"
        "pkg_check_modules(TIER REQUIRED grpc++ protobuf)\ntarget_link_libraries(x -l:libprotobuf.a)\n"
    )
    assert is_used(files, included('#include <numa.h>\n  #  include "a/b.h"\n'), cmake) is used
