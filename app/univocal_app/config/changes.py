"""The settings in which two configurations differ, by their dotted keys; and those that no reload changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel

from univocal_app.config.tables import (
    AccessTable,
    Configuration,
    FieldsTable,
    OriginTable,
    PolicyTable,
    RouteTable,
    SiteTable,
)

# The settings that hold from the start of the program to its end, and why.
FIXED: Final[Mapping[str, str]] = {
    "server.listen": "the listeners stay",
    "server.admin": "the listeners stay",
    "server.listen_tls": "the listeners stay",
    "server.proxy_protocol": "the listeners stay",
    "server.http2": "the listeners stay",
    "server.workers": "the workers stay",
    "server.otel": "what sends traces stays",
    "cache.store": "the store stays",
    "cache.disk_bytes": "the store stays",
}


def changes(before: Configuration, after: Configuration) -> list[str]:
    """The dotted keys of all settings that differ, in the order of the tables.

    A site, or a route, that only one of the two has is told as a whole: `sites[1]`.
    """
    return list(_differences("", before, after))


def value_at(configuration: Configuration, key: str) -> object:
    """The value of a setting of a table that is there once, by its dotted key."""
    value: Any = configuration
    for name in key.split("."):
        value = getattr(value, name)
    return value


def _differences(place: str, before: BaseModel, after: BaseModel) -> Iterator[str]:
    for name in type(before).model_fields:
        key = f"{place}.{name}" if place else name
        old, new = getattr(before, name), getattr(after, name)
        if isinstance(old, BaseModel) and isinstance(new, BaseModel):
            # A site's own setting goes before the one for all, the default as well.
            own = isinstance(before, SiteTable | RouteTable) and isinstance(
                old, OriginTable | PolicyTable | FieldsTable | AccessTable
            )
            yield from _said(key, old, new) if own else _differences(key, old, new)
        elif _tables(old) and _tables(new):
            for number in range(max(len(old), len(new))):
                each = f"{key}[{number}]"
                if number < min(len(old), len(new)):
                    yield from _differences(each, old[number], new[number])
                else:
                    yield each
        elif old != new:
            yield key


def _said(place: str, before: BaseModel, after: BaseModel) -> Iterator[str]:
    """The keys that only one of two tables has, and those of different values."""
    old, new = (table.model_dump(exclude_unset=True) for table in (before, after))
    for name in type(before).model_fields:
        if (name in old) != (name in new) or old.get(name) != new.get(name):
            yield f"{place}.{name}"


def _tables(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, BaseModel) for each in value)
