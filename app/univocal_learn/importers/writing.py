"""An import as files: the profile's, with its notes as comments, and the sites' as a univocal.toml."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from univocal_app.terminal import printable, written
from univocal_learn.importers.imported import Imported, Note, Table, octets_of


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
        lines += ["# What is otherwise there, or could not be taken over:"]
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
