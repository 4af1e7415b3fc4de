"""The command line of `univocal`: its commands, their options, and the environment variables of `serve`."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections import UserDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, TypeVar

import typer
from pydantic import BaseModel
from typer.core import TyperGroup

from univocal.http.errors import ConfigurationError, Objections
from univocal.server.clients import ConnectionLimits
from univocal_app.commands.settings import Admin, Listen, config_option, everywhere, option, place, usage
from univocal_app.config.tables import COMMAND_LINE, Configuration
from univocal_app.config.values import Place
from univocal_app.run.listeners import apart, listening, share_of
from univocal_app.run.program import Program, WorkersError, alone
from univocal_app.run.reading import Check, read, usable
from univocal_app.run.systemd import NAMES, Notices, passed_sockets
from univocal_app.run.warnings import warnings
from univocal_app.terminal import stamped, version_text

Command = TypeVar("Command", bound=Callable[..., object])

# In the order of `univocal --help`. This module registers those without a place. The module of any other is
# imported when it is used. Learning and importing are a package of their own, which only these names load.
_PLACES: Final = {
    "serve": "",
    "demo": "univocal_learn.demo.run:demo_command",
    "explain": "univocal_app.commands.explain:explain_command",
    "canonicalize": "univocal_app.commands.explain:canonicalize_command",
    "check": "",
    "purge": "univocal_app.commands.purge:purge_command",
    "warm": "univocal_app.commands.warm:warm_command",
    "origins": "univocal_app.commands.operate:origins_command",
    "probe": "univocal_learn.commands:probe_command",
    "discover": "univocal_learn.commands:discover_command",
    "replay": "univocal_learn.commands:replay_command",
    "audit": "univocal_learn.commands:audit_command",
    "top": "univocal_app.commands.top:top_command",
    "log": "univocal_app.commands.log:log_command",
    "reload": "univocal_app.commands.operate:reload_command",
    "files": "univocal_app.commands.files:files_command",
    "profiles": "univocal_app.commands.profiles:profiles_commands",
}


def documented(command: Command) -> Command:
    """The command with its docstring, which is its help; PYTHONOPTIMIZE=2 leaves it in the source alone."""
    if command.__doc__ is None:
        tree = ast.parse(Path(command.__code__.co_filename).read_text("utf-8"))
        functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
        own = (node for node in functions if node.name == command.__name__)
        command.__doc__ = next(map(ast.get_docstring, own), None)
    return command


class LazyCommands(TyperGroup):
    """A group of typer's whose commands are imported one by one."""

    places: ClassVar[dict[str, str]] = _PLACES

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        places = {name: self.commands.get(name, place) for name, place in self.places.items()}
        self.commands = _Commands(places)


class _Commands(UserDict[str, Any]):
    """Commands, or the places of those that are not loaded yet."""

    def __getitem__(self, name: str) -> Any:
        command = super().__getitem__(name)
        if isinstance(command, str):
            command = self[name] = _imported(name, command)
        return command


def _imported(name: str, place: str) -> Any:
    module, attribute = place.split(":")
    command = getattr(import_module(module), attribute)
    made: Any
    if isinstance(command, typer.Typer):
        made = typer.main.get_group(command)
    else:
        alone = typer.Typer(add_completion=False)
        alone.command()(documented(command))
        made = typer.main.get_command(alone)
    made.name = name
    return made


PREFIX: Final = "UNIVOCAL_"
READ: Final = frozenset(PREFIX + name for name in ("UPSTREAM", "PROFILE", "LISTEN", "ADMIN", "CONFIG"))

# A container orchestrator makes such names for a service called "univocal".
_ORCHESTRATED: Final = re.compile(r"UNIVOCAL_(?:[A-Z0-9_]+_)?(?:SERVICE_(?:HOST|PORT)|PORT)(?:_[A-Z0-9_]+)?")
app: Final = typer.Typer(
    cls=LazyCommands,
    help="One resource, one URL: a caching reverse proxy that knows every spelling of a URL.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# The names of settings on the command line.
_SETTINGS: Final = ("sites[0].upstream", "sites[0].profile", "server.listen", "server.admin")
OPTIONS: Final = {setting: f"--{setting.rpartition('.')[2]}" for setting in _SETTINGS}
_SERVERS: Final = "The URL of the origin server. Repeatable: several servers of one application."
_PROFILE: Final = "The profile of the application. Default: rfc3986."


def main() -> None:
    """The program `univocal`: a configuration that cannot be ends it with status 2 and a line per setting."""
    if sys.stdout is None:
        from univocal_app.commands.endings import ClosedOutput  # noqa: PLC0415 - hardly ever

        sys.stdout = ClosedOutput()
    try:
        app()
    except ConfigurationError as error:
        for each in (error, *error.beside):
            if each.source == COMMAND_LINE:
                each.key = _option(each.key)
            typer.echo(f"univocal: {each}", err=True)
        sys.exit(2)
    except WorkersError as error:
        sys.exit(f"univocal: {error}")
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        sys.exit(f"univocal: {where}{error.strerror or error}")


def _version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(version_text())
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
]


@app.callback()
def _program(_: Version = False) -> None:
    pass


@app.command()
@documented
def serve(
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
    """Call a setting that cannot be, and comes from the environment, like the variable that says it."""
    try:
        yield
    except ConfigurationError as error:
        for each in (error, *error.beside):
            name = _option(each.key).removeprefix("--")
            origin = context.get_parameter_source(name)
            if each.source == COMMAND_LINE and origin is not None and origin.name == "ENVIRONMENT":
                each.source, each.key = "environment", f"{PREFIX}{name}".upper()
        raise


def _configured(
    texts: Mapping[str, list[str]], config: Path | None, urls: list[str], profile: str | None, *more: Check
) -> Configuration:
    """The configuration by command line and file. Raises ConfigurationError with all that cannot be."""
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


def _option(key: str) -> str:
    """The option by which a setting is given on the command line."""
    return next((option for setting, option in OPTIONS.items() if key.startswith(setting)), key)


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
        else:
            from univocal_app.run.workers import supervise  # noqa: PLC0415 - one process needs no messages

            supervise(program)


def _tell(line: str, level: str = "INFO") -> None:
    typer.echo(stamped(level, line), err=True)


def _typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


@app.command()
@documented
def check(config: Annotated[Path, config_option()]) -> None:
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
