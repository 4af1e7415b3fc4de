"""The command line of `univocal`: its commands, their options, and the environment variables of `serve`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer

from univocal.http.errors import ConfigurationError, Objections
from univocal.judge.profiles import builtin_profiles
from univocal.judge.runtime import Runtime
from univocal_app.commands import learn as learning
from univocal_app.commands.canonicalize import canonicalize_files
from univocal_app.commands.endings import ClosedOutput
from univocal_app.commands.environment import PREFIX, refuse_settings, unknown
from univocal_app.commands.log import log_command
from univocal_app.commands.purge import purge_command
from univocal_app.commands.reload import reload_command
from univocal_app.commands.top import top_command
from univocal_app.config.tables import COMMAND_LINE, Configuration, validate
from univocal_app.config.values import Address, parse_address
from univocal_app.demo import demo as run_demo
from univocal_app.exporters.command import export_profile
from univocal_app.importers.command import ShowOrImport, import_profile
from univocal_app.observe import explain as explaining
from univocal_app.run.assemble import profiles_of, runtime_of, share_of
from univocal_app.run.names import unresolved
from univocal_app.run.reading import Check, read, usable
from univocal_app.run.serve import address_of, bind
from univocal_app.run.systemd import Notices, passed_sockets
from univocal_app.run.workers import Program, WorkersError, alone, supervise
from univocal_app.terminal import describe, table

__all__ = ["main"]

app: Final = typer.Typer(
    help="One resource, one URL: a caching reverse proxy that knows every spelling of a URL.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# The names of settings on the command line.
OPTIONS: Final = {
    "sites[0].upstream": "--upstream",
    "sites[0].profile": "--profile",
    "server.listen": "--listen",
    "server.admin": "--admin",
}

Config = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="A univocal.toml.")]
Listen = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", envvar="UNIVOCAL_LISTEN", help="Where clients connect.")
]
Admin = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", envvar="UNIVOCAL_ADMIN", help="Where the admin listener is."),
]


def main() -> None:
    """The program `univocal`: a configuration that cannot be ends it with status 2 and a line per setting."""
    if sys.stdout is None:
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
        sys.exit(f"univocal: {error.strerror or error}")


def _version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"univocal {version('univocal')}")
        raise typer.Exit


@app.callback()
def _program(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def serve(
    context: typer.Context,
    *,
    upstream: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            envvar="UNIVOCAL_UPSTREAM",
            help="The origin server of every site; several times, for several of one application.",
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", envvar="UNIVOCAL_PROFILE", help="How that origin reads paths (rfc3986)."
        ),
    ] = None,
    listen: Listen = None,
    admin: Admin = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", envvar="UNIVOCAL_CONFIG", help="A univocal.toml."),
    ] = None,
) -> None:
    """Run the proxy, for one application or as a configuration file says."""
    if _typed(context, "config"):  # it goes before what the environment says
        upstream = upstream if _typed(context, "upstream") else None
        profile = profile if _typed(context, "profile") else None
    elif _typed(context, "upstream"):
        config = None
    if (not upstream) == (config is None):
        _usage("serve needs either --upstream URL or --config FILE")
    if config is not None and profile is not None:
        _usage("--profile belongs to --upstream: with --config each site names its own")
    if admin is not None:  # other commands take the same variable with a URL in it
        admin = admin.removeprefix("http://").removesuffix("/")
    texts = {name: text for name, text in (("listen", listen), ("admin", admin)) if text is not None}
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
    texts: Mapping[str, str], config: Path | None, upstreams: list[str], profile: str | None, *more: Check
) -> Configuration:
    """The configuration by command line and file. Raises ConfigurationError with all that cannot be."""
    objections, addresses = Objections(), dict[str, Address]()
    configuration: Configuration | None = None
    with objections:
        refuse_settings(os.environ)
    for name, text in texts.items():
        with objections:
            addresses[name] = _address(text, f"server.{name}")

    def addressed(configuration: Configuration) -> Configuration:
        server = configuration.server.model_copy(update=addresses)
        return configuration.model_copy(update={"server": server})

    with objections:
        checks = (_of(addressed, check) for check in more)
        configuration = _everywhere(upstreams, profile) if config is None else read(config, *checks)
    objections.conclude()
    assert configuration is not None  # or there was an objection
    return addressed(configuration)


def _of(made: Callable[[Configuration], Configuration], check: Check) -> Check:
    """The check of what is made of a configuration."""
    return lambda configuration, source: check(made(configuration), source)


def _option(key: str) -> str:
    """The option by which a setting is given on the command line."""
    return next((option for setting, option in OPTIONS.items() if key.startswith(setting)), key)


def _serve(configured: Callable[..., Configuration], source: str, typed: Collection[str]) -> None:
    front_by, back_by = (COMMAND_LINE if name in typed else source for name in ("listen", "admin"))
    notices, passed = Notices.of(os.environ), passed_sockets(os.environ)
    configuration = configured()
    for variable in unknown(os.environ, configuration.purge.token_env):
        typer.echo(f"univocal: {variable} in the environment means nothing to univocal", err=True)
    server = configuration.server
    with (
        passed.get("listen") or bind(server.listen, front_by, "server.listen") as front,
        passed.get("admin") or bind(server.admin, back_by, "server.admin") as back,
    ):
        limits = share_of(configuration)
        if server.max_connections > limits.clients * server.workers:
            typer.echo(f"univocal: server.max_connections = {server.max_connections} is too much", err=True)
        each = " for each worker" if server.workers > 1 else ""
        typer.echo(f"univocal: {limits}{each}", err=True)
        scheme = "https" if server.tls_cert else "http"
        said = f"serving {scheme}://{address_of(front)}/, admin listener http://{address_of(back)}/"
        serves = alone if server.workers == 1 else supervise
        serves(Program(configuration, source, front, back, configured, _tell, notices, said))


def _tell(line: str) -> None:
    typer.echo(f"univocal: {line}", err=True)


@app.command()
def demo(
    listen: Listen = "127.0.0.1:8080",
    admin: Admin = "127.0.0.1:8081",
    visitors: Annotated[bool, typer.Option("--visitors", help="Let somebody ask, for its page.")] = False,
) -> None:
    """Run the proxy before three small origins, and print what to try."""
    run_demo(_address(listen, "--listen"), _address(admin, "--admin"), visited=visitors)


@app.command()
def explain(
    url: Annotated[str, typer.Argument(metavar="URL", help="http:// or https:// and any spelling.")],
    profile: Annotated[
        str | None, typer.Option(metavar="NAME", help="The profile to read it by (rfc3986).")
    ] = None,
    config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    path_encoding: Annotated[str, typer.Option(metavar="CHARSET", help="A URI-Path-Encoding sent.")] = "",
    query_encoding: Annotated[str, typer.Option(metavar="CHARSET", help="A URI-Query-Encoding sent.")] = "",
) -> None:
    """Show what becomes of a URL, stage by stage. Exit status: 0 accepted, 1 rejected, 2 usage."""
    runtime = _runtime(profile, config)
    try:
        encodings = (path_encoding.encode(), query_encoding.encode())
        explanation = explaining.explain(url, runtime.sites, encodings, runtime.rules_of)
    except ValueError as error:
        _usage(str(error))
    typer.echo(explanation.as_json() if as_json else explanation.as_text())
    raise typer.Exit(0 if explanation.accepted else 1)


@app.command()
def canonicalize(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILE", help="URLs, one a line; - is standard input.")
    ] = None,
    *,
    profile: Annotated[
        str | None, typer.Option(metavar="NAME", help="The profile to read them by (rfc3986).")
    ] = None,
    config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="An object a line, for programs.")] = False,
) -> None:
    """Write the canonical URL for each line that is read, an empty line for a URL that is refused.

    Exit status: 0 all accepted, 1 some refused (the reasons are on standard error), 2 usage.
    """
    sites = _runtime(profile, config).sites
    try:
        accepted = canonicalize_files(files or ["-"], sites, as_json=as_json)
    except ValueError as error:
        _usage(str(error))
    raise typer.Exit(0 if accepted else 1)


def _runtime(profile: str | None, config: Path | None) -> Runtime:
    """The configuration that a request would see: a file, or one profile for every host."""
    if profile is not None and config is not None:
        _usage("either --profile or --config, which has a profile for each site")
    if config is not None:
        return runtime_of(read(config), str(config))
    return runtime_of(_everywhere(["http://127.0.0.1"], profile), COMMAND_LINE)


def _typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _everywhere(upstreams: list[str], profile: str | None) -> Configuration:
    site = {"hosts": ["*"], "profile": profile or "rfc3986"}
    objections = Objections()
    configuration = validate({"sites": [{**site, "upstream": "http://127.0.0.1"}]}, COMMAND_LINE)
    with objections:
        runtime_of(configuration, COMMAND_LINE)  # objects to the profile
    with objections:
        upstream = upstreams if len(upstreams) > 1 else upstreams[0]
        configuration = validate({"sites": [{**site, "upstream": upstream}]}, COMMAND_LINE)
    objections.conclude()
    return configuration


shelf: Final = typer.Typer(cls=ShowOrImport, help="List the profiles, show, import or export one.")
shelf.command("import")(import_profile)
shelf.command("export")(export_profile)
app.add_typer(shelf, name="profiles")


@shelf.command("show")
def profiles(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One profile, with every setting.")
    ] = None,
    config: Config = None,
) -> None:
    """List the profiles, or show one."""
    known = profiles_of(read(config), str(config)) if config is not None else builtin_profiles()
    if name is None:
        typer.echo(table([(each.name, each.summary) for each in known.values()]))
    elif name in known:
        typer.echo(describe(known[name]))
    else:
        _usage(f"there is no profile {name!r}; there are {', '.join(known)}")


@app.command()
def check(config: Annotated[Path, typer.Option("--config", metavar="FILE", help="A univocal.toml.")]) -> None:
    """Read a configuration as `serve` would, with its profiles, addresses and log, without serving."""
    refuse_settings(os.environ)
    configuration = read(config, usable)
    for warning in unresolved(configuration, str(config)):
        typer.echo(f"univocal: warning: {warning}", err=True)
    count = len(configuration.sites)
    typer.echo(f"{config}: {count} site{'s' if count > 1 else ''}, nothing to object to")


learning.register(app)
app.command("purge")(purge_command)
app.command("reload")(reload_command)
app.command("top")(top_command)
app.command("log")(log_command)


def _address(text: str | None, option: str) -> Address:
    try:
        return parse_address(text)
    except ValueError as error:
        raise ConfigurationError(COMMAND_LINE, option, text, str(error)) from None


def _usage(message: str) -> NoReturn:
    raise typer.BadParameter(message)
