"""univocal.toml: read and validated as a whole, or refused with one clear message (docs/reference.md)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, Self, TypeAlias, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    PrivateAttr,
    ValidationError,
    create_model,
    model_validator,
)

from univocal.cache.rules import SETTINGS, SettingError
from univocal.http.errors import Objections
from univocal.http.field_edits import added_fault, request_fault, response_fault, value_fault
from univocal.judge.trust import Family
from univocal.origin.balance import Choice
from univocal.origin.upkeep import HealthRule, statuses
from univocal_app.config import values
from univocal_app.config.mistakes import mistakes
from univocal_app.config.places import Place

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

COMMAND_LINE: Final = "command line"
Filled = TypeVar("Filled", bound="DataclassInstance")


class Table(BaseModel):
    """A table of the file: every key is known, no value is coerced."""

    # A start needs one validator, of all tables together: others are built when they are used.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    @classmethod
    def defaults(cls) -> Self:
        """The table that a file does not have, made without a validator."""
        return cls.model_construct()

    def fill(self, kind: type[Filled], **others: object) -> Filled:
        """A dataclass of the library that has this table's settings, by their names, and `others`."""
        names = [each.name for each in dataclasses.fields(kind) if each.name in type(self).model_fields]
        return kind(**{name: getattr(self, name) for name in names} | others)

    def written(self) -> dict[str, Any]:
        """The settings that the file has in this table."""
        return {key: getattr(self, key) for key in self.model_fields_set}


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
    cache_status: Literal["plain", "key", "off"] = "plain"
    access_log: Annotated[str, Field(min_length=1)] = "stdout"
    access_log_format: Annotated[str, Field(min_length=1)] = "json"
    error_pages: str = ""
    otel: bool = False
    max_body: values.Size = 0
    max_target: values.Size = 8192
    max_segments: Annotated[int, Field(ge=0)] = 512
    max_fields: Annotated[int, Field(ge=0)] = 100
    max_field_bytes: values.Size = 65536
    header_timeout: values.Duration = 15
    content_timeout: values.Duration = 60
    send_timeout: values.Duration = 60
    max_connections: Annotated[int, Field(ge=0)] = 0
    max_connections_per_client: Annotated[int, Field(ge=0)] = 0
    max_requests_per_client: Annotated[int, Field(ge=0)] = 0
    upgrades: list[values.UpgradeName] = ["websocket"]
    upgrade_timeout: values.Duration = 300
    request_id: values.RequestId = "X-Request-Id"
    trace: bool = False
    tls_cert: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""
    http2: bool = False
    drain: values.DurationOrNone = 0
    shutdown_timeout: values.DurationOrNone = 10


class HealthTable(Table):
    """`health` of `[origin]`: how origin servers are checked; durations in seconds."""

    path: values.Target
    interval: values.Duration = 5
    timeout: values.Duration = 2
    status: values.Statuses = "200-399"
    rises: Annotated[int, Field(ge=1)] = 2
    falls: Annotated[int, Field(ge=1)] = 3

    @property
    def rule(self) -> HealthRule:
        """The rule of an origin server's health."""
        return self.fill(HealthRule, path=self.path.encode(), statuses=statuses(self.status))


class OriginTable(Table):
    """`[origin]`: connections to origin servers, and the choice among them; durations in seconds."""

    connect_timeout: values.Duration = 5
    read_timeout: values.Duration = 60
    max_connections: Annotated[int, Field(ge=1)] = 1000
    max_idle: Annotated[int, Field(ge=0)] = 1000
    max_head_bytes: Annotated[values.Size, Field(ge=1024)] = 64 * 2**10
    choice: Choice = "least-requests"
    sticky: values.Sticky = ""
    retries: Annotated[int, Field(ge=0)] = 1
    retry_budget: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.2
    fails: Annotated[int, Field(ge=1)] = 3
    eject: values.Duration = 10
    resolve: values.Duration = 5
    health: Annotated[HealthTable | None, BeforeValidator(lambda value: None if value == {} else value)] = (
        None  # {}: no checks
    )
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_verify: bool = True
    transport: Literal["own", "httpx"] = "own"
    http2: bool = False


def _as_written(read: Callable[[object], Any]) -> PlainValidator:
    """A validator that refuses what `read` refuses, and keeps a value as the file has it."""

    def kept(value: object) -> object:
        read(value)
        return value

    return PlainValidator(kept)


if TYPE_CHECKING:

    class PolicyTable(Table):
        """The settings that can be made for all sites, for one, and in a profile: those of Rules."""

else:
    PolicyTable = create_model(
        "PolicyTable",
        __base__=Table,
        **{
            key: (Annotated[Any, _as_written(setting.read)], setting.default)
            for key, setting in SETTINGS.items()
        },
    )


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

    @model_validator(mode="after")
    def _judge(self) -> FieldsTable:
        removed = {name.lower(): number for number, name in enumerate(self.remove)}
        for number, name in enumerate(self.remove):
            _object_to(f".remove[{number}]", name, self._fault(name, is_set=False))
        named = dict[str, str]()
        for key, fields in (("set", self.set), ("add", self.added)):
            for name, value in fields.items():
                place = f".{key}.{name}"
                fault = added_fault(name) if key == "add" else self._fault(name, is_set=True)
                _object_to(place, name, fault)
                _object_to(place, value, value_fault(value))
                twice = name.lower() in named or name.lower() in removed
                _object_to(place, name, "a field that is named once" if twice else "")
                named[name.lower()] = value
        return self

    @property
    def added(self) -> Mapping[str, str]:
        """The fields that stand beside those of the same name."""
        return MappingProxyType({})

    @staticmethod
    def _fault(name: str, *, is_set: bool) -> str:
        raise NotImplementedError


class RequestTable(FieldsTable):
    """`[request]`: header fields of requests to origin servers."""

    _fault = staticmethod(request_fault)


class ResponseTable(FieldsTable):
    """`[response]`: header fields of responses to clients."""

    add: dict[str, str] = {}

    @property
    def added(self) -> Mapping[str, str]:
        """The fields that stand beside those of the origin server."""
        return self.add

    _fault = staticmethod(response_fault)


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


class RouteTable(Table):
    """`[[sites.routes]]`: what differs for the paths that begin alike."""

    path: values.Prefix
    final: bool = False
    profile: str | None = None  # the site's
    upstream: values.OriginServers | None = None  # the site's
    forward: Literal["canonical", "received"] | None = None  # the site's
    redirect: Redirect = None  # the site's, without an upstream of its own
    redirects: Literal["map", "keep"] | None = None  # the site's
    cookie_path: Literal["map", "keep"] | None = None  # the site's
    error_pages: str = ""
    max_body: values.Size | None = None  # the site's
    origin: OriginTable = OriginTable.defaults()
    cache: PolicyTable = PolicyTable.defaults()
    request: RequestTable = RequestTable.defaults()
    response: ResponseTable = ResponseTable.defaults()
    access: AccessTable = AccessTable.defaults()


class SiteTable(Table):
    """`[[sites]]`: the hosts of one application, its profile and its origin servers."""

    hosts: Annotated[list[str], Field(min_length=1)]
    aliases: list[str] = []
    default: bool = False
    alias_answer: Annotated[Literal["serve", 301, 308], BeforeValidator(values.redirection)] = "serve"
    canonical: Annotated[Literal["serve", 301, 308, "link"], BeforeValidator(values.redirection)] = "serve"
    scheme: Literal["keep", "http", "https"] = "keep"
    tls_cert: str = ""
    tls_key: str = ""
    tls_client_ca: str | None = None  # the server's
    profile: str = "rfc3986"
    upstream: values.OriginServers
    forward: Literal["canonical", "received"] = "canonical"
    redirect: Redirect = None
    redirects: Literal["map", "keep"] = "map"
    cookie_path: Literal["map", "keep"] = "keep"
    origin_host: values.OriginHost = "site"
    origin: OriginTable = OriginTable.defaults()
    cache: PolicyTable = PolicyTable.defaults()
    request: RequestTable = RequestTable.defaults()
    response: ResponseTable = ResponseTable.defaults()
    error_pages: str = ""
    max_body: values.Size | None = None  # the server's
    access: AccessTable = AccessTable.defaults()
    routes: list[RouteTable] = []


Name: TypeAlias = str | tuple[str, bytes]
"""The name of a site's settings, its first host; of a route's, with the route's path."""


class Placed(NamedTuple):
    """The table of a site, or that of a route of it, and its place in the file."""

    place: str  # sites[0], or sites[0].routes[1]
    site: SiteTable
    route: RouteTable | None = None

    @property
    def table(self) -> SiteTable | RouteTable:
        """The route's table, else the site's."""
        return self.route or self.site

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
    _as_written: list[tuple[Place, str]] = PrivateAttr(default_factory=list)

    def tables(self) -> Iterator[Placed]:
        """Each site, followed by its routes."""
        for number, site in enumerate(self.sites):
            yield Placed(f"sites[{number}]", site)
            for index, route in enumerate(site.routes):
                yield Placed(f"sites[{number}].routes[{index}]", site, route)

    def with_written(self, written: Iterable[tuple[Place, str]]) -> Self:
        """The same configuration, which knows its strings with variables as they are written."""
        copy = self.model_copy()
        copy._as_written = list(written)
        return copy

    @property
    def as_written(self) -> list[tuple[Place, str]]:
        """The strings that name a variable of the environment, by their place."""
        return self._as_written


def validate(settings: Mapping[str, Any], source: str) -> Configuration:
    """A Configuration from parsed TOML. Raises ConfigurationError with every setting that cannot be."""
    objections = Objections()
    try:
        configuration = Configuration.model_validate(settings)
    except ValidationError as error:
        objections.errors += mistakes(error.errors(include_url=False), source, Configuration)
        objections.conclude()
        raise
    return configuration


def settings_of(configuration: Configuration) -> dict[str, Any]:
    """The settings that `validate` makes the same configuration of; passwords are among them."""
    return configuration.model_dump(mode="json", exclude_unset=True, context=values.WHOLE)


def shown(configuration: Configuration) -> dict[str, Any]:
    """The settings as they are shown: variables by their names, and no value of a field that is set."""
    document = configuration.model_dump(mode="json")
    for path, text in configuration.as_written:
        holder: Any = document
        name, value = path[0], holder
        for part in path:
            # The value may have been written in a shorter form than it is shown in, or a longer one.
            if not (
                part in value
                if isinstance(value, dict)
                else isinstance(value, list) and part in range(len(value))
            ):
                break
            holder, name, value = value, part, value[part]
        holder[name] = text
    routes = [route for site in document["sites"] for route in site["routes"]]
    for table in (document, *document["sites"], *routes):
        for kind, keys in values.SECRETS.items():
            holder = table.get(kind) or {}
            for key in keys & holder.keys():
                holder[key] = dict.fromkeys(holder[key], values.MASK)
    return document
