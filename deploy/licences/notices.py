"""The notices that travel with packages: Debian's own copyright files of what is linked, under a head that says where
it is. In the wheel a file for each component; in the .deb a paragraph of the copyright file for each.
"""

from __future__ import annotations

import pathlib
import re

from components import Component, Listed
from debian_packages import COMMON_LICENCES, LicenceError, Package
from link_record import Record

_COMMON = re.compile(r"/usr/share/common-licenses/([A-Za-z0-9][A-Za-z0-9.+-]*[A-Za-z0-9])")
_COPYRIGHT = re.compile(r"^Copyright:[ \t]*((?:.*\n)(?:[ \t]+.*\n)*)", re.MULTILINE)
# Licences whose text has to travel, and is not in the notices themselves.
_TEXTS = {"Apache-2.0": "Apache-2.0", "LGPL-2.1": "LGPL-2.1", "GPL-3.0": "GPL-3"}
_WAYS = {
    "static": "Linked statically into {programs}.",
    "headers": "Code of its headers is compiled into the programs.",
    "shared": "Carried as a shared library, which may be replaced by another of the same interface.",
}


def _paragraphs(text: str) -> list[str]:
    return [paragraph.strip("\n") + "\n" for paragraph in re.split(r"\n[ \t]*\n", text) if paragraph.strip()]


def notice_text(component: Component, package: Package) -> str:
    """Debian's file, or the paragraphs of it that begin with the lines of the component's excerpt."""
    text = package.notice()
    if not component.excerpt:
        return text.strip("\n") + "\n"
    kept = []
    for first_line in component.excerpt:
        # A licence is also named in paragraphs about files; its text stands in the one that begins with it.
        found = [part for part in _paragraphs(text) if part.split("\n", 1)[0].rstrip() == first_line]
        if not found:
            raise LicenceError(f"{component.source}: Debian's copyright file has no paragraph '{first_line}'")
        kept.append(found[0])
    return "\n".join(kept)


def holders(component: Component, notice: str) -> list[str]:
    """Who holds the copyright: of a machine-readable notice its fields, without those of the Debian packaging."""
    if component.copyright:
        return list(component.copyright)
    lines = []
    for paragraph in _paragraphs(notice):
        if re.match(r"Files:\s*(?!debian/)\S", paragraph):
            for field in _COPYRIGHT.findall(paragraph):
                lines += [line.strip() for line in field.splitlines() if line.strip()]
    if not lines:
        raise LicenceError(f"{component.source}: its notice is not machine-readable; name the holders by `copyright`")
    return list(dict.fromkeys(lines))


def _package_of(component: Component, record: Record) -> Package:
    return min(package for use in record[component.source].values() for package in use.packages)


def _places(component: Component, record: Record, ways: tuple[str, ...]) -> list[str]:
    uses = record[component.source]
    return [_WAYS[way].format(programs=", ".join(sorted(uses[way].programs))) for way in ways if way in uses]


def _origin(package: Package) -> str:
    source = f"https://snapshot.debian.org/package/{package.source}/{package.version}/"
    home = f", {package.home}" if package.home else ""
    return f"Debian source package {package.source} {package.version}{home}; source text: {source}"


def common_licences(component: Component, notice: str) -> dict[str, str]:
    """Name -> name of its file, for the licence texts that Debian keeps once for all packages: GPL is GPL-3. Those that
    the notice names, and those of the component's licence: a notice may name the newest for one that is older."""
    names = set(_COMMON.findall(notice)) | {text for licence, text in _TEXTS.items() if licence in component.licence}
    return {name: (COMMON_LICENCES / name).resolve().name for name in sorted(names)}


def write_wheel(listed: Listed, record: Record, folder: pathlib.Path) -> None:
    """third-party/<source>.txt for each component, and common-licenses/<name> for each text that they refer to: into a
    folder that has tierd's own LICENSE.
    """
    third_party = folder / "third-party"
    own = (folder / "LICENSE").read_bytes()
    third_party.mkdir()
    (folder / "common-licenses").mkdir()
    for component in listed.components:
        package = _package_of(component, record)
        notice = notice_text(component, package)
        head = [f"{component.name}: {component.licence}", *_places(component, record, component.ways)]
        head.append(f"From the {_origin(package)}")
        for name, file in common_licences(component, notice).items():
            content = (COMMON_LICENCES / name).read_bytes()
            place = "LICENSE" if content == own else f"common-licenses/{file}"  # No file twice.
            (folder / place).write_bytes(content)
            head.append(f"/usr/share/common-licenses/{name} is beside this folder: {place}")
        (third_party / f"{component.source}.txt").write_text("\n".join(head) + "\n\n" + notice, encoding="utf-8")


def _field(text: str) -> str:
    """As the continuation of a field: each line behind a blank, an empty one as a dot."""
    return "".join(f" {line.rstrip()}\n" if line.strip() else " .\n" for line in text.splitlines())


def _debian_licence(licence: str) -> str:
    """SPDX's expression in the words of Debian's format."""
    with_exception = re.sub(
        r" WITH (\S+)", lambda match: f" with {match[1].removesuffix('-exception')} exception", licence
    )
    return with_exception.replace(" AND ", " and ").replace(" OR ", " or ")


def copyright_file(head: str, listed: Listed, record: Record) -> str:
    """The .deb's copyright file: tierd's own paragraphs, then one for each component whose code is in the programs."""
    paragraphs = [head.strip("\n") + "\n"]
    for component in listed.components:
        ways = tuple(way for way in component.ways if way != "shared")
        if not ways:
            continue  # It comes by its own package.
        package = _package_of(component, record)
        notice = notice_text(component, package)
        by = "\n           ".join(holders(component, notice))
        paragraphs.append(
            f"Files: {component.source}/*\nCopyright: {by}\n"
            f"License: {_debian_licence(component.licence)}\n{_field(notice)}"
            f"Comment: {component.name}. {' '.join(_places(component, record, ways))} From the\n {_origin(package)}\n"
        )
    return "\n".join(paragraphs)
