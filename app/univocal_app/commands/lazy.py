"""The commands of `univocal` by name: the module of each is imported when the command is used.

`serve` answers sooner without the modules that learn, import and draw.
"""

from __future__ import annotations

import ast
from collections import UserDict
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeVar

import typer
from typer.core import TyperGroup

Command = TypeVar("Command", bound=Callable[..., object])

# In the order of `univocal --help`. What `commands.cli` registers itself stands where its name is.
_PLACES: Final = {
    "serve": "",
    "demo": "demo:demo_command",
    "explain": "explain:explain_command",
    "canonicalize": "explain:canonicalize_command",
    "check": "",
    "purge": "purge:purge_command",
    "origins": "origins:origins_command",
    "probe": "learn:probe_command",
    "discover": "learn:discover_command",
    "replay": "learn:replay_command",
    "audit": "learn:audit_command",
    "top": "top:top_command",
    "log": "log:log_command",
    "reload": "reload:reload_command",
    "files": "files:files_command",
    "profiles": "profiles:profiles_commands",
}


def documented(command: Command) -> Command:
    """The command with its docstring, which is its help; PYTHONOPTIMIZE=2 leaves it in the source alone."""
    if command.__doc__ is None:
        tree = ast.parse(Path(command.__code__.co_filename).read_text("utf-8"))
        functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
        command.__doc__ = next(
            map(ast.get_docstring, (f for f in functions if f.name == command.__name__)), None
        )
    return command


class LazyCommands(TyperGroup):
    """A group of typer's whose commands are imported one by one."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        self.commands = _Commands({name: self.commands.get(name, place) for name, place in _PLACES.items()})


class _Commands(UserDict[str, Any]):
    """Commands, or the places of those that nobody has asked for yet."""

    def __getitem__(self, name: str) -> Any:
        command = super().__getitem__(name)
        if isinstance(command, str):
            command = self[name] = _imported(name, command)
        return command


def _imported(name: str, place: str) -> Any:
    module, attribute = place.split(":")
    command = getattr(import_module(f"univocal_app.commands.{module}"), attribute)
    if isinstance(command, typer.Typer):
        group = command
    else:
        group = typer.Typer(add_completion=False)
        group.command()(documented(command))
    made = typer.main.get_command(group)
    made.name = name
    return made
