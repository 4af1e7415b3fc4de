"""`univocal profiles`: the profiles listed, shown, imported and exported."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

import typer

from univocal.judge.profiles import builtin_profiles
from univocal.uri.profile import Profile
from univocal_app.commands.cli import LazyCommands, documented
from univocal_app.commands.settings import Config, argument, usage
from univocal_app.config.mistakes import unknown_profile
from univocal_app.run.configured import profiles_of
from univocal_app.run.reading import read
from univocal_app.terminal import describe, table


class _ShowOrImport(LazyCommands):
    """The commands of `univocal profiles`; a word that names none of them is an argument of `show`."""

    places: ClassVar = {
        "import": "univocal_learn.importers.command:import_profile",
        "export": "univocal_learn.exporters.writing:export_profile",
        "show": "",
    }

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = args and (args[0] in self.commands or args[0] == "--help")
        return super().parse_args(ctx, args if named else ["show", *args])


profiles_commands: Final = typer.Typer(
    cls=_ShowOrImport, add_completion=False, help="List, show, import or export profiles."
)


@profiles_commands.command("show")
@documented
def show_command(
    name: Annotated[str | None, argument("NAME|FILE", "Show every setting of this profile.")] = None,
    config: Config = None,
) -> None:
    """List the profiles, or show every setting of one."""
    known = profiles_of(read(config)) if config is not None else builtin_profiles()
    if name is None:
        typer.echo(table([(each.name, each.summary) for each in known.values()]))
    elif name in known or Path(name).is_file():
        typer.echo(describe(known[name] if name in known else Profile.from_file(name)))
    else:
        usage(unknown_profile(name, known))
