"""`univocal profiles import`: a profile from another program's configuration."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from univocal.http.errors import ConfigurationError
from univocal_app.commands.settings import argument, option, write_file
from univocal_app.terminal import printable
from univocal_learn.importers import ats, nginx, varnish
from univocal_learn.importers.imported import (
    Imported,
    NothingImportedError,
    Source,
    Table,
    line_of,
    octets_of,
    ordered,
    other_profiles,
    profile_text,
    sites_text,
    text_of,
)

LARGEST: Final = 2**20  # bytes of a file; the largest ring, rule or server is far from it


class Format(StrEnum):
    """The program whose configuration is read."""

    VARNISH = "varnish"
    ATS = "ats"
    NGINX = "nginx"


READERS: Final = {Format.VARNISH: varnish.read, Format.ATS: ats.read, Format.NGINX: nginx.read}


def import_profile(
    file: Annotated[
        Path,
        argument(
            "FILE", "A VCL or C file, a remap.config, an nginx.conf, or - for standard input.", readable=False
        ),
    ],
    source: Annotated[Format, option("varnish|ats|nginx", "The format of FILE.", "--from")],
    name: Annotated[str | None, option("NAME", "The profile's name. Default: the file's.")] = None,
    output: Annotated[Path | None, option("FILE", "The output file. Default: standard output.")] = None,
    sites: Annotated[Path | None, option("FILE", "Write the sites to this univocal.toml.")] = None,
    root: Annotated[Path | None, option("DIR", "The directory of the files that FILE includes.")] = None,
    pick: Annotated[str | None, option("NAME", "Choose one of several tables, rules or servers.")] = None,
) -> None:
    """Import a profile from a Varnish table, a Traffic Server rule or an nginx server.

    Standard error and comments of the profile list each line that has no equivalent. Exit status: 0 every
    rule that refuses or keeps apart was written, 1 univocal refuses requests that were served, 2 usage,
    3 nothing could be imported.
    """
    imported = _imported(file, READERS[source], Source(str(file), _read(file), pick, root))
    name = printable(os.fsencode(name or (output or (Path("imported") if str(file) == "-" else file)).stem))
    if sites is None:
        imported = replace(imported, sites=[_without_pages(site) for site in imported.sites])
    else:
        directory = _directory(sites, imported, output)
    _write_profiles(imported, file, name, output)
    if sites is not None:
        write_file(sites, sites_text(imported, name, directory).encode("utf-8", "replace"))
        _copy_pages(imported, sites.parent)
    questions = _report(file, imported)
    if output is not None and output.stem != name:
        text = f"a profile is called as its file, {output.stem!r}; its sites say {name!r}"
        typer.echo(f"{output}: {text}", err=True)
    if questions:
        typer.echo(f"{file}: access rules without an equal: {questions}; see the lines above", err=True)
        raise typer.Exit(1)


def _imported(file: Path, reader: Callable[[Source], Imported], source: Source) -> Imported:
    """The import of a file; ends the command with status 3 where nothing could be imported."""
    try:
        imported = reader(source)
    except NothingImportedError as error:
        typer.echo(f"univocal: {printable(octets_of(str(error)))}", err=True)
        raise typer.Exit(3) from None
    if imported.is_empty:
        _report(file, imported)
        typer.echo(f"{file}: nothing could be imported; see the lines above", err=True)
        raise typer.Exit(3)
    return imported


def _write_profiles(imported: Imported, file: Path, name: str, output: Path | None) -> None:
    text = profile_text(imported, file.name, name)
    if output is not None:
        write_file(output, text.encode("utf-8", "replace"))
        for other, own in other_profiles(imported, file.name, name):
            write_file(output.with_name(f"{other}.toml"), own.encode())
        return
    if imported.others:
        found = f"{1 + len(imported.others)} profiles"
        raise ConfigurationError(str(file), "", found, "--output, or --pick with one of them")
    typer.echo(text, nl=False)


def _without_pages(site: Table) -> Table:
    return {key: value for key, value in site.items() if key != "error_pages"}


def _copy_pages(imported: Imported, beside: Path) -> None:
    """Copy the pages of errors into the directories that the sites name."""
    for directory, pages in imported.pages.items():
        (beside / directory).mkdir(exist_ok=True)
        for name, page in pages.items():
            write_file(beside / directory / name, page.read_bytes())


def _report(file: Path, imported: Imported) -> int:
    """Write the notes to standard error; the number of access rules without an equal."""
    notes = ordered(imported)
    for note in notes:
        typer.echo(line_of(note) if note.file else f"{file}: {line_of(note)}", err=True)
    return sum(note.is_open_question for note in notes)


def _read(file: Path) -> str:
    try:
        with sys.stdin.buffer if str(file) == "-" else file.open("rb") as opened:
            octets = opened.read(LARGEST + 1)
    except OSError as error:
        raise ConfigurationError(str(file), "", error.strerror or str(error), "a readable file") from None
    if len(octets) > LARGEST:
        raise ConfigurationError(str(file), "", f"more than {LARGEST} bytes", "the part that is imported")
    return text_of(octets)


def _directory(sites: Path, imported: Imported, output: Path | None) -> str:
    """The profile's directory as the file of sites names it. Raises ConfigurationError."""
    if not imported.sites:
        allowed = "--sites with rules or servers that have an upstream"
        raise ConfigurationError(str(sites), "", "no site", allowed)
    beside = sites.resolve().parent
    directory = beside / "profiles" if output is None else output.resolve().parent
    if directory == beside:
        allowed = "another directory than the profile's, in which every *.toml is a profile"
        raise ConfigurationError(str(sites), "", str(sites.parent), allowed)
    return os.path.relpath(directory, beside)
