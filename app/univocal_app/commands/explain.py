"""`univocal explain` and `univocal canonicalize`: what becomes of URLs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from univocal.judge.runtime import Runtime
from univocal_app.commands.canonicalize import canonicalize_files
from univocal_app.commands.settings import Config, everywhere, usage
from univocal_app.config.tables import COMMAND_LINE
from univocal_app.observe.explain import explain
from univocal_app.run.assemble import runtime_of
from univocal_app.run.reading import read


def explain_command(
    url: Annotated[str, typer.Argument(metavar="URL", help="Any spelling, with http:// or https://.")],
    profile: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="The profile to use. Default: rfc3986.")
    ] = None,
    config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    path_encoding: Annotated[
        str, typer.Option(metavar="CHARSET", help="The charset in URI-Path-Encoding.")
    ] = "",
    query_encoding: Annotated[
        str, typer.Option(metavar="CHARSET", help="The charset in URI-Query-Encoding.")
    ] = "",
) -> None:
    """Show step by step how univocal makes the canonical URL of a URL.

    Exit status: 0 accepted, 1 rejected, 2 usage error.
    """
    runtime = _runtime(profile, config)
    try:
        encodings = (path_encoding.encode(), query_encoding.encode())
        explanation = explain(url, runtime.sites, encodings, runtime.rules_of, runtime.restrictions_of)
    except ValueError as error:
        usage(str(error))
    typer.echo(explanation.as_json() if as_json else explanation.as_text())
    raise typer.Exit(0 if explanation.accepted else 1)


def canonicalize_command(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="URLs, one a line; - is standard input, the default."),
    ] = None,
    *,
    profile: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="The profile to use. Default: rfc3986.")
    ] = None,
    config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
) -> None:
    """Print the canonical URL of each URL in files or standard input.

    A rejected URL gives an empty line, and its reasons on standard error.

    Exit status: 0 all accepted, 1 some rejected, 2 usage error.
    """
    sites = _runtime(profile, config).sites
    try:
        accepted = canonicalize_files(files or ["-"], sites, as_json=as_json)
    except ValueError as error:
        usage(str(error))
    raise typer.Exit(0 if accepted else 1)


def _runtime(profile: str | None, config: Path | None) -> Runtime:
    """The configuration that a request would see: a file, or one profile for every host."""
    if profile is not None and config is not None:
        usage("use either --profile or --config: with --config each site names its profile")
    if config is not None:
        return runtime_of(read(config), str(config))
    return runtime_of(everywhere(["http://127.0.0.1"], profile), COMMAND_LINE)
