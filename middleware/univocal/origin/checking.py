"""The checks of one origin server's health, as they are asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from univocal.http.errors import RefusedError
from univocal.http.messages import Fields, Response
from univocal.http.roles import Answer, Content, UnderWay
from univocal.http.timer import Timer
from univocal.origin.health import HealthRule

_LONGEST: Final = 64 * 1024  # bytes of content that are read, so that the connection can be kept


class Checked(Protocol):
    """The origin server that is asked."""

    def ask(
        self, method: bytes, target: bytes, fields: Fields, content: Content | None, answer: Answer
    ) -> UnderWay:
        """Send a request; its response is pushed to `answer`."""
        ...


def check_fields(host: bytes) -> Fields:
    """The fields of a check's request."""
    return [(b"host", host), (b"user-agent", b"univocal"), (b"accept", b"*/*")]


class Check:
    """Checks an origin server at once, then at each interval (an `Answer`); `report` hears whether it passes.

    It hears the reason, too: a status, or the word for a failure. The second check comes after `share` (0 to
    1) of the interval: so the checks of many origin servers by many processes are spread in time. The next
    begins when the one before has ended.
    """

    __slots__ = (
        "_begun", "_closed", "_deadline", "_fields", "_is_first", "_judged", "_loop", "_next",
        "_octets", "_pending", "_reason", "_report", "_rule", "_server", "_share", "_under_way",
    )  # fmt: skip

    def __init__(
        self,
        server: Checked,
        rule: HealthRule,
        host: bytes,
        report: Callable[[bool, str], None],
        loop: asyncio.AbstractEventLoop,
        share: float = 1.0,
    ) -> None:
        self._server = server
        self._rule = rule
        self._fields = check_fields(host)
        self._report = report
        self._loop = loop
        self._share = share
        self._pending: UnderWay | None = None
        self._under_way = self._judged = self._closed = False
        self._octets = 0
        self._reason = "timeout"  # of a failure, unless there is another
        self._begun = 0.0
        self._is_first = True
        self._deadline = Timer(loop, self._end)
        self._next = Timer(loop, self.begin)

    def begin(self) -> None:
        """Ask now."""
        self._under_way, self._judged, self._octets, self._reason = True, False, 0, "timeout"
        self._begun = self._loop.time()
        self._deadline.set(self._rule.timeout)
        pending = self._server.ask(b"GET", self._rule.path, self._fields, None, self)
        if self._under_way:
            self._pending = pending

    def close(self) -> None:
        """Ask no more."""
        self._judged = self._closed = True
        self._give_up()
        self._next.close()
        self._deadline.close()

    # Called by the origin server.

    def interim(self, status: int, fields: Fields) -> None:
        """Wait on."""

    def start(self, response: Response) -> None:
        self._reason = f"status {response.status}"
        self._judge(response.status in self._rule.statuses)

    def write(self, chunk: bytes) -> bool:
        self._octets += len(chunk)
        if self._octets > _LONGEST:
            self._end()
        return True

    def finish(self) -> None:
        self._pending = None
        self._end()

    def fail(self, error: Exception) -> None:
        self._pending = None
        if isinstance(error, RefusedError):
            self._reason = error.reason if error.failure is None else error.failure.reason
        self._end()

    # Its own.

    def _judge(self, passed: bool) -> None:
        if not self._judged:
            self._judged = True
            self._report(passed, self._reason)

    def _end(self) -> None:
        """Be done with this check, of which nothing more is wanted."""
        if self._closed:
            return
        self._give_up()
        self._deadline.clear()
        wait = self._rule.interval * (self._share if self._is_first else 1)
        self._is_first = False
        self._next.set(max(0.0, self._begun + wait - self._loop.time()))
        self._judge(False)  # at last: who is told may close this

    def _give_up(self) -> None:
        self._under_way = False
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.cancel()
