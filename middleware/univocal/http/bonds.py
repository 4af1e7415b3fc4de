"""Authentication of a connection, and the connections that belong to one client for it.

NTLM and Negotiate authenticate the connection and not the request (RFC 4559 §6): the origin server takes the
next request on it for one of the same user.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Protocol

_SCHEME: Final = re.compile(rb"(?i)(?:\A|,)[ \t]*(?:ntlm|negotiate|kerberos)(?![^ \t,])")


def authenticates_connection(value: bytes) -> bool:
    """Tell whether an Authorization or WWW-Authenticate field is about all of its connection."""
    return _SCHEME.search(value) is not None


def challenges_connection(fields: Iterable[tuple[bytes, bytes]]) -> bool:
    """Tell whether a response with these fields asks for credentials of such a kind."""
    return any(name == b"www-authenticate" and authenticates_connection(value) for name, value in fields)


class BondedConnection(Protocol):
    """A connection to an origin server that belongs to one connection of a client."""

    def close(self) -> None:
        """Close it."""


class Bond:
    """The idle connections to origin servers that belong to one client's connection: one for each place.

    `tags` name the origin server by which the members of a list, a place, are asked. When the client's
    connection `is_over`, they are closed.
    """

    def __init__(self) -> None:
        self._bound: dict[object, BondedConnection] = {}
        self.tags: dict[object, bytes] = {}
        self.is_over = False

    @property
    def holds(self) -> bool:
        """True while there is such a connection."""
        return bool(self._bound)

    def keep(self, place: object, connection: BondedConnection) -> None:
        """Keep a connection for the client's next request to this place."""
        before = self._bound.get(place)
        self._bound[place] = connection
        if before is not None and before is not connection:
            before.close()

    def take(self, place: object) -> BondedConnection | None:
        """The connection to a place, if there is one, for one request."""
        return self._bound.pop(place, None)

    def forget(self, place: object, connection: BondedConnection) -> None:
        """Remove a closed connection."""
        if self._bound.get(place) is connection:
            del self._bound[place]

    def end(self) -> None:
        """Close all connections: the client's is closed."""
        self.is_over = True
        for connection in list(self._bound.values()):
            connection.close()
        self._bound.clear()
        self.tags.clear()
