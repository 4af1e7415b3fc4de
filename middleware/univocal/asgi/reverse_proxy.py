"""The application that forwards to an origin server."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from univocal.asgi.client import ScopeClient
from univocal.asgi.messages import Receive, Scope, Send, with_pairs
from univocal.asgi.reception import Reception
from univocal.asgi.relay import Relay, relayed_request
from univocal.asgi.scope import CANONICAL
from univocal.asgi.websocket import relay_websocket
from univocal.forward.forwarding import Forwarding
from univocal.forward.upstream import Upstream
from univocal.http.roles import OriginRequest, Watch
from univocal.origin.server import OriginServer, Transport
from univocal.origin.timeouts import Timeouts
from univocal.uri.target import Canonical


class ReverseProxy:
    """Forwards every request to the origin server at `url`, its target byte for byte (RFC 9110 §7.6).

    `url` is http, https, or unix:///PATH of a socket on this machine. A path in an http URL replaces the
    route's prefix, or stands before every target. `origin_host` is the Host field sent: "site" (the
    request's own), "upstream" (of `url`) or a literal. `transport` is any httpx transport that honours the
    "target" extension; without one, the proxy has connections of its own. An `Upstream` may replace `url`.
    Raises ConfigurationError.
    """

    def __init__(
        self,
        url: str | Upstream,
        transport: Transport | None = None,
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
        """Forward an http or websocket scope; a lifespan's end closes the connections."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send, self)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await _forward(self.upstream, with_pairs(scope), receive, send)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        # By a foreign transport there is no connection that can be given to another protocol.
        if all(server.switches for server in self.upstream.servers):
            await relay_websocket(self.upstream, with_pairs(scope), receive, send)
        else:
            await send({"type": "websocket.close", "code": 1011})

    def begin(self) -> None:
        """Start health checks and name resolution in the running event loop; else the first request does."""
        self.upstream.begin()

    async def aclose(self) -> None:
        """Close every connection to the origin server."""
        await self.forwarding.aclose()


class Origins:
    """Several origins behind one door: each request goes to the upstream of its route.

    Where a runtime has upstreams of its own (see judge.runtime), those go first.
    """

    def __init__(
        self,
        proxies: Mapping[str, ReverseProxy],
        watch: Callable[[OriginRequest], Watch] | None = None,
    ) -> None:
        self.proxies = dict(proxies)
        self._retired: list[OriginServer] = []  # which requests that began before may ask still
        self.forwarding = Forwarding({name: proxy.upstream for name, proxy in proxies.items()}, watch)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward to the upstream that the canonical target's route names."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send, self)
            return
        canonical: Canonical = scope["extensions"][CANONICAL]["canonical"]
        await self.proxies[canonical.route.upstream](scope, receive, send)

    @property
    def connections(self) -> int:
        """The number of open connections to all of them; 0 for transports that do not tell."""
        # The addresses of one name share a transport, and so does whoever has succeeded another.
        servers = [server for upstream in self._serving() for server in upstream.servers]
        return sum({id(each.transport): each.connections for each in (*servers, *self._retired)}.values())

    def begin(self) -> None:
        """Begin to look after the origin servers, in the running event loop.

        Otherwise the first request to each does so.
        """
        for upstream in self._serving():
            upstream.begin()

    def change(self, proxies: Mapping[str, ReverseProxy]) -> None:
        """Have these from now on; those that are no longer among them end with their last requests.

        Origin servers of which one of these has the transport go on there, as they are.
        """
        before, self.proxies = self._serving(), dict(proxies)
        gone, come = before - self._serving(), self._serving() - before
        former = {id(server.transport): upstream for upstream in gone for server in upstream.servers}
        for upstream in come:
            for each in {former.get(id(server.transport)) for server in upstream.servers}:
                if each is not None:
                    upstream.succeed(each)
        kept = {id(server.transport) for upstream in self._serving() for server in upstream.servers}
        # A compiled object has no weak references: who has no connection is forgotten at the next change.
        retired = [server for server in self._retired if server.connections]
        retired += [server for upstream in gone for server in upstream.servers]
        self._retired = [server for server in retired if id(server.transport) not in kept]
        for upstream in gone:
            upstream.retire(kept)
        self.begin()

    async def aclose(self) -> None:
        """Close every connection to every origin server."""
        for upstream in self._serving():
            await upstream.aclose()
        for server in self._retired:
            await server.aclose()

    def _serving(self) -> set[Upstream]:
        return {proxy.upstream for proxy in self.proxies.values()}


async def _forward(upstream: Upstream, scope: Scope, receive: Receive, send: Send) -> None:
    """Forward one request, as long as its client is there: no connection is kept for nobody."""
    client = ScopeClient(scope, receive, send)
    relay = Relay(client, scope["headers"], behind_a_cache=CANONICAL in scope.get("extensions", {}))
    reception = Reception(receive, left=relay.cancel, too_large=relay.cancel, limit=0)
    try:
        request = relayed_request(
            scope["method"].encode("latin-1"), scope, scope["headers"], reception.content
        )
        relay.under_way = upstream.send(request, relay)
        reception.watch()
        client.exchange = relay
        await client.deliver()
    finally:
        reception.close()
        relay.cancel()
    if relay.error is not None:
        raise relay.error


async def _lifespan(receive: Receive, send: Send, proxy: ReverseProxy | Origins) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            proxy.begin()
            await send({"type": "lifespan.startup.complete"})
        else:
            await proxy.aclose()
            await send({"type": "lifespan.shutdown.complete"})
            return
