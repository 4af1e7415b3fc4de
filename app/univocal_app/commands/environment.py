"""Environment variables that begin with the program's name: `serve` reads five, no other goes unnoticed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pydantic import BaseModel

from univocal.http.errors import ConfigurationError, Objections
from univocal_app.config.tables import Configuration

PREFIX: Final = "UNIVOCAL_"
READ: Final = frozenset(PREFIX + name for name in ("UPSTREAM", "PROFILE", "LISTEN", "ADMIN", "CONFIG"))

# A container orchestrator makes such names for a service called "univocal".
_ORCHESTRATED: Final = re.compile(r"UNIVOCAL_(?:[A-Z0-9_]+_)?(?:SERVICE_(?:HOST|PORT)|PORT)(?:_[A-Z0-9_]+)?")


def refuse_settings(environ: Mapping[str, str]) -> None:
    """Raise ConfigurationError for every variable that is called like a setting which only a file has."""
    objections = Objections()
    for variable, key in dict(_settings()).items():
        if variable in environ and variable not in READ:
            mistake = f"no such variable: set {key} in a file (--config)"
            objections.errors.append(
                ConfigurationError("environment", variable, environ[variable], "no such variable", mistake)
            )
    objections.conclude()


def unknown(environ: Iterable[str], token: str) -> list[str]:
    """The variables that begin as ours and mean nothing; `token` names the one that holds the purge token."""
    ours = (name for name in environ if name.startswith(PREFIX) and name != token and name not in READ)
    return sorted(name for name in ours if not _ORCHESTRATED.fullmatch(name))


def _settings() -> Iterator[tuple[str, str]]:
    for name, field in Configuration.model_fields.items():
        table = field.annotation
        if isinstance(table, type) and issubclass(table, BaseModel):
            for key in table.model_fields:
                yield f"{PREFIX}{key}".upper(), f"{name}.{key}"
                yield f"{PREFIX}{name}_{key}".upper(), f"{name}.{key}"
