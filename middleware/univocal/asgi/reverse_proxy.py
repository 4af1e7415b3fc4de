"""The application that forwards to an origin server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from univocal.asgi.client import Reception, ScopeClient
from univocal.asgi.messages import DENIAL, Message, Receive, Scope, Send, denial, with_pairs
from univocal.asgi.scope import CANONICAL, request_line
from univocal.forward.upstream import Upstream
from univocal.http.errors import RefusedError
from univocal.http.intermediary import WEBSOCKET, Switching
from univocal.http.messages import Fields, Response, first, values, without
from univocal.http.pipe import Pipe
from univocal.http.problem import fault, problem
from univocal.http.references import ReferenceMap
from univocal.http.roles import Answer, OriginRequest, UnderWay
from univocal.origin.failures import Timeouts
from univocal.origin.servers import OriginServer, Transport
from univocal.uri.target import Canonical, origin_target

if TYPE_CHECKING:
    from univocal.origin.websocket import OriginSocket, WebSocketClose


def relayed_request(
    method: bytes, scope: Scope, fields: Fields, content: Pipe | None = None, upgrade: bytes = b""
) -> OriginRequest:
    """The request of a scope, as a cache in front has found it or as the server has received it.

    A hash chooses the origin server by the cache's key, or by the target.
    """
    passed = scope.get("extensions", {}).get(CANONICAL)
    line = request_line(scope)
    line.upgrade = upgrade
    target = key = line.target
    chain: tuple[bytes, ...] = ()
    if passed is None:
        host = first(scope["headers"], b"host") or b""
        references: Callable[[], ReferenceMap | None] = partial(ReferenceMap, line.scheme, host)
    else:
        canonical: Canonical = passed["canonical"]
        line.client, chain = passed["peer"], passed["chain"]
        target, key = origin_target(canonical), canonical.key
        references = canonical.reference_map
    return OriginRequest(
        method, target, fields, line, content,
        scheme=line.scheme, chain=chain, key=key, references=references, screened=passed is not None,
    )  # fmt: skip


class Relay:
    """An answer that goes straight to the client of a scope.

    `error` is to be raised: for the cache in front to answer, or for the server to log what is a fault.
    """

    def __init__(self, client: ScopeClient, request_fields: Fields, *, behind_a_cache: bool) -> None:
        self.fetches = False
        self.under_way: UnderWay | None = None
        self.error: Exception | None = None
        self._client, self._fields = client, request_fields
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
            self._client.cut()
            return
        if isinstance(error, RefusedError):
            answer = problem(error.reasons, self._fields)
        else:
            answer, self.error = fault(self._fields), error
        if self._started:
            self._client.cut()
            return
        self._client.start(answer.status, answer.fields)
        self._client.write(answer.body)
        self._client.finish()

    def resume(self) -> None:
        """Read more from the origin server: the client takes it."""
        if self.under_way is not None:
            self.under_way.resume()

    def cancel(self) -> None:
        """Give up: the client has left."""
        if not self._over:
            self._over = True
            self._client.cut()
            if self.under_way is not None:
                self.under_way.cancel()


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
        await self.upstream.aclose()


class Origins:
    """Several origins behind one door: each request goes to the upstream of its route.

    An `Origin` without an answer of its own: behind a cache the settings of a route have its next hop.
    """

    def __init__(self, proxies: Mapping[str, ReverseProxy]) -> None:
        self.takes_targets: Final = True
        self.affinity: Final = None
        self.proxies = dict(proxies)
        self._retired: list[OriginServer] = []  # which requests that began before may ask still

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward to the upstream that the canonical target's route names."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send, self)
            return
        canonical: Canonical = scope["extensions"][CANONICAL]["canonical"]
        await self.proxies[canonical.route.upstream](scope, receive, send)

    def ask(self, request: OriginRequest, _answer: Answer) -> UnderWay:
        """Raise LookupError: a route without a next hop is not forwarded."""
        raise LookupError(f"a route of the site {request.site} has no next hop")

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
    """Forward one request, as long as its client is there: no connection is kept without one."""
    client = ScopeClient(scope, receive, send)
    relay = Relay(client, scope["headers"], behind_a_cache=CANONICAL in scope.get("extensions", {}))
    reception = Reception(receive, left=relay.cancel, too_large=relay.cancel, limit=0)
    try:
        request = relayed_request(
            scope["method"].encode("latin-1"), scope, scope["headers"], reception.content
        )
        relay.under_way = upstream.ask(request, relay)
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


logger: Final = logging.getLogger("univocal")

_GOING_AWAY, _BAD_GATEWAY = 1001, 1014  # RFC 6455 §7.4.1; IANA's registry of close codes
# The fields that an ASGI server writes into its own 101, or makes of its arguments.
_SERVERS: Final = (b"connection", b"date", b"sec-websocket-accept", b"sec-websocket-protocol", b"upgrade")


async def relay_websocket(upstream: Upstream, scope: Scope, receive: Receive, send: Send) -> None:
    """Open a WebSocket to an origin server, and relay messages and the closing, codes and reasons included.

    A handshake that the origin server refuses is refused with its response, where the ASGI server can send
    one; else with the server's own 403.
    """
    try:
        from univocal.origin.websocket import opening_fields  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        logger.error("a client requested a WebSocket, which needs: pip install 'univocal[websockets]'")
        await send({"type": "websocket.close", "code": 1011})
        return
    await receive()  # websocket.connect
    denies = DENIAL in scope.get("extensions", {})
    client = ScopeClient(scope, receive, denial(send))
    opening = _Opening(client, scope["headers"])
    fields = opening_fields(scope["headers"], scope.get("subprotocols", ()))
    request = relayed_request(b"GET", scope, fields, upgrade=WEBSOCKET)
    next_message = asyncio.ensure_future(receive())
    try:
        opening.under_way = upstream.ask(request, opening)
        await asyncio.wait((opening.decided, next_message), return_when=asyncio.FIRST_COMPLETED)
        if not opening.decided.done():
            return  # the client has left
        if opening.socket is not None:
            await send(_accepted(opening.fields))
            await _relay(opening.socket, next_message, receive, send)
        elif denies:
            client.exchange = opening
            await client.deliver()
        else:
            await send({"type": "websocket.close", "code": 1008})
    finally:
        next_message.cancel()
        opening.cancel()


def _accepted(fields: Fields) -> Message:
    chosen = values(fields, b"sec-websocket-protocol")
    return {
        "type": "websocket.accept",
        "subprotocol": chosen[0].decode("latin-1") if chosen else None,
        "headers": without(fields, _SERVERS),
    }


async def _relay(socket: OriginSocket, first: asyncio.Future[Message], receive: Receive, send: Send) -> None:
    """Relay until one side closes."""
    there = asyncio.ensure_future(_to_origin(socket, first, receive))
    back = asyncio.ensure_future(_to_client(socket, send))
    try:
        await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
        for task in (there, back):
            if task.done():
                task.result()
    finally:
        for task in (there, back):
            task.cancel()
        await asyncio.gather(there, back, return_exceptions=True)


async def _to_origin(socket: OriginSocket, first: asyncio.Future[Message], receive: Receive) -> None:
    message = await first
    while message["type"] == "websocket.receive":
        text: str | None = message.get("text")
        message = await _sent(socket, message["bytes"] if text is None else text, receive)
    socket.close(message.get("code", 1005), message.get("reason") or "")


async def _sent(socket: OriginSocket, message: str | bytes, receive: Receive) -> Message:
    """Send a message; returns what the client sends next, or that it has left, without a wait."""
    if not socket.full:
        await socket.send(message)
        return await receive()
    sending, following = asyncio.ensure_future(socket.send(message)), asyncio.ensure_future(receive())
    try:
        await asyncio.wait((sending, following), return_when=asyncio.FIRST_COMPLETED)
        if not (following.done() and following.result()["type"] == "websocket.disconnect"):
            await sending
        return await following
    finally:
        sending.cancel()
        following.cancel()


async def _to_client(socket: OriginSocket, send: Send) -> None:
    with suppress(OSError):  # ASGI: the client has left
        while isinstance(message := await socket.receive(), str | bytes):
            kind = "text" if isinstance(message, str) else "bytes"
            await send({"type": "websocket.send", kind: message})
        await send({"type": "websocket.close", **_code_and_reason(message)})


def _code_and_reason(end: WebSocketClose) -> dict[str, Any]:
    """A close code that may be sent: an origin server that has said nothing is a bad gateway's."""
    code = {1005: 1000, 1006: _BAD_GATEWAY}.get(end.code, end.code)
    return {"code": code, "reason": end.reason}


class _Opening(Relay):
    """The answer to a handshake: `socket`, or a response; it is known when `decided` is done."""

    def __init__(self, client: ScopeClient, request_fields: Fields) -> None:
        super().__init__(client, request_fields, behind_a_cache=False)
        self.decided: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.socket: OriginSocket | None = None
        self.fields: Fields = []  # of the 101

    def interim(self, status: int, fields: Fields) -> None:
        """Pass nothing on: a handshake's client hears one response."""

    def start(self, response: Response) -> None:
        if isinstance(response, Switching):
            from univocal.origin.websocket import OriginSocket  # noqa: PLC0415 - an extra

            self.fields, self.socket = response.fields, OriginSocket(response.line)
        else:
            super().start(response)
        self._decide()

    def fail(self, error: Exception) -> None:
        super().fail(error)
        self._decide()

    def cancel(self) -> None:
        """Give up, or close what is open: the client has left."""
        if self.socket is None:
            super().cancel()
        else:
            self.socket.close(_GOING_AWAY)

    def _decide(self) -> None:
        if not self.decided.done():
            self.decided.set_result(None)
