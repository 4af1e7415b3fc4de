"""The tables `[sites.access]` and `[sites.routes.access]` become bounds on the access to sites and routes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from univocal.http.errors import ConfigurationError, Objections
from univocal.judge.access import Restriction, rate_of
from univocal.judge.runtime import Runtime
from univocal.judge.trust import networks
from univocal_app.config.tables import AccessTable, Configuration
from univocal_app.run.user_files import UserFile


def restrictions_of(configuration: Configuration, source: str) -> dict[str | tuple[str, bytes], Restriction]:
    """The bounds on access by the names of sites, and of routes that have settings of their own.

    Raises ConfigurationError for files of users that cannot be; they are relative to the file `source`.
    """
    made: dict[str | tuple[str, bytes], Restriction] = {}
    objections = Objections()
    read = _reader(source)
    for number, table in enumerate(configuration.sites):
        name, place = table.hosts[0], f"sites[{number}]"
        with objections:
            named = [table.access, *(route.access for route in table.routes)]
            if table.access.private and not any(each.basic for each in named):
                raise _nameless(source, f"{place}.access")
            if table.access.model_fields_set:
                made[name] = _restriction(name, table.access, f"{place}.access", read)
        for index, route in enumerate(table.routes):
            if not route.access.model_fields_set:
                continue
            own = route.access.model_dump(exclude_unset=True)
            merged = AccessTable(**{**table.access.model_dump(exclude_unset=True), **own})
            where = f"{place}.routes[{index}].access" if "basic" in own else f"{place}.access"
            with objections:
                if own.get("private") and not merged.basic:
                    raise _nameless(source, f"{place}.routes[{index}].access")
                made[name, route.path.encode()] = _restriction(f"{name}{route.path}", merged, where, read)
    objections.conclude()
    return made


def _nameless(source: str, place: str) -> ConfigurationError:
    return ConfigurationError(source, f"{place}.private", True, "false without `basic`: nobody has a name")


def user_files(runtime: Runtime) -> Iterator[UserFile]:
    """The files of users that a runtime knows, each once."""
    files = (each.users for each in runtime.restrictions.values())
    yield from {id(each): each for each in files if isinstance(each, UserFile)}.values()


def _restriction(
    name: str, table: AccessTable, place: str, read: Callable[[str, str], UserFile]
) -> Restriction:
    users = read(table.basic, f"{place}.basic") if table.basic else None
    rate = rate_of(table.rate) if table.rate else None
    private = table.private and users is not None
    allow, deny = networks(table.allow), networks(table.deny)
    return Restriction(name, allow, deny, rate, users, table.reading == "canonical", private)


def _reader(source: str) -> Callable[[str, str], UserFile]:
    """Reads files of users, each once; one that cannot be is told at each key that names it."""
    files = dict[Path, UserFile]()

    def read(name: str, key: str) -> UserFile:
        path = Path(source).parent / name
        if path not in files:
            files[path] = UserFile(path, key, source)
        return files[path]

    return read
