"""Door one: the ASGI middleware, and the application that forwards to an origin server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from email.utils import formatdate
from typing import TYPE_CHECKING

from .broadcast import Departed
from .cache.policy import Refuse, Rules
from .cache.store import MemoryStore
from .departure import Departure
from .door import App, Door, Message, Receive, Send, send_problem
from .errors import ConfigurationError, RefusedError
from .fetch import Fetcher
from .gate import Gate
from .messages import Fields
from .outcome import Listener
from .proxy.forward import forwards_left, request_fields, request_has_content, response_fields
from .proxy.upstream import Timeouts, Upstream
from .responder import Responder
from .runtime import Access, Runtime, builtin_profiles
from .scope import CANONICAL, INTERIM, Scope, received
from .trust import LOOPBACK, networks
from .uri.profile import Profile
from .uri.target import Canonical, origin_target

if TYPE_CHECKING:
    import httpx

    from .cache.shared import SharedStore

__all__ = ["CacheMiddleware", "Origins", "ReverseProxy"]


class CacheMiddleware:
    """Gives every resource behind it one URL, and caches, purges and forwards by that (RFC 9111).

    `app` is any ASGI application. `profile` is a built-in profile's name or a Profile; `rules` say what is
    cached; both serve every host. `trusted_proxies` and `purge_allow` are networks ("10.0.0.0/8"); with a
    `purge_token`, whoever sends it as a bearer token may purge too. `store` may be shared among middlewares
    of one event loop. A `runtime` replaces profile, rules and networks (`univocal serve` builds one from its
    file). Listeners are called with each Outcome. Raises ConfigurationError.
    """

    def __init__(
        self,
        app: App,
        profile: str | Profile = "asgi",
        *,
        rules: Rules | None = None,
        store: MemoryStore | SharedStore | None = None,
        listeners: Iterable[Listener] = (),
        trusted_proxies: Iterable[str] = (),
        purge_allow: Iterable[str] = LOOPBACK,
        purge_token: str = "",
        runtime: Runtime | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.app = app
        if runtime is None:
            runtime = Runtime.everywhere(
                _profile(profile),
                rules or Rules(),
                access=Access(networks(purge_allow), purge_token.encode()),
                trusted=networks(trusted_proxies),
            )
        shared, memory = (None, store) if isinstance(store, MemoryStore) else (store, None)
        self.store = shared.memory if shared is not None else memory or MemoryStore()
        self.gate = Gate(runtime, self.store, shared)
        self.listeners = tuple(listeners)
        self._door = Door(app, self.gate, Fetcher(self.gate, clock), self.listeners, clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an http or websocket scope; any other passes."""
        if scope["type"] == "http":
            await Responder(self._door, scope, receive, send).run()
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        responder = Responder(self._door, scope, receive, send)
        admission = responder.admit()
        if isinstance(admission.decision, Refuse):
            await _refuse_websocket(scope, send, admission.reasons or (admission.decision.reason,))
        else:
            await self.app(responder.inner_scope(admission.request), receive, send)


async def _refuse_websocket(scope: Scope, send: Send, reasons: Sequence[str]) -> None:
    """Refuse a handshake: with the answer that a GET gets where the server can send it, else with its own."""
    if "websocket.http.response" in scope.get("extensions", {}):

        async def denial(message: Message) -> None:
            await send(message | {"type": message["type"].replace("http", "websocket.http", 1)})

        await send_problem(denial, reasons)
    else:
        await send({"type": "websocket.close", "code": 1008})


def _profile(profile: str | Profile) -> Profile:
    if isinstance(profile, Profile):
        return profile
    known = builtin_profiles()
    if profile not in known:
        raise ConfigurationError("CacheMiddleware", "profile", profile, ", ".join(sorted(known)))
    return known[profile]


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
        self.upstream = Upstream(url, transport, timeouts)
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
