"""The tables `[sites.access]` and `[sites.routes.access]` become bounds on the access to sites and routes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from univocal.http.errors import Objections
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
            if table.access.model_fields_set:
                made[name] = _restriction(name, table.access, f"{place}.access", read)
        for index, route in enumerate(table.routes):
            if not route.access.model_fields_set:
                continue
            own = route.access.model_dump(exclude_unset=True)
            merged = AccessTable(**{**table.access.model_dump(exclude_unset=True), **own})
            where = f"{place}.routes[{index}].access" if "basic" in own else f"{place}.access"
            with objections:
                made[name, route.path.encode()] = _restriction(f"{name}{route.path}", merged, where, read)
    objections.conclude()
    return made


def user_files(runtime: Runtime) -> Iterator[UserFile]:
    """The files of users that a runtime knows, each once."""
    files = (each.users for each in runtime.restrictions.values())
    yield from {id(each): each for each in files if isinstance(each, UserFile)}.values()


def _restriction(
    name: str, table: AccessTable, place: str, read: Callable[[str, str], UserFile]
) -> Restriction:
    users = read(table.basic, f"{place}.basic") if table.basic else None
    rate = rate_of(table.rate) if table.rate else None
    return Restriction(
        name, networks(table.allow), networks(table.deny), rate, users, table.reading == "canonical"
    )


def _reader(source: str) -> Callable[[str, str], UserFile]:
    """Reads files of users, each once; one that cannot be is told at each key that names it."""
    files = dict[Path, UserFile]()

    def read(name: str, key: str) -> UserFile:
        path = Path(source).parent / name
        if path not in files:
            files[path] = UserFile(path, key, source)
        return files[path]

    return read
