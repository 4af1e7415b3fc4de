"""The roles around a request's turn, and the calls by which they speak with one another.

A connection of any version of HTTP makes a `Turn` of each request (server.turn). The turn stands between
these neighbours, and all calls are plain and return at once:

    Connection   begin · receive · complete · resume · end · fail      calls of the turn
    Stream       interim · start · write · finish · cut · pause · resume    what the turn writes to
    Responder    begin · resume · cancel · refuse · give_up            who answers: an Exchange, an ASGI cycle
    Service      respond · plan · at_a_glance · tell                   what makes responders for a listener

In this order, `a*` any number of times:

    Turn(stream, service, received, fields, …)   a request's head is complete and has no fault
    turn.begin()                                 it is the request's turn: the service makes a responder
    turn.receive(chunk)*  turn.complete()        its content comes, before or after `begin`
    stream.interim()*  stream.start()  stream.write()*  stream.finish()      its response
    turn.resume()*                               the client takes more of it

`turn.end()` (the client has left, or its content is faulty) may replace the rest. So may `stream.cut()` (the
response is incomplete). After `finish`, `cut` and `end` the turn writes nothing more.

`Turn.start` decides about the framing once: whether there is content, that no coding is the origin server's,
and that there is a Date. A stream writes that by its version's rules. Interim responses, the content's
bounds, 100 (Continue), faults and problem details are the turn's, for every version.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import TracebackType
from typing import Any, Protocol

from univocal.http.messages import Fields
from univocal.http.upgrade import Line
from univocal.server.peer import ClientPeer


class ServerState(Protocol):
    """The state that uvicorn shares with the connections of a server: it waits for them at its end."""

    total_requests: int
    connections: set[Any]
    tasks: set[Any]
    default_headers: list[tuple[bytes, bytes]]


class Stream(Protocol):
    """Where a turn's response goes and its content comes from: one response of a connection, or a stream."""

    peer: ClientPeer

    def interim(self, status: int, fields: Fields) -> None:
        """Send a 1xx response other than 101; `fields` have no framing among them."""

    def start(self, status: int, fields: Fields, names: Collection[bytes], has_content: bool) -> None:
        """Send the final response's head.

        `fields` are in lower case, without Transfer-Encoding, and with a Content-Length only where it is the
        content's; `names` are theirs. `Connection: close` among them ends the connection after this
        response, where its version knows that. `has_content`: `write` may follow, else `finish` alone.
        """

    def write(self, chunk: bytes | memoryview) -> bool:
        """Send content; False: no more until `Turn.resume`."""
        ...

    def finish(self) -> None:
        """End the response; the turn is over."""

    def cut(self) -> None:
        """End a response that has begun, so that the client sees that it is incomplete; the turn is over."""

    def pause(self) -> None:
        """Ask the client for no more content for now."""

    def resume(self) -> None:
        """Let content come again."""

    def upgrade(self, fields: Fields | None) -> Line:
        """Send a 101, behind which the connection is another protocol's; None: that will send its own.

        It is called only where `received.upgrade` names a protocol.
        """
        ...


class Responder(Protocol):
    """The one who answers a turn's request: it calls the turn as its client."""

    error: tuple[BaseException, TracebackType | None] | None  # why a response is cut that has not begun

    def begin(self) -> None:
        """Answer."""

    def resume(self) -> None:
        """Send more: the client takes it."""

    def cancel(self) -> None:
        """Give up: the client has left."""

    def refuse(self, reasons: Sequence[str]) -> None:
        """Answer with a problem; in the middle of a response, cut it."""

    def give_up(self, status: int) -> None:
        """Give up: the turn itself answers, because of a fault of ours."""
