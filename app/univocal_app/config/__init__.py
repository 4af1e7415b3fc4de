"""univocal.toml: its tables, its values, and the errors of invalid settings."""

from __future__ import annotations

from typing import Final

COMMAND_LINE: Final = "command line"  # the source of settings that no file has
