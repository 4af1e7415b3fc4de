"""Warnings of `univocal check`, no mistakes: names that do not resolve here, and what is hardly meant."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from univocal.http.errors import ConfigurationError
from univocal.http.field_edits import names_clients
from univocal.origin.addresses import find_service, is_name, is_service, origin_url
from univocal.store.address import directory_of
from univocal.store.file.own_files import is_open_to_all
from univocal.uri.readings import spelled_alike
from univocal_app.config.site_reader import is_tested, url_key
from univocal_app.config.tables import Configuration, PolicyTable
from univocal_app.config.values import Address
from univocal_app.run.certificate_files import expiry_of_file, names_of
from univocal_app.run.listeners import own_settings_of
from univocal_app.run.origins import hops
from univocal_app.run.reading import files_of, placed

_AT_ONCE: Final = 16  # names, each in a thread


def warnings(configuration: Configuration) -> Iterator[ConfigurationError]:
    """The warnings about a configuration: those of one kind together, in the order of their lines."""
    for kind in (_unresolved, _alike, _doubtful):
        yield from placed(kind(configuration), files_of(configuration.source))


def _unresolved(configuration: Configuration) -> Iterator[ConfigurationError]:
    """A warning for each upstream with a name that does not resolve."""
    keys = list(_keys(configuration))
    names = list(dict.fromkeys(name for name, _, _ in keys))

    def reason_of(name: str) -> str:
        try:
            find_service(name) if is_service(name) else socket.getaddrinfo(name, None)
        except (OSError, UnicodeError) as error:
            return getattr(error, "strerror", None) or str(error)
        return ""

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        reasons = dict(zip(names, threads.map(reason_of, names), strict=True))
    for name, key, url in keys:
        if reasons[name]:
            mistake = f"the name `{name}` does not resolve here ({reasons[name]})"
            yield configuration.error(key, url, "a name that resolves", mistake)


def _alike(configuration: Configuration) -> Iterator[ConfigurationError]:
    """A warning for each guarded route whose path a server may take for that of another route."""
    for number, table in enumerate(configuration.sites):
        seen = dict[str, str]()
        for index, route in enumerate(table.routes):
            for reading in spelled_alike(route.path.encode()):
                other = seen.setdefault(reading.decode("latin-1"), route.path)
                if other != route.path:
                    mistake = f"{other!r} has the same reading: the guards of both hold for both"
                    key = f"sites[{number}].routes[{index}].path"
                    yield configuration.error(key, route.path, "one reading each", mistake)
                    break


def _doubtful(configuration: Configuration) -> Iterator[ConfigurationError]:
    """A warning for each setting that is valid and hardly meant."""
    server, warn = configuration.server, configuration.error
    for number, network in enumerate(configuration.purge.allow):
        if network.endswith("/0"):
            mistake = "is everybody: every client may purge, and use the admin listener if it reaches it"
            yield warn(f"purge.allow[{number}]", network, "networks of your own", f"{network} {mistake}")
    for own in set(own_settings_of(server).values()):
        introduced = server.proxy_protocol if own.proxy_protocol is None else own.proxy_protocol
        proxies = server.trusted_proxies if own.trusted_proxies is None else own.trusted_proxies
        if introduced and not proxies:
            mistake = "no proxy is trusted, so every connection with a PROXY header is refused"
            allowed = "true beside trusted_proxies"
            yield warn("server.proxy_protocol", True, allowed, f"{mistake}: see `trusted_proxies`")
    ours = {str(each) for each in (*server.listen, *server.listen_tls) if isinstance(each, Address)}
    for hop in hops(configuration):
        for origin in hop.setting.servers:
            if origin.url.partition("://")[2] in ours:
                mistake = f"{origin.url} is a listener of this program: its requests would come back to it"
                yield warn(url_key(hop.name), origin.url, "another server", mistake)
    allowed = 'a value for all clients, or `bypass = ["*"]` in the `cache` table beside it'
    mistake = "requests whose response may be stored go without this field, since other clients may get it"
    for key, value in _unsent(configuration):
        yield warn(key, value, allowed, mistake)
    yield from _of_directory(configuration)
    yield from _of_certificates(configuration)


def _of_directory(configuration: Configuration) -> Iterator[ConfigurationError]:
    """A warning for each folder around the store's in which all may exchange what they like."""
    store = configuration.cache.store
    directory = directory_of(store)
    for parent in directory.resolve().parents if directory is not None else ():
        if parent.exists() and is_open_to_all(parent):
            mistake = f"all may exchange what is in {parent}: chmod o-w it"
            yield configuration.error("cache.store", store, "a directory in one of your own", mistake)


def _of_certificates(configuration: Configuration) -> Iterator[ConfigurationError]:
    """A warning for each certificate that has expired, or has no name for a site that it is for."""
    for key, certificate, hosts in _served_by(configuration):
        file = configuration.path(certificate)
        names, expires = names_of(file), expiry_of_file(file)
        others = [host for host in hosts if names.isdisjoint((host, "*." + host.partition(".")[2]))]
        if others:
            mistake = f"the certificate has no name for {', '.join(others[:3])}: clients will refuse it"
            yield configuration.error(key, certificate, "a certificate for these names", mistake)
        if expires is not None and expires <= time.time():
            mistake = "the certificate has expired: clients will refuse it"
            yield configuration.error(key, certificate, "a certificate that is valid now", mistake)


def _unsent(configuration: Configuration) -> Iterator[tuple[str, str]]:
    """The key of each request field that names its client, where responses may be stored, and its value."""
    everywhere: PolicyTable = configuration.cache
    places = [("request", configuration.request, [everywhere])]
    for each in configuration.tables():
        caches = [everywhere, each.site.cache, each.table.cache]
        places.append((f"{each.place}.request", each.table.request, caches))
    for place, table, caches in places:
        bypass = [cache.written()["bypass"] for cache in caches if "bypass" in cache.model_fields_set]
        if "*" not in (bypass or [[]])[-1]:
            named = ((key, value) for key, value in table.set.items() if names_clients(value))
            yield from ((f"{place}.set.{key}", value) for key, value in named)


def _served_by(configuration: Configuration) -> Iterator[tuple[str, str, list[str]]]:
    """The dotted key of each certificate, its file, and the names of the sites that it is for."""
    rest = list[str]()
    for number, site in enumerate(configuration.sites):
        named = [host for host in site.hosts if not is_tested(host)]
        hosts = [authority.partition(":")[0].lower() for authority in (*named, *site.aliases)]
        hosts = [host for host in hosts if host != "*" and any(map(str.isalpha, host.rpartition(".")[2]))]
        if site.tls_cert:
            yield f"sites[{number}].tls_cert", site.tls_cert, hosts
        else:
            rest += hosts
    if configuration.server.tls_cert:
        yield "server.tls_cert", configuration.server.tls_cert, rest


def _keys(configuration: Configuration) -> Iterator[tuple[str, str, str]]:
    """The name of each origin server that has one, the dotted key of its setting, and its URL."""
    for hop in hops(configuration):
        for index, server in enumerate(hop.setting.servers):
            url = origin_url(server.url)
            host = url.service or url.host.decode()
            if not url.socket and is_name(host):
                several = f"[{index}]" if len(hop.setting.servers) > 1 else ""
                yield host, f"{url_key(hop.name)}{several}", server.url
