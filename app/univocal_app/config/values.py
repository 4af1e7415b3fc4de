"""The values a configuration holds: each is read by one function, whose ValueError says what is allowed."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from pydantic import PlainSerializer, PlainValidator, SerializationInfo

from univocal.http.field_edits import request_fault
from univocal.http.grammar import a_labels, parse_authority
from univocal.http.intermediary import carries_http, is_protocol
from univocal.http.settings import SettingError, duration, duration_or_none, flag, setting, settings_in, size
from univocal.judge.access import CONDITIONS, condition_of, rate_of
from univocal.judge.orders import PURGES
from univocal.origin.addresses import ORIGIN_URLS, origin_url, unix_socket
from univocal.store.address import directory_of
from univocal.store.redis import url as address


def network(value: object) -> str:
    """A network in CIDR notation, or one address."""
    with contextlib.suppress(ValueError):
        if isinstance(value, str):
            return str(ipaddress.ip_network(value))
    raise ValueError('an address or a network without host bits, such as "192.0.2.7" or "10.0.0.0/8"')


def _hosts(value: object) -> tuple[str, ...]:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return tuple(value)
    raise ValueError("an array of hosts of sites")


def _networks(value: object) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(map(network, value))
    raise ValueError('an array of networks, such as ["10.0.0.0/8"]')


@dataclass(frozen=True)
class ListenerSettings:
    """The settings that a listener has of its own; None: as the server's setting says."""

    # That this listener serves, and none without them does; (): the others.
    sites: tuple[str, ...] = setting([], _hosts)
    proxy_protocol: bool | None = setting(None, flag)
    trusted_proxies: tuple[str, ...] | None = setting(None, _networks)
    max_body: int | None = setting(None, size)

    def written(self) -> dict[str, list[str] | bool | int]:
        """The settings as a table has them beside `address`."""
        given = {key: value for key, value in asdict(self).items() if value not in {None, ()}}
        given |= {} if self.trusted_proxies is None else {"trusted_proxies": self.trusted_proxies}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in given.items()}


class Address(NamedTuple):
    """The address that a listener binds; port 0 asks the system for a free one."""

    host: str
    port: int
    own: ListenerSettings = ListenerSettings()

    def __repr__(self) -> str:
        own = "".join(f", {key}={value!r}" for key, value in self.own.written().items())
        return f"Address(host={self.host!r}, port={self.port!r}{own})"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class SocketPath(NamedTuple):
    """The Unix socket that a listener makes, by its absolute path."""

    path: str
    own: ListenerSettings = ListenerSettings()

    def __str__(self) -> str:
        return f"unix://{self.path}"


Place: TypeAlias = Address | SocketPath
"""Where a listener is."""


class Weighted(NamedTuple):
    """An origin server's URL without its path, and its share of the requests beside the others'.

    One that is a `backup` is asked when no other is up.
    """

    url: str  # scheme and authority alone, or unix:// and the path of a socket
    weight: int = 1
    backup: bool = False


class UpstreamSetting(NamedTuple):
    """The origin servers of one application, and the text that all of them have before a target."""

    servers: tuple[Weighted, ...]
    path: str  # as it is written; empty where the URLs have none

    @property
    def urls(self) -> list[str]:
        """The URLs as they are written."""
        return [server.url + self.path for server in self.servers]

    def written(self) -> str | list[str | dict[str, str | int | bool]]:
        """The setting's value."""
        entries = list[str | dict[str, str | int | bool]]()
        for url, server in zip(self.urls, self.servers, strict=True):
            weight: dict[str, str | int | bool] = {} if server.weight == 1 else {"weight": server.weight}
            backup: dict[str, str | int | bool] = {"backup": True} if server.backup else {}
            entries.append({"url": url, **weight, **backup} if weight or backup else url)
        return entries[0] if len(entries) == 1 and isinstance(entries[0], str) else entries


_ADDRESS: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::([0-9]{1,5}))?")
_HEAVIEST: Final = 1000  # weight
_AUTHORIZATION: Final = re.compile(r"(https?://[^/?#]+|unix:///[^?#]+)(/[!-\"$-~]*)?")
# Fields of this family that name a user, and not the client or the URL.
_OF_USERS: Final = ("access-token", "email", "groups", "preferred-username", "user")
_USERS: Final = frozenset(f"x-forwarded-{name}" for name in _OF_USERS)


def parse_address(value: object) -> Address:
    """HOST:PORT; an IPv6 address stands in brackets."""
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[3] is None or int(match[3]) > 65535:
        raise ValueError('HOST:PORT such as "127.0.0.1:8080" or "[::1]:8080"')
    return Address(match[1] or match[2], int(match[3]))


def parse_place(value: object) -> Place:
    """The place of a listener, HOST:PORT or unix:///PATH."""
    path = unix_socket(value) if isinstance(value, str) else None
    if path is not None:
        return SocketPath(path)
    try:
        return parse_address(value)
    except ValueError as error:
        raise ValueError(f'{error}, or unix:///PATH such as "unix:///run/univocal.sock"') from None


def parse_places(value: object) -> tuple[Place, ...]:
    """The places of listeners, of which a file may name one or several, each once."""
    if not isinstance(value, list):
        return (parse_place(value),)
    places = list[Place]()
    for number, each in enumerate(value):
        place = _listener(each, f"[{number}]")
        known = any(str(place) == str(other) for other in places)
        if known and not (isinstance(place, Address) and place.port == 0):
            raise SettingError(f"[{number}]", each, "each listener once")
        places.append(place)
    return tuple(places)


def _listener(value: object, place: str) -> Place:
    """A listener of several: an address, or a table with `address` and settings of its own."""
    if not isinstance(value, dict):
        try:
            return parse_place(value)
        except ValueError as error:
            raise SettingError(place, value, str(error)) from None
    settings = settings_in(ListenerSettings)
    for key in value:
        if key not in settings and key != "address":
            raise SettingError(f"{place}.{key}", value[key], f"the keys address, {', '.join(settings)}")
    try:
        address = parse_place(value.get("address"))
    except ValueError as error:
        raise SettingError(f"{place}.address", value.get("address"), str(error)) from None
    own: dict[str, Any] = {}
    for key in (key for key in settings if key in value):
        try:
            own[key] = settings[key].read(value[key])
        except ValueError as error:
            raise SettingError(f"{place}.{key}", value[key], str(error)) from None
    return address._replace(own=ListenerSettings(**own))


def _written_places(places: tuple[Place, ...]) -> str | list[str | dict[str, str | int | list[str]]]:
    if len(places) == 1 and not places[0].own.written():
        return str(places[0])
    written = ((str(place), place.own.written()) for place in places)
    return [{"address": place, **own} if own else place for place, own in written]


def parse_upstream(value: object) -> UpstreamSetting:
    """The URL of one origin server, or an array of URLs and of tables with `url`, `weight` and `backup`."""
    if not isinstance(value, list):
        url, path = _split_upstream(value)
        return UpstreamSetting((Weighted(url),), path)
    if not value:
        raise ValueError("at least one URL")
    servers: list[Weighted] = []
    path = ""
    for number, each in enumerate(value):
        place = f"[{number}]"
        written, weight, backup = _weighted(each, place)
        try:
            url, own = _split_upstream(written)
        except ValueError as error:
            raise SettingError(place, each, f"{error}; or a table with url and weight or backup") from None
        if servers and own != path:
            behind = f"with the path {path!r}" if path else "without a path"
            raise SettingError(place, written, f"a URL {behind}, as the first of them")
        if any(url == server.url for server in servers):
            raise SettingError(place, written, "each origin server once; its weight may be more than 1")
        servers.append(Weighted(url, weight, backup))
        path = own
    if all(server.backup for server in servers):
        raise SettingError("[0].backup", True, "false for one origin server at least")
    return UpstreamSetting(tuple(servers), path)


def _weighted(each: object, place: str) -> tuple[object, int, bool]:
    if not isinstance(each, dict):
        return each, 1, False
    for key, value in each.items():
        if key not in {"url", "weight", "backup"}:
            raise SettingError(f"{place}.{key}", value, "the keys url, weight, backup")
    weight = each.get("weight", 1)
    if type(weight) is not int or not 1 <= weight <= _HEAVIEST:
        raise SettingError(f"{place}.weight", weight, f"an integer from 1 to {_HEAVIEST}")
    backup = each.get("backup", False)
    if not isinstance(backup, bool):
        raise SettingError(f"{place}.backup", backup, "true or false")
    return each.get("url"), weight, backup


def _split_upstream(value: object) -> tuple[str, str]:
    """An origin server's URL, in two parts: the server to connect to, and the text before a target."""
    written = value if isinstance(value, str) else ""
    url = origin_url(written)
    server = written.removesuffix(url.path)
    # A name is written as A-labels: as it is written it goes into fields, logs and metrics.
    if not url.socket and not _ADDRESS.fullmatch(server.partition("://")[2]):
        raise ValueError(ORIGIN_URLS)
    return server, url.path


def origin_host(value: object) -> str:
    """The Host that the origin gets: "site", "upstream", or a host of its own, as an A-label."""
    if isinstance(value, str) and value:
        with contextlib.suppress(UnicodeError):
            written = a_labels(value).decode()
            if parse_authority(written.encode()) is not None:
                return written
    raise ValueError('"site", "upstream", or a host with or without a port')


def host_name(value: object) -> str:
    """A host in its one spelling, without port: a name as A-labels, or an address."""
    with contextlib.suppress(UnicodeError):
        written = a_labels(value).decode() if isinstance(value, str) else value
        if isinstance(written, str):
            bare = f"[{written}]" if ":" in written and "[" not in written else written
            host = parse_authority(bare.encode())
            if host is not None and host[1] is None and not bare.endswith(":"):
                return host[0].decode()
    raise ValueError('the name of a host without a port, such as "localhost" or "univocal.internal"')


def variable(value: object) -> str:
    """The name of an environment variable."""
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        return value
    raise ValueError('the name of an environment variable, such as "UNIVOCAL_PURGE_TOKEN"')


def redirection(value: object) -> object:
    """A status of a redirection as a number, also where a text has it; any other value as it is."""
    return int(value) if value in {"301", "308"} and isinstance(value, str) else value


def _empty_or(read: Callable[[str], object]) -> PlainValidator:
    """A validator of texts: those that are empty, and those that are read without a ValueError."""

    def text_of(value: object) -> str:
        if value != "":
            read(value if isinstance(value, str) else "")
        return str(value)

    return PlainValidator(text_of)


def conditions(value: object) -> dict[str, list[str]]:
    """The lists of values by `method`, `target`, `header:NAME` or `cookie:NAME`. Raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError(f"a table by {CONDITIONS}")
    made = {subject: [each] if isinstance(each, str) else each for subject, each in value.items()}
    for subject, texts in made.items():
        try:
            if not (isinstance(texts, list) and texts and all(isinstance(each, str) for each in texts)):
                raise ValueError('a value, "~" and an expression, or a list of these')
            condition_of(subject, texts, is_required=True)
        except ValueError as error:
            raise SettingError(f".{subject}", value[subject], str(error)) from None
    return made


def refused_conditions(value: object) -> dict[str, list[str]]:
    """Conditions that refuse: not of the methods that purge, to which they do not apply."""
    made = conditions(value)
    if any(text.encode() in PURGES for text in made.get("method", [])):
        raise SettingError(".method", made["method"], "other methods: [purge] says who may purge")
    return made


def request_id_field(value: object) -> str:
    """The name of the field that names requests; empty: they have no names."""
    if value == "" or (isinstance(value, str) and not request_fault(value, is_set=True)):
        return str(value)
    raise ValueError('"", or the name of a field that `[request] set` may have, such as "X-Request-Id"')


def upgrade_name(value: object) -> str:
    """The name of a protocol that connections may switch to, in lower case."""
    if isinstance(value, str) and value.isascii() and is_protocol(name := value.lower().encode()):
        if not carries_http(name):
            return name.decode()
        raise ValueError("protocols other than HTTP and TLS: by those, requests would go past every check")
    raise ValueError('the name of a protocol, such as "websocket"')


def authorization_server(text: str) -> tuple[UpstreamSetting, str]:
    """An authorization server, and the target that it is asked for. Raises ValueError."""
    match = _AUTHORIZATION.fullmatch(text)
    try:
        upstream = parse_upstream(match[1] if match else "")
    except ValueError:
        upstream = UpstreamSetting((), "/")
    if match is None or upstream.path:
        example = '"http://127.0.0.1:4180/auth", or unix:///PATH'
        raise ValueError(f"the URL of an authorization server, such as {example}")
    return upstream, match[2] or "/"


def forwarded_field(value: object) -> str:
    """The name of a field that an authorization server gives, and that the origin server gets."""
    name = value if isinstance(value, str) else ""
    if name.lower() not in _USERS and (fault := request_fault(name, is_set=True)):
        raise ValueError(f"{fault}; {', '.join(sorted(_USERS))} may be")
    return name


def prefix(value: object) -> str:
    """The paths of a route: a prefix, one path, a glob or an expression."""
    if isinstance(value, str) and value[:1] in {"/", "=", "*", "~"}:
        return value
    allowed = 'a path that begins with a slash, such as "/api/", one path ("=/login"), a glob ("*.png")'
    raise ValueError(f'{allowed} or an expression ("~^/users/[0-9]+$")')


def store(value: object) -> str:
    """The place of stored responses: memory alone, a directory, or a Redis or Valkey."""
    text = value if isinstance(value, str) else ""
    try:
        if value != "memory" and directory_of(text) is None:
            address.check(text)
    except ValueError as error:
        raise ValueError(f"'memory', or {error}") from None
    return str(value)


masked: Final = address.masked
"""Makes a URL without the password that may be in it."""


MASK: Final = "***"  # in the place of a value that is not shown
# Tables whose values may be passwords, and the keys that hold them there.
SECRETS: Final = {"request": {"set"}, "response": {"set", "add"}, "access": {"refuse", "require"}}
WHOLE: Final = "whole"  # as the context of a dump: with the passwords


def _written_store(url: str, info: SerializationInfo) -> str:
    return url if info.context == WHOLE else masked(url)


Size: TypeAlias = Annotated[int, PlainValidator(size)]
Network: TypeAlias = Annotated[str, PlainValidator(network)]
Listen: TypeAlias = Annotated[
    tuple[Place, ...], PlainValidator(parse_places), PlainSerializer(_written_places)
]
OriginServers: TypeAlias = Annotated[
    UpstreamSetting, PlainValidator(parse_upstream), PlainSerializer(UpstreamSetting.written)
]
Duration: TypeAlias = Annotated[float, PlainValidator(duration)]
DurationOrNone: TypeAlias = Annotated[float, PlainValidator(duration_or_none)]
OriginHost: TypeAlias = Annotated[str, PlainValidator(origin_host)]
HostName: TypeAlias = Annotated[str, PlainValidator(host_name)]
Variable: TypeAlias = Annotated[str, PlainValidator(variable)]
Store: TypeAlias = Annotated[str, PlainValidator(store), PlainSerializer(_written_store)]
UpgradeName: TypeAlias = Annotated[str, PlainValidator(upgrade_name)]
RequestId: TypeAlias = Annotated[str, PlainValidator(request_id_field)]
AuthorizationUrl: TypeAlias = Annotated[str, _empty_or(authorization_server)]
ForwardedField: TypeAlias = Annotated[str, PlainValidator(forwarded_field)]
Conditions: TypeAlias = Annotated[dict[str, list[str]], PlainValidator(conditions)]
RefusedConditions: TypeAlias = Annotated[dict[str, list[str]], PlainValidator(refused_conditions)]
RateText: TypeAlias = Annotated[str, _empty_or(rate_of)]
Prefix: TypeAlias = Annotated[str, PlainValidator(prefix)]
