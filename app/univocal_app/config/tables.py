"""univocal.toml: read and validated as a whole, or refused with one clear message (docs/reference.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeVar

import pydantic
from pydantic import BaseModel, BeforeValidator, Field, PlainValidator, model_validator

from univocal.cache.rules import Rules
from univocal.http.errors import ConfigurationError, Objections
from univocal.http.field_edits import added_fault, request_fault, response_fault, value_fault
from univocal.http.settings import SettingError, settings_in
from univocal.judge.runtime import Limits, Mode, PlainSettings
from univocal.judge.trust import Family
from univocal.origin.failures import Timeouts
from univocal.origin.pool import PoolSettings
from univocal.origin.servers import Balancing
from univocal.origin.upkeep import HealthRule
from univocal.server.clients import ConnectionLimits, ReadLimits
from univocal.uri.site import AliasAnswer, CanonicalAnswer, Route, SiteScheme
from univocal_app.config import values
from univocal_app.config.files import KeyPath
from univocal_app.config.mistakes import mistakes

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Filled = TypeVar("Filled", bound="DataclassInstance")
Made = TypeVar("Made", bound="Table")


class Table(BaseModel):
    """A table of the file: every key is known, no value is coerced."""

    # A start needs one validator, of all tables together: others are built when they are used.
    model_config = pydantic.ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    @classmethod
    def defaults(cls, **own: Any) -> Self:
        """The table that a file does not have, made without a validator; it may have settings of its own."""
        return cls.model_construct(**own)

    def __deepcopy__(self, memo: object = None) -> Self:
        """A table is frozen: validators share the defaults that they would copy for each route."""
        return self

    def settings(self, kind: type[DataclassInstance]) -> dict[str, Any]:
        """This table's settings that a dataclass of the library has, by the names there."""
        known = type(self).model_fields
        made = dict[str, Any]()
        for name, setting in settings_in(kind).items():
            if setting.key in known and (value := getattr(self, setting.key)) is not None:
                made[name] = setting.read(value) if setting.keeps else value
        return made

    def fill(self, kind: type[Filled], **others: object) -> Filled:
        """A dataclass of the library that has this table's settings, and `others`."""
        return kind(**self.settings(kind) | others)

    def written(self) -> dict[str, Any]:
        """The settings that the file has in this table."""
        return {key: getattr(self, key) for key in self.model_fields_set}


def _with(*kinds: type[DataclassInstance], inherits: bool = False) -> Callable[[type[Made]], type[Made]]:
    """Give a table the settings of dataclasses of the library, behind its own.

    Where it `inherits`, they are None until it has them itself.
    """

    def made(table: type[Made]) -> type[Made]:
        fields: dict[str, Any] = {}
        for default, read, key, keeps in (each for kind in kinds for each in settings_in(kind).values()):
            if key not in table.model_fields:
                reader = _as_written(read) if keeps else PlainValidator(read)
                fields[key] = (Annotated[Any, reader], None if inherits else default)
        return pydantic.create_model(table.__name__, __base__=table, __doc__=table.__doc__, **fields)

    return made


def _as_written(read: Callable[[object], Any]) -> PlainValidator:
    """A validator that refuses what `read` refuses, and keeps a value as the file has it."""

    def kept(value: object) -> object:
        read(value)
        return value

    return PlainValidator(kept)


@_with(Limits, ReadLimits, ConnectionLimits)
class ServerTable(Table):
    """`[server]`: the listeners, their bounds and deadlines, and what is told of exchanges."""

    listen: values.Listen = (values.Address("127.0.0.1", 8080),)
    admin: Annotated[values.Listen, Field(min_length=1)] = (values.Address("127.0.0.1", 8081),)
    listen_tls: values.Listen = ()
    https_redirect: bool = False
    proxy_protocol: bool = False
    workers: Annotated[int, Field(ge=1)] = 1
    trusted_proxies: list[values.Network] = ["127.0.0.1/32", "::1/128"]
    forwarded: Family = "x-forwarded"
    admin_hosts: list[values.HostName] = ["localhost"]
    admin_read: list[values.Network] = []
    admin_read_token_env: Literal[""] | values.Variable = ""
    cache_status: Mode = "plain"
    access_log: Annotated[str, Field(min_length=1)] = "stdout"
    access_log_format: Annotated[str, Field(min_length=1)] = "json"
    error_pages: str = ""
    otel: bool = False
    upgrades: list[values.UpgradeName] = ["websocket"]
    request_id: values.RequestId = "X-Request-Id"
    trace: bool = False  # the library passes it on: an application says whether it answers
    tls_cert: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""
    http2: bool = False
    drain: values.DurationOrNone = 0
    shutdown_timeout: values.DurationOrNone = 10

    @property
    def places(self) -> dict[str, tuple[values.Place, ...]]:
        """The places of listeners, by the settings that name them."""
        return {"listen": self.listen, "listen_tls": self.listen_tls, "admin": self.admin}

    @property
    def log(self) -> tuple[str, str]:
        """The access log's place and format."""
        return self.access_log, self.access_log_format


@_with(HealthRule)
class HealthTable(Table):
    """`health` of `[origin]`: how origin servers are checked; durations in seconds."""


# {}: no checks.
Health = Annotated[HealthTable | None, BeforeValidator(lambda value: None if value == {} else value)]


@_with(Timeouts, Balancing, PoolSettings)
class OriginTable(Table):
    """`[origin]`: connections to origin servers, and the choice among them; durations in seconds."""

    health: Health = None
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_verify: bool = True
    transport: Literal["own", "httpx"] = "own"
    http2: bool = False

    @property
    def timeouts(self) -> Timeouts:
        """The times that an origin server may take: each write has as long as a read."""
        times = self.fill(Timeouts)
        return replace(times, write=times.read)


@_with(Rules)
class PolicyTable(Table):
    """The settings that can be made for all sites, for one, and in a profile."""


class RedisTable(Table):
    """`[cache.redis]`: how Redis is asked, where it is the store."""

    timeout: values.Duration = 1  # of one command
    connections: Annotated[int, Field(ge=1, le=1_000)] = 32  # to each server, at most
    heartbeat: values.Duration = 0.5


class CacheTable(PolicyTable):
    """`[cache]`: where responses are kept, and the policy of every site."""

    store: values.Store = "memory"
    detached_ttl: values.Duration = 5
    max_bytes: values.Size = 256 * 2**20
    max_object_bytes: values.Size = 16 * 2**20
    disk_bytes: values.Size = 2**30
    redis: RedisTable = RedisTable.defaults()


class PurgeTable(Table):
    """`[purge]`: who may purge."""

    allow: list[values.Network] = ["127.0.0.0/8", "::1/128"]
    token_env: values.Variable = "UNIVOCAL_PURGE_TOKEN"  # noqa: S105 - its name, not its value


class FieldsTable(Table):
    """`[request]` and `[response]`: header fields that are set, and those that are removed."""

    set: dict[str, str] = {}
    remove: list[str] = []
    _fault: ClassVar[Callable[..., str]]

    @model_validator(mode="after")
    def _check(self) -> FieldsTable:
        named = {name.lower() for name in self.remove}
        for number, name in enumerate(self.remove):
            _object_to(f".remove[{number}]", name, type(self)._fault(name, is_set=False))
        for key, fields in (("set", self.set), ("add", self.added)):
            for name, value in fields.items():
                place = f".{key}.{name}"
                fault = added_fault(name) if key == "add" else type(self)._fault(name, is_set=True)
                _object_to(place, name, fault)
                _object_to(place, value, value_fault(value))
                _object_to(place, name, "a field that is named once" if name.lower() in named else "")
                named.add(name.lower())
        return self

    @property
    def added(self) -> dict[str, str]:
        """The fields that stand beside those of the same name."""
        return {}


class RequestTable(FieldsTable):
    """`[request]`: header fields of requests to origin servers."""

    _fault: ClassVar = request_fault


class ResponseTable(FieldsTable):
    """`[response]`: header fields of responses to clients."""

    add: dict[str, str] = {}
    _fault: ClassVar = response_fault

    @property
    def added(self) -> dict[str, str]:
        return self.add


def _object_to(place: str, value: str, allowed: str) -> None:
    if allowed:
        raise SettingError(place, value, allowed)


class LimitsTable(Table):
    """`limits` of `[sites.access]`: a rate by the name of the user."""

    rate: Annotated[values.RateText, Field(min_length=1)]
    by: Literal["user"] = "user"


class AccessTable(Table):
    """`[sites.access]`: the clients that have access; networks, conditions, passwords, rates."""

    allow: list[values.Network] = []
    deny: list[values.Network] = []
    basic: str = ""
    rate: values.RateText = ""
    refuse: values.RefusedConditions = {}
    require: values.Conditions = {}
    private: bool = False
    forward: values.AuthorizationUrl = ""
    forward_fields: list[values.ForwardedField] = []
    forward_ttl: values.DurationOrNone = 0
    limits: LimitsTable | None = None
    reading: Literal["every", "canonical"] = "every"


class RedirectTable(Table):
    """`redirect`: where clients are sent, "" for none, and the status; the text alone is `to`."""

    to: str
    status: Annotated[Literal[301, 302, 303, 307, 308], BeforeValidator(values.redirection)] = 301


Redirect = Annotated[
    RedirectTable | None, BeforeValidator(lambda value: {"to": value} if isinstance(value, str) else value)
]


@_with(Route, PlainSettings, inherits=True)
class RouteTable(Table):
    """`[[sites.routes]]`: what differs for the paths that begin alike."""

    path: values.Prefix
    final: bool = False
    profile: str | None = None  # the site's
    upstream: values.OriginServers | None = None  # the site's
    redirect: Redirect = None  # the site's, without an upstream of its own
    error_pages: str = ""
    origin: OriginTable = OriginTable.defaults()
    cache: PolicyTable = PolicyTable.defaults()
    request: RequestTable = RequestTable.defaults()
    response: ResponseTable = ResponseTable.defaults()
    access: AccessTable = AccessTable.defaults()


@_with(Route, PlainSettings)
class SiteTable(Table):
    """`[[sites]]`: the hosts of one application, its profile and its origin servers."""

    hosts: Annotated[list[str], Field(min_length=1)]
    aliases: list[str] = []
    default: bool = False
    alias_answer: Annotated[AliasAnswer, BeforeValidator(values.redirection)] = "serve"
    canonical: Annotated[CanonicalAnswer, BeforeValidator(values.redirection)] = "serve"
    scheme: SiteScheme = "keep"
    tls_cert: str = ""
    tls_key: str = ""
    tls_client_ca: str | None = None  # the server's
    profile: str = "rfc3986"
    upstream: values.OriginServers
    redirect: Redirect = None
    origin_host: values.OriginHost = "site"
    origin: OriginTable = OriginTable.defaults()
    cache: PolicyTable = PolicyTable.defaults()
    request: RequestTable = RequestTable.defaults()
    response: ResponseTable = ResponseTable.defaults()
    error_pages: str = ""
    access: AccessTable = AccessTable.defaults()
    routes: list[RouteTable] = []


Name = str | tuple[str, bytes]
"""The name of a site's settings, its first host; of a route's, with the route's path."""


class Placed(NamedTuple):
    """The table of a site, or that of a route of it, and its place in the file."""

    place: str  # sites[0], or sites[0].routes[1]
    site: SiteTable
    route: RouteTable | None = None

    @property
    def site_place(self) -> str:
        """The place of the site's table."""
        return self.place.partition(".")[0]

    @property
    def table(self) -> SiteTable | RouteTable:
        """The route's table, else the site's."""
        return self.route or self.site

    def settings(self, kind: type[DataclassInstance]) -> dict[str, Any]:
        """The settings that a dataclass of the library has: a route's go before its site's."""
        return self.site.settings(kind) | self.table.settings(kind)

    @property
    def name(self) -> Name:
        """The name of its settings."""
        host = self.site.hosts[0]
        return host if self.route is None else (host, self.route.path.encode())


class Configuration(Table):
    """univocal.toml; with `--upstream` and no sites, every authority is served."""

    profiles: list[str] = []
    include: list[str] = []
    server: ServerTable = ServerTable.defaults()
    origin: OriginTable = OriginTable.defaults()
    cache: CacheTable = CacheTable.defaults()
    purge: PurgeTable = PurgeTable.defaults()
    request: RequestTable = RequestTable.defaults()
    response: ResponseTable = ResponseTable.defaults()
    sites: Annotated[list[SiteTable], Field(min_length=1)]
    _as_written: list[tuple[KeyPath, str]] = pydantic.PrivateAttr(default_factory=list)
    _source: str = pydantic.PrivateAttr(default="")

    def tables(self) -> Iterator[Placed]:
        """Each site, followed by its routes."""
        for number, site in enumerate(self.sites):
            yield Placed(f"sites[{number}]", site)
            for index, route in enumerate(site.routes):
                yield Placed(f"sites[{number}].routes[{index}]", site, route)

    @property
    def source(self) -> str:
        """The file that the settings are from, or `COMMAND_LINE`."""
        return self._source

    def path(self, name: str) -> Path:
        """The file or directory that a setting names, relative to the file that has the setting."""
        return Path(self._source).parent / name

    @property
    def log_file(self) -> Path | None:
        """The file of the access log; None: it has a standard stream, or is off."""
        where = self.server.access_log
        return None if where in {"off", "stdout"} else self.path(where)

    def error(self, key: str, found: object, allowed: str, mistake: str = "") -> ConfigurationError:
        """The error of an invalid setting."""
        return ConfigurationError(self._source, key, found, allowed, mistake)

    def with_written(self, written: Iterable[tuple[KeyPath, str]]) -> Self:
        """The same configuration, which knows its strings with variables as they are written."""
        copy = self.model_copy()
        copy._as_written = list(written)
        return copy

    @property
    def as_written(self) -> list[tuple[KeyPath, str]]:
        """The strings that name a variable of the environment, by their place."""
        return self._as_written


def validate(settings: Mapping[str, Any], source: str) -> Configuration:
    """A Configuration from parsed TOML. Raises ConfigurationError with every invalid setting."""
    try:
        configuration = Configuration.model_validate(settings)
    except pydantic.ValidationError as error:
        objections = Objections()
        objections.errors += mistakes(error.errors(include_url=False), source, Configuration)
        objections.conclude()
        raise
    configuration._source = source
    return configuration


def settings_of(configuration: Configuration) -> dict[str, Any]:
    """The settings that `validate` makes the same configuration of; passwords are among them."""
    return configuration.model_dump(mode="json", exclude_unset=True, context=values.WHOLE)


def shown(configuration: Configuration) -> dict[str, Any]:
    """The settings as they are shown: variables by their names, and no value of a field that is set.

    The access log is named as commands in any directory find it.
    """
    document = configuration.model_dump(mode="json")
    if configuration.log_file is not None:
        document["server"]["access_log"] = str(configuration.log_file.absolute())
    for place, text in configuration.as_written:
        _put(document, place, text)
    routes = [route for site in document["sites"] for route in site["routes"]]
    for table in (document, *document["sites"], *routes):
        for kind, keys in values.SECRETS.items():
            holder = table.get(kind) or {}
            for key in keys & holder.keys():
                holder[key] = dict.fromkeys(holder[key], values.MASK)
    return document


def _put(holder: Any, place: KeyPath, text: str) -> None:
    """Put a text at a place of a document; of a setting that has another form there, it is the whole value.

    Raises LookupError or TypeError where there is no such place.
    """
    name, *inner = place
    value = holder[name]
    if inner and isinstance(value, dict | list):
        with suppress(LookupError, TypeError):
            _put(value, tuple(inner), text)
            return
    holder[name] = text
