"""univocal.toml: its tables, its values, and what a setting that cannot be is told."""

from __future__ import annotations

from typing import Final

COMMAND_LINE: Final = "command line"  # the source of settings that no file has
