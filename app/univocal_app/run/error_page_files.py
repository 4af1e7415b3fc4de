"""The files of `error_pages`, read at the start and at a reload."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeAlias

from univocal.http.errors import ConfigurationError, Objections
from univocal.http.problem import ErrorPages, page_fault
from univocal_app.config.tables import Configuration

Name: TypeAlias = str | tuple[str, bytes]
"""A site's name, or that and a route's prefix."""

_LARGEST: Final = 1 << 20  # bytes of a page
_MOST: Final = 100  # pages of a directory


def pages_of(configuration: Configuration, source: str) -> dict[Name, ErrorPages]:
    """The pages by the names of sites and routes, "" for requests to no site.

    A route's page goes before its site's, and that before the server's.

    Directories are relative to the file `source`. Raises ConfigurationError.
    """
    objections, everywhere = Objections(), dict[str, bytes]()
    pages = dict[Name, ErrorPages]()
    with objections:
        everywhere = _files(configuration.server.error_pages, source, "server.error_pages")
    for number, site in enumerate(configuration.sites):
        with objections:
            own = _files(site.error_pages, source, f"sites[{number}].error_pages")
            if own or everywhere:
                pages[site.hosts[0]] = ErrorPages({**everywhere, **own})
            for index, route in enumerate(site.routes):
                of_route = _files(route.error_pages, source, f"sites[{number}].routes[{index}].error_pages")
                if of_route:
                    pages[site.hosts[0], route.path.encode()] = ErrorPages({**everywhere, **own, **of_route})
    objections.conclude()
    return pages | ({"": ErrorPages(everywhere)} if everywhere else {})


def page_contents(
    configuration: Configuration, pages: Mapping[Name, ErrorPages]
) -> Iterator[tuple[str, str]]:
    """The key of each setting that names a directory, and the digest of the pages that are shown by it."""
    names: list[tuple[str, str, Name]] = [("server.error_pages", configuration.server.error_pages, "")]
    for number, site in enumerate(configuration.sites):
        names.append((f"sites[{number}].error_pages", site.error_pages, site.hosts[0]))
        names += [
            (
                f"sites[{number}].routes[{index}].error_pages",
                route.error_pages,
                (site.hosts[0], route.path.encode()),
            )
            for index, route in enumerate(site.routes)
        ]
    for key, directory, name in names:
        if directory and name in pages:
            files = {file: content.hex() for file, content in pages[name].files.items()}
            yield key, sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def _files(directory: str, source: str, key: str) -> dict[str, bytes]:
    if not directory:
        return {}
    place = Path(source).parent / directory
    try:
        files = sorted(file for file in place.iterdir() if file.suffix == ".html")
        if len(files) > _MOST:
            raise ConfigurationError(source, key, directory, f"a directory of at most {_MOST} pages")
        return {file.name: _content(file, source, key) for file in files}
    except OSError as error:
        allowed = f"a directory of pages such as 502.html that can be read ({error.strerror})"
        raise ConfigurationError(source, key, directory, allowed) from None


def _content(file: Path, source: str, key: str) -> bytes:
    if allowed := page_fault(file.name):
        raise ConfigurationError(source, key, file.name, allowed)
    with file.open("rb") as stream:
        content = stream.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise ConfigurationError(source, key, file.name, f"a page of at most {_LARGEST} bytes")
    return content
