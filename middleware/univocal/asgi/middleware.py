"""Door one: the ASGI middleware."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from typing import Any, Final

from univocal.asgi.application import Application, Mounted, Passage
from univocal.asgi.client import Reception, ScopeClient
from univocal.asgi.handlers import HandlerCall, PurgeArguments, Purger
from univocal.asgi.messages import (
    App,
    Message,
    Receive,
    Scope,
    Send,
    WatchedSend,
    refuse_handshake,
    with_pairs,
)
from univocal.asgi.scope import AsgiRequest, adds_date, at_a_glance, below_root, request_line, respell
from univocal.cache.decide import Refuse, Reuse, revalidation
from univocal.cache.rules import Rules
from univocal.engine.exchange import Engine, Exchange
from univocal.engine.outcome import OutcomeListener
from univocal.http.errors import ConfigurationError, RefusedError, status_of
from univocal.http.intermediary import HOP_BY_HOP, WEBSOCKET, end_to_end
from univocal.http.messages import Received, without
from univocal.http.problem import fault, problem
from univocal.http.roles import Origin
from univocal.judge.admission import Admission, Gate, Lookup, Plan
from univocal.judge.orders import PURGES, entries_of
from univocal.judge.runtime import Right, Runtime
from univocal.judge.trust import LOOPBACK, Family, Networks, family_named, networks
from univocal.store.address import store_at
from univocal.store.compression import uncodable
from univocal.store.memory import MemoryStore
from univocal.store.purge_selectors import Everything
from univocal.store.shared import SharedTier
from univocal.store.tiers import MemoryTier, Tiers, tiers_of
from univocal.uri.profile import ProfileName, chosen_profile
from univocal.uri.sites import Sites

REFUSED: Final = "univocal.refused"
"""The ASGI extension that tells of a refusal: {"status", "reason", "reasons", "target"}."""

# The application gets neither the connection nor the content.
_NOT_PASSED: Final = HOP_BY_HOP | {b"content-length", b"expect"}
_STATUSES: Final = frozenset((400, 421))  # of what a URL is refused for


def may_be_answered(admission: Admission) -> bool:
    """Tell whether a request is refused for its URL, and is one whose answer an application may write."""
    decision = admission.decision
    return (
        isinstance(decision, Refuse)
        and decision.status in _STATUSES
        and decision.reason != "bad-framing"
        and admission.received.method not in PURGES
    )


async def answer_refused(app: App, scope: Scope, receive: Receive, send: Send, admission: Admission) -> None:
    """Have `app` answer a refused request, of which it sees neither the path nor the content.

    The path is that of its root, so that no route of an application mistakes it for a page. The received
    target is in the extension.
    """
    received, reasons = admission.received, admission.reasons
    root = scope.get("root_path", "").rstrip("/") + "/"
    refusal = {
        "status": status_of(reasons[0]),
        "reason": reasons[0],
        "reasons": reasons,
        "target": received.target,
    }
    fields = without(end_to_end(scope["headers"], received.method), _NOT_PASSED)
    refused = {
        **scope,
        "path": root,
        "raw_path": root.encode("ascii", "ignore"),
        "query_string": b"",
        "headers": fields,
        "extensions": {**scope.get("extensions", {}), REFUSED: refusal},
    }
    refused["extensions"].pop("univocal.target", None)
    await app(refused, _without_content(receive), send)


def _without_content(receive: Receive) -> Receive:
    """A `receive` that tells of no content, then of the client's leaving."""
    begun = False

    async def call() -> Message:
        nonlocal begun
        if not begun:
            begun = True
            return {"type": "http.request", "body": b"", "more_body": False}
        while (message := await receive())["type"] == "http.request":
            pass
        return message

    return call


_ENDS: Final = ("lifespan.shutdown.complete", "lifespan.shutdown.failed")
# Seconds that refreshes in the background have at the shutdown.
LAST_REFRESH: Final = 5.0


class Lifetime:
    """The tasks of refreshes, and a store of the middleware's own.

    The store is connected where the server first calls: for its lifespan or, without one, for a request.
    A lifespan's end closes it, and the next call connects it again.
    """

    __slots__ = ("_starting", "begun", "refreshes", "store")

    def __init__(self, store: SharedTier | None) -> None:
        self.store = store
        self.begun = store is None
        self.refreshes: set[asyncio.Task[None]] = set()
        self._starting: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Connect; who comes meanwhile waits for it, too. Without its Redis a store goes on by itself."""
        if self.begun or self.store is None:
            return
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self.store.start())
        await asyncio.shield(self._starting)
        self.begun = True

    async def lifespan(self, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application for its lifespan: it hears of the shutdown once the refreshes have ended."""
        await self.begin()

        async def hear() -> Message:
            message = await receive()
            if message["type"] == "lifespan.shutdown" and self.refreshes:
                _, late = await asyncio.wait(self.refreshes, timeout=LAST_REFRESH)
                for refresh in late:
                    refresh.cancel()
            return message

        async def tell(message: Message) -> None:
            if message["type"] in _ENDS and self.store is not None:
                await self.store.aclose()
                self.begun, self._starting = False, None
            await send(message)

        await app(scope, hear, tell)


logger: Final = logging.getLogger("univocal")

_STORES: Final = (
    'a MemoryStore, Tiers, "memory", or the URL of a Redis (redis://…) or of a directory (file:///PATH)'
)


class CacheMiddleware:
    """Cache, purge and forward the requests of an ASGI application by their canonical URLs (RFC 9111).

    - `profile`: a built-in profile's name, the Path of a file, or a Profile. With None, the hosts that
      `sites` does not name are refused (421).
    - `sites`: profiles by host, or by host and path prefix with `root_path` (see `Sites.of`).
    - `rules`: the policy of the cache, in place of the profiles' own.
    - `trusted_proxies`: networks ("10.0.0.0/8") whose forwarded fields are believed. `forwarded` chooses
      "x-forwarded" (X-Forwarded-For, -Host, -Proto) or "forwarded" (RFC 7239).
    - `purge_allow`: networks that may purge; `purge_token` is a bearer token for other clients.
    - `on_refused`: an ASGI application that answers requests refused for their URL (400, 421).
    - `store`: a MemoryStore or Tiers, which several middlewares of one event loop may share. Processes share
      the URL of a directory (file:///PATH) or a Redis.
    - `listeners`: called with the Outcome of each exchange. `counters` get equal ordinary hits as one call
      (`alike`), at most a second later.
    - `background`: with False, the first request past the lifetime of a response waits for the new one.
    - `enabled`: with False nothing is stored, and no Cache-Status is sent. All other settings hold.
    - `runtime`: replaces profile, rules and networks.

    Raises ConfigurationError.
    """

    def __init__(
        self,
        app: App,
        profile: ProfileName | None = "asgi",
        *,
        sites: Mapping[str, ProfileName] | Sites | None = None,
        rules: Rules | None = None,
        store: str | MemoryStore | Tiers | None = None,
        listeners: Iterable[OutcomeListener] = (),
        counters: Iterable[OutcomeListener] = (),
        trusted_proxies: Iterable[str] = (),
        forwarded: Family = "x-forwarded",
        purge_allow: Iterable[str] = LOOPBACK,
        purge_token: str = "",
        on_refused: App | None = None,
        background: bool = True,
        enabled: bool = True,
        runtime: Runtime | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        with _said_if_late():
            listeners, counters = _callables("listeners", listeners), _callables("counters", counters)
            for name, value, kind, allowed in (
                ("app", app, Callable, "an ASGI application"),
                ("sites", sites, Mapping | Sites | None, "a mapping of hosts to profiles, or Sites"),
                ("rules", rules, Rules | None, "Rules, such as Rules(ttl=60)"),
                ("purge_token", purge_token, str, 'a string; "" for none'),
                ("on_refused", on_refused, Callable | None, "an ASGI application"),
                ("background", background, bool, "True or False"),
                ("enabled", enabled, bool, "True or False"),
                ("runtime", runtime, Runtime | None, "a Runtime"),
                ("clock", clock, Callable, "a callable that gives seconds since the epoch"),
            ):
                _require(name, value, kind, allowed)
            if runtime is None:
                runtime = Runtime.of_sites(
                    _sites_of(sites, profile),
                    rules,
                    purging=Right(_networks("purge_allow", purge_allow), purge_token.encode()),
                    trusted=_networks("trusted_proxies", trusted_proxies),
                    forwarded=family_named(forwarded),
                )
            if not enabled:
                runtime = replace(runtime, caches=False, cache_status="off")
            _require_libraries(runtime)
            self.tiers, self._lifetime = _tiers_of(store, clock)
        self.app = app
        self.store = self.tiers.memory
        self.gate = Gate(runtime, self.tiers)
        self.engine = Engine(self.gate, listeners, clock, counters=counters)
        self._purger = Purger(self.engine, self._lifetime.begin)
        self.engine.flights.in_background = background
        self._origin = _origin_of(app)
        self.engine.flights.shows_clients = self._origin is None
        self._mounted = Mounted(app, self.engine, self._purger, self._lifetime.refreshes)
        self._on_refused = on_refused
        self._is_ready = self._lifetime.begun
        self._clearings = 0  # of what other nodes have, before the next request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an http or websocket scope; any other passes."""
        if scope["type"] == "lifespan":
            await self._lifetime.lifespan(self.app, scope, receive, send)
            self._is_ready = self._is_ready and self._lifetime.begun
            return
        if not self._is_ready:
            await self._get_ready()
        if scope["type"] != "http":
            door = self._websocket if scope["type"] == "websocket" else self.app
            await door(scope, receive, send)
            return
        engine = self.engine
        asked = at_a_glance(scope, receive, send, engine)
        if isinstance(asked, tuple):
            start, content = asked
            await send(start)
            await send(content)
            return
        if asked.messages is None or asked.hit is None:
            await self._exchange(asked)
            return
        try:
            for message in asked.messages:
                await send(message)
        finally:
            engine.audience.announce_hit(asked.hit, asked.line, *asked.begun)

    async def purge(
        self,
        *urls: str,
        prefix: str | None = None,
        tag: str | None = None,
        pattern: str | None = None,
        everything: bool = False,
        soft: bool = False,
    ) -> int:
        """Remove stored responses on every node: those of these URLs, and those that the others name.

        URLs are absolute and spelled as you like. `soft` marks them stale instead. Gives their number, 0 for
        a pattern, which is tested later; listeners hear of it. Raises RefusedError for a URL that is refused
        and for a shared store that does not confirm. Raises TypeError and ValueError for a wrong argument.
        """
        purges = PurgeArguments(urls, prefix, tag, pattern, everything, soft)
        purges.check_hosts()
        return await self._purger.carry_out(await self._purger.orders(purges))

    def entries(self, url: str) -> list[dict[str, Any]]:
        """The responses that memory has of an absolute URL, newest first; times are seconds.

        Each has `status`, `variant` (selecting header fields), `bytes`, `age`, `ttl`, `validator`, `store`
        and `blocks`. Raises RefusedError for a URL that is refused, ValueError for one without a host.
        """
        PurgeArguments((url,)).check_hosts("entries")
        return entries_of(url, self.gate.runtime, self.store, self.engine.clock())

    def page(self, *, allow: Callable[[Scope], object] | None = None) -> App:
        """The page of this cache, to be mounted: `app.mount("/-/cache", cache.page())`.

        `allow` gets the scope of a request, and gives or awaits True if the client may see it, and purge.
        Without it the rights are those of PURGE. Raises ConfigurationError without the extra proxy.
        """
        _require("allow", allow, Callable | None, "a callable that takes a scope")
        try:
            mounted: App = import_module("univocal_app.observe.mounted").mounted(self, allow)
        except ModuleNotFoundError as error:
            allowed = "the extra univocal[proxy]"
            raise ConfigurationError("CacheMiddleware", "page", error.name, allowed) from None
        return mounted

    def clear(self) -> None:
        """Remove everything, and store nothing that is under way: for tests.

        A shared store is emptied before the next request is answered.
        """
        self.store.purge(Everything(), self.engine.clock())
        if not isinstance(self.tiers, MemoryTier):
            self._clearings += 1
            self._is_ready = False

    async def _get_ready(self) -> None:
        """Connect the store, and empty it if it was cleared."""
        await self._lifetime.begin()
        while self._clearings:
            clearings = self._clearings
            with suppress(RefusedError):  # then it is emptied once it is back
                await self.tiers.purge(Everything(), self.engine.clock())
            self._clearings = max(0, self._clearings - clearings)  # other requests may have done so
        self._is_ready = True

    def _exchange(self, asked: AsgiRequest) -> Awaitable[None]:
        admission = self._admit(asked.scope, asked.line, asked.begun[0], asked.plan, asked.lookup)
        if self._on_refused is not None and may_be_answered(admission):
            return self._refuse(self._on_refused, asked, admission)
        if self._origin is not None:
            return self._forward(self._origin, asked, admission)
        if (
            asked.plan is not None
            and not self.engine.audience.is_there
            and self.gate.allows_passage(admission, asked.begun[0])
        ):
            return Passage(self._mounted, asked, admission).run()
        return Application(self._mounted, asked, admission).answer()

    async def _refuse(self, app: App, asked: AsgiRequest, admission: Admission) -> None:
        """Pass a request that is refused for its URL to the user's application."""
        watched = WatchedSend(asked.send, asked.begun)
        try:
            await answer_refused(app, asked.scope, asked.receive, watched, admission)
        finally:
            self.engine.audience.announce(watched.outcome(admission, admission.reasons))

    async def _forward(self, origin: Origin, asked: AsgiRequest, admission: Admission) -> None:
        """Answer by our own proxy, past ASGI."""
        scope, receive, send = asked.scope, asked.receive, asked.send
        client = ScopeClient(scope, receive, send, dated=adds_date(receive, send))
        reception = Reception(
            receive,
            left=client.leave,
            too_large=lambda: exchange.refuse(("body-too-large",)),
            limit=admission.max_body,
        )
        client.exchange = exchange = Exchange(
            self.engine, client, admission, origin, reception.content, asked.begun
        )
        try:
            exchange.begin()
            if not exchange.over:
                reception.watch()
            await client.deliver()
        except asyncio.CancelledError:
            await client.give_up(problem(("overloaded",), scope["headers"]))  # the server is shut down, say
            raise
        finally:
            reception.close()
            exchange.cancel()
            client.exchange = None  # what is in a circle waits for the garbage collector, with its content
        if exchange.error is not None:
            await client.give_up(fault(scope["headers"]))
            error, traceback = exchange.error
            raise error.with_traceback(traceback)

    def _admit(
        self, scope: Scope, line: Received, now: float, plan: Plan | None = None, lookup: Lookup | None = None
    ) -> Admission:
        """Ask the gate; refuse a target, too, that would leave the application's root path.

        A request with a plan has none.
        """
        admission = self.gate.admit(line, scope["headers"], now, plan, None, lookup)
        canonical = admission.canonical
        if plan is None and canonical is not None and not below_root(scope, canonical):
            return admission.refused(("above-root",))
        decision = admission.decision
        if not isinstance(decision, Reuse) or not decision.revalidate_in_background:
            return admission
        if self.engine.flights.may_refresh(admission):
            return admission
        _, validation = revalidation(admission.request, decision.stored, admission.rules)
        return replace(admission, decision=validation)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope = with_pairs(scope)
        engine, line = self.engine, request_line(scope)
        begun = engine.clock(), time.perf_counter()
        line.upgrade = WEBSOCKET
        admission = self._admit(scope, line, begun[0])
        reasons = _reasons(admission) or _objections(admission)
        counted = "" if reasons else engine.count_request(admission)
        reasons = ("too-many-requests",) if counted is None else reasons
        watched = WatchedSend(send, begun)
        try:
            if reasons:
                await refuse_handshake(scope, watched, reasons)
            else:
                request = admission.request
                assert admission.canonical is not None
                respelled = respell(scope, admission, request.method, request.fields)
                call = HandlerCall(self._purger, admission.canonical)
                await call.run(self.app, respelled, receive, watched)
        finally:
            if counted:
                engine.under_way.remove(counted)
            engine.audience.announce(watched.outcome(admission, reasons))


@contextmanager
def _said_if_late() -> Iterator[None]:
    """Log a ConfigurationError if a server runs already, since some servers hide what a lifespan raises."""
    try:
        yield
    except ConfigurationError as error:
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            logger.error("%s", error)
        raise


def _require(name: str, value: object, kind: Any, allowed: str) -> None:
    if not isinstance(value, kind):
        raise ConfigurationError("CacheMiddleware", name, value, allowed)


def _networks(name: str, listed: object) -> Networks:
    """The networks that an argument lists. Raises ConfigurationError."""
    allowed = 'a list of networks ("10.0.0.0/8")'
    if isinstance(listed, str | bytes) or not isinstance(listed, Iterable):
        raise ConfigurationError("CacheMiddleware", name, listed, allowed)
    chosen = list(listed)
    for each in chosen:
        if isinstance(each, int | bytes):  # as addresses these are numbers
            raise ConfigurationError("CacheMiddleware", name, each, allowed)
    try:
        return networks(chosen)
    except ConfigurationError as error:
        raise ConfigurationError("CacheMiddleware", name, error.found, allowed) from None


def _tiers_of(store: str | MemoryStore | Tiers | None, clock: Callable[[], float]) -> tuple[Tiers, Lifetime]:
    """The tiers of a store, and their life, which is our own if its URL names it.

    Raises ConfigurationError.
    """
    if isinstance(store, str) and store != "memory":
        shared = _store_at(store, clock)
        return shared, Lifetime(shared)
    if isinstance(store, MemoryStore | Tiers):
        return tiers_of(store), Lifetime(None)
    if store is None or store == "memory":
        return tiers_of(MemoryStore()), Lifetime(None)
    raise ConfigurationError("CacheMiddleware", "store", store, _stores(store))


def _store_at(url: str, clock: Callable[[], float]) -> SharedTier:
    """A tier over the store at a URL. Raises ConfigurationError."""
    if "://" not in url:
        raise ConfigurationError("CacheMiddleware", "store", url, _stores(url))
    try:
        return store_at(url, MemoryStore(), clock)
    except ConfigurationError as error:
        raise ConfigurationError("CacheMiddleware", error.key, error.found, error.allowed) from None


def _stores(found: object) -> str:
    """The stores that there are; what looks like a directory is written as its URL."""
    path = os.fspath(found) if isinstance(found, str | os.PathLike) else ""
    return f'for a directory "file://{path}"; {_STORES}' if str(path).startswith("/") else _STORES


def _callables(name: str, listeners: Iterable[OutcomeListener]) -> tuple[OutcomeListener, ...]:
    _require(name, listeners, Iterable, "a list of callables that take an Outcome")
    chosen = tuple(listeners)
    for listener in chosen:
        _require(name, listener, Callable, "a list of callables that take an Outcome")
    return chosen


def _require_libraries(runtime: Runtime) -> None:
    """Refuse codings whose library is not installed."""
    for coding, _ in uncodable(each.rules for each in runtime.settings.values()):
        allowed = "gzip; br and zstd need the extra univocal[compress]"
        raise ConfigurationError("CacheMiddleware", "compress", coding, allowed)


def _sites_of(sites: Mapping[str, ProfileName] | Sites | None, profile: ProfileName | None) -> Sites:
    """The sites that are answered: those that are named, and all other hosts by `profile` if there is one."""
    if sites is None:
        return Sites.everywhere(chosen_profile(profile, "CacheMiddleware"))
    chosen = None if profile is None else chosen_profile(profile, "CacheMiddleware")
    if not isinstance(sites, Sites):
        return Sites.of(sites, chosen)
    if sites.default is not None or chosen is None:
        return sites
    return Sites(sites.sites, Sites.everywhere(chosen).default)


def _reasons(admission: Admission) -> tuple[str, ...]:
    """The reasons for which a request is refused."""
    decision = admission.decision
    return (admission.reasons or (decision.reason,)) if isinstance(decision, Refuse) else ()


def _objections(admission: Admission) -> tuple[str, ...]:
    """The reasons to refuse a handshake that an exchange would redirect, or pass on as a plain request."""
    runtime, canonical = admission.runtime, admission.canonical
    if canonical is not None and runtime.leads_to_https(admission.peer.scheme, canonical.target):
        return ("plain-http",)
    return () if WEBSOCKET in runtime.upgrades else ("access-denied",)


def _origin_of(app: App) -> Origin | None:
    """The way to the origin servers of our own proxy, without ASGI; None for any other application."""
    if "univocal.asgi.reverse_proxy" not in sys.modules:
        return None  # none can have been made; and forwarding is slow to import
    from univocal.asgi.reverse_proxy import Origins, ReverseProxy  # noqa: PLC0415

    if isinstance(app, ReverseProxy) and type(app).__call__ == ReverseProxy.__call__:
        return app.upstream
    return app if isinstance(app, Origins) and type(app).__call__ == Origins.__call__ else None
