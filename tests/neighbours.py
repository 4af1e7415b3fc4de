"""The engine's neighbours, played by tests with plain calls: clients, origins, a slow tier, time."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from support import Clock
from univocal.cache.rules import Rules
from univocal.cache.stored import Stored
from univocal.engine.exchange import Engine, Exchange
from univocal.engine.outcome import Outcome
from univocal.http.field_edits import FieldEdits, RouteEdits
from univocal.http.messages import Field, Fields, Received, Request, Response, values
from univocal.http.pipe import Pipe
from univocal.http.problem import ErrorPages
from univocal.http.roles import Answer, OriginRequest
from univocal.judge.access import Restriction
from univocal.judge.admission import Admission, Gate
from univocal.judge.profiles import builtin_profiles
from univocal.judge.runtime import Limits, RouteSettings, Runtime
from univocal.server.turn import Responder, Service, Turn
from univocal.store.leases import Lease
from univocal.store.memory import MemoryStore
from univocal.store.purge_selectors import Keys, Selector
from univocal.store.tiers import MemoryTier, Satisfies
from univocal.uri.site import Route, Site
from univocal.uri.sites import Sites

HOST = b"en.example"
FRESH = [(b"cache-control", b"max-age=60")]
PROFILES = builtin_profiles()
PROFILE = PROFILES["asgi"]


def everywhere(profile: str = "asgi", rules: Rules | None = None, **settings: Any) -> Runtime:
    """One site for every host."""
    return Runtime.everywhere(PROFILES[profile], rules or Rules(), **settings)


def configured(runtime: Runtime, **settings: Any) -> Runtime:
    """A runtime whose only site has these settings."""
    return replace(runtime, settings=MappingProxyType({"*": RouteSettings(**settings)}))


OWN_ANSWERS = {
    "edits": RouteEdits(response=FieldEdits({b"x-own": b"1"})),
    "pages": ErrorPages({"4xx.html": b"own page", "5xx.html": b"own page"}),
}
"""Settings by which answers of ours have the operator's pages and fields."""


def two_sites(*bypass: str) -> Runtime:
    """The sites a.example, part of which bypasses the cache, and c.example, each with an alias."""
    routes = (Route(b"/", PROFILE, ""),)
    own = Site("a", ("a.example",), routes, aliases=("b.example",))
    other = Site("c", ("c.example",), routes, ("d.example",), alias_answer=301)
    settings = {"a": RouteSettings(Rules(bypass=bypass)), "c": RouteSettings(Rules())}
    return Runtime(sites=Sites((own, other)), settings=MappingProxyType(settings))


class PlayedAnswer:
    """Keeps what an origin server answers; it `takes` content or not, and `over` is set by the end.

    Nothing may come twice or late: interim responses, one head, content, one end.
    """

    def __init__(self) -> None:
        self.interims: list[tuple[int, Fields]] = []
        self.head: tuple[int, Fields] | None = None
        self.content = bytearray()
        self.error: Exception | None = None
        self.takes, self.calls = True, 0
        self.over = asyncio.Event()

    def interim(self, status: int, fields: Fields) -> None:
        assert self.head is None
        assert not self.over.is_set()
        self.interims.append((status, fields))

    def start(self, response: Response) -> None:
        assert self.head is None
        assert not self.over.is_set()
        self.head = (response.status, response.fields)

    def write(self, chunk: bytes) -> bool:
        assert self.head is not None
        assert not self.over.is_set()
        self.content += chunk
        self.calls += 1
        return self.takes

    def finish(self) -> None:
        assert self.head is not None
        assert not self.over.is_set()
        self.over.set()

    def fail(self, error: Exception) -> None:
        assert not self.over.is_set()
        self.error = error
        self.over.set()

    @property
    def statuses(self) -> list[int]:
        """Those of the interim responses, and the final one."""
        return [status for status, _ in (*self.interims, *([self.head] if self.head else []))]

    @property
    def ends(self) -> list[Exception | None]:
        """Its end: an error or None; nothing if it has not ended."""
        return [self.error] if self.over.is_set() else []

    async def end(self) -> "PlayedAnswer":
        await asyncio.wait_for(self.over.wait(), 5)
        return self


class PlayedClient:
    """Keeps what it is sent; it takes `takes` chunks, then says no, and leaves within call number `leaves`.

    Nothing may be said to it once it has left, has its answer, or between its no and its `resume`.
    """

    exchange: Exchange

    def __init__(self, takes: int | None = None, leaves: int | None = None) -> None:
        self.takes, self.leaves = takes, leaves
        self.interims: list[int] = []
        self.interim_fields: Fields = []
        self.status = 0
        self.fields: Fields = []
        self.chunks: list[bytes] = []
        self.state = ""  # then "finished", "cut" or "left"
        self.full = False
        self._calls = 0
        self._taken = 0

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    @property
    def handling(self) -> set[str]:
        """The members of Cache-Status, without the cache's name."""
        return {part.decode() for part in b"".join(values(self.fields, b"cache-status")).split(b"; ")[1:]}

    def interim(self, status: int, fields: Fields) -> None:
        assert (self.state, self.status) == ("", 0)
        self.interims.append(status)
        self.interim_fields += fields
        self._called()

    def start(self, status: int, fields: Fields) -> None:
        assert (self.state, self.status) == ("", 0)
        self.status, self.fields = status, fields
        self._called()

    def write(self, chunk: bytes | memoryview) -> bool:
        assert (self.state, bool(self.status), self.full) == ("", True, False)
        self.chunks.append(bytes(chunk))
        self._taken += 1
        self.full = self.takes is not None and self._taken >= self.takes
        self._called()
        return not self.full

    def finish(self) -> None:
        assert (self.state, bool(self.status)) == ("", True)
        self.state = "finished"
        self._called()

    def cut(self) -> None:
        assert self.state == "", self.state
        self.state = "cut"
        self._called()

    def _called(self) -> None:
        self._calls += 1
        if self._calls == self.leaves:
            self.leave()

    # For the test

    def resume(self) -> None:
        """Take more."""
        if self.full:
            self.full, self._taken = False, 0
            self.exchange.resume()

    def leave(self) -> None:
        """Hang up."""
        if not self.state:
            self.state = "left"
        self.exchange.cancel()


class PlayedOrigin:
    """Keeps every request; `script` answers within `ask` itself, else the test does."""

    def __init__(self, script: "Callable[[PlayedRequest], object] | None" = None) -> None:
        self.asked: list[PlayedRequest] = []
        self.script = script

    @property
    def takes_targets(self) -> bool:
        return True

    def ask(self, request: OriginRequest, answer: Answer) -> "PlayedRequest":
        asked = PlayedRequest(request, answer)
        self.asked.append(asked)
        if self.script is not None:
            self.script(asked)
        return asked

    @property
    def last(self) -> "PlayedRequest":
        return self.asked[-1]


class PlayedRequest:
    """A request under way to the origin server, and the test's way to answer it."""

    def __init__(self, request: OriginRequest, answer: Answer) -> None:
        self.request, self.content, self.answer = request, request.content, answer
        self.cancelled = self.over = False
        self.takes = True  # False: no more until `resume`

    def field(self, name: bytes) -> bytes | None:
        found = values(self.request.fields, name)
        return found[0] if found else None

    # For the engine

    def pause(self) -> None:
        self.takes = False

    def resume(self) -> None:
        self.takes = True

    def cancel(self) -> None:
        self.cancelled = True

    # For the test

    @property
    def live(self) -> bool:
        return not (self.cancelled or self.over)

    def interim(self, status: int = 103, fields: Iterable[Field] = ()) -> None:
        if self.live:
            self.answer.interim(status, list(fields))

    def start(self, status: int = 200, fields: Iterable[Field] = FRESH) -> None:
        if self.live:
            self.answer.start(Response(status, list(fields)))

    def write(self, chunk: bytes) -> bool:
        if self.live and not self.answer.write(chunk):
            self.takes = False
        return self.takes

    def finish(self) -> None:
        if self.live:
            self.over = True
            self.answer.finish()

    def fail(self, error: Exception) -> None:
        if self.live:
            self.over = True
            self.answer.fail(error)

    def answers(self, *chunks: bytes, status: int = 200, fields: Iterable[Field] = FRESH) -> None:
        """Give all of a response."""
        self.start(status, fields)
        for chunk in chunks:
            self.write(chunk)
        self.finish()


class Watched:
    """A service (`Service`) that keeps the turns it answers; without `glances` it answers by turns alone."""

    def __init__(self, service: Service, *, glances: bool = True) -> None:
        self.service = service
        self.at_a_glance = service.at_a_glance if glances else None
        self.clock, self.dates, self.tell = service.clock, service.dates, service.tell
        self.turns: list[Turn] = []

    def upgrade(self, received: Received, fields: Fields) -> bytes:
        return self.service.upgrade(received, fields)

    def respond(self, turn: Turn) -> Responder:
        self.turns.append(turn)
        return self.service.respond(turn)


class SlowTier(MemoryTier):
    """Memory over a shared tier that answers when the test says so, in any order.

    `elsewhere` is what other nodes store. A commit becomes true at the lease's end, like that of SharedTier.
    """

    def __init__(self, memory: MemoryStore, slow: Iterable[str] = ("fill", "keeps", "recall", "end")) -> None:
        super().__init__(memory)
        self.slow = {*slow}
        self.elsewhere: list[Stored] = []
        self.waiting: list[tuple[str, Callable[[], None]]] = []
        self._results: dict[Lease, list[Stored | Selector]] = {}

    def go_on(self, name: str = "", index: int = 0) -> None:
        """Call one continuation: of those with this name, or of all, the one with this number."""
        found = [each for each in self.waiting if not name or each[0] == name]
        chosen = found[index % len(found)]
        self.waiting.remove(chosen)
        chosen[1]()

    def _hold(self, name: str, call: Callable[[], None]) -> None:
        if name in self.slow:
            self.waiting.append((name, call))
        else:
            call()

    def commit(self, lease: Lease, stored: Stored) -> bool:
        self._note(lease, stored)
        return True

    def drop(self, lease: Lease, selector: Selector, now: float) -> None:
        super().drop(lease, selector, now)
        self._note(lease, selector)

    def _note(self, lease: Lease, result: Stored | Selector) -> None:
        assert isinstance(lease, Lease)
        self._results.setdefault(lease, []).append(result)

    def fill(
        self, lease: Lease, request: Request, judge: Satisfies, then: Callable[[bool], None], *, joined: bool
    ) -> None:
        def found() -> None:
            held = [one for one in self.elsewhere if one.key == lease.key]
            then(judge(held or self.memory.lookup(lease.key), held))

        self._hold("fill", found)

    def keeps(self, lease: Lease, stored: Stored, now: float, then: Callable[[bool], None]) -> None:
        self._hold("keeps", lambda: super(SlowTier, self).keeps(lease, stored, now, then))

    def recall(
        self, key: bytes, request: Request, now: float, then: Callable[[Sequence[Stored]], None]
    ) -> None:
        self._hold("recall", lambda: then([*self.memory.lookup(key), *self.elsewhere]))

    def invalidate(
        self, selectors: Iterable[Selector], now: float, lease: Lease | None, then: Callable[[], None]
    ) -> None:
        meant = [*selectors]

        def purge() -> None:
            for selector in meant:
                self.forget(selector)
            super(SlowTier, self).invalidate(meant, now, lease, then)

        self._hold("invalidate", purge)

    def forget(self, selector: Selector) -> None:
        """Purge what other nodes store."""
        left = (one for one in self.elsewhere if not selector.means(one))
        self.elsewhere[:] = left

    def end(self, lease: Lease, then: Callable[[], None]) -> None:
        def settle() -> None:
            assert isinstance(lease, Lease)
            for result in self._results.pop(lease, []):
                if isinstance(result, Stored):
                    super(SlowTier, self).commit(lease, result)
                else:
                    self.memory.purge(result, 0.0, sparing=lease)
            super(SlowTier, self).end(lease, then)

        self._hold("end", settle)


class Proxy:
    """An engine among its neighbours."""

    def __init__(
        self,
        tiers: MemoryTier | None = None,
        rules: Rules | None = None,
        store: MemoryStore | None = None,
        **settings: Any,
    ) -> None:
        self.clock = Clock()
        self.tiers = tiers or MemoryTier(store or MemoryStore())
        self.store = self.tiers.memory
        self.origin = PlayedOrigin()
        self.outcomes: list[Outcome] = []
        self.counted: list[Outcome] = []
        self.clients: list[PlayedClient] = []
        gate = Gate(everywhere(rules=rules, limits=Limits(**settings)), self.tiers)
        self.engine = Engine(
            gate, (self.outcomes.append,), self.clock, self.clock.call_later, (self.counted.append,)
        )
        self.flights = self.engine.flights

    @property
    def slow(self) -> SlowTier:
        assert isinstance(self.tiers, SlowTier)
        return self.tiers

    def configure(self, **settings: Any) -> None:
        """Give its only site these settings."""
        self.engine.gate.runtime = configured(self.engine.gate.runtime, **settings)

    def restrict(self, restriction: Restriction) -> None:
        """Have its only site give access by this restriction."""
        self.configure(restriction=restriction)

    def admit(self, target: bytes = b"/a", method: bytes = b"GET", *fields: Field) -> Admission:
        received = Received(method, target, b"http", "127.0.0.1")
        return self.engine.gate.admit(received, [(b"host", HOST), *fields], self.clock())

    def ask(
        self,
        target: bytes = b"/a",
        method: bytes = b"GET",
        *fields: Field,
        client: PlayedClient | None = None,
        content: Pipe | None = None,
    ) -> PlayedClient:
        """Have a client ask; what it gets is in the client that is returned."""
        client = client or PlayedClient()
        admission = self.admit(target, method, *fields)
        began = (self.clock(), 0.0)
        client.exchange = Exchange(self.engine, client, admission, self.origin, content, began)
        self.clients.append(client)
        client.exchange.begin()
        return client

    def store_away(self, *chunks: bytes, fields: Iterable[Field] = FRESH, target: bytes = b"/a") -> None:
        """Have a client ask, and the origin answer, so that it is stored."""
        count = len(self.origin.asked)
        self.ask(target)
        self.drain()
        assert len(self.origin.asked) == count + 1
        self.origin.last.answers(*chunks, fields=fields)
        self.drain()

    def drain(self) -> None:
        """Call every continuation that waits."""
        if isinstance(self.tiers, SlowTier):
            while self.tiers.waiting:
                self.tiers.go_on()

    def key(self, target: bytes = b"/a") -> bytes:
        found = self.admit(target).canonical
        assert found is not None
        return found.key

    def stored(self, target: bytes = b"/a") -> list[bytes]:
        """The contents that are stored under a target's key."""
        return [one.body for one in self.store.lookup(self.key(target))]

    def purge(self, target: bytes = b"/a", *, soft: bool = False) -> None:
        selector = Keys(frozenset((self.key(target),)), soft=soft)
        self.store.purge(selector, self.clock())
        if isinstance(self.tiers, SlowTier):
            self.tiers.forget(selector)

    def assert_nothing_is_left(self) -> None:
        """No flight, lease, reservation, timer or continuation; one Outcome for each exchange."""
        assert not self.flights.named
        assert not self.flights._refreshing
        assert not self.store.leases._live
        assert (self.store.stats.reserved, self.store.stats.lent, len(self.engine.under_way)) == (0, 0, 0)
        assert not self.clock.timers
        assert not (isinstance(self.tiers, SlowTier) and self.tiers.waiting)
        assert all(asked.over or asked.cancelled for asked in self.origin.asked)
        assert all(client.state and client.exchange.over for client in self.clients)
        assert len(self.outcomes) == len(self.clients)
