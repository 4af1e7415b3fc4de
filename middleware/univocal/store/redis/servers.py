"""The servers behind a URL: one, the primary that Sentinels name, or the masters of a cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final, TypeAlias

import redis.asyncio as redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import RedisClusterException, SlotNotCoveredError

from univocal.store.redis.url import RedisAddress, read

Place: TypeAlias = tuple[str, int]
"""A host and a port; a socket's path and 0."""


class Servers(ABC):
    """Where names are kept. `refresh` finds out again; before its first call nothing is known."""

    def __init__(self, address: RedisAddress, timeout: float) -> None:
        self.address: Final = address
        self._timeout: Final = timeout

    @abstractmethod
    def place(self, name: bytes) -> Place:
        """The server that has a name. Raises redis.ConnectionError where that is not known."""

    @abstractmethod
    def places(self) -> list[Place]:
        """Every server that has names. Raises redis.ConnectionError likewise."""

    @abstractmethod
    async def refresh(self) -> None:
        """Ask where the servers are. Raises redis.RedisError."""

    @abstractmethod
    async def aclose(self) -> None:
        """Disconnect from whom `refresh` asks."""

    def connection(self, place: Place) -> Any:
        """A connection, not opened yet, of redis-py: it speaks RESP2, and tries nothing twice."""
        settings = self._settings() | self.address.login
        host, port = place
        if not port:
            return redis.UnixDomainSocketConnection(path=host, **settings)
        if self.address.tls:
            return redis.SSLConnection(host=host, port=port, **settings, **self.address.tls_options)
        return redis.Connection(host=host, port=port, **settings)

    def _settings(self) -> dict[str, Any]:
        return {
            "protocol": 2,
            "decode_responses": False,
            "socket_timeout": None,
            "socket_connect_timeout": self._timeout,
            "retry": Retry(NoBackoff(), 0),
        }


class _OneServer(Servers):
    def __init__(self, address: RedisAddress, timeout: float) -> None:
        super().__init__(address, timeout)
        self._place: Place = address.hosts[0] if address.hosts else (address.path, 0)

    def place(self, name: bytes) -> Place:  # noqa: ARG002
        return self._place

    def places(self) -> list[Place]:
        return [self._place]

    async def refresh(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


class _Primary(Servers):
    """The primary of a name that Sentinels watch."""

    def __init__(self, address: RedisAddress, timeout: float) -> None:
        super().__init__(address, timeout)
        limits = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
        tls = {"ssl": True, **address.tls_options} if address.tls else {}
        self._sentinel: Any = Sentinel(  # type: ignore[no-untyped-call]
            list(address.hosts), sentinel_kwargs={**limits, **tls, **address.sentinel_login}
        )
        self._place: Place | None = None

    def place(self, name: bytes) -> Place:  # noqa: ARG002
        if self._place is None:
            raise redis.ConnectionError("no Sentinel has named a primary")
        return self._place

    def places(self) -> list[Place]:
        return [self.place(b"")]

    async def refresh(self) -> None:
        self._place = await self._sentinel.discover_master(self.address.primary)

    async def aclose(self) -> None:
        for each in self._sentinel.sentinels:
            await each.aclose()


class _Cluster(Servers):
    """The masters of a cluster, each with a part of the slots."""

    def __init__(self, address: RedisAddress, timeout: float) -> None:
        super().__init__(address, timeout)
        tls = {"ssl": True, **address.tls_options} if address.tls else {}
        self._client: RedisCluster = RedisCluster(
            startup_nodes=[ClusterNode(host, port) for host, port in address.hosts],
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 1),
            require_full_coverage=False,
            **address.login,
            **tls,
        )
        self._asked = False

    def place(self, name: bytes) -> Place:
        if not self._asked:
            raise redis.ConnectionError("no node of the cluster has told who has which slots")
        try:
            node: Any = self._client.get_node_from_key(name)  # type: ignore[arg-type]
        except (SlotNotCoveredError, RedisClusterException) as error:
            raise redis.ConnectionError(str(error)) from None
        return node.host, node.port

    def places(self) -> list[Place]:
        primaries: list[Any] = self._client.get_primaries()
        return [(node.host, node.port) for node in primaries]

    async def refresh(self) -> None:
        self._asked = False
        await self._client.aclose()
        await self._client.initialize()
        self._asked = True

    async def aclose(self) -> None:
        await self._client.aclose()


def servers_at(url: str, timeout: float) -> Servers:
    """The servers that a URL leads to. Raises ValueError."""
    address = read(url)
    kinds: dict[str, type[Servers]] = {"": _OneServer, "sentinel": _Primary, "cluster": _Cluster}
    return kinds[address.kind](address, timeout)
