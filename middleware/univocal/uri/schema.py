"""A profile's file holds these tables and keys, with these kinds and defaults, and may extend another."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from univocal.http.errors import Objections, ProfileError, by_rank
from univocal.http.settings import Setting, SettingError, flag
from univocal.uri.charset import CHARSETS, charset_of
from univocal.uri.percent_encoding import ENCODE, KEEP, RINGS, DecoderRing
from univocal.uri.suspicious import DEFAULT_LOOSE, LOOSE, SEQUENCES

Tables: TypeAlias = Mapping[str, Any]


def _of(default: Any, accepts: Callable[[Any], bool], allowed: str) -> Setting:
    """A setting whose value is kept as it is written, but as a tuple if it is a list."""

    def read(value: object) -> object:
        if not accepts(value):
            raise SettingError("", value, allowed)
        return tuple(value) if isinstance(value, list) else value

    return Setting(default, read)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _text() -> Setting:
    return _of("", _is_text, "a string")


def _flag() -> Setting:
    return Setting(False, flag)


def _choice(*choices: str) -> Setting:
    """One of `choices`; the first is the default."""
    return _of(choices[0], choices.__contains__, " | ".join(choices))


def _list(default: list[str] | None, allowed: str, is_one: Callable[[Any], bool] = _is_text) -> Setting:
    return _of(default, lambda value: isinstance(value, list) and all(map(is_one, value)), allowed)


def _is_segment(value: Any) -> bool:
    return (
        isinstance(value, str) and re.fullmatch(r"[^/?#%\s]+", value) is not None and value not in (".", "..")
    )


def _are_defaults(value: Any) -> bool:
    return isinstance(value, dict) and all(type(default) in (str, int) for default in value.values())


def _ring(value: object) -> DecoderRing | None:
    if isinstance(value, str) and value in {"", *RINGS}:
        return RINGS.get(value)
    forms = value if isinstance(value, list) else []
    if len(forms) != 256 or not all(type(form) is int and ENCODE <= form <= KEEP for form in forms):
        raise SettingError("", value, f"{', '.join(RINGS)}, or 256 numbers: 0 encode, 1 decode, 2 keep")
    try:
        return DecoderRing(bytes(forms))
    except ValueError as error:
        raise SettingError("", value, f"a table in which {error}") from None


def _octets(value: object) -> bytes:
    """Bytes that are written as characters, or as two hexadecimal digits, between blanks."""
    if not isinstance(value, str):
        raise SettingError("", value, "a string")
    octets = bytearray()
    for token in value.split():
        if len(token) == 1 and token.isascii():
            octets.append(ord(token))
        elif len(token) == 2 and all(digit in "0123456789abcdefABCDEF" for digit in token):
            octets.append(int(token, 16))
        else:
            raise SettingError("", token, "one ASCII character, or two hexadecimal digits, between blanks")
    return bytes(octets)


def _charsets(value: object) -> tuple[str, ...]:
    labels = value if isinstance(value, list) else [value] if value != "" else []
    names = [charset_of(label) if isinstance(label, str) else "" for label in labels]
    if not CHARSETS.keys() >= {*names}:
        allowed = "a label of a charset other than UTF-8, such as windows-1251 or euc-jp, or a list of them"
        raise SettingError("", value, allowed)
    return tuple(dict.fromkeys(names))


def _reasons(*default: str) -> Setting:
    allowed = "a list of " + ", ".join(by_rank(SEQUENCES))
    return _list(list(default), allowed, lambda name: _is_text(name) and name in SEQUENCES)


_TABLES: Final[dict[str, dict[str, Setting]]] = {
    "path": {
        "ring": Setting("", _ring),
        "decode": Setting("", _octets),
        "encode": Setting("", _octets),
        "merge_slashes": _of(
            False, lambda value: value == "leading" or isinstance(value, bool), 'true, false or "leading"'
        ),
        "loose": _list(
            list(DEFAULT_LOOSE), "a list of " + ", ".join(map(repr, LOOSE)), lambda value: value in LOOSE
        ),
        "dot_segments": _choice("rfc3986", "servlet", "keep"),
        "parameters": _choice("keep", "strip"),
        "parameter_delimiters": Setting(";", _octets),
        "trailing_slash": _choice("keep", "add", "remove"),
        "index_names": _list([], "a list of names of files", _is_segment),
        "raw": _choice("encode", "refuse"),
        "unicode_escapes": _flag(),
    },
    "query": {
        "ring": Setting("", _ring),
        "sort": _flag(),
        "drop": _list([], "a list of names or globs"),
        "allow": _list(None, "a list of names or globs"),
        "defaults": _of({}, _are_defaults, "a table of names and their default values"),
        "drop_empty": _flag(),
        "drop_empty_mark": _flag(),
        "semicolon": _choice("data", "separates", "begins"),
        "unreserved": _choice("keep", "decode"),
    },
    "charset": {
        "path": Setting("", _charsets),
        "query": Setting("", _charsets),
        "origin": _choice("utf-8", "legacy"),
        "prefer": _choice("utf-8", "legacy"),
        "trust_encoding_fields": _flag(),
    },
    "reject": {
        "sequences": _reasons("control-character"),
        "allow": _reasons(),
        "mode": _choice("enforce", "observe"),
    },
}
_ARRAYS: Final[dict[str, dict[str, Setting]]] = {
    "rewrite": {
        "from": _text(),
        "to": _text(),
        "at": _choice("anywhere", "start", "end", "prefix", "suffix", "path"),
    },
    "tags": {"from": _text(), "to": _text()},
}
# The settings of this table say nothing about URLs: the cache, which knows its keys, reads it.
CACHE: Final = "cache"
_TOP: Final = {"summary": _text(), "extends": _text()}


def load(source: str, text: str) -> Tables:
    """The tables of a TOML `text`, with no key that is unknown and no value of a wrong kind."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(source, "", str(error), "TOML") from None
    except RecursionError:
        raise ProfileError(source, "", "values nested too deeply", "TOML") from None
    objections = Objections()
    objections.errors += (ProfileError(source, *refused) for refused in _refused(tables))
    objections.conclude()
    return tables


# An invalid setting: its dotted key, what was found, and what is allowed.
_Refused: TypeAlias = tuple[str, object, str]


def _refused(tables: Tables) -> Iterator[_Refused]:
    for key, value in tables.items():
        if key in _TOP:
            yield from _unfit(key, value, _TOP[key])
        elif key in _TABLES:
            yield from _refused_in(key, value, _TABLES[key])
        elif key == CACHE:
            if not isinstance(value, dict):
                yield key, value, "a table"
        elif key not in _ARRAYS:
            yield key, value, ", ".join([*_TOP, *_TABLES, CACHE, *_ARRAYS])
        elif not isinstance(value, list):
            yield key, value, f"tables [[{key}]]"
        else:
            for number, row in enumerate(value):
                yield from _refused_in(f"{key}[{number}]", row, _ARRAYS[key])


def _refused_in(key: str, table: object, settings: Mapping[str, Setting]) -> Iterator[_Refused]:
    if not isinstance(table, dict):
        yield key, table, "a table"
        return
    for name, value in table.items():
        if name in settings:
            yield from _unfit(f"{key}.{name}", value, settings[name])
        else:
            yield f"{key}.{name}", value, "one of " + ", ".join(settings)


def _unfit(key: str, value: object, setting: Setting) -> list[_Refused]:
    try:
        setting.read(value)
    except SettingError as error:
        return [(key + error.place, error.value, error.allowed)]
    return []


def merged(
    name: str, own: Mapping[str, Tables], known: Mapping[str, Tables], path: tuple[str, ...] = ()
) -> Tables:
    """The tables of the profile `name` over those of its ancestors: key by key, lists whole."""
    if name not in own or name in path[-1:]:  # a file may extend the known profile whose name it takes
        return known[name]
    tables = own[name]
    parent = tables.get("extends", "")
    if not parent:
        return tables
    if parent in path or not (parent in known or (parent in own and parent != name)):
        others = sorted({*own, *known} - {name, *path})
        raise ProfileError(f"profile {name}", "extends", parent, " | ".join(others) or "nothing to extend")
    inherited = merged(parent, own, known, (*path, name))
    result = {key: value for key, value in inherited.items() if key not in _TOP}
    for key, value in tables.items():
        result[key] = {**result.get(key, {}), **value} if key in _TABLES or key == CACHE else value
    if "reject" in inherited and "reject" in tables:
        result["reject"] = _refusing(inherited["reject"], tables["reject"])
    return result


def _refusing(inherited: Tables, own: Tables) -> Tables:
    """The table `[reject]` over that of a parent: what is allowed stays so until a list names it again."""
    allowed = [] if "sequences" in own else inherited.get("allow", [])
    return {**inherited, **own, "allow": [*allowed, *own.get("allow", [])]}


def with_defaults(tables: Tables) -> dict[str, Any]:
    """The values of all keys of every table, and of every row of the arrays of tables."""
    complete: dict[str, Any] = {}
    for table, settings in _TABLES.items():
        complete[table] = _complete(tables.get(table, {}), settings)
    for array, settings in _ARRAYS.items():
        complete[array] = [_complete(row, settings) for row in tables.get(array, [])]
    return complete


def _complete(table: Tables, settings: Mapping[str, Setting]) -> dict[str, Any]:
    written = {key: table.get(key, setting.default) for key, setting in settings.items()}
    return {key: None if value is None else settings[key].read(value) for key, value in written.items()}
