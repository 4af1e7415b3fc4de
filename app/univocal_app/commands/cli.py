"""The command line of `univocal`: the names of its commands, its errors, and `--version`."""

from __future__ import annotations

import ast
import gc
import sys
from collections import UserDict
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, TypeVar

import typer
from typer.core import TyperGroup

from univocal.http.errors import ConfigurationError
from univocal_app.config import COMMAND_LINE
from univocal_app.terminal import version_text

Command = TypeVar("Command", bound=Callable[..., object])

# In the order of `univocal --help`; the module of each is imported when it is used. Learning and importing
# are a package of their own, which only these names load.
_PLACES: Final = {
    "serve": "univocal_app.commands.serve:serve_command",
    "demo": "univocal_learn.demo.run:demo_command",
    "explain": "univocal_app.commands.explain:explain_command",
    "canonicalize": "univocal_app.commands.explain:canonicalize_command",
    "check": "univocal_app.commands.serve:check_command",
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
    gc.freeze()  # what was imported stays: no collection looks at it, not even the first
    gc.enable()
    made: Any
    if isinstance(command, typer.Typer):
        made = typer.main.get_group(command)
    else:
        alone = typer.Typer(add_completion=False)
        alone.command()(documented(command))
        made = typer.main.get_command(alone)
    made.name = name
    return made


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


def main() -> None:
    """The program `univocal`: an invalid configuration ends it with status 2 and a line per setting."""
    if sys.stdout is None:
        from univocal_app.commands.endings import ClosedOutput  # noqa: PLC0415 - hardly ever

        sys.stdout = ClosedOutput()
    try:
        app()
    except ConfigurationError as error:
        for each in (error, *error.beside):
            if each.source == COMMAND_LINE:
                each.key = option_of(each.key)
            typer.echo(f"univocal: {each}", err=True)
        sys.exit(2)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        sys.exit(f"univocal: {where}{error.strerror or error}")


def option_of(key: str) -> str:
    """The option by which a setting is given on the command line."""
    return next((option for setting, option in OPTIONS.items() if key.startswith(setting)), key)


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
