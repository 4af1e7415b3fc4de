"""Mistakes in univocal.toml, in the words of the file's format, with what was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, Final, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from univocal.http.errors import ConfigurationError
from univocal.http.settings import SettingError
from univocal_app.config.files import dotted
from univocal_app.config.values import masked

# Where pydantic speaks of Python's types or of lengths, in the words of the file's format.
ALLOWED: Final = {
    "model_type": "a table",
    "dict_type": "a table",
    "list_type": "an array",
    "bool_type": "true or false",
    "int_type": "an integer",
    "float_type": "a number",
    "string_type": "a text",
    "too_short": "at least one",
    "string_too_short": "a text that is not empty",
}

# How pydantic begins its own messages, and those of a ValueError.
_ALLOWED_IN: Final = re.compile(r"^(?:Input should be|Value error,) ")

FEW: Final = 8  # keys that a message lists
ALIKE: Final = 0.6  # from 0 to 1: a key that is so like another was probably meant as that
TABLES: Final = 2  # that a message names as those where a key belongs


def mistakes(
    problems: list[ErrorDetails], source: str, root: type[BaseModel]
) -> Iterator[ConfigurationError]:
    """The mistakes that pydantic reports in a file that should be a `root`."""
    # A key that is missing is often there under a wrong name: the wrong name is the better message.
    misnamed = {each["loc"][:-1] for each in problems if each["type"] == "extra_forbidden"}
    for problem in problems:
        if problem["type"] != "missing" or problem["loc"][:-1] not in misnamed:
            yield _mistake(problem, source, root)


def _mistake(problem: ErrorDetails, source: str, root: type[BaseModel]) -> ConfigurationError:
    location, value = problem["loc"], problem["input"]
    key = dotted(location)
    match problem["type"]:
        case "extra_forbidden":
            return _unknown(location, value, source, root)
        case "missing":
            mistake = "missing: this setting has no default"
            return ConfigurationError(source, key, None, "a value: this setting has no default", mistake)
        case "value_error" if isinstance(error := problem["ctx"]["error"], SettingError):
            form = _form("list_type", location, error.value) if error.allowed == "an array" else ""
            return ConfigurationError(source, key + error.place, error.value, error.allowed, form)
        case kind:
            allowed = ALLOWED.get(kind) or _ALLOWED_IN.sub("", problem["msg"])
            shown = masked(value) if key == "cache.store" and isinstance(value, str) else value
            return ConfigurationError(source, key, shown, allowed, _form(kind, location, value))


def _form(kind: str, location: tuple[str | int, ...], value: object) -> str:
    """The form to write, where a table stands for a list of tables, or the like; empty for other mistakes."""
    name = ".".join(part for part in location if isinstance(part, str))
    if kind == "list_type" and isinstance(value, dict):
        return f"`[{name}]` is one table, and there may be several: write `[[{name}]]`"
    if kind == "list_type" and isinstance(value, str):
        return f'found {value!r}; allowed: an array: write `["{value}"]`'
    if kind == "dict_type" and isinstance(value, list) and not any(isinstance(each, dict) for each in value):
        return f'found an array; allowed: a table: write `{location[-1]} = {{ "Name" = "value" }}`'
    if kind in {"model_type", "dict_type"} and isinstance(value, list):
        return f"there is one such table: write `[{name}]`, not `[[{name}]]`"
    return ""


def _unknown(
    location: tuple[str | int, ...], value: object, source: str, root: type[BaseModel]
) -> ConfigurationError:
    """An unknown key: the nearest one of its table, and the tables where a key of this name belongs."""
    name, beside = str(location[-1]), list(_table_at(location[:-1], root).model_fields)
    sentences = ["unknown key."]
    sentences += [f"Did you mean `{near}`?" for near in get_close_matches(name, beside, 1, ALIKE)]
    homes = [table for table, keys in _tables(root) if name in keys][:TABLES]
    if homes:
        sentences.append(f"`{name}` is a key of {' and '.join(f'`{table}`' for table in homes)}.")
    if len(sentences) == 1 and (alike := _alike_elsewhere(name, root)):
        sentences.append(alike)
    if len(sentences) == 1:
        few = f"The keys are {', '.join(beside)}." if len(beside) <= FEW else ""
        sentences.append(few or "The reference lists the keys of this table.")
    allowed = f"the keys {', '.join(beside)}"
    return ConfigurationError(source, dotted(location), value, allowed, " ".join(sentences))


def _alike_elsewhere(name: str, root: type[BaseModel]) -> str:
    """The key of another table that is most like an unknown one, as a question; empty if none is."""
    keys = {key: table for table, keys in reversed(list(_tables(root))) for key in keys}
    near = get_close_matches(name, keys, 1, ALIKE)
    return f"Did you mean `{near[0]}` of `{keys[near[0]]}`?" if near else ""


def _tables(root: type[BaseModel]) -> Iterator[tuple[str, list[str]]]:
    """Each table as a file writes its header, with its keys; those before all sites come first."""
    yield "the top level, before every table", list(root.model_fields)
    waiting = [(name, field.annotation, "") for name, field in root.model_fields.items()]
    while waiting:
        name, annotation, around = waiting.pop(0)
        table = _table_in(annotation)
        if table is None:
            continue
        is_list = getattr(annotation, "__origin__", None) is list
        yield f"[[{around}{name}]]" if is_list else f"[{around}{name}]", list(table.model_fields)
        here, fields = f"{around}{name}.", table.model_fields
        waiting += [(below, field.annotation, here) for below, field in fields.items()]


def unknown_profile(name: str, known: Iterable[str]) -> str:
    """The sentences about a name that no profile has, with the one that was probably meant."""
    near = get_close_matches(name, list(known), 1, ALIKE)
    hint = f" Did you mean `{near[0]}`?" if near else ""
    return f"there is no profile {name!r}.{hint} `univocal profiles` lists them."


def _table_at(location: tuple[str | int, ...], root: type[BaseModel]) -> type[BaseModel]:
    table = root
    for part in location:
        if isinstance(part, str):
            inner = _table_in(table.model_fields[part].annotation)
            assert inner is not None  # only tables hold tables
            table = inner
    return table


def _table_in(annotation: Any) -> type[BaseModel] | None:
    """The table that a setting is, or that each of its list is; None for any other setting."""
    inner = next(iter(get_args(annotation)), annotation)
    return inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None
