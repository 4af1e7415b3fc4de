"""Servers and clients of HTTP/2 that end with their test."""

import pytest

from http2_client import Server


@pytest.fixture
async def serve():
    """Make servers: serve(limits=…, clients=…, rules=…)."""
    return Server


@pytest.fixture
async def connect():
    """Make connections, each to a server of its own or to `server`: connect(server=…, limits=…, suits=…)."""
    made = []

    def connect(server=None, *, suits=None, greets=True, **settings):
        client = (server or Server(**settings)).connect(suits=suits, greets=greets)
        made.append(client)
        return client

    yield connect
    for client in made:
        await client.leave()
