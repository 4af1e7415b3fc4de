"""`univocal serve` and `univocal check`: a configuration by options, environment and file."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer
from pydantic import BaseModel

from univocal.http.errors import ConfigurationError, Objections
from univocal.server.clients import ConnectionLimits
from univocal_app.commands.cli import option_of
from univocal_app.commands.settings import Admin, Listen, config_option, everywhere, option, place, usage
from univocal_app.config import COMMAND_LINE
from univocal_app.config.tables import Configuration
from univocal_app.config.values import Place
from univocal_app.run.listeners import apart, listening, share_of
from univocal_app.run.program import Program, WorkersError, alone
from univocal_app.run.reading import Check, read, usable
from univocal_app.run.systemd import NAMES, Notices, passed_sockets
from univocal_app.run.warnings import warnings
from univocal_app.terminal import stamped

PREFIX: Final = "UNIVOCAL_"
READ: Final = frozenset(PREFIX + name for name in ("UPSTREAM", "PROFILE", "LISTEN", "ADMIN", "CONFIG"))

# A container orchestrator makes such names for a service called "univocal".
_ORCHESTRATED: Final = re.compile(r"UNIVOCAL_(?:[A-Z0-9_]+_)?(?:SERVICE_(?:HOST|PORT)|PORT)(?:_[A-Z0-9_]+)?")
_SERVERS: Final = "The URL of the origin server. Repeatable: several servers of one application."
_PROFILE: Final = "The profile of the application. Default: rfc3986."


def serve_command(
    context: typer.Context,
    *,
    upstream: Annotated[list[str] | None, option("URL", _SERVERS, envvar="UNIVOCAL_UPSTREAM")] = None,
    profile: Annotated[str | None, option("NAME|FILE", _PROFILE, envvar="UNIVOCAL_PROFILE")] = None,
    listen: Listen = None,
    admin: Admin = None,
    config: Annotated[Path | None, config_option(envvar="UNIVOCAL_CONFIG")] = None,
) -> None:
    """Run the proxy for one application (--upstream) or from a configuration file (--config)."""
    if _typed(context, "config"):
        for name, value in (("upstream", upstream), ("profile", profile)):
            if value is not None and not _typed(context, name):
                beside = f"beside --config {config}, where each site has its {name}"
                usage(f"{PREFIX}{name.upper()} is set {beside}")
    elif _typed(context, "upstream"):
        config = None
    if (not upstream) == (config is None):
        usage("give either --upstream URL or --config FILE")
    if config is not None and profile is not None:
        usage("--profile belongs to --upstream: in --config FILE each site names its profile")
    texts = {name: text for name, text in (("listen", listen), ("admin", admin)) if text}
    configured = partial(_configured, texts, config, upstream or [], profile)
    with _variables_named(context):
        _serve(configured, str(config or COMMAND_LINE), texts)


@contextmanager
def _variables_named(context: typer.Context) -> Iterator[None]:
    """Name an invalid setting of the environment by its variable."""
    try:
        yield
    except ConfigurationError as error:
        for each in (error, *error.beside):
            name = option_of(each.key).removeprefix("--")
            origin = context.get_parameter_source(name)
            if each.source == COMMAND_LINE and origin is not None and origin.name == "ENVIRONMENT":
                each.source, each.key = "environment", f"{PREFIX}{name}".upper()
        raise


def _configured(
    texts: Mapping[str, list[str]], config: Path | None, urls: list[str], profile: str | None, *more: Check
) -> Configuration:
    """The configuration by command line and file. Raises ConfigurationError with all invalid settings."""
    objections, places = Objections(), dict[str, tuple[Place, ...]]()
    configuration: Configuration | None = None
    with objections:
        refuse_settings(os.environ)
    for name, listed in texts.items():
        with objections:
            places[name] = tuple(place(text, f"server.{name}") for text in listed)

    def addressed(configuration: Configuration) -> Configuration:
        server = configuration.server.model_copy(update=places)
        lost = apart(configuration.server) - apart(server)  # sites whose only listeners are not there now
        sites = [each for each in configuration.sites if lost.isdisjoint(each.hosts)]
        kept = configuration.sites if len(sites) == len(configuration.sites) else sites
        return configuration.model_copy(update={"server": server, "sites": kept})

    def checked(configuration: Configuration) -> None:
        for check in more:
            check(addressed(configuration))

    with objections:
        configuration = everywhere(urls, profile) if config is None else read(config, checked)
    objections.conclude()
    assert configuration is not None  # or there was an objection
    return addressed(configuration)


def refuse_settings(environ: Mapping[str, str]) -> None:
    """Raise ConfigurationError for every variable that is called like a setting which only a file has."""
    objections = Objections()
    for variable, key in dict(_settings()).items():
        if variable in environ and variable not in READ:
            allowed, found = "no such variable", environ[variable]
            mistake = f"{allowed}: set {key} in a file (--config)"
            objections.errors.append(ConfigurationError("environment", variable, found, allowed, mistake))
    objections.conclude()


def unknown(environ: Iterable[str], token: str) -> list[str]:
    """The variables that begin as ours and mean nothing; `token` names the one that holds the purge token."""
    ours = (name for name in environ if name.startswith(PREFIX) and name != token and name not in READ)
    return sorted(name for name in ours if not _ORCHESTRATED.fullmatch(name))


def _settings() -> Iterator[tuple[str, str]]:
    for name, field in Configuration.model_fields.items():
        table = field.annotation
        if isinstance(table, type) and issubclass(table, BaseModel):
            for key in table.model_fields:
                yield f"{PREFIX}{key}".upper(), f"{name}.{key}"
                yield f"{PREFIX}{name}_{key}".upper(), f"{name}.{key}"


def _serve(configured: Callable[..., Configuration], source: str, typed: Collection[str]) -> None:
    sources = {name: COMMAND_LINE if name in typed else source for name in NAMES}
    notices, passed = Notices.of(os.environ), passed_sockets(os.environ)
    configuration = configured()
    for variable in unknown(os.environ, configuration.purge.token_env):
        _tell(f"{variable} in the environment is unknown to univocal", "WARNING")
    server = configuration.server
    with listening(server, passed, sources) as listeners:
        limits = share_of(configuration)
        most, wanted = limits.clients * server.workers, server.fill(ConnectionLimits).connections
        if wanted > most:
            _tell(f"server.max_connections = {wanted}: the descriptor limit allows {most}", "WARNING")
        _tell(f"{limits}{' for each worker' if server.workers > 1 else ''}")
        program = Program(configuration, listeners, configured, _tell, notices)
        if server.workers == 1:
            alone(program)
            return
        from univocal_app.run.workers import supervise  # noqa: PLC0415 - one process needs no messages

        try:
            supervise(program)
        except WorkersError as error:
            sys.exit(f"univocal: {error}")


def _tell(line: str, level: str = "INFO") -> None:
    typer.echo(stamped(level, line), err=True)


def _typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def check_command(config: Annotated[Path, config_option()]) -> None:
    """Check a configuration file, with its profiles, addresses and log; serve nothing."""
    refuse_settings(os.environ)
    configuration = read(config, usable)
    for warning in warnings(configuration):
        typer.echo(f"univocal: warning: {warning}", err=True)
    closed_sites, closed_routes = _closed(configuration)
    closed = f"; closed: {_counted(closed_sites, 'site')}, {_counted(closed_routes, 'route')}"
    told = closed if closed_sites or closed_routes else ""
    typer.echo(f"{config}: valid, {_counted(len(configuration.sites), 'site')}{told}")


def _counted(count: int, name: str) -> str:
    return f"{count} {name}{'' if count == 1 else 's'}"


def _closed(configuration: Configuration) -> tuple[int, int]:
    """The numbers of sites, and of routes of other sites, that are closed to every client."""
    closed = [site for site in configuration.sites if _is_closed(site.access.deny)]
    routes = [route for site in configuration.sites if site not in closed for route in site.routes]
    return len(closed), sum(_is_closed(route.access.deny) for route in routes)


def _is_closed(denied: list[str]) -> bool:
    return {"0.0.0.0/0", "::/0"} <= {*denied}
