"""Servers and clients of HTTP/2 that end with their test."""

import pytest

from http2_client import Server


@pytest.fixture
async def serve():
    """Make servers: serve(limits=…, clients=…, rules=…)."""
    return Server


@pytest.fixture
async def connect():
    """Make connections, each to a server of its own or to `server`: connect(server=…, limits=…, suits=…).

    The origin server has `page` at "/"; it may hold its answers, or take one piece of content and no more.
    """
    made = []

    def connect(server=None, *, suits=None, greets=True, page=None, holds=False, is_greedy=True, **settings):
        client = (server or Server(**settings)).connect(suits=suits, greets=greets)
        origin = client.server.origin
        if server is None:
            origin.holds, origin.is_greedy = holds, is_greedy
        if page is not None:
            origin.pages[b"/"] = page
        made.append(client)
        return client

    yield connect
    for client in made:
        await client.leave()


@pytest.fixture
async def client(connect):
    """A connection by HTTP/2 to a server of its own, by the usual settings."""
    return connect()
