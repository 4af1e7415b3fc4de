"""The languages of exports: how each writes a constant, a step and a test vector, and what it cannot do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Final

from univocal_learn.exporters.description import Constant, Respelling
from univocal_learn.exporters.vectors import Vector


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
