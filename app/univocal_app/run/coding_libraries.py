"""The libraries that the codings of `compress` need, looked for at the start and at a reload."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from univocal.cache.rules import Rules
from univocal.http.errors import ConfigurationError, Objections
from univocal.store.compression import missing_library
from univocal_app.config.tables import Configuration


def check_libraries(
    configuration: Configuration, rules: Mapping[str | tuple[str, bytes], Rules], source: str
) -> None:
    """Raise ConfigurationError with every place that names a coding whose library is not installed."""
    objections = Objections()
    missing = {coding: missing_library(coding) for each in rules.values() for coding in each.compress}
    for key, codings in _settings(configuration):
        for number, coding in enumerate(codings):
            if library := missing.pop(coding.encode(), ""):
                allowed = f"a coding whose library is installed: {library}; pip install 'univocal[compress]'"
                objections.errors.append(ConfigurationError(source, f"{key}[{number}]", coding, allowed))
    for name, library in missing.items():  # a profile's setting
        if library:
            allowed = f"a coding whose library is installed: {library}; pip install 'univocal[compress]'"
            objections.errors.append(ConfigurationError(source, "cache.compress", name.decode(), allowed))
    objections.conclude()


def _settings(configuration: Configuration) -> Iterator[tuple[str, list[str]]]:
    tables = [("cache", configuration.cache.model_dump(exclude_unset=True))]
    for number, site in enumerate(configuration.sites):
        tables.append((f"sites[{number}].cache", site.cache.model_dump(exclude_unset=True)))
        for index, route in enumerate(site.routes):
            place = f"sites[{number}].routes[{index}].cache"
            tables.append((place, route.cache.model_dump(exclude_unset=True)))
    for place, table in tables:
        yield f"{place}.compress", table.get("compress", [])
