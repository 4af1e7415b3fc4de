"""A reload: the configuration is read again, and put into force while requests go on.

A request keeps the Runtime that it began with. Every step that may fail comes before the first change.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol, TypeAlias

from pydantic import BaseModel

from univocal.http.errors import ConfigurationError, Objections, UnivocalError
from univocal_app.config import tables
from univocal_app.config.tables import Configuration
from univocal_app.config.values import Place, masked
from univocal_app.observe.accesslog import check_log
from univocal_app.observe.admin import ReloadError
from univocal_app.run.assemble import Made, Proxy
from univocal_app.run.configured import is_together
from univocal_app.run.reading import Check
from univocal_app.run.systemd import Notices

# The settings that hold from the start of the program to its end, and why.
FIXED: Final[Mapping[str, str]] = {
    "server.listen": "the listeners stay",
    "server.admin": "the listeners stay",
    "server.listen_tls": "the listeners stay",
    "server.proxy_protocol": "the listeners stay",
    "server.http2": "the listeners stay",
    "server.workers": "the workers stay",
    "server.otel": "the exporter of traces stays",
    "cache.store": "the store stays",
    "cache.disk_bytes": "the store stays",
    "cache.redis.timeout": "the store stays",
    "cache.redis.connections": "the store stays",
    "cache.redis.heartbeat": "the store stays",
}
# The tables of a site, whose settings go before those for all sites.
_OF_SITES: Final = (tables.OriginTable, tables.PolicyTable, tables.FieldsTable, tables.AccessTable)


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
            own = isinstance(before, tables.SiteTable | tables.RouteTable) and isinstance(old, _OF_SITES)
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


logger: Final = logging.getLogger("univocal")


def changed(proxy: Proxy, made: Made) -> list[str]:
    """The dotted keys of what a reload changes: settings, and those whose profile or file has changed."""
    keys, before = changes(proxy.configuration, made.configuration), dict(proxy.made.contents)
    if proxy.certificates is not None:
        before |= proxy.certificates.contents
    named = [key for key, content in made.contents.items() if before.get(key, content) != content]
    return keys + [key for key in named if key not in keys]


def _fixed(held: Configuration, wanted: Configuration) -> Iterator[ConfigurationError]:
    together = {"cache.max_bytes": "the workers' store stays"} if is_together(held) else {}
    for key, why in {**FIXED, **together}.items():
        old, new = value_at(held, key), value_at(wanted, key)
        if _fixed_part(old) != _fixed_part(new):
            allowed = f"{_told(old)} until a restart: {why} at a reload"
            yield wanted.error(key, _told(new), allowed)
    there, new_file = held.server.tls_cert, wanted.server.tls_cert
    if bool(there) != bool(new_file):
        allowed = f"{'a file' if there else 'none'}: only a restart adds or removes TLS"
        yield wanted.error("server.tls_cert", new_file, allowed)


def _fixed_part(value: object) -> object:
    """A setting as far as no reload changes it: listeners without `trusted_proxies` and `max_body`."""
    if not isinstance(value, tuple):
        return value
    return [each._replace(own=replace(each.own, trusted_proxies=None, max_body=None)) for each in value]


def _told(value: object) -> str:
    """A setting in words, listeners with the settings of their own that no reload changes."""
    fixed = _fixed_part(value)
    return ", ".join(map(_told_listener, fixed)) if isinstance(fixed, list) else masked(str(fixed))


def _told_listener(place: Place) -> str:
    own = ", ".join(f"{key} = {json.dumps(each)}" for key, each in place.own.written().items())
    return f"{place} ({own})" if own else str(place)


Read: TypeAlias = Callable[[Check], Configuration]
"""Reads a configuration of which the check, too, may say what cannot be. Raises ConfigurationError."""


class Others(Protocol):
    """Other processes that serve by the same configuration."""

    async def prepare(self, configuration: Configuration) -> None:
        """Prepare it in all of them, or in none. Raises ConfigurationError, and ReloadError."""

    async def adopt(self) -> None:
        """Put it into force in all of them. Raises ReloadError."""


class Reload:
    """Reads the configuration by `read` and puts it into force, for one caller at a time.

    Called, it returns the keys that have changed. It raises ConfigurationError, and nothing has changed then,
    or ReloadError. `tell` hears a line of each reload; mistakes are logged.
    """

    def __init__(
        self,
        proxy: Proxy,
        read: Read,
        tell: Callable[[str], None],
        notices: Notices,
        others: Others | None = None,
    ) -> None:
        self._proxy, self._read, self._tell, self._notices = proxy, read, tell, notices
        self._others = others
        self._lock = asyncio.Lock()
        self._tasks = set[asyncio.Task[list[str]]]()

    def begin(self) -> None:
        """Reload in a task of its own, of which `tell` hears; not if another waits for its turn already."""
        if len(self._tasks) > 1:
            return
        task = asyncio.get_running_loop().create_task(self())
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[list[str]]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and not isinstance(task.exception(), UnivocalError | None):
            logger.error("internal error during a reload", exc_info=task.exception())

    async def __call__(self) -> list[str]:
        async with self._lock:
            self._notices.reloading()
            try:
                keys = await self._reloaded()
            except ConfigurationError as error:
                for each in (error, *error.beside):
                    logger.error("not reloaded: %s", each)
                raise
            except ReloadError as error:
                logger.warning("%s", error)
                raise
            finally:
                self._notices.ready()
            self._tell(f"reloaded: {', '.join(keys) or 'nothing has changed'}")
            return keys

    def _check(self, wanted: Configuration) -> None:
        """Object to what only a restart changes, and to a log that cannot be written."""
        objections = Objections()
        objections.errors += _fixed(self._proxy.configuration, wanted)
        with objections:
            check_log(wanted)
        objections.conclude()

    async def _reloaded(self) -> list[str]:
        made = await asyncio.to_thread(lambda: self._proxy.prepared(self._read(self._check)))
        if self._others is not None:
            try:
                await self._others.prepare(made.configuration)
            except UnivocalError:
                made.drop()
                raise
        keys = changed(self._proxy, made)
        await self._proxy.adopt(made)
        if self._others is not None:
            await self._others.adopt()
        return keys
