"""`univocal profiles export`: a profile as a function for another system."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from univocal.http.errors import ConfigurationError
from univocal.judge.profiles import profile_at
from univocal_app.config.tables import COMMAND_LINE
from univocal_learn.exporters.languages import Target
from univocal_learn.exporters.writing import exported


def export_profile(
    name: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="A built-in profile, or the TOML file of one.")
    ],
    target: Annotated[Target, typer.Option("--to", metavar="|".join(Target), help="The language.")],
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The output file. Default: standard output.")
    ] = None,
) -> None:
    """Export a profile as a function for another system, with test vectors.

    Exit status: 0 written, 2 usage error, or a setting that the language cannot express.
    """
    text = exported(profile_at(name, COMMAND_LINE, "NAME"), target)
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, "utf-8")
    except OSError as error:
        raise ConfigurationError(
            str(output), "", error.strerror or str(error), "a file that can be written"
        ) from None
