"""`OriginConnections` as a transport of httpx."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Final

from univocal.http.messages import Fields, Response
from univocal.origin.client_library import httpx
from univocal.origin.connection import PendingRequest
from univocal.origin.connections import Endpoint, OriginConnections
from univocal.origin.failures import TransportError
from univocal.origin.resolving import Resolve, resolved
from univocal.origin.streams import AwaitedAnswer, IteratedContent, as_httpx
from univocal.origin.timeouts import Timeouts

_FOR_EVER: Final = Timeouts(None, None, None, None)


class OriginTransport(httpx.AsyncBaseTransport):
    """The connections of `OriginConnections`, which has the same settings, for clients of httpx.

    It reads these of `request.extensions`:

    - "target" (bytes), which goes out unchanged;
    - "timeout" (a dict of seconds: connect, read, write, pool);
    - "informational", called with the status and fields of 1xx responses. It is not called for the 100 that
      an Expect field requested: then the request's stream is read;
    - "sni_hostname" (str).

    The content is sent if a Content-Length or Transfer-Encoding field announces it. `response.extensions` has
    "http_version" (bytes) and "trailers", a list of fields that is filled by the end of the stream.

    A `ReverseProxy` or an `OriginServer` takes its `origin_connections`, and none of httpx's objects.
    """

    def __init__(
        self,
        *,
        ssl_context: ssl.SSLContext | None = None,
        uds: str | None = None,
        max_connections: int = 1000,
        max_idle: int | None = None,
        idle_timeout: float = 4.0,
        max_head: int = 64 * 1024,
        resolve: Resolve = resolved,
    ) -> None:
        self.origin_connections = OriginConnections(
            ssl_context=ssl_context,
            uds=uds,
            max_connections=max_connections,
            max_idle=max_idle,
            idle_timeout=idle_timeout,
            max_head=max_head,
            resolve=resolve,
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Give the response to `request` as soon as its head is there.

        Raises httpx's errors: ConnectError, ConnectTimeout, PoolTimeout, WriteError, WriteTimeout, ReadError
        and ReadTimeout. RemoteProtocolError means a malformed or incomplete response, LocalProtocolError an
        invalid request, or content of another length than announced. UnsupportedProtocol is about the scheme.
        """
        url, extensions = request.url, request.extensions
        timeouts = _timeouts(extensions.get("timeout"))
        fields = request.headers.raw
        if b"host" not in [name.lower() for name, _ in fields]:
            fields.insert(0, (b"host", url.netloc))
        target = extensions.get("target")
        answer = _PulledResponse(extensions.get("informational"), timeouts.read)
        stream = request.stream
        try:
            answer.under_way = self.origin_connections.ask(
                Endpoint(url.scheme, url.raw_host, url.port, extensions.get("sni_hostname")),
                request.method.encode("latin-1", "replace"),
                url.raw_path if target is None else target,
                fields,
                IteratedContent(stream, answer.give_up).content
                if isinstance(stream, httpx.AsyncByteStream)
                else None,
                answer,
                timeouts,
                as_httpx,
            )
        except TransportError as error:
            raise as_httpx(error) from error
        try:
            response = await answer.head
        except asyncio.CancelledError:
            await answer.aclose()
            raise
        return httpx.Response(
            response.status,
            headers=response.fields,
            stream=answer,
            extensions={"http_version": answer.version, "trailers": answer.trailers},
        )

    @property
    def connections(self) -> int:
        """The number of open connections, idle ones included."""
        return self.origin_connections.connections

    async def aclose(self) -> None:
        """Close every connection; requests under way fail."""
        await self.origin_connections.aclose()


def _timeouts(seconds: Mapping[str, float | None] | None) -> Timeouts:
    """The seconds of an httpx request; None where it has none."""
    if not seconds:
        return _FOR_EVER
    return Timeouts(seconds.get("connect"), seconds.get("read"), seconds.get("write"), seconds.get("pool"))


class _PulledResponse(AwaitedAnswer):
    """The answer as the stream of an httpx response; it counts the time for its content itself."""

    version: bytes
    trailers: Fields

    def start(self, response: Response) -> None:
        pending = self.under_way
        assert isinstance(pending, PendingRequest)
        pending.read = None
        assert pending.connection is not None
        reading = pending.connection.reader.reading
        self.version, self.trailers = reading.version, reading.trailers
        super().start(response)
