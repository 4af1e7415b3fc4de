"""Authentication of a connection, and the connections that belong to one client for it.

NTLM and Negotiate authenticate the connection and not the request (RFC 4559 §6): the origin server takes the
next request on it for one of the same user.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
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

    When the client's connection `is_over`, they are closed.
    """

    def __init__(self) -> None:
        self._bound: dict[object, BondedConnection] = {}
        self._tags: dict[bytes, None] = {}  # of the origin servers that have answered, the last at the end
        self.is_over = False

    @property
    def holds(self) -> bool:
        """True while there is such a connection."""
        return bool(self._bound)

    def answered(self, tag: bytes) -> None:
        """Record that the origin server with this tag has answered the client."""
        self._tags.pop(tag, None)
        self._tags[tag] = None

    def last_of(self, tags: Container[bytes]) -> bytes:
        """The one of these tags whose origin server has answered last; b"" if none has."""
        return next((tag for tag in reversed(self._tags) if tag in tags), b"")

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
        self._tags.clear()
