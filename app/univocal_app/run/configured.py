"""A validated configuration becomes what it describes: a Runtime, which requests see, and the store."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Final

from univocal.asgi.reverse_proxy import ReverseProxy
from univocal.cache.personal import ORDINARY
from univocal.cache.rules import Rules
from univocal.http.errors import ConfigurationError, Objections
from univocal.http.problem import ErrorPages, page_fault
from univocal.judge.access import Restriction
from univocal.judge.profiles import built_in, read_profiles
from univocal.judge.runtime import Limits, PlainSettings, RequestIds, Right, RouteSettings, Runtime
from univocal.judge.trust import networks
from univocal.server.clients import ReadLimits
from univocal.store.address import RedisSettings, file_tier, store_at
from univocal.store.compression import uncodable
from univocal.store.memory import MemoryStore
from univocal.store.roles import StoreReport, unreported
from univocal.store.shared import SharedTier
from univocal.uri.profile import Profile
from univocal.uri.sites import Sites
from univocal_app.config import COMMAND_LINE
from univocal_app.config.site_reader import SiteReader, edits_of, rules
from univocal_app.config.tables import Configuration, Name, PolicyTable, SiteTable
from univocal_app.config.values import masked
from univocal_app.processes.commons import Commons
from univocal_app.run.listeners import HTTPS, own_settings_of
from univocal_app.run.origins import next_hop_of
from univocal_app.run.restrictions import restrictions_of

_LARGEST: Final = 1 << 20  # bytes of a page
_MOST: Final = 100  # pages of a directory


def pages_of(configuration: Configuration) -> dict[Name, ErrorPages]:
    """The pages by the names of sites and routes, "" for requests to no site.

    A route's page goes before its site's, and that before the server's. Raises ConfigurationError.
    """
    files, objections = dict[Name, dict[str, bytes]](), Objections()
    with objections:
        files[""] = _files(configuration, configuration.server.error_pages, "server.error_pages")
    for each in configuration.tables():
        with objections:
            own = _files(configuration, each.table.error_pages, f"{each.place}.error_pages")
            around = files.get(each.site.hosts[0] if each.route else "", {})
            if own or each.route is None:
                files[each.name] = {**around, **own}
    objections.conclude()
    return {name: ErrorPages(named) for name, named in files.items() if named}


def page_contents(configuration: Configuration, runtime: Runtime) -> Iterator[tuple[str, str]]:
    """The key of each setting that names a directory, and the digest of the pages that are shown by it."""
    names: list[tuple[str, str, Name]] = [("server", configuration.server.error_pages, "")]
    names += [(each.place, each.table.error_pages, each.name) for each in configuration.tables()]
    for key, directory, name in names:
        if directory:
            pages = runtime.settings[name].pages
            files = {file: content.hex() for file, content in pages.files.items()} if pages else {}
            yield f"{key}.error_pages", sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def _files(configuration: Configuration, directory: str, key: str) -> dict[str, bytes]:
    if not directory:
        return {}
    try:
        files = sorted(file for file in configuration.path(directory).iterdir() if file.suffix == ".html")
        if len(files) > _MOST:
            raise configuration.error(key, directory, f"a directory of at most {_MOST} pages")
        return {file.name: _content(configuration, file, key) for file in files}
    except OSError as error:
        allowed = f"a directory of pages such as 502.html that can be read ({error.strerror})"
        raise configuration.error(key, directory, allowed) from None


def _content(configuration: Configuration, file: Path, key: str) -> bytes:
    if allowed := page_fault(file.name):
        raise configuration.error(key, file.name, allowed)
    with file.open("rb") as stream:
        content = stream.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise configuration.error(key, file.name, f"a page of at most {_LARGEST} bytes")
    return content


def profiles_of(configuration: Configuration) -> Mapping[str, Profile]:
    """The built-in profiles and those in the configuration's directories."""
    directories = list(map(configuration.path, configuration.profiles))
    objections = Objections()
    for number, directory in enumerate(directories):
        if not directory.is_dir():
            place, allowed = configuration.profiles[number], "a directory of profiles (*.toml)"
            objections.errors.append(configuration.error(f"profiles[{number}]", place, allowed))
    profiles = built_in()
    if configuration.source == COMMAND_LINE:
        profiles = _with_file(profiles, configuration.sites[0].profile)
    directories = [directory for directory in directories if directory.is_dir()]
    with objections:
        profiles = read_profiles(directories, profiles)
    for error in objections.errors:
        name = error.source.removeprefix("profile ")
        files = (str(file) for directory in directories if (file := directory / f"{name}.toml").is_file())
        error.source = next(files, error.source)
    objections.conclude()
    return profiles


def _with_file(known: Mapping[str, Profile], name: str) -> Mapping[str, Profile]:
    """The profiles that are known, and that of the file which the command line names. Raises ProfileError."""
    is_file = name not in known and Path(name).is_file()
    return {**known, name: Profile.from_file(name)} if is_file else known


def _any_profiles(tables: Sequence[SiteTable]) -> Mapping[str, Profile]:
    """A profile by every name, for sites that are read though those that the file means cannot be."""
    known = built_in()
    names = {table.profile for table in tables}
    names |= {route.profile for table in tables for route in table.routes if route.profile}
    return {name: known.get(name) or known["rfc3986"] for name in names}


def runtime_of(
    configuration: Configuration,
    proxies: Mapping[str, ReverseProxy] = MappingProxyType({}),
    https_port: int = HTTPS,
) -> Runtime:
    """Everything that a request sees of the configuration.

    Raises ConfigurationError, which names all invalid parts.
    """
    server, objections = configuration.server, Objections()
    attempt, tables = objections.attempt, configuration.sites
    token = attempt(lambda: _token(configuration.purge.token_env), b"")
    reading = attempt(lambda: _token(server.admin_read_token_env), b"")
    profiles = attempt(lambda: profiles_of(configuration), _any_profiles(tables))
    sites = attempt(lambda: SiteReader(configuration.source, profiles).read(tables), Sites([]))
    pages = attempt(lambda: pages_of(configuration), dict[Name, ErrorPages]())
    restrictions = attempt(lambda: restrictions_of(configuration, proxies), dict[Name, Restriction]())
    objections.conclude()
    edits, request_id = edits_of(configuration), server.request_id.encode()
    by_name = rules(configuration, profiles, edits, {request_id.lower()} - {b""} - ORDINARY)
    _check_libraries(configuration, by_name)
    settings: dict[Name, RouteSettings] = {"": RouteSettings(edits=edits[""], pages=pages.get(""))}
    for each in configuration.tables():
        name, around = each.name, settings["" if each.route is None else each.site.hosts[0]]
        next_hop = next_hop_of(configuration, each, proxies)
        settings[name] = RouteSettings(
            rules=by_name.get(name, around.rules),
            edits=edits.get(name, around.edits),
            restriction=restrictions.get(name, around.restriction),
            pages=pages.get(name, around.pages),
            next_hop=next_hop,
            affinity=None if next_hop is None else next_hop.affinity,
            plain=PlainSettings(**each.settings(PlainSettings)),
        )
    trusted, own_settings = networks(server.trusted_proxies), own_settings_of(server).items()
    trusted_at = {
        name: networks(own.trusted_proxies) for name, own in own_settings if own.trusted_proxies is not None
    }
    return Runtime(
        sites=sites,
        settings=settings,
        purging=Right(networks(configuration.purge.allow), token),
        reading=Right(networks(server.admin_read), reading),
        trusted=trusted,
        trusted_at=trusted_at,
        max_body_at={name: own.max_body for name, own in own_settings if own.max_body is not None},
        forwarded=server.forwarded,
        request_ids=RequestIds(request_id, trusted, trusted_at) if request_id else None,
        limits=server.fill(Limits),
        cache_status=server.cache_status,
        upgrades=frozenset(name.encode() for name in server.upgrades),
        https_port=https_port if server.https_redirect else 0,
    )


def read_limits(configuration: Configuration) -> ReadLimits:
    """The bounds on what is read of a request."""
    return configuration.server.fill(ReadLimits, half_closed_timeout=half_closed_timeout(configuration))


def half_closed_timeout(configuration: Configuration) -> float:
    """Seconds for which a client that sends no more is answered: as long as an origin server has."""
    return configuration.origin.timeouts.read or 0.0


def _token(variable: str) -> bytes:
    token = os.environ.get(variable, "")
    if not token.isascii() or any(letter.isspace() for letter in token):
        raise ConfigurationError("environment", variable, "(not shown)", "ASCII without blanks")
    return token.encode()


def _check_libraries(configuration: Configuration, rules: Mapping[Name, Rules]) -> None:
    """Raise ConfigurationError with every place that needs a library which is not installed."""
    objections = Objections()
    if configuration.server.otel and _lacks_telemetry():
        allowed = "false, or true after pip install 'univocal[otel]'"
        objections.errors.append(configuration.error("server.otel", True, allowed))
    tables: list[tuple[str, PolicyTable]] = [("cache", configuration.cache)]
    tables += [(f"{each.place}.cache", each.table.cache) for each in configuration.tables()]
    for coding, library in uncodable(rules.values()):
        allowed = f"a coding whose library is installed: {library}; pip install 'univocal[compress]'"
        written = [(f"{key}.compress", table.written().get("compress", [])) for key, table in tables]
        places = [f"{key}[{codings.index(coding)}]" for key, codings in written if coding in codings]
        place = next(iter(places), "cache.compress")  # a profile's setting has none
        objections.errors.append(configuration.error(place, coding, allowed))
    objections.conclude()


def _lacks_telemetry() -> bool:
    try:
        return None in [find_spec(f"opentelemetry.{name}") for name in ("sdk", "exporter.otlp.proto.http")]
    except ModuleNotFoundError:  # what is around it
        return True


# The part of what all processes keep together that each may have in its own memory, too: 1 of so many,
# and at least so many bytes.
_OWN: Final = 8
_LEAST: Final = 4 << 20


def memory_bounds(configuration: Configuration) -> tuple[int, int]:
    """The bytes of memory that each process has for responses, and those of one response at most.

    Where several processes keep what they store together in memory, each has a part of it in its own.
    """
    table = configuration.cache
    if not is_together(configuration):
        return table.max_bytes, table.max_object_bytes
    own = max(table.max_bytes // (_OWN * configuration.server.workers), _LEAST)
    return min(own, table.max_bytes), min(table.max_object_bytes, table.max_bytes)


def is_together(configuration: Configuration) -> bool:
    """True if several processes store in memory together: in a directory of `max_bytes`."""
    return configuration.cache.store == "memory" and configuration.server.workers > 1


def store_of(
    configuration: Configuration, commons: Commons | None = None, report: StoreReport = unreported
) -> MemoryStore | SharedTier:
    """Make the store of the configuration; nothing is connected yet. Raises ConfigurationError."""
    table = configuration.cache
    memory = MemoryStore(*memory_bounds(configuration), is_part=is_together(configuration))
    program, in_force = (None, None) if commons is None else ((commons.name, commons.leads), commons.in_force)
    clock, url = time.time, table.store
    try:
        if url == "memory":
            if commons is None or commons.store is None:
                return memory
            most = table.max_bytes
            return file_tier(commons.store, memory, clock, most, report, is_durable=False, program=program)
        redis = RedisSettings(**table.redis.model_dump())
        ttl, most = table.detached_ttl, table.disk_bytes
        return store_at(url, memory, clock, ttl, most, report, redis, in_force, program)
    except ConfigurationError as error:
        raise configuration.error("cache.store", masked(table.store), error.allowed) from None


def check_store(configuration: Configuration) -> None:
    """Raise ConfigurationError if there can be no such store; nothing is opened or made."""
    if not configuration.cache.store.startswith("file:"):
        store_of(configuration)
