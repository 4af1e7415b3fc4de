"""A configuration file is read with all that it names: every setting that cannot be is told at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

from univocal.http.errors import ConfigurationError, Objections
from univocal_app.config.places import line_of, standing_in, without
from univocal_app.config.tables import Configuration, parsed, validate
from univocal_app.observe.accesslog import check_log
from univocal_app.run.assemble import runtime_of, store_of
from univocal_app.run.certificates import contexts_of
from univocal_app.run.origins import proxies_of
from univocal_app.run.serve import check_address
from univocal_app.run.telemetry import check_telemetry

__all__ = ["Check", "placed", "read", "usable"]

Check: TypeAlias = Callable[[Configuration, str], object]

_CHECKS: Final[tuple[Check, ...]] = (runtime_of, store_of, proxies_of, contexts_of, check_telemetry)

# What stands in for a setting that has to be there and is not, so that the rest of a file can be judged.
_SITE: Final = {"hosts": ["stand-in.invalid"], "upstream": "http://127.0.0.1"}
_STAND_INS: Final = {**_SITE, "sites": [_SITE], "path": "/stand-in/", "url": "http://127.0.0.1"}


def read(file: Path, *more: Check) -> Configuration:
    """Read `file` and the profiles that it names; `more` may object to what is read, as `usable` does.

    Raises ConfigurationError with every setting that cannot be, each with its line.
    """
    settings, source = parsed(file), str(file)
    objections = Objections()
    configuration: Configuration | None = None
    replaced = set[str]()
    with objections:
        configuration = validate(settings, source)
    if configuration is None:
        # What is right by itself may not go with the rest of the file: a profile, a host of two sites.
        configuration, replaced = _what_is_right(settings, source, {each.key for each in objections.errors})
    if configuration is not None:
        found = Objections()
        for made in (*_CHECKS, *more):
            with found:
                made(configuration, source)
        objections.errors += [each for each in found.errors if each.key not in replaced]
    objections.errors = placed(objections.errors)
    objections.conclude()
    assert configuration is not None  # or there was an objection
    return configuration


def _what_is_right(
    settings: Mapping[str, Any], source: str, wrong: set[str]
) -> tuple[Configuration | None, set[str]]:
    """The configuration but for the keys that are wrong, and all keys whose value is none of the file's.

    Something stands in for what has to be there. None if there is nothing to go on with.
    """
    rest = without(settings, wrong)
    try:
        return validate(rest, source), wrong
    except ConfigurationError as error:
        missing = {each.key for each in (error, *error.beside)}
    with suppress(ConfigurationError):
        return validate(standing_in(rest, missing, _STAND_INS), source), wrong | missing
    return None, wrong


def placed(errors: Iterable[ConfigurationError]) -> list[ConfigurationError]:
    """The errors in the order of the lines that they are about, each once."""
    found = dict[str, ConfigurationError]()
    for error in errors:
        with suppress(OSError, ValueError):
            error.line = line_of(Path(error.source).read_text("utf-8"), error.key)
        # What is said for all sites is used by each of them, and is one mistake.
        found[str(error)] = error
    return sorted(found.values(), key=lambda error: (error.source, error.line))


def usable(configuration: Configuration, source: str) -> None:
    """Raise ConfigurationError if this machine refuses an address or a log file that `serve` would use.

    Nothing is created, and an address that a program listens on already, univocal perhaps, will do.
    """
    objections = Objections()
    server = configuration.server
    with objections:
        check_log(server.access_log, source)
    for key, address in (("server.listen", server.listen), ("server.admin", server.admin)):
        with objections:
            check_address(address, source, key)
    objections.conclude()
