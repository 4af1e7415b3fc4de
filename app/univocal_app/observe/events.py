"""`GET /-/events`: each exchange as it ends, for those who follow (server-sent events, WHATWG HTML §9.2).

Without a follower it is not among the listeners, so that an exchange costs nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from univocal.engine.outcome import Outcome, OutcomeListener
from univocal.http.errors import RefusedError
from univocal_app.observe.admin_problems import FRESH, bad_request
from univocal_app.observe.handled import cache_word
from univocal_app.observe.log_lines import as_json

FOLLOWERS: Final = 16  # at the same time: half of the admin listener's connections
ROOM: Final = 256 * 1024  # bytes that wait for one follower at most
_STATUS: Final = re.compile(r"0|[0-9](?:[0-9]{2}|xx)")
SILENCE: Final = 15.0  # seconds after which a comment shows that the connection is alive


class Event(NamedTuple):
    """One exchange: the access log's object, and the values in it by which it is chosen."""

    site: str
    status: str
    cache: str  # "null" where the log says null
    data: bytes  # JSON in one line, ASCII


def event_of(outcome: Outcome) -> Event:
    """The event that tells of an outcome."""
    cache = cache_word(outcome.handling) or "null"
    return Event(outcome.site, str(outcome.status), cache, as_json(outcome)[:-1])


class Wanted(NamedTuple):
    """The events that a follower asks for: by each of these, one of the values; without any, all."""

    sites: frozenset[str] = frozenset()
    statuses: frozenset[str] = frozenset()  # or a class of them: 4xx
    caches: frozenset[str] = frozenset()

    @classmethod
    def by(cls, sites: Sequence[str], statuses: Sequence[str], caches: Sequence[str]) -> Wanted:
        """The filter that these values name. Raises ValueError for an invalid status."""
        wanted = cls(frozenset(sites), frozenset(statuses), frozenset(caches))
        for status in wanted.statuses:
            if not _STATUS.fullmatch(status):
                raise ValueError("status must be a number such as 404, a class such as 4xx, or 0")
        return wanted

    def has(self, event: Event) -> bool:
        """Tell whether an event is one of these."""
        sites, statuses, caches = self
        return (
            (not sites or event.site in sites)
            and (not statuses or event.status in statuses or f"{event.status[0]}xx" in statuses)
            and (not caches or event.cache in caches)
        )


class Follower:
    """One who follows: what waits for it is bounded, what found no room is counted as lost."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._waiting = bytearray()
        self._lost = 0
        self._news = asyncio.Event()
        self._over = False

    def offer(self, event: Event) -> None:
        """Keep an event for it, if it is wanted and there is room."""
        if not self._wanted.has(event):
            return
        if len(self._waiting) + len(event.data) > ROOM:
            self._lost += 1
            return
        self._tell_lost()
        self._waiting += b"data: %b\n\n" % event.data
        self._news.set()

    def lose(self, count: int) -> None:
        """Count events that were lost on their way, whether they were wanted or not."""
        self._lost += count
        self._news.set()

    def end(self) -> None:
        """Give what waits, and then no more."""
        self._over = True
        self._news.set()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The stream, a piece of it whenever the last one was taken."""
        yield b": events\n\n"
        while True:
            try:
                async with asyncio.timeout(SILENCE):
                    await self._news.wait()
            except TimeoutError:
                yield b":\n\n"
                continue
            self._news.clear()
            self._tell_lost()
            waiting, self._waiting = self._waiting, bytearray()
            if waiting:
                yield bytes(waiting)
            if self._over:
                return

    def _tell_lost(self) -> None:
        """Tell of what was lost where it is missing: behind what came before it."""
        if self._lost:
            self._waiting += b'event: lost\ndata: {"lost": %d}\n\n' % self._lost
            self._lost = 0


_FIELDS: Final = {
    "content-type": "text/event-stream; charset=utf-8",
    "x-accel-buffering": "no",  # for an nginx in between
    **FRESH,
}


class Reporters(Protocol):
    """Other processes, whose exchanges are followed here."""

    async def follow(self) -> None:
        """Have all of them report; returns when they do, or some seconds later."""

    def unfollow(self) -> None:
        """Have none of them report."""


class Events:
    """All who follow what this process handles, and what the `reporters` do, where there are any.

    `listeners` are those of the engine: this is among them while somebody follows.
    """

    def __init__(self, listeners: list[OutcomeListener]) -> None:
        self._listeners = listeners
        self._followers = set[Follower]()
        self.reporters: Reporters | None = None
        self._closed = False

    def __call__(self, outcome: Outcome) -> None:
        event = event_of(outcome)
        for follower in self._followers:
            follower.offer(event)

    def relay(self, event: Event | int) -> None:
        """Tell those who follow of a reporter's event, or of so many that were lost."""
        for follower in self._followers:
            if isinstance(event, int):
                follower.lose(event)
            else:
                follower.offer(event)

    def close(self) -> None:
        """End every stream: the program ends."""
        self._closed = True
        for follower in self._followers:
            follower.end()

    async def answer(self, request: Request) -> Response:
        """The stream for one more follower; 503 if there are too many, 400 for an invalid filter."""
        query = request.query_params
        # A form sends the filters that are left empty, too.
        named = ([each for each in query.getlist(name) if each] for name in ("site", "status", "cache"))
        try:
            wanted = Wanted.by(*named)
        except ValueError as error:
            return bad_request(str(error), request)
        if request.method == "HEAD":
            return Response(headers=_FIELDS)
        if len(self._followers) >= FOLLOWERS or self._closed:
            raise RefusedError("overloaded")
        follower = Follower(wanted)
        self._join(follower)
        try:
            if self.reporters is not None:
                await self.reporters.follow()
        except BaseException:
            self._leave(follower)
            raise
        return _Stream(follower, lambda: self._leave(follower))

    def _join(self, follower: Follower) -> None:
        self._followers.add(follower)
        if len(self._followers) == 1:
            self._listeners.append(self)

    def _leave(self, follower: Follower) -> None:
        self._followers.discard(follower)
        if not self._followers and self in self._listeners:
            self._listeners.remove(self)
            if self.reporters is not None:
                self.reporters.unfollow()


class _Stream(StreamingResponse):
    """A follower's stream; `left` is called at its end, whatever that was."""

    def __init__(self, follower: Follower, left: Callable[[], None]) -> None:
        super().__init__(follower.chunks(), headers=_FIELDS)
        self._left = left

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._left()
