"""The servers behind a URL: one, the primary that Sentinels name, or the masters of a cluster."""

from __future__ import annotations

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import redis.asyncio as redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import RedisClusterException, SlotNotCoveredError

from univocal.store.redis.url import RedisAddress, read

__all__ = ["Connector", "Place", "Servers", "Word", "servers_at"]

Place: TypeAlias = tuple[str, int]
"""A host and a port; a socket's path and 0."""

Word: TypeAlias = bytes | int | str
"""One of the words of a command."""


@dataclass(frozen=True, slots=True)
class Connector:
    """The way to a server, and the commands that a connection begins with; `timeout` is in seconds."""

    place: Place
    context: ssl.SSLContext | None
    introduction: tuple[tuple[Word, ...], ...]
    timeout: float

    async def connect(self, protocol: asyncio.Protocol) -> None:
        """Connect. Raises OSError."""
        loop, (host, port) = asyncio.get_running_loop(), self.place
        if port:
            await loop.create_connection(lambda: protocol, host, port, ssl=self.context)
        else:
            await loop.create_unix_connection(lambda: protocol, host)


def introduction(login: Mapping[str, Any]) -> tuple[tuple[Word, ...], ...]:
    """The commands that a connection begins with, for a user, a password and a database."""
    commands = list[tuple[Word, ...]]()
    user, password, number = (login.get(name) for name in ("username", "password", "db"))
    if user or password:
        commands.append(("AUTH", *([user] if user else []), password or ""))
    if number:
        commands.append(("SELECT", number))
    return (*commands, ("PING",))


def tls_context(options: Mapping[str, Any]) -> ssl.SSLContext:
    """The context of a TLS connection. Raises OSError for files that cannot be used."""
    context = ssl.create_default_context()
    verify = ssl.VerifyMode[f"CERT_{options.get('ssl_cert_reqs', 'required').upper()}"]
    context.check_hostname = options.get("ssl_check_hostname", True) and verify != ssl.CERT_NONE
    context.verify_mode = verify
    if "ssl_ca_certs" in options or "ssl_ca_path" in options:
        context.load_verify_locations(options.get("ssl_ca_certs"), options.get("ssl_ca_path"))
    if "ssl_certfile" in options:
        files = options["ssl_certfile"], options.get("ssl_keyfile")
        context.load_cert_chain(*files, options.get("ssl_password"))
    return context


class Servers(ABC):
    """Where names are kept. `refresh` finds out again; before its first call nothing is known."""

    def __init__(self, address: RedisAddress, timeout: float) -> None:
        self.address: Final = address
        self._timeout: Final = timeout
        self._context: ssl.SSLContext | None = None

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

    def connector(self, place: Place) -> Connector:
        """The way to a server. Raises OSError for TLS files that cannot be used."""
        if self._context is None and self.address.tls:
            self._context = tls_context(self.address.tls_options)
        return Connector(place, self._context, introduction(self.address.login), self._timeout)


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
