"""`univocal profiles export`: a language's template with the sections and constants that a profile needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final

import typer

from univocal.http.errors import ProfileError
from univocal.judge.profiles import profile_at
from univocal.uri.profile import Profile
from univocal_app.commands.settings import argument, option, write_file
from univocal_app.config.tables import COMMAND_LINE
from univocal_learn.exporters.description import Description, describe
from univocal_learn.exporters.languages import LANGUAGES, Language, Target
from univocal_learn.exporters.vectors import vectors

_PLACE: Final = re.compile(r"@([a-z_]+)@")
# Functions that have one text in a template, and which of them a profile has.
_VARIANTS: Final = {
    "merging": ("merge_slashes", "remove_empty_segments"),
    "dotting": ("remove_dot_segments", "remove_servlet_dot_segments"),
}


def export_profile(
    name: Annotated[str, argument("NAME|FILE", "A built-in profile, or the TOML file of one.")],
    target: Annotated[Target, option("|".join(Target), "The language.", "--to")],
    output: Annotated[Path | None, option("FILE", "The output file. Default: standard output.")] = None,
) -> None:
    """Export a profile as a function for another system, with test vectors.

    Exit status: 0 written, 2 usage error, or a setting that the language cannot express.
    """
    text = exported(profile_at(name, COMMAND_LINE, "NAME"), target)
    if output is None:
        typer.echo(text, nl=False)
    else:
        write_file(output, text.encode())


def exported(profile: Profile, target: Target) -> str:
    """The text of `profile` in the language `target`.

    Raises ProfileError for a setting that an export, or this language, cannot have.
    """
    language = LANGUAGES[target]
    description = describe(profile)
    _refuse(description, language, target)
    template = files(__package__).joinpath("templates", language.template).read_text("utf-8")
    text = "".join(_sections(template, description.features))
    text = text.replace("@steps@", "\n".join(map(language.step, description.steps)))
    return _PLACE.sub(lambda place: _filled(place[1], description, language), text)


def _refuse(description: Description, language: Language, target: Target) -> None:
    for step in description.steps:
        if step.function in language.refused:
            key = language.refused[step.function]
            table, _, setting = key.partition(".")
            value = description.profile.settings[table]
            source, allowed = f"profile {description.profile.name}", f"nothing in an export to {target}"
            raise ProfileError(source, key, value[setting] if setting else value, allowed)


def _sections(template: str, features: frozenset[str]) -> Iterator[str]:
    """The lines outside of sections, and those of `@if` with one of the `features`, or else of `@else`."""
    shown = [True]
    for line in template.splitlines(keepends=True):
        word, *names = line.split() or [""]
        match word:
            case "@if":
                shown.append(not features.isdisjoint(names))
            case "@else":
                shown.append(not shown.pop())
            case "@end":
                shown.pop()
            case _ if all(shown):
                yield line


def _filled(name: str, description: Description, language: Language) -> str:
    match name:
        case "name":
            return re.sub(r"[^\w.-]", "_", description.profile.name)
        case "id":
            return "univocal_" + re.sub(r"[^A-Za-z0-9]", "_", description.profile.name)
        case "merging" | "dotting":
            return next(each.function for each in description.steps if each.function in _VARIANTS[name])
        case "vectors":
            return "\n".join(map(language.vector, vectors(description.profile)))
    return language.constant(description.constants[name])
