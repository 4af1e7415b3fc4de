"""The result of an importer: a profile's settings, sites, and notes on all that it could not take over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from univocal.http.errors import ConfigurationError

__all__ = ["Imported", "Note", "Source", "Table"]

Table: TypeAlias = Mapping[str, Any]
"""A table of TOML: strings, integers, booleans, lists of them, and lists of tables."""


@dataclass(frozen=True, slots=True)
class Note:
    """A difference between univocal and the file, and the line where it is; 0: the file as a whole."""

    line: int
    text: str
    is_open_question: bool = False  # univocal refuses these requests until somebody decides


@dataclass(frozen=True, slots=True)
class Imported:
    """A profile as the tables of its file, `[[sites]]` that use it, and notes on the differences."""

    summary: str
    extends: str
    path: Table
    notes: Sequence[Note]
    sites: Sequence[Table] = ()
    server: Table = field(default_factory=dict)  # the table [server]


@dataclass(frozen=True, slots=True)
class Source:
    """The file that is imported; `pick` names one of several rings, rules or servers in it."""

    name: str
    text: str
    pick: str | None = None

    def error(self, line: int, found: str, allowed: str) -> ConfigurationError:
        """The error for a line that cannot be imported; line 0 is the file as a whole."""
        return ConfigurationError(self.name, f"line {line}" if line else "", found, allowed)
