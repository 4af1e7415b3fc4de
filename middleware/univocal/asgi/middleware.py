"""Door one: the ASGI middleware, and the application that forwards to an origin server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from univocal.asgi.door import App, Door, Message, Receive, Send, send_problem
from univocal.asgi.responder import Responder
from univocal.asgi.scope import Scope
from univocal.cache.decide import Refuse
from univocal.cache.rules import Rules
from univocal.engine.admission import Gate
from univocal.engine.fetch import Fetcher
from univocal.engine.outcome import Listener
from univocal.engine.runtime import Access, Runtime, builtin_profiles
from univocal.engine.trust import LOOPBACK, networks
from univocal.http.errors import ConfigurationError
from univocal.store.memory import MemoryStore
from univocal.uri.profile import Profile

if TYPE_CHECKING:
    from univocal.store.redis.tier import SharedStore

__all__ = ["CacheMiddleware"]


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
