"""`univocal profiles export`: a language's template with the sections and constants that a profile needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final

import typer

from univocal.http.errors import ProfileError
from univocal.judge.profiles import profile_at
from univocal.uri.profile import Profile
from univocal_app.commands.settings import argument, option, write_file
from univocal_app.config import COMMAND_LINE
from univocal_learn.exporters.description import Constant, Description, Respelling, describe
from univocal_learn.exporters.vectors import Vector, vectors


class Target(StrEnum):
    """The language that a profile is exported to."""

    LUA = "lua"
    JS = "js"
    VCL = "vcl"
    PYTHON = "python"


@dataclass(frozen=True, slots=True)
class Language:
    """A template, and how its constants, steps and vectors are written; a step's and a vector's are formats.

    `nothing` is written for a vector without a canonical form or a reason, `name` makes the name of a
    function. `of_vectors` writes constants where vectors are comments. `refused` are functions that the
    language does not have, and the setting that needs each.
    """

    template: str
    constant: Callable[[Constant], str]
    steps: str
    vectors: str
    nothing: str
    name: Callable[[str], str] = str
    of_vectors: Callable[[Constant], str] | None = None
    refused: Mapping[str, str] = field(default_factory=dict)

    def step(self, step: Respelling) -> str:
        """A step as a line of the template's list."""
        part, function, bare = step.part, self.name(step.function), self.constant(step.bare)
        return self.steps.format(part=part, function=function, bare=bare, length=f"n{part[0]}")

    def vector(self, vector: Vector) -> str:
        """A vector as a line of the template's list."""
        constant = self.of_vectors or self.constant
        canonical = self.nothing if vector.canonical is None else constant(vector.canonical)
        reason = constant(vector.reason) if vector.reason else self.nothing
        return self.vectors.format(constant(vector.target), canonical, reason)


def _quoted(value: bytes | str, escape: str) -> str:
    """A literal between double quotation marks; `escape` is the format of what is not plain ASCII."""
    octets = value.encode() if isinstance(value, str) else value
    plain = (
        chr(octet) if 0x20 <= octet < 0x7F and octet not in b'"\\' else escape % octet for octet in octets
    )
    return '"' + "".join(plain) + '"'


def _literal(value: Constant, escape: str, begin: str, end: str) -> str:
    """A constant; `begin` and `end` stand around lists, `escape` is the format of what is not plain ASCII."""
    match value:
        case bool() | int():
            return str(value).lower()
        case str() | bytes():
            return _quoted(value, escape)
        case tuple():
            return begin + ", ".join(_literal(each, escape, begin, end) for each in value) + end


_js: Final = partial(_literal, escape="\\x%02x", begin="[", end="]")
_lua: Final = partial(_literal, escape="\\%03d", begin="{", end="}")


def _js_name(function: str) -> str:
    first, *rest = function.split("_")
    return first + "".join(map(str.capitalize, rest))


def _c(value: Constant) -> str:
    match value:
        case bool() | int():
            return str(int(value))
        case str() | bytes():
            return _quoted(value, "\\%03o")
        case tuple():
            return "{" + ", ".join([*map(_c, value), "NULL"]) + "}"


# Functions that are in no template for Varnish, and the settings that need them.
_NOT_IN_VCL: Final = {
    "rewrite": "rewrite",
    "remove_index_name": "path.index_names",
    "allow_parameters": "query.allow",
    "drop_parameters": "query.drop",
    "drop_defaults": "query.defaults",
    "drop_empty": "query.drop_empty",
    "sort_parameters": "query.sort",
}

LANGUAGES: Final[Mapping[Target, Language]] = {
    Target.PYTHON: Language(
        "canonicalize.py.in", repr, '    ("{part}", {function}, {bare}),', "    ({}, {}, {}),", "None"
    ),
    Target.JS: Language(
        "canonicalize.js.in", _js, '  ["{part}", {function}, {bare}],', "  [{}, {}, {}],", "null", _js_name
    ),
    Target.VCL: Language(
        "canonicalize.vcl.in",
        _c,
        "  {length} = @id@_{function}({part}, {length}, scratch);",
        "#   {}  {}  {}",
        "-",
        of_vectors=_js,
        refused=_NOT_IN_VCL,
    ),
    Target.LUA: Language(
        "canonicalize.lua.in", _lua, '  {{"{part}", {function}, {bare}}},', "  {{{}, {}, {}}},", "false"
    ),
}


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
