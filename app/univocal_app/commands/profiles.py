"""`univocal profiles`: the profiles listed, shown, imported and exported."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from univocal.judge.profiles import builtin_profiles
from univocal_app.commands.lazy import documented
from univocal_app.commands.settings import Config, usage
from univocal_app.config.mistakes import unknown_profile
from univocal_app.exporters.command import export_profile
from univocal_app.importers.command import ShowOrImport, import_profile
from univocal_app.run.assemble import profiles_of
from univocal_app.run.reading import read
from univocal_app.terminal import describe, table

profiles_commands: Final = typer.Typer(
    cls=ShowOrImport, add_completion=False, help="List, show, import or export profiles."
)
profiles_commands.command("import")(documented(import_profile))
profiles_commands.command("export")(documented(export_profile))


@profiles_commands.command("show")
@documented
def show_command(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Show every setting of this profile.")
    ] = None,
    config: Config = None,
) -> None:
    """List the profiles, or show every setting of one."""
    known = profiles_of(read(config), str(config)) if config is not None else builtin_profiles()
    if name is None:
        typer.echo(table([(each.name, each.summary) for each in known.values()]))
    elif name in known:
        typer.echo(describe(known[name]))
    else:
        usage(unknown_profile(name, known))
