"""The list of what packages carry of others (components.toml), compared with what a build has really linked."""

from __future__ import annotations

import dataclasses
import pathlib
import tomllib
from typing import Any, TypeVar

from debian_packages import LicenceError
from link_record import Record, read_record

LIST = pathlib.Path(__file__).resolve().parent / "components.toml"
WAYS = ("static", "headers", "shared")
Entry = TypeVar("Entry")


@dataclasses.dataclass(frozen=True)
class Component:
    """One Debian source package; components.toml says what the fields mean."""

    source: str
    name: str
    licence: str
    ways: tuple[str, ...]
    copyright: tuple[str, ...] = ()
    excerpt: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Exemption:
    source: str
    ways: tuple[str, ...]
    reason: str
    files: tuple[str, ...] = ()  # Names of headers that no Debian package has brought.


@dataclasses.dataclass(frozen=True)
class Listed:
    components: tuple[Component, ...]
    exemptions: tuple[Exemption, ...]

    def loose_headers(self) -> set[str]:
        return {file for entry in self.exemptions for file in entry.files}


def _entries(kind: type[Entry], tables: list[dict[str, Any]], path: pathlib.Path) -> tuple[Entry, ...]:
    entries = []
    for table in tables:
        fields = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
        try:
            entries.append(kind(**fields))
        except TypeError as error:
            raise LicenceError(f"{path}: {table.get('source', 'an entry without source')}: {error}") from error
    return tuple(entries)


def read_list(path: pathlib.Path = LIST) -> Listed:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise LicenceError(f"{path}: {error}") from error
    components = _entries(Component, content.get("component", []), path)
    exemptions = _entries(Exemption, content.get("exempt", []), path)
    entries: list[Component | Exemption] = [*components, *exemptions]
    for entry in entries:
        if not entry.ways or not set(entry.ways) <= set(WAYS):
            raise LicenceError(f"{path}: {entry.source}: ways must be some of {', '.join(WAYS)}")
    sources = [entry.source for entry in entries]
    twice = sorted({source for source in sources if sources.count(source) > 1})
    if twice:
        raise LicenceError(f"{path}: {twice[0]} is listed twice")
    return Listed(components, exemptions)


def disagreements(listed: Listed, record: Record) -> list[str]:
    """One sentence for each way of linking that is not in the list, and for each of the list that is not linked."""
    packaged: list[Component | Exemption] = [*listed.components]
    packaged += [entry for entry in listed.exemptions if not entry.files]
    named = {(entry.source, way) for entry in packaged for way in entry.ways}
    linked = {(source, way) for source, uses in record.items() for way in uses}
    sentences = []
    for source, way in sorted(linked - named):
        use = record[source][way]
        where = f" into {', '.join(sorted(use.programs))}" if use.programs else ""
        sentences.append(f"{source} is linked ({way}: {min(use.files)}){where} and not in the list: add its licence")
    for source, way in sorted(named - linked):
        sentences.append(f"{source} is in the list as {way}, and nothing links it so: take it out")
    return sentences


def agreed_record(listed: Listed, build: pathlib.Path) -> Record:
    """What the build has linked; refuses where the list says otherwise."""
    record = read_record(build, listed.loose_headers())
    sentences = disagreements(listed, record)
    if sentences:
        raise LicenceError("\n".join(sentences))
    return record
