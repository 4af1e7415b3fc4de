"""The application that forwards to an origin server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from univocal.asgi.client import ScopeClient
from univocal.asgi.messages import Receive, Scope, Send
from univocal.asgi.reception import Reception
from univocal.asgi.scope import CANONICAL, received
from univocal.engine.attempt import Watch
from univocal.engine.flight import OriginRequest
from univocal.engine.forwarding import Forwarding
from univocal.engine.upstream import Sender, Upstream
from univocal.http.errors import RefusedError
from univocal.http.messages import Fields, Response
from univocal.http.problem import problem
from univocal.http.roles import Asked
from univocal.origin.server import OriginServer, Timeouts
from univocal.uri.target import Canonical, origin_target

if TYPE_CHECKING:
    import httpx

__all__ = ["Origins", "ReverseProxy"]


class ReverseProxy:
    """Forwards every request to the origin server at `url`, its target byte for byte (RFC 9110 §7.6).

    `url` is http, https, or unix:///PATH of a socket on this machine. A path in an http URL replaces the
    route's prefix, or stands before every target. `origin_host` is the Host field sent: "site" (the
    request's own), "upstream" (of `url`) or a literal. `transport` is any httpx transport that honours the
    "target" extension; without one it is an OriginTransport. An `Upstream` in place of `url` has all that
    already. Raises ConfigurationError.
    """

    def __init__(
        self,
        url: str | Upstream,
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        origin_host: str = "site",
        timeouts: Timeouts | None = None,
    ) -> None:
        if isinstance(url, Upstream):
            self.upstream = url
        else:
            self.upstream = Upstream.of([OriginServer(url, transport, timeouts)], origin_host)
        self.forwarding = Forwarding({"": self.upstream})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward an http scope; a lifespan's end closes the connections."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send, self.aclose)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1011})
        else:
            await _forward(self.upstream, scope, receive, send)

    async def aclose(self) -> None:
        """Close every connection to the origin server."""
        await self.forwarding.aclose()


class Origins:
    """Several origins behind one door: each request goes to the upstream of its route."""

    def __init__(
        self,
        proxies: Mapping[str, ReverseProxy],
        watch: Callable[[OriginRequest], Watch] | None = None,
    ) -> None:
        self._proxies = dict(proxies)
        self.forwarding = Forwarding({name: proxy.upstream for name, proxy in proxies.items()}, watch)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward to the upstream that the canonical target's route names."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send, self.aclose)
            return
        found: Canonical = scope["extensions"][CANONICAL]["canonical"]
        await self._proxies[found.route.upstream](scope, receive, send)

    async def aclose(self) -> None:
        """Close every connection to every origin server."""
        await self.forwarding.aclose()


async def _forward(upstream: Upstream, scope: Scope, receive: Receive, send: Send) -> None:
    """Forward one request, as long as its client is there: no connection is kept for nobody."""
    passed = scope.get("extensions", {}).get(CANONICAL)
    line = received(scope)
    target = line.target if passed is None else origin_target(passed["canonical"])
    key = target if passed is None else passed["canonical"].key
    sender = (
        Sender(line.client, line.scheme, version=line.version)
        if passed is None
        else Sender(passed["peer"], line.scheme, passed["chain"], line.version)
    )
    client = ScopeClient(scope, send)
    relay = _Relayed(client, scope["headers"], behind_a_cache=passed is not None)
    reception = Reception(receive, left=relay.cancel, too_large=relay.cancel, limit=0)
    try:
        relay.asked = upstream.send(line.method, target, scope["headers"], sender, reception, relay, key=key)
        reception.watch()
        await client.deliver(relay)
    finally:
        reception.close()
        relay.cancel()
    if relay.error is not None:
        raise relay.error


class _Relayed:
    """An answer that goes straight to the client of a scope; `error` is for the cache in front to answer."""

    def __init__(self, client: ScopeClient, asked: Fields, *, behind_a_cache: bool) -> None:
        self.asked: Asked | None = None
        self.error: Exception | None = None
        self._client, self._fields = client, asked
        self._behind_a_cache = behind_a_cache
        self._started = False
        self._over = False

    def interim(self, status: int, fields: Fields) -> None:
        self._client.interim(status, fields)

    def start(self, response: Response) -> None:
        self._started = True
        self._client.start(response.status, response.fields)

    def write(self, chunk: bytes) -> bool:
        return self._client.write(chunk)

    def finish(self) -> None:
        self._over = True
        self._client.finish()

    def fail(self, error: Exception) -> None:
        self._over = True
        if self._behind_a_cache:
            self.error = error  # the cache may have something stale to serve
        elif isinstance(error, RefusedError) and not self._started:
            told = problem(error.reasons, self._fields)
            self._client.start(told.status, told.fields)
            self._client.write(told.body)
            self._client.finish()
            return
        self._client.cut()

    def resume(self) -> None:
        """Let the origin server send more: the client takes it."""
        if self.asked is not None:
            self.asked.resume()

    def cancel(self) -> None:
        """Give up: the client has left."""
        if not self._over:
            self._over = True
            self._client.cut()
            if self.asked is not None:
                self.asked.cancel()


async def _lifespan(receive: Receive, send: Send, close: Callable[[], Awaitable[None]]) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        else:
            await close()
            await send({"type": "lifespan.shutdown.complete"})
            return
