"""What packages carry of others: the list agrees with the build, a package is refused otherwise, and each notice is in
the copyright file. The wheel's are checked by tests/e2e/test_wheel.py.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import components
import licences
import link_record
import notices
import pytest
from components import Component, Exemption, Listed, disagreements, read_list
from debian_packages import LicenceError, Package, find_owners, owners_in
from link_record import Record, Use
from surroundings import BUILD, ROOT, find_tool

COMMAND = ROOT / "deploy/licences/licences.py"
CARES = Package("libc-ares-dev", "c-ares", "1.2-3", "https://c-ares.org/")
XXHASH = Package("libxxhash-dev", "xxhash", "0.8", "")

LINKER_MAP = """Archive member included to satisfy reference by file (symbol)

/usr/lib/gcc/x86_64-linux-gnu/12/../../../x86_64-linux-gnu/libz.a(zutil.o)
                              main.o (zlibVersion)
daemon/libtier_daemon.a(reload.cc.o)
                              main.o (Reload)

As-needed library included to satisfy reference by file (symbol)

libc.so.6                     /usr/lib/x86_64-linux-gnu/libcares.a(x.o) (free@@GLIBC_2.2.5)

LOAD /usr/lib/x86_64-linux-gnu/Scrt1.o
LOAD /tmp/ccA.ltrans0.ltrans.o
LOAD /usr/lib/x86_64-linux-gnu/libcares.a
LOAD /usr/lib/x86_64-linux-gnu/libnuma.so
"""

DEPENDENCIES = """daemon/CMakeFiles/tierd.dir/main.cc.o: #deps 3, deps mtime 17 (VALID)
    ../../daemon/main.cc
    /usr/include/numa.h

tests/unit/x.cc.o: #deps 1, deps mtime 17 (VALID)
    /usr/include/gtest/gtest.h

proto/old.cc.o: #deps 1, deps mtime 17 (STALE)
    /usr/include/old.h
"""


def listed(*entries: Component, exemptions: tuple[Exemption, ...] = ()) -> Listed:
    return Listed(entries, exemptions)


def record(**uses: tuple[Package, str]) -> Record:
    """static=(package, file)"""
    found: Record = {}
    for way, (package, file) in uses.items():
        found.setdefault(package.source, {})[way] = Use({package}, {file}, {"tierd"})
    return found


def need_build() -> None:
    if not (BUILD / "daemon/tierd.linkmap").exists():
        pytest.skip(f"needs a build: {BUILD} has no tierd with its linker's map")
    find_tool("dpkg-query", "Debian")


def test_only_members_that_were_taken_count_as_linked() -> None:
    found = link_record.linked_files(LINKER_MAP)
    assert found == {
        "/usr/lib/gcc/x86_64-linux-gnu/12/../../../x86_64-linux-gnu/libz.a",
        "daemon/libtier_daemon.a",
        "/usr/lib/x86_64-linux-gnu/Scrt1.o",
        "/tmp/ccA.ltrans0.ltrans.o",
    }


@pytest.mark.parametrize(
    ("path", "ours"),
    [
        ("daemon/libtier_daemon.a", True),
        (str(ROOT / "daemon/main.o"), True),
        ("/tmp/ccAbC123.ltrans0.ltrans.o", True),
        ("/tmp/ccAbC123.debug.temp.o", True),
        ("/tmp/libfound.a", False),
        ("/tmp/ccAbC123.o", False),
        ("/usr/lib/libz.a", False),
    ],
)
def test_files_of_this_project_need_no_licence(path: str, ours: bool) -> None:
    assert link_record.is_ours(path, BUILD) is ours


def test_headers_are_those_of_objects_that_end_in_a_program() -> None:
    assert link_record.compiled_headers(DEPENDENCIES) == {"/usr/include/numa.h"}


def test_libraries_of_every_system_are_not_carried() -> None:
    listing = (
        "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/libc.so.6 (0x1)\n\tlibnuma.so.1 => /lib/libnuma.so.1 (0x1)\n"
    )
    assert link_record.loaded_libraries(listing) == {"libnuma.so.1": "/lib/libnuma.so.1"}
    with pytest.raises(LicenceError, match="libnuma.so.1 is needed and not on this machine"):
        link_record.loaded_libraries("\tlibnuma.so.1 => not found\n")


def test_owners_are_read_without_diversions() -> None:
    listing = "diversion by dash from: /bin/sh\nzlib1g-dev:amd64: /usr/lib/libz.a\nlibgrpc-dev, other: /usr/x\n"
    assert owners_in(listing) == {"/usr/lib/libz.a": "zlib1g-dev:amd64", "/usr/x": "libgrpc-dev"}


def test_a_file_of_no_package_is_refused(tmp_path: pathlib.Path) -> None:
    find_tool("dpkg-query", "Debian")
    (tmp_path / "libown.a").touch()
    with pytest.raises(LicenceError, match=r"libown\.a belongs to no Debian package"):
        find_owners([str(tmp_path / "libown.a")])


def test_what_is_linked_and_not_listed_is_named() -> None:
    (found,) = disagreements(listed(), record(static=(XXHASH, "/usr/lib/libxxhash.a")))
    assert found == "xxhash is linked (static: /usr/lib/libxxhash.a) into tierd and not in the list: add its licence"


def test_what_is_listed_and_not_linked_is_named() -> None:
    entry = Component("xxhash", "xxHash", "BSD-2-Clause", ("static", "headers"))
    (found,) = disagreements(listed(entry), record(static=(XXHASH, "/usr/lib/libxxhash.a")))
    assert found == "xxhash is in the list as headers, and nothing links it so: take it out"
    exemption = Exemption("linux", ("headers",), "no derived work")
    (found,) = disagreements(listed(exemptions=(exemption,)), {})
    assert found.startswith("linux is in the list as headers")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[component]]\nsource = 'x'\n", "x: .*missing 3 required"),
        ("[[component]]\nname = 'X'\nlicense = 'MIT'\n", "an entry without source: .*unexpected"),
        ("[[component]]\nsource='x'\nname='X'\nlicence='MIT'\nways=['dynamic']\n", "x: ways must be some of static"),
        ("[[component]]\nsource='x'\nname='X'\nlicence='MIT'\nways=[]\n", "x: ways must be some of static"),
        ("[[exempt]]\nsource='x'\nways=['static']\nreason='r'\n" * 2, "x is listed twice"),
        ("[[component", "Expected"),
    ],
)
def test_a_broken_list_is_refused(tmp_path: pathlib.Path, text: str, words: str) -> None:
    path = tmp_path / "components.toml"
    path.write_text(text)
    with pytest.raises(LicenceError, match=words):
        read_list(path)


def test_the_list_agrees_with_the_build() -> None:
    need_build()
    listed = read_list()
    assert disagreements(listed, link_record.read_record(BUILD, listed.loose_headers())) == []


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('source = "zlib"', 'source = "bzip2"', "zlib is linked (static: "),
        ('source = "zlib"', 'source = "bzip2"', "bzip2 is in the list as static"),
        ('ways = ["static"]', 'ways = ["static", "shared"]', " is in the list as shared"),
    ],
)
def test_no_notices_are_written_when_they_disagree(tmp_path: pathlib.Path, old: str, new: str, words: str) -> None:
    need_build()
    text = components.LIST.read_text()
    assert old in text
    changed = tmp_path / "components.toml"
    changed.write_text(text.replace(old, new))
    command: list[str | pathlib.Path] = [
        sys.executable,
        COMMAND,
        "copyright",
        "--build",
        BUILD,
        "--list",
        changed,
        "--out",
        tmp_path / "copyright",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and words in done.stderr, done.stderr
    assert not (tmp_path / "copyright").exists()


def test_a_package_is_refused_without_its_copyright_file(tmp_path: pathlib.Path) -> None:
    command: list[str | pathlib.Path] = [
        find_tool("cmake", "tools/dev setup"),
        f"-DCPACK_TEMPORARY_INSTALL_DIRECTORY={tmp_path}/staging",
        f"-DCPACK_TIERD_BUILD={tmp_path}",
        "-P",
        ROOT / "deploy/deb/stage.cmake",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "tierd.linkmap is missing: build tierd first (tools/dev build)" in done.stderr, done.stderr


def test_the_table_shows_list_and_build_side_by_side() -> None:
    entry = Component("c-ares", "c-ares", "MIT", ("static",))
    shown = licences.table(listed(entry), record(static=(CARES, "/usr/lib/libcares.a")))
    assert shown == "c-ares           c-ares: MIT\n    static   /usr/lib/libcares.a  -> tierd"


MACHINE_READABLE = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: 2011 One
           2012 Two
License: MIT

Files: src/x.c
Copyright: 2012 Two
License: ISC

Files: debian/*
Copyright: 2013 Packager
License: GPL-3

License: MIT
 Permission is granted.

 Not a part of the paragraph above.
"""


def test_holders_are_those_of_what_is_linked() -> None:
    entry = Component("x", "X", "MIT", ("static",))
    assert notices.holders(entry, MACHINE_READABLE) == ["2011 One", "2012 Two"]
    with pytest.raises(LicenceError, match="x: its notice is not machine-readable; name the holders by `copyright`"):
        notices.holders(entry, "Copyright 2011 One\n")
    named = Component("x", "X", "MIT", ("static",), copyright=("2011 One",))
    assert notices.holders(named, "Copyright 2011 One\n") == ["2011 One"]


def test_an_excerpt_has_the_paragraphs_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Package, "notice", lambda _: MACHINE_READABLE)
    entry = Component("x", "X", "MIT", ("static",), excerpt=("Files: *", "License: MIT"))
    kept = notices.notice_text(entry, CARES)
    assert kept == (
        "Files: *\nCopyright: 2011 One\n           2012 Two\nLicense: MIT\n\nLicense: MIT\n Permission is granted.\n"
    )
    gone = Component("x", "X", "MIT", ("static",), excerpt=("License: BSD",))
    with pytest.raises(LicenceError, match="has no paragraph 'License: BSD'"):
        notices.notice_text(gone, CARES)


def test_a_package_without_its_notice_is_refused() -> None:
    with pytest.raises(LicenceError, match="no-such-package/copyright cannot be read .*: reinstall no-such-package"):
        Package("no-such-package", "x", "1", "").notice()


def test_licence_texts_are_those_that_notice_or_licence_names() -> None:
    text = "see `/usr/share/common-licenses/GPL', and /usr/share/common-licenses/Apache-2.0.\n"
    entry = Component("x", "X", "MIT AND LGPL-2.1-only", ("shared",))
    found = notices.common_licences(entry, text)
    assert list(found) == ["Apache-2.0", "GPL", "LGPL-2.1"]
    assert found["GPL"].startswith("GPL") and found["Apache-2.0"] == "Apache-2.0"


def linked_in(listed_components: Listed) -> list[Component]:
    return [entry for entry in listed_components.components if set(entry.ways) & {"static", "headers"}]


def test_the_packages_copyright_file_has_each_notice(deb: pathlib.Path, tmp_path: pathlib.Path) -> None:
    need_build()
    subprocess.run(["dpkg-deb", "-x", deb, tmp_path], check=True)
    text = (tmp_path / "usr/share/doc/tierd/copyright").read_text()
    record = components.agreed_record(read_list(), BUILD)
    for component in linked_in(read_list()):
        (paragraph,) = [part for part in text.split("\n\n") if part.startswith(f"Files: {component.source}/*\n")]
        package = min(owner for use in record[component.source].values() for owner in use.packages)
        assert f"Debian source package {package.source} {package.version}" in paragraph
        notice = notices.notice_text(component, package)
        words = re.sub(r"\s+", " ", re.sub(r"^ \.$", "", paragraph, flags=re.MULTILINE))
        for line in notice.splitlines():
            assert re.sub(r"\s+", " ", line.strip()) in words, (component.source, line)


def test_the_packages_copyright_file_is_machine_readable(deb: pathlib.Path, tmp_path: pathlib.Path) -> None:
    python = ROOT / ".cache/packaging/bin/python"
    if not python.exists():
        pytest.skip("needs the tools of .cache/packaging: tools/dev setup --full")
    subprocess.run(["dpkg-deb", "-x", deb, tmp_path], check=True)
    script = (
        "import sys; from debian.copyright import Copyright\n"
        "file = Copyright(open(sys.argv[1], encoding='utf-8'), strict=True)\n"
        "for part in file.all_files_paragraphs():\n"
        "    print(part.files[0], '|', part.license.synopsis, '|', bool(part.copyright and part.license.text))\n"
    )
    command: list[str | pathlib.Path] = [python, "-c", script, tmp_path / "usr/share/doc/tierd/copyright"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    rows = dict(line.split(" | ", 1) for line in done.stdout.splitlines())
    assert set(rows) == {"*"} | {f"{entry.source}/*" for entry in linked_in(read_list())}
    assert all(row.endswith("True") for row in rows.values()), rows
    assert rows["gcc-12/*"].startswith("GPL-3.0-or-later with GCC-exception-3.1 exception")
