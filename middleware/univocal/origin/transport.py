"""The httpx transport that talks to origins: HTTP/1.1 on asyncio, targets byte for byte."""

from __future__ import annotations

import asyncio
import ssl
from types import MappingProxyType
from typing import Final

import httpx

from univocal.origin.connection import Connection, Keeper, StaleConnectionError
from univocal.origin.exchange import Exchange
from univocal.origin.pool import Pool
from univocal.origin.request_head import RequestHead, request_head

__all__ = ["OriginTransport"]

_NO_TIMEOUT: Final = MappingProxyType[str, float | None]({})


class OriginTransport(httpx.AsyncBaseTransport):
    """Sends requests to origins over connections that are kept alive (RFC 9112).

    `request.extensions`: "target" (bytes) goes out as it is; "timeout" (a dict of seconds: connect, read,
    write, pool); "informational", called with the status and fields of 1xx responses (not of the 100 that
    an Expect field asked for: then the request's stream is read); "sni_hostname" (str). The content is
    sent if a Content-Length or Transfer-Encoding field announces it. `response.extensions`:
    "http_version" (bytes) and "trailers", a list of fields that is filled by the end of the stream.

    `max_connections` is per origin; a connection is idle for `idle_timeout` seconds at most, which should
    be less than origins grant; a response's head has at most `max_head` octets. Without `ssl_context`
    certificates are verified against the system's authorities. `uds` is the path of a Unix socket for
    every origin. One transport serves one event loop.
    """

    wants_url: Final = False  # of a request's URL only scheme, host and port are read

    def __init__(
        self,
        *,
        ssl_context: ssl.SSLContext | None = None,
        uds: str | None = None,
        max_connections: int = 1000,
        idle_timeout: float = 4.0,
        max_head: int = 64 * 1024,
    ) -> None:
        self._ssl_context = ssl_context
        self._uds = uds
        self._max_connections = max_connections
        self._idle_timeout = idle_timeout
        self._max_head = max_head
        self._pools: dict[tuple[str, bytes, int | None, str | None], Pool] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The response to `request`, as soon as its head is there.

        Raises httpx.LocalProtocolError (the request cannot be sent as it is), UnsupportedProtocol,
        ConnectError, ConnectTimeout, PoolTimeout, WriteError, WriteTimeout, ReadError, ReadTimeout and
        RemoteProtocolError (the response is malformed or cut short); the last three come out of the
        response's stream as well.
        """
        head = request_head(request)
        timeout = request.extensions.get("timeout") or _NO_TIMEOUT
        pool = self._pool(request)
        connection = pool.take_idle()
        # What an origin sent behind a response is not yet read, perhaps: it answers no request of ours.
        while connection is not None and connection.has_ended():
            connection.close()
            connection = pool.take_idle()
        if connection is None:
            connection = await pool.connect(timeout.get("connect"), timeout.get("pool"))
        try:
            return await _exchange(connection, request, head)
        except StaleConnectionError:
            # RFC 9112 §9.3.1: it died while this request was on its way, which nobody has answered.
            if not head.repeatable:
                raise
        connection = await pool.connect(timeout.get("connect"), timeout.get("pool"), fresh=True)
        return await _exchange(connection, request, head)

    @property
    def connections(self) -> int:
        """How many connections are open, idle ones included."""
        return sum(map(len, self._pools.values()))

    async def aclose(self) -> None:
        """Close every connection; requests under way fail."""
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()
        await asyncio.sleep(0)  # sockets are closed in the event loop's next turn

    def _pool(self, request: httpx.Request) -> Pool:
        url = request.url
        sni = request.extensions.get("sni_hostname")
        origin = (url.scheme, url.raw_host, url.port, sni)
        pool = self._pools.get(origin)
        if pool is None:
            if url.scheme not in ("http", "https") or not url.raw_host:
                raise httpx.UnsupportedProtocol(f"no origin speaks {url.scheme!r}: http and https do")
            host, port = url.raw_host.decode("ascii"), url.port or (443 if url.scheme == "https" else 80)
            context = self._context() if url.scheme == "https" else None

            async def open_connection(keeper: Keeper) -> Connection:
                return await self._open(keeper, host, port, context, sni)

            pool = self._pools[origin] = Pool(open_connection, self._max_connections, self._idle_timeout)
        return pool

    async def _open(
        self,
        keeper: Keeper,
        host: str,
        port: int,
        context: ssl.SSLContext | None,
        sni: str | None,
    ) -> Connection:
        loop = asyncio.get_running_loop()

        def factory() -> Connection:
            return Connection(loop, keeper, self._max_head)

        name = (sni or host) if context is not None else None
        try:
            if self._uds is None:
                _, connection = await loop.create_connection(
                    factory, host, port, ssl=context, server_hostname=name
                )
            else:
                _, connection = await loop.create_unix_connection(
                    factory, self._uds, ssl=context, server_hostname=name
                )
        except (OSError, UnicodeError) as error:
            raise httpx.ConnectError(str(error)) from error
        return connection

    def _context(self) -> ssl.SSLContext:
        if self._ssl_context is None:
            self._ssl_context = ssl.create_default_context()
            self._ssl_context.set_alpn_protocols(["http/1.1"])
        return self._ssl_context


async def _exchange(connection: Connection, request: httpx.Request, head: RequestHead) -> httpx.Response:
    extensions = request.extensions
    timeout = extensions.get("timeout") or _NO_TIMEOUT
    exchange = Exchange(
        connection, head, timeout.get("read"), timeout.get("write"), extensions.get("informational")
    )
    connection.start(exchange)
    exchange.send(request.stream)
    try:
        await exchange.head
    except asyncio.CancelledError:
        exchange.abandon()
        raise
    return httpx.Response(
        exchange.status,
        headers=exchange.fields,
        stream=exchange,
        extensions={"http_version": exchange.version, "trailers": exchange.trailers},
    )
