"""A profile's text to a frozen Profile: how one family of origins reads paths and queries."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeAlias

from univocal.errors import ProfileError, by_rank
from univocal.uri.ring import DECODE, ENCODE, RINGS, DecoderRing
from univocal.uri.suspicious import SEQUENCES

__all__ = ["Profile", "parse"]

Tables: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """How one family of origins reads targets; two profiles with equal `digest` read every target alike."""

    name: str
    summary: str
    settings: Tables = field(repr=False)  # the file's tables, merged with those of the profiles it extends
    ring: DecoderRing = field(repr=False)
    merge_slashes: bool
    dot_segments: str
    parameters: str
    parameter_delimiters: bytes
    sequences: tuple[str, ...]
    mode: str
    digest: bytes = field(init=False)

    def __post_init__(self) -> None:
        told = {"name", "summary", "settings", "digest"}  # what says nothing about any target
        facts = [(slot.name, getattr(self, slot.name)) for slot in fields(self) if slot.name not in told]
        digest = hashlib.sha256(repr((_VERSION, facts)).encode()).hexdigest()[:16]
        object.__setattr__(self, "digest", digest.encode())

    @property
    def reads_parameters(self) -> bool:
        """Whether a segment's name is what stands before its parameters."""
        return self.parameters == "strip" or self.dot_segments == "servlet"


# Part of every digest: to be raised when the same settings come to mean something else, so that a shared
# store never answers with what an older univocal keyed.
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class _Setting:
    default: Any
    accepts: Callable[[Any], bool]
    allowed: str


def _text(default: str, allowed: str = "a string") -> _Setting:
    return _Setting(default, lambda value: isinstance(value, str), allowed)


def _flag() -> _Setting:
    return _Setting(False, lambda value: isinstance(value, bool), "true or false")


def _choice(*choices: str) -> _Setting:
    """One of `choices`; the first is the default."""
    return _Setting(choices[0], lambda value: value in choices, " | ".join(choices))


def _list_of(names: frozenset[str], default: list[str]) -> _Setting:
    def accepts(value: Any) -> bool:
        return isinstance(value, list) and all(isinstance(name, str) and name in names for name in value)

    return _Setting(default, accepts, "a list of " + ", ".join(by_rank(names)))


def _is_ring(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) == 256 and all(type(form) is int and 0 <= form <= 2 for form in value)
    return value == "" or (isinstance(value, str) and value in RINGS)


_RING: Final = _Setting("", _is_ring, f"{', '.join(RINGS)}, or 256 numbers: 0 encode, 1 decode, 2 keep")

_SCHEMA: Final[dict[str, dict[str, _Setting]]] = {
    "path": {
        "ring": _RING,
        "decode": _text(""),
        "encode": _text(""),
        "merge_slashes": _flag(),
        "dot_segments": _choice("rfc3986", "servlet", "keep"),
        "parameters": _choice("keep", "strip"),
    },
    "reject": {
        "sequences": _list_of(SEQUENCES, ["control-character"]),
        "mode": _choice("enforce", "observe"),
    },
}
_TOP: Final = {"summary": _text(""), "extends": _text("")}


def parse(texts: Mapping[str, str], known: Mapping[str, Profile] = {}) -> dict[str, Profile]:
    """The profiles whose TOML `texts` these are, by name; they may extend one another and the `known` ones.

    Raises ProfileError with the profile, the dotted key, what was found and what is allowed.
    """
    own = {name: _load(f"profile {name}", text) for name, text in texts.items()}
    return {name: _build(name, _merged(name, own, known, ())) for name in own}


def _load(source: str, text: str) -> Tables:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(source, "", str(error), "TOML") from None
    for key, value in tables.items():
        if key in _TOP:
            _check(source, key, value, _TOP[key])
            continue
        if key not in _SCHEMA:
            raise ProfileError(source, key, value, ", ".join([*_TOP, *_SCHEMA]))
        if not isinstance(value, dict):
            raise ProfileError(source, key, value, "a table")
        for name, found in value.items():
            if name not in _SCHEMA[key]:
                raise ProfileError(source, f"{key}.{name}", found, "one of " + ", ".join(_SCHEMA[key]))
            _check(source, f"{key}.{name}", found, _SCHEMA[key][name])
    return tables


def _check(source: str, key: str, found: object, setting: _Setting) -> None:
    if not setting.accepts(found):
        raise ProfileError(source, key, found, setting.allowed)


def _merged(
    name: str, own: Mapping[str, Tables], known: Mapping[str, Profile], path: tuple[str, ...]
) -> Tables:
    """The tables of the profile `name` over those of its ancestors: key by key, lists whole."""
    if name not in own or name in path[-1:]:  # a file may extend the known profile whose name it takes
        return known[name].settings
    tables = own[name]
    parent = tables.get("extends", "")
    if not parent:
        return tables
    if parent in path or not (parent in known or (parent in own and parent != name)):
        others = sorted({*own, *known} - {name, *path})
        raise ProfileError(f"profile {name}", "extends", parent, " | ".join(others) or "nothing to extend")
    inherited = _merged(parent, own, known, (*path, name))
    merged = {key: value for key, value in inherited.items() if key in _SCHEMA}
    for key, value in tables.items():
        merged[key] = {**merged.get(key, {}), **value} if key in _SCHEMA else value
    return merged


def _build(name: str, tables: Tables) -> Profile:
    source = f"profile {name}"
    path, reject = (
        {key: tables.get(table, {}).get(key, setting.default) for key, setting in _SCHEMA[table].items()}
        for table in ("path", "reject")
    )
    profile = Profile(
        name=name,
        summary=tables.get("summary", ""),
        settings=tables,
        ring=_ring(source, "path", path),
        merge_slashes=path["merge_slashes"],
        dot_segments=path["dot_segments"],
        parameters=path["parameters"],
        parameter_delimiters=b";",
        sequences=by_rank(reject["sequences"]),
        mode=reject["mode"],
    )
    _refuse_vanishing_delimiters(source, profile)
    return profile


def _ring(source: str, table: str, settings: Tables) -> DecoderRing:
    ring = settings["ring"]
    sets = [key for key in ("decode", "encode") if settings[key]]
    if ring and sets:
        raise ProfileError(
            source, f"{table}.{sets[0]}", settings[sets[0]], f'nothing beside {table}.ring (or ring = "")'
        )
    if isinstance(ring, str) and ring:
        return RINGS[ring]
    if isinstance(ring, list):
        return _checked(source, f"{table}.ring", ring, lambda: DecoderRing(bytes(ring)))
    decode, encode = (_octets(source, f"{table}.{key}", settings[key]) for key in ("decode", "encode"))
    _checked(source, f"{table}.decode", settings["decode"], lambda: DecoderRing.from_sets(decode, b""))
    return _checked(
        source, f"{table}.encode", settings["encode"], lambda: DecoderRing.from_sets(decode, encode)
    )


def _checked(source: str, key: str, found: object, ring: Callable[[], DecoderRing]) -> DecoderRing:
    try:
        return ring()
    except ValueError as error:
        raise ProfileError(source, key, found, f"a ring in which {error}") from None


def _octets(source: str, key: str, text: str) -> bytes:
    octets = bytearray()
    for token in text.split():
        if len(token) == 1 and token.isascii():
            octets.append(ord(token))
        elif len(token) == 2 and all(digit in "0123456789abcdefABCDEF" for digit in token):
            octets.append(int(token, 16))
        else:
            raise ProfileError(
                source, key, token, "one ASCII character, or two hexadecimal digits, between blanks"
            )
    return bytes(octets)


def _refuse_vanishing_delimiters(source: str, profile: Profile) -> None:
    """A delimiter that was data must not become one, nor one become data, where parameters are read."""
    if not profile.reads_parameters:
        return
    for octet in profile.parameter_delimiters:
        form = profile.ring.forms[octet]
        if form == DECODE or (form == ENCODE and profile.parameters == "keep"):
            found = f"'{octet:c}' {'decoded' if form == DECODE else 'encoded'}"
            raise ProfileError(
                source, "path", found, "a ring that keeps the delimiter of the parameters it reads"
            )
