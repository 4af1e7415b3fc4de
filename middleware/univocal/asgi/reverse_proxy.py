"""The application that forwards to an origin server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from email.utils import formatdate
from typing import TYPE_CHECKING

from univocal.asgi.departure import Departure
from univocal.asgi.door import Message, Receive, Send, send_problem
from univocal.asgi.scope import CANONICAL, Scope, received
from univocal.engine.broadcast import Departed
from univocal.http.errors import RefusedError
from univocal.http.extensions import INTERIM
from univocal.http.forward import forwards_left, request_fields, request_has_content, response_fields
from univocal.http.messages import Fields
from univocal.origin.server import OriginServer, Timeouts
from univocal.uri.target import Canonical, origin_target

if TYPE_CHECKING:
    import httpx


__all__ = ["Origins", "ReverseProxy"]


class ReverseProxy:
    """Forwards every request to the origin server at `url`, its target byte for byte (RFC 9110 §7.6).

    A path in `url` replaces the route's prefix, or stands before every target. `origin_host` is the Host
    field sent: "site" (the request's own), "upstream" (of `url`) or a literal. `transport` is any httpx
    transport that honours the "target" extension. Raises ConfigurationError.
    """

    def __init__(
        self,
        url: str,
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        origin_host: str = "site",
        timeouts: Timeouts | None = None,
    ) -> None:
        self.upstream = OriginServer(url, transport, timeouts)
        self._origin_host = {"site": b"", "upstream": self.upstream.authority}.get(
            origin_host, origin_host.encode()
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward an http scope; a lifespan's end closes the connections."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send, self.upstream.aclose)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1011})
        else:
            await self._http(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def starting(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        departure = Departure(receive)
        try:
            await self._while_attended(departure, scope, receive, starting)
        except (RefusedError, Departed) as ended:
            # Behind a cache the failure is the cache's to answer: it may have something stale to serve.
            if CANONICAL in scope.get("extensions", {}):
                raise
            if isinstance(ended, RefusedError) and not started:
                await send_problem(send, ended.reasons)
        finally:
            departure.end()

    async def _while_attended(self, departure: Departure, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward as long as the client is there: the origin's connection is not kept for nobody."""
        task = asyncio.current_task()
        assert task is not None
        left = False

        def leave() -> None:
            nonlocal left
            left = True
            task.cancel()

        try:
            await self._forward(scope, receive, send, lambda: departure.watch(leave))
        except asyncio.CancelledError:
            if left and not task.uncancel():
                raise Departed from None
            raise

    async def _forward(
        self, scope: Scope, receive: Receive, send: Send, received_all: Callable[[], None]
    ) -> None:
        method = scope["method"].encode("latin-1")
        fields = forwards_left(method, scope["headers"])
        if fields is None:
            await _answer_here(send)
            return
        content = _content(receive, received_all) if request_has_content(fields) else None
        if content is None:
            received_all()
        target, headers = self._respelled(scope, fields)
        interims: list[asyncio.Task[None]] = []

        def interim(status: int, told: Fields) -> None:
            message = {"type": INTERIM, "status": status, "headers": response_fields(told, status=status)}
            interims.append(asyncio.ensure_future(send(message)))

        passes = INTERIM in scope.get("extensions", {})
        forwarded = self.upstream.forward(method, target, headers, content, interim if passes else None)
        async with forwarded as (response, chunks):
            await asyncio.gather(*interims)
            date = formatdate(time.time(), usegmt=True).encode()
            relayed = response_fields(response.fields, status=response.status, date=date)
            await send({"type": "http.response.start", "status": response.status, "headers": relayed})
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _respelled(self, scope: Scope, fields: Fields) -> tuple[bytes, Fields]:
        passed = scope.get("extensions", {}).get(CANONICAL, {})
        found: Canonical | None = passed.get("canonical")
        line = received(scope)
        target = line.target if found is None else origin_target(found)
        authority = next((value for name, value in fields if name == b"host"), b"")
        headers = request_fields(
            fields,
            host=self._origin_host or authority,
            authority=authority,
            client=passed.get("peer", line.client),
            scheme=line.scheme,
            forwarded_for=passed.get("chain", ()),
        )
        return self.upstream.mapped(target), headers


class Origins:
    """Several origins behind one door: each request goes to the upstream of its route."""

    def __init__(self, proxies: Mapping[str, ReverseProxy]) -> None:
        self._proxies = dict(proxies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward to the upstream that the canonical target's route names."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send, self.aclose)
            return
        found: Canonical = scope["extensions"][CANONICAL]["canonical"]
        await self._proxies[found.route.upstream](scope, receive, send)

    async def aclose(self) -> None:
        """Close every connection to every origin server."""
        for proxy in self._proxies.values():
            await proxy.upstream.aclose()


async def _content(receive: Receive, received_all: Callable[[], None]) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Departed
        if message.get("body"):
            yield message["body"]
        more = message.get("more_body", False)
    received_all()


async def _answer_here(send: Send) -> None:
    """The final recipient of an OPTIONS or TRACE whose Max-Forwards ran out (RFC 9110 §7.6.2)."""
    fields = [(b"content-length", b"0"), (b"allow", b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")]
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _lifespan(receive: Receive, send: Send, close: Callable[[], Awaitable[None]]) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        else:
            await close()
            await send({"type": "lifespan.shutdown.complete"})
            return
