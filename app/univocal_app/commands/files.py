"""`univocal files`: what a service needs around the program, listed, printed and written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from univocal_app.commands.service_files import SERVICE_FILES, written_to
from univocal_app.commands.settings import Texts, argument, flag, option
from univocal_app.terminal import table


def files_command(
    names: Annotated[Texts, argument("NAME", "The file to print. Default: list all.")] = None,
    *,
    to: Annotated[
        Path | None, option("DIRECTORY", "Write the files into this directory; without NAME, all.")
    ] = None,
    force: Annotated[bool, flag("--force", "Overwrite files of the same name.")] = False,
) -> None:
    """List, print or write the files for systemd, logrotate and Grafana."""
    for name in names or []:
        if name not in SERVICE_FILES:
            raise typer.BadParameter(f"there is no file {name!r}; the files are {', '.join(SERVICE_FILES)}")
    chosen = [SERVICE_FILES[name] for name in names or []]
    if to is not None:
        try:
            paths = written_to(to, chosen or list(SERVICE_FILES.values()), anew=force)
        except FileExistsError as error:
            raise typer.BadParameter(f"{error.filename} exists already: --force overwrites it") from None
        except OSError as error:
            raise typer.BadParameter(f"--to {to}: {error.strerror}") from None
        for path in paths:
            typer.echo(path)
    elif chosen:
        typer.echo("".join(each.text() for each in chosen), nl=False)
    else:
        typer.echo(table([(each.name, each.place, each.summary) for each in SERVICE_FILES.values()]))
