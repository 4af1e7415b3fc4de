"""The clients that are connected: how many there may be, and who goes when there are more.

Which connection has been longest without a request under way is found out only when one must go: each is
noted with the time at which it was last known to rest, the earliest first, and is asked then. So a request
that is answered costs nothing here.
"""

from __future__ import annotations

import heapq
import logging
import math
from dataclasses import dataclass
from typing import Final, Protocol

from univocal.http.client_counts import ClientCounts, client_name

logger: Final = logging.getLogger("univocal")

# Connections that are looked at, at most, for each one that comes: a millisecond's work.
_MOST_LOOKED_AT: Final = 1_000
# The time noted of one that is to be refused: it is the first to give way.
_FIRST: Final = -math.inf


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds on the connections of clients; 0 is no limit."""

    connections: int = 0  # of all of them
    per_client: int = 0  # of one address


class Evictable(Protocol):
    """A client's connection, as far as it matters here."""

    rested: float  # the loop's time since which no request is under way, if none is

    def is_resting(self) -> bool:
        """Tell whether no request is under way; one whose head is not complete is not."""
        ...

    def evict(self) -> None:
        """Close, for another that has come."""


class Clients:
    """The connections of clients, and those of proxies, which stand for many clients each."""

    def __init__(self, limits: ConnectionLimits = ConnectionLimits()) -> None:
        self.limits = limits
        self._connections: dict[Evictable, str] = {}  # and the name of each client, if it counts
        self._of = ClientCounts()
        self._noted: list[tuple[float, int, Evictable]] = []
        self._number = 0
        self._said = set[str]()

    def __len__(self) -> int:
        return len(self._connections)

    def enter(self, connection: Evictable, address: str | None, *, is_proxy: bool = False) -> str:
        """Take in a connection, in another's place if there are too many.

        Returns the reason for which its request will be refused, "" for none; ask `objection` by then.
        """
        limits = self.limits
        if 0 < limits.connections <= len(self._connections):
            self._say("max_connections", limits.connections, "those longest without a request give way")
            self._make_room(connection.rested)
        name = client_name(address) if limits.per_client > 0 and not is_proxy else ""
        self._connections[connection] = name
        if name:
            self._of.add(name)
        objection = self.objection(connection)
        if objection == "too-many-requests":
            self._say("max_connections_per_client", limits.per_client, "further ones get 429")
        self._note(_FIRST if objection else connection.rested, connection)
        return objection

    def leave(self, connection: Evictable) -> None:
        """Remove a connection that is closed or handed over; a second time does nothing."""
        name = self._connections.pop(connection, None)
        if name:
            self._of.remove(name)
        if not self._connections:
            self._noted.clear()  # the last one may be all that knows of these clients: no circle is left
        elif len(self._noted) > 2 * len(self._connections) + 100:
            self._noted = [each for each in self._noted if each[2] in self._connections]
            heapq.heapify(self._noted)
        if len(self._connections) * 2 < self.limits.connections:
            self._said.discard("max_connections")

    def objection(self, connection: Evictable) -> str:
        """The reason for which a connection is one too many, "" if it is not, or no longer."""
        limits, name = self.limits, self._connections.get(connection, "")
        if name and self._of.of(name) > limits.per_client:
            return "too-many-requests"
        return "overloaded" if 0 < limits.connections < len(self._connections) else ""

    def _make_room(self, now: float) -> None:
        """Close the connections above the limit that have been idle for longest."""
        for _ in range(_MOST_LOOKED_AT):
            if not self._noted:
                return
            noted, _, connection = heapq.heappop(self._noted)
            if connection not in self._connections:
                continue
            if not connection.is_resting():
                self._note(now, connection)
                if noted >= now:
                    return  # all have been asked
            elif connection.rested > noted and not (noted == _FIRST and self.objection(connection)):
                self._note(connection.rested, connection)
            else:
                self.leave(connection)
                connection.evict()
                if len(self._connections) < self.limits.connections:
                    return

    def _note(self, since: float, connection: Evictable) -> None:
        self._number += 1
        heapq.heappush(self._noted, (since, self._number, connection))

    def _say(self, setting: str, limit: int, what: str) -> None:
        if setting not in self._said:
            self._said.add(setting)
            logger.warning("%s = %d is reached: %s (logged once)", setting, limit, what)
