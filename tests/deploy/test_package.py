"""The Debian package as dpkg and lintian see it. tests/deploy/test_systemd.py installs it."""

from __future__ import annotations

import gzip
import pathlib
import re
import subprocess

import pytest
from surroundings import ROOT, find_tool

WANTED = (
    "/etc/needrestart/conf.d/tierd.conf",
    "/etc/tierd/tierd.toml",
    "/usr/bin/tierd",
    "/usr/bin/tierctl",
    "/usr/sbin/tierd-smart",
    "/usr/include/tier/tier.h",
    "/usr/include/tier/tier.hpp",
    "/usr/include/tier/control.h",
    "/usr/lib/systemd/system/tierd.service",
    "/usr/share/tierd/systemd/kill.conf",
    "/usr/share/tierd/systemd/restart-steps.conf",
    "/usr/lib/systemd/system/tierd.socket",
    "/usr/lib/systemd/system/tierd-smart.service",
    "/usr/lib/systemd/system/tierd-smart.timer",
    "/usr/lib/sysusers.d/tierd.conf",
    "/usr/lib/tmpfiles.d/tierd.conf",
    "/usr/share/man/man8/tierd.8.gz",
    "/usr/share/man/man8/tierd-smart.8.gz",
    "/usr/share/man/man1/tierctl.1.gz",
    "/usr/share/bash-completion/completions/tierctl",
    "/usr/share/zsh/vendor-completions/_tierctl",
    "/usr/share/fish/vendor_completions.d/tierctl.fish",
    "/usr/share/doc/tierd/copyright",
    "/usr/share/doc/tierd/changelog.gz",
    "/usr/share/doc/tierd/formats.md",
    "/usr/share/doc/tierd/index.md",
    "/usr/share/doc/tierd/runbooks/TierdDown.md",
    "/usr/share/doc/tierd/tierctl-json.md",
    "/usr/share/tierd/grafana/node.json",
    "/usr/share/tierd/proto/tier/v1/control.proto",
)
WANTED_NAMES = (r"libtier\.so\.0", r"libtier-control\.so\.0", r"pkgconfig/tier\.pc", r"cmake/tier/\w+\.cmake")


def contents(deb: pathlib.Path) -> dict[str, str]:
    """Path -> mode, owner of every entry."""
    listing = subprocess.run(["dpkg-deb", "-c", str(deb)], check=True, capture_output=True, text=True).stdout
    entries = {}
    for line in listing.splitlines():
        mode, owner, _, _, _, path = line.split(maxsplit=5)
        entries[path.split(" -> ")[0].removeprefix(".")] = f"{mode} {owner}"
    return entries


@pytest.mark.parametrize("path", WANTED)
def test_the_package_holds(deb: pathlib.Path, path: str) -> None:
    assert path in contents(deb)


@pytest.mark.parametrize("name", WANTED_NAMES)
def test_the_package_holds_the_libraries(deb: pathlib.Path, name: str) -> None:
    assert any(re.search(name, path) for path in contents(deb))


def test_every_page_that_something_in_it_names_is_in_it(deb: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Links between pages, and what manual pages, alerts and files of /etc name."""
    subprocess.run(["dpkg-deb", "-x", deb, tmp_path], check=True)
    pages = [*(tmp_path / "usr/share/doc/tierd").rglob("*.md")]
    assert len(pages) > 40
    for page in pages:
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
            assert ":" in link or (page.parent / link).exists(), f"{page.name} names {link}"
    texts = [gzip.decompress(path.read_bytes()).decode() for path in (tmp_path / "usr/share/man").rglob("*.gz")]
    texts += [path.read_text() for path in (tmp_path / "usr/share/tierd").rglob("*.yml")]
    texts += [path.read_text() for path in (tmp_path / "etc").rglob("*") if path.is_file()]
    named = set(re.findall(r"/usr/share/doc/tierd[\w./-]*\w", "\n".join(texts).replace("\\-", "-")))
    assert len(named) > 20
    for path in named:
        assert (tmp_path / path[1:]).exists(), path
    for text in texts:
        assert not re.search(r"\bdocs/[\w-]+\.md", text.replace("\\-", "-")), "it is no file of an installed system"


def test_everything_in_it_is_owned_by_root_and_lies_where_packages_may_put_it(deb: pathlib.Path) -> None:
    for path, state in contents(deb).items():
        assert state.endswith("root/root"), path
        assert path.startswith(("/usr/", "/etc/")) or path in ("/", "/usr/", "/etc/"), path
        assert "/local/" not in path and "/test" not in path, path


def test_lintian_has_nothing_to_say(deb: pathlib.Path) -> None:
    found = subprocess.run(
        [find_tool("lintian"), "--allow-root", "--display-info", "--fail-on=error,warning,info", str(deb)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stdout) == (0, ""), found.stdout + found.stderr


@pytest.mark.parametrize("library", ["libtier.so.0", "libtier-control.so.0"])
def test_the_symbols_file_names_what_a_library_exports(deb: pathlib.Path, tmp_path: pathlib.Path, library: str) -> None:
    """An exported function that is new is added there, with the version that brought it; none is ever taken out."""
    subprocess.run(["dpkg-deb", "-R", deb, tmp_path], check=True)
    (file,) = [path for path in tmp_path.rglob(library) if path.is_symlink()]
    command: list[str | pathlib.Path] = ["nm", "--dynamic", "--defined-only", "--with-symbol-versions", file]
    exported = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    # Versions are listed too, as absolute symbols: LIBTIER_0@LIBTIER_0.
    names = {line.split()[2].replace("@@", "@") for line in exported.splitlines()}
    names = {name if "@" in name else f"{name}@{name}" for name in names}
    named: set[str] = set()
    for block in re.split(r"(?m)^(?=lib)", (tmp_path / "DEBIAN/symbols").read_text()):
        if block.startswith(f"{library} tierd (>= "):
            named = {line.split()[0] for line in block.splitlines() if line.startswith(" ")}
    assert len(named) > 5 and named == names


def test_functions_are_bound_at_start_and_writes_are_checked(deb: pathlib.Path, tmp_path: pathlib.Path) -> None:
    subprocess.run(["dpkg-deb", "-x", deb, tmp_path], check=True)
    programs = [tmp_path / "usr" / name for name in ("bin/tierd", "bin/tierctl", "sbin/tierd-smart")]
    files = [*programs, *tmp_path.rglob("libtier*.so.0")]
    assert len(files) == 5
    for file in files:
        dynamic = subprocess.run(["readelf", "-dW", file], capture_output=True, text=True, check=True).stdout
        assert re.search(r"\(FLAGS(_1)?\).*\b(BIND_NOW|NOW)\b", dynamic), file
        segments = subprocess.run(["readelf", "-lW", file], capture_output=True, text=True, check=True).stdout
        assert "GNU_RELRO" in segments, file
        if file.name != "libtier-control.so.0":  # It writes into no memory whose size is known.
            symbols = subprocess.run(["nm", "--dynamic", file], capture_output=True, text=True, check=True).stdout
            assert re.search(r" U __\w+_chk@", symbols), file


def test_needrestart_lists_tierd_and_leaves_it_running(deb: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The file as needrestart reads it: Perl, evaluated after the defaults, which it must leave as they are."""
    subprocess.run(["dpkg-deb", "-x", str(deb), str(tmp_path)], check=True)
    script = (
        "our %nrconf = (override_rc => {qr(^dbus) => 0}); eval do { local (@ARGV, $/) = shift; <> }; die $@ if $@;"
        " for my $unit (qw(tierd.service tierd.socket ssh.service dbus.service)) {"
        " for my $re (keys %{$nrconf{override_rc}}) {"
        " print qq($unit $nrconf{override_rc}->{$re}\\n) if $unit =~ /$re/ } }"
    )
    found = subprocess.run(
        ["perl", "-e", script, str(tmp_path / "etc/needrestart/conf.d/tierd.conf")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.splitlines() == ["tierd.service 0", "dbus.service 0"]


def test_package_and_changelog_name_one_version(deb: pathlib.Path) -> None:
    version = subprocess.run(["dpkg-deb", "-f", str(deb), "Version"], check=True, capture_output=True, text=True)
    packaged = version.stdout.strip()
    assert f"tierd ({packaged})" in (ROOT / "deploy/deb/changelog").read_text()
    assert f"## {packaged}" in (ROOT / "CHANGELOG.md").read_text()
