"""The result of an importer and its files: a profile, sites, and notes on what it could not take over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from univocal.http.errors import ConfigurationError
from univocal_app.terminal import printable, written

Table: TypeAlias = Mapping[str, Any]
"""A table of TOML: strings, integers, booleans, lists of them, and lists of tables."""


class NothingImportedError(ConfigurationError):
    """A file has nothing that could be imported."""


def words_of(text: str) -> frozenset[str]:
    """The words of a list that is written on several lines."""
    return frozenset(text.split())


def text_of(octets: bytes) -> str:
    """The text of a file, in which bytes that are no UTF-8 are kept: a path may have them."""
    return octets.decode("utf-8", "surrogateescape")


def octets_of(text: str) -> bytes:
    """The bytes that a text of a file stands for."""
    return text.encode("utf-8", "surrogateescape")


class NotedPart(Protocol):
    """A part of a file that notes are about, as they call it; some have no title."""

    @property
    def line(self) -> int: ...
    @property
    def file(self) -> str: ...
    @property
    def title(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Note:
    """A difference between univocal and the file, and the line where it is; 0: the file as a whole."""

    line: int
    text: str
    is_open_question: bool = False  # univocal refuses these requests until somebody decides
    file: str = ""  # that was included; "": the file that is imported


class Notes(list[Note]):
    """Notes in the order in which they are made."""

    def say(self, place: NotedPart | int, text: str, *, is_open_question: bool = False) -> None:
        """Note something of a place, or of a line of the file that is imported."""
        line, file = (place, "") if isinstance(place, int) else (place.line, place.file)
        title = "" if isinstance(place, int) else place.title
        self.append(Note(line, f"{title}: {text}" if title else text, is_open_question, file))

    def ask(self, place: NotedPart | int, text: str) -> None:
        """Note an open question: univocal refuses until somebody decides."""
        self.say(place, text, is_open_question=True)


@dataclass(frozen=True, slots=True)
class Imported:
    """A profile as the tables of its file, `[[sites]]` that use it, and notes on the differences."""

    summary: str
    extends: str
    path: Table
    notes: Sequence[Note]
    sites: Sequence[Table] = ()
    server: Table = field(default_factory=dict)  # the table [server]
    cache: Table = field(default_factory=dict)  # the profile's
    is_empty: bool = False  # nothing could be imported
    # Further profiles by what stands behind the name of the first: "-2". Sites and routes name them so.
    others: Mapping[str, Table] = field(default_factory=dict)
    pages: Mapping[str, Mapping[str, Path]] = field(default_factory=dict)  # of errors, by their directories


@dataclass(frozen=True, slots=True)
class Source:
    """The file that is imported; `pick` names one of several rings, rules or servers in it."""

    name: str
    text: str
    pick: str | None = None
    root: Path | None = None  # the directory in which the files are that it includes

    def nothing(self, found: str, allowed: str) -> NothingImportedError:
        """The error for a file of which nothing can be imported."""
        return NothingImportedError(self.name, "", found, allowed)

    def error(self, line: int, found: str, allowed: str) -> ConfigurationError:
        """The error for a line that cannot be imported; line 0 is the file as a whole."""
        return ConfigurationError(self.name, f"line {line}" if line else "", found, allowed)


def line_of(note: Note) -> str:
    """A note on one line that no terminal obeys."""
    place = f"line {note.line}: " if note.line else ""
    if note.file:
        place = f"{note.file}: {place}"
    return printable(octets_of(place + note.text))


def profile_text(imported: Imported, file: str, name: str) -> str:
    """The profile as a file in the format of profiles/*.toml; its sites follow as comments."""
    lines = [f"# Imported from {printable(octets_of(file))}."]
    if imported.notes:
        lines += ["# Differences from the original, and parts that were not imported:"]
        lines += [f"#   {line_of(note)}" for note in ordered(imported)]
    lines += [f"summary = {written(imported.summary)}", f"extends = {written(imported.extends)}"]
    for name_of, table in (("path", imported.path), ("cache", imported.cache)):
        if table:
            lines += ["", f"[{name_of}]", *_keys(table)]
    if imported.sites:
        lines += ["", "# For univocal.toml:"]
        lines += [f"# {line}".rstrip() for line in _sites(imported, name)]
    return "\n".join(lines) + "\n"


def other_profiles(imported: Imported, file: str, name: str) -> Iterator[tuple[str, str]]:
    """The names and the files of the profiles besides the first."""
    for suffix, path in imported.others.items():
        other = replace(imported, path=path, notes=(), sites=())
        yield name + suffix, profile_text(other, file, name + suffix)


def sites_text(imported: Imported, name: str, profiles: str) -> str:
    """A univocal.toml of the sites, which looks for the profile in the directory `profiles`."""
    return "\n".join([f"profiles = [{written(profiles)}]", "", *_sites(imported, name)]) + "\n"


def ordered(imported: Imported) -> list[Note]:
    """Each note once, in the order of the files."""
    return sorted(dict.fromkeys(imported.notes), key=lambda note: (note.file, note.line))


def _sites(imported: Imported, name: str) -> Iterator[str]:
    if imported.server:
        yield from ("[server]", *_keys(imported.server), "")
    for number, site in enumerate(imported.sites):
        if number:
            yield ""
        yield "[[sites]]"
        yield from _keys({"hosts": site["hosts"], "profile": name} | dict(_named(site, name)))
        for route in site.get("routes", []):
            yield from ("", "[[sites.routes]]", *_keys(_named(route, name)))


def _named(table: Table, name: str) -> Table:
    """A site or a route with the whole name of its profile, if it is not the first."""
    return {**table, "profile": name + table["profile"]} if "profile" in table else table


def _keys(table: Table) -> Iterator[str]:
    return (f"{key} = {written(value)}" for key, value in table.items() if key != "routes")
