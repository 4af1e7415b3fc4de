"""Each connection takes a descriptor, of which a process has a limited number: who may have how many."""

from __future__ import annotations

import contextlib
import resource
from typing import Final, NamedTuple

from univocal.server.clients import ConnectionLimits
from univocal_app.config.tables import Configuration
from univocal_app.run.origins import most_connections

# Connections to the admin listener, and what is no connection: files, listeners, the shared store.
ADMIN: Final = 32
_OTHERS: Final = 32
_UNLIMITED: Final = 1 << 20


class Share(NamedTuple):
    """The descriptors of one process: for connections of clients, for those to origin servers, and all."""

    clients: int
    origins: int
    limit: int

    def __str__(self) -> str:
        return (
            f"at most {self.clients} connections of clients and {self.origins} to origin servers "
            f"({self.limit} descriptors)"
        )


def raise_limit() -> int:
    """Raise the soft limit of this process to the hard one; returns the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # some systems allow less than they say
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def share(limit: int, origins: int, wanted: int, workers: int = 1) -> Share:
    """Divide a process's descriptors: to origin servers there are `origins` connections at most.

    Clients get the rest, at least a half, or the `wanted` number, which all workers have together. 0 wants as
    many as possible.
    """
    rest = max(limit - ADMIN - _OTHERS, 2)
    kept = min(origins, rest // 2)
    room = rest - kept
    return Share(min(room, -(-wanted // workers)) if wanted else room, kept, limit)


def share_of(configuration: Configuration) -> Share:
    """The connections that a process may have, whose descriptors are made as many as the system allows."""
    server = configuration.server
    return share(raise_limit(), most_connections(configuration), server.max_connections, server.workers)


def connection_limits(configuration: Configuration) -> ConnectionLimits:
    """The bounds on the connections of a process's clients."""
    per_client = configuration.server.max_connections_per_client
    return ConnectionLimits(share_of(configuration).clients, per_client)
