"""A configuration file is read with all that it names: all invalid settings are reported at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeAlias

from univocal.http.errors import ConfigurationError, Objections
from univocal_app.config.files import Files, placed_in, substituted
from univocal_app.config.tables import Configuration, validate
from univocal_app.observe.accesslog import check_log
from univocal_app.run.certificate_files import contexts_of
from univocal_app.run.configured import check_store, runtime_of
from univocal_app.run.listeners import check_listeners, check_places
from univocal_app.run.origins import Ways

Check: TypeAlias = Callable[[Configuration], object]

ATTEMPTS: Final = 4  # to validate a file, each without what the one before objected to
_CHECKS: Final[tuple[Check, ...]] = (runtime_of, check_store, Ways.of, contexts_of, check_listeners)


def read(file: Path, *more: Check) -> Configuration:
    """Read `file` and the profiles that it names; `more` may object to what is read, as `usable` does.

    Raises ConfigurationError with every invalid setting, each with its line.
    """
    files, objections = Files.read(file), Objections()
    configuration = _validated(files.settings, str(file), objections)
    known = {each.key for each in objections.errors}  # of which the configuration has no value of the file's
    if configuration is not None:
        faults = Objections()
        for made in (*_CHECKS, *more):
            with faults:
                made(configuration)
        objections.errors += (each for each in faults.errors if each.key not in known)
    objections.errors = placed(objections.errors, files)
    objections.conclude()
    assert configuration is not None  # or there was an objection
    return configuration.with_written(files.written.items())


def _validated(settings: dict[str, Any], source: str, objections: Objections) -> Configuration | None:
    """The configuration without the settings that `objections` have noted by then, if there is one."""
    for _ in range(ATTEMPTS):
        faults = Objections()
        with faults:
            return validate(settings, source)
        known = [each.key for each in objections.errors]
        objections.errors += (each for each in faults.errors if not _is_about(each.key, known))
        # A value that is right by itself may not go with the rest: a profile, a host of two sites.
        settings = substituted(settings, (each.key for each in faults.errors))
    return None


def _is_about(key: str, keys: Iterable[str]) -> bool:
    """Tells if `key` is one of those, or a part of one, or around one: that is the same mistake."""
    return any(
        f"{key}.".startswith((f"{other}.", f"{other}[")) or f"{other}.".startswith((f"{key}.", f"{key}["))
        for other in keys
    )


def files_of(source: str) -> Files:
    """The files of a configuration that has been read, as far as they can be read once more."""
    try:
        return Files.read(Path(source))
    except ConfigurationError:
        return Files(Path(source), {}, ())


def placed(errors: Iterable[ConfigurationError], files: Files) -> list[ConfigurationError]:
    """The errors in the order of the lines that they are about, each once."""
    by_text = dict[str, ConfigurationError]()
    for error in errors:
        placed_in(error, files)
        # Each site uses a setting for all sites: it is one mistake.
        by_text[str(error)] = error
    return sorted(by_text.values(), key=lambda error: (error.source, error.line))


def usable(configuration: Configuration) -> None:
    """Raise ConfigurationError if this machine refuses an address or a log file that `serve` would use.

    Nothing is created, and an address that a program listens on already, univocal perhaps, will do.
    """
    objections = Objections()
    for check in (check_log, check_places):
        with objections:
            check(configuration)
    objections.conclude()
