"""The languages of exports: how each writes a constant, a step and a test vector, and what it cannot do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
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
    """A template, and how its constants, steps and vectors are written.

    `refused` are functions that it does not have, and the setting that needs each.
    """

    template: str
    constant: Callable[[Constant], str]
    step: Callable[[Respelling], str]
    vector: Callable[[Vector], str]
    refused: Mapping[str, str] = field(default_factory=dict)


def _python(value: Constant) -> str:
    return repr(value)


def _python_step(step: Respelling) -> str:
    return f'    ("{step.part}", {step.function}, {step.bare}),'


def _python_vector(vector: Vector) -> str:
    return f"    ({vector.target!r}, {vector.canonical!r}, {vector.reason or None!r}),"


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


def _js(value: Constant) -> str:
    return _literal(value, "\\x%02x", "[", "]")


def _js_name(function: str) -> str:
    first, *rest = function.split("_")
    return first + "".join(map(str.capitalize, rest))


def _js_step(step: Respelling) -> str:
    return f'  ["{step.part}", {_js_name(step.function)}, {_js(step.bare)}],'


def _js_vector(vector: Vector) -> str:
    target, canonical, reason = _outcome(vector, _js, "null")
    return f"  [{target}, {canonical}, {reason}],"


def _lua(value: Constant) -> str:
    return _literal(value, "\\%03d", "{", "}")


def _lua_step(step: Respelling) -> str:
    return "  {" + f'"{step.part}", {step.function}, {_lua(step.bare)}' + "},"


def _lua_vector(vector: Vector) -> str:
    return "  {" + ", ".join(_outcome(vector, _lua, "false")) + "},"


def _c(value: Constant) -> str:
    match value:
        case bool() | int():
            return str(int(value))
        case str() | bytes():
            return _quoted(value, "\\%03o")
        case tuple():
            return "{" + ", ".join([*map(_c, value), "NULL"]) + "}"


def _vcl_step(step: Respelling) -> str:
    part, length = ("query", "nq") if step.part == "query" else ("path", "np")
    return f"  {length} = @id@_{step.function}({part}, {length}, scratch);"


def _vcl_vector(vector: Vector) -> str:
    return "#   " + "  ".join(_outcome(vector, _js, "-"))


def _outcome(vector: Vector, written: Callable[[Constant], str], nothing: str) -> tuple[str, str, str]:
    return (
        written(vector.target),
        nothing if vector.canonical is None else written(vector.canonical),
        written(vector.reason) if vector.reason else nothing,
    )


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
    Target.PYTHON: Language("canonicalize.py.in", _python, _python_step, _python_vector),
    Target.JS: Language("canonicalize.js.in", _js, _js_step, _js_vector),
    Target.VCL: Language("canonicalize.vcl.in", _c, _vcl_step, _vcl_vector, _NOT_IN_VCL),
    Target.LUA: Language("canonicalize.lua.in", _lua, _lua_step, _lua_vector),
}
