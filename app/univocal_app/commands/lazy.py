"""The commands of `univocal` by name: the module of each is imported when the command is used.

`serve` answers sooner without the modules that learn, import and draw.
"""

from __future__ import annotations

from collections import UserDict
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup

__all__ = ["LazyCommands"]

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
        group.command()(command)
    made = typer.main.get_command(group)
    made.name = name
    return made
