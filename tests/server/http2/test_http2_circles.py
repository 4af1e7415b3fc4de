"""A connection by HTTP/2 that is closed is freed at once, with all that its streams left."""

import pytest

from http2_client import POST, Server, data, frame, headers, rst_stream
from support import living
from tests.pages import Page
from univocal.server.http2.connection import Http2Connection
from univocal.server.http2.session import Session

pytestmark = pytest.mark.usefixtures("all_frozen")

VISITS = {
    "nothing": b"",
    "an answer": headers(1),
    "content": headers(1, POST, ends=False) + data(1, b"content", ends=True),
    "half of its content": headers(1, POST, ends=False) + data(1, b"con"),
    "malformed": headers(1, [*POST, (b"Upper", b"")]),
    "cancelled": headers(1, POST, ends=False) + rst_stream(1),
    "an error": headers(1) + frame(0, 0, 0),
    "half a head": headers(1)[:12],
}


@pytest.mark.parametrize("holds", [False, True], ids=["answered", "not answered"])
@pytest.mark.parametrize("name", VISITS)
async def test_a_closed_connection_is_freed_at_once(no_collector, name, holds):
    kinds = Http2Connection, Session
    others = living(*kinds)
    server = Server()
    server.origin.pages[b"/"] = Page(content=bytes(200_000))  # more than there is a window for
    server.origin.holds = holds
    client = server.connect()
    await client.send(VISITS[name])
    assert len(living(*kinds)) == len(others) + 2
    await client.leave()
    server.origin.asked.clear()
    server.clock.timers.clear()
    server.refusals.clear()
    server.outcomes.clear()
    client.transport.protocol = client.connection = None
    assert [each for each in living(*kinds) if each not in others] == []
