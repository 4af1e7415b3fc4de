"""`GET /-/events`: each exchange as it ends, for those who follow (server-sent events, WHATWG HTML §9.2).

While nobody follows, nothing of it is among the listeners, so that an exchange costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from univocal.engine.audience import Listener
from univocal.engine.outcome import Outcome
from univocal.http.errors import RefusedError
from univocal_app.observe.admin_problems import FRESH, bad_request
from univocal_app.observe.events import Event, Follower, Wanted, event_of

FOLLOWERS: Final = 16  # at the same time: half of the admin listener's connections

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

    def __init__(self, listeners: list[Listener]) -> None:
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
        """The stream for one more follower; 503 if there are too many, 400 for a filter that is none."""
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
