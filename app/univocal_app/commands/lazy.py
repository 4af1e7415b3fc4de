"""The commands of `univocal` by name: the module of each is imported when the command is used.

`serve` answers sooner without the modules that learn, import and draw.
"""

from __future__ import annotations

import ast
from collections import UserDict
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import typer
from typer.core import TyperGroup

Command = TypeVar("Command", bound=Callable[..., object])

# In the order of `univocal --help`. What `commands.cli` registers itself stands where its name is.
# Learning and importing are a package of their own, which only these names load.
_PLACES: Final = {
    "serve": "",
    "demo": "univocal_learn.demo.run:demo_command",
    "explain": "univocal_app.commands.explain:explain_command",
    "canonicalize": "univocal_app.commands.explain:canonicalize_command",
    "check": "",
    "purge": "univocal_app.commands.purge:purge_command",
    "warm": "univocal_app.commands.warm:warm_command",
    "origins": "univocal_app.commands.origins:origins_command",
    "probe": "univocal_learn.commands:probe_command",
    "discover": "univocal_learn.commands:discover_command",
    "replay": "univocal_learn.commands:replay_command",
    "audit": "univocal_learn.commands:audit_command",
    "top": "univocal_app.commands.top:top_command",
    "log": "univocal_app.commands.log:log_command",
    "reload": "univocal_app.commands.reload:reload_command",
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
    """Commands, or the places of those that nobody has asked for yet."""

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
