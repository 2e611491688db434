"""Which Debian package a file belongs to, which source that is built from, and the notice that the package carries."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import subprocess
from collections.abc import Iterable

_OWNED = re.compile(r"^(?!diversion by )(?P<packages>\S+(?:, \S+)*): (?P<path>/.*)$")
DOCUMENTS = pathlib.Path("/usr/share/doc")
COMMON_LICENCES = pathlib.Path("/usr/share/common-licenses")


class LicenceError(Exception):
    """One sentence for the person who makes a package."""


@dataclasses.dataclass(frozen=True, order=True)
class Package:
    name: str
    source: str
    version: str  # Of the source.
    home: str

    def notice(self) -> str:
        """Debian's copyright file: holders, licences and their texts."""
        path = DOCUMENTS / self.name / "copyright"
        try:
            return path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise LicenceError(f"{path} cannot be read ({error.strerror}): reinstall {self.name}") from error


def _run(*command: str) -> str:
    environment = dict(os.environ, LC_ALL="C")
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise LicenceError(f"{command[0]} is missing: packages are made on Debian") from error
    return done.stdout


def owners_in(listing: str) -> dict[str, str]:
    """Path -> package, from what `dpkg-query -S` prints."""
    owners = {}
    for line in listing.splitlines():
        match = _OWNED.match(line)
        if match:
            owners[match["path"]] = match["packages"].split(", ")[0]
    return owners


def find_owners(paths: Iterable[str]) -> dict[str, Package]:
    """Real path of every file -> its package; refuses a file that no package has brought."""
    real = sorted({os.path.realpath(path) for path in paths})
    if not real:
        return {}
    # dpkg may know a file of /usr/lib by the older name, /lib.
    spellings = [spelling for path in real for spelling in (path, path.removeprefix("/usr"))]
    owners = owners_in(_run("dpkg-query", "-S", *dict.fromkeys(spellings)))
    found = {path: owners.get(path) or owners.get(path.removeprefix("/usr")) for path in real}
    unknown = [path for path, owner in found.items() if owner is None]
    if unknown:
        raise LicenceError(f"{unknown[0]} belongs to no Debian package, so its licence is not known here")
    packages = _describe({owner for owner in found.values() if owner is not None})
    return {path: packages[owner.split(":")[0]] for path, owner in found.items() if owner is not None}


def _describe(names: set[str]) -> dict[str, Package]:
    form = r"${Package}\t${source:Package}\t${source:Version}\t${Homepage}\n"
    lines = _run("dpkg-query", "-W", "-f", form, *sorted(names)).splitlines()
    return {
        name: Package(name, source, version, home) for name, source, version, home in (x.split("\t") for x in lines)
    }
