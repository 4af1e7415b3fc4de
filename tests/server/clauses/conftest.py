"""The proxy between octets of a client and octets of an origin server, without sockets: see `Proxy`."""

from contextlib import ExitStack

import pytest

from fuzz.exchanges.grammar import Scenario
from fuzz.exchanges.messages import responses
from fuzz.exchanges.wires import START
from fuzz.exchanges.world import World, played
from univocal.http.fields import imf_fixdate


class Asking:
    """A request, what was sent on for it, and what its client got."""

    def __init__(self, world, client, method):
        self._world, self._known = world, len(world.served)
        self.client, self._methods = client, [method]

    @property
    def got(self):
        return bytes(self.client.wire.sent)

    @property
    def answer(self):
        """The response, or None as long as there is none."""
        found, _ = responses(self.got, self._methods, closed=self.client.wire.closed)
        return found[0] if found else None

    @property
    def served(self):
        """The request at the origin server, or None if it did not get there."""
        served = self._world.served[self._known :]
        return served[0] if served else None

    @property
    def forwarded(self):
        return self.served.request if self.served else None


class Proxy:
    """The proxy; each `ask` comes over a connection of its own."""

    def __init__(self, world):
        self.world = world

    def wait(self, seconds):
        """Let what is stored be so much older."""
        self.world.clock.now += seconds

    async def pass_time(self, seconds):
        """Let so much time pass for all who wait."""
        await self.world.wait(seconds)

    async def octets(self, octets, method=b"GET"):
        """Let a client send these octets."""
        client = self.world.connect("192.0.2.1")
        asking = Asking(self.world, client, method)
        client.outbox.append(octets)
        await self.world.settle()
        return asking

    async def ask(self, *lines, method="GET", target="/a", version="1.1", content=b""):
        """Let a client ask, with these field lines and Host."""
        head = "\r\n".join([f"{method} {target} HTTP/{version}", "Host: en.example", *lines, "", ""])
        return await self.octets(head.encode("latin-1") + content, method.encode())

    async def reply(self, asking, octets, *, close=False):
        """Let the origin server answer with these octets, and close the connection."""
        wire = asking.served.wire
        wire.protocol.data_received(octets)
        await self.world.settle()
        if close and not wire.closed:
            wire.protocol.eof_received()
            wire.lose()
            await self.world.settle()

    async def answer(self, asking, *lines, status="200 OK", content=b"0123456789"):
        """Let the origin server answer with these field lines and Content-Length."""
        head = "\r\n".join([f"HTTP/1.1 {status}", *lines, f"Content-Length: {len(content)}", "", ""])
        if asking.forwarded.method == b"HEAD" or status[:3] in {"204", "304"}:
            content = b""
        await self.reply(asking, head.encode("latin-1") + content)

    async def store(self, *lines, asked=(), target="/a", **how):
        """Let a client ask, and the origin server answer with these lines; what the client got."""
        asking = await self.ask(*asked, target=target)
        await self.answer(asking, *lines, **how)
        return asking


@pytest.fixture
async def proxy():
    """Makes a proxy by the rules that it is given."""
    worlds = []
    with ExitStack() as stack:

        def made(**rules):
            world = World(Scenario(rules, 100_000, []))
            stack.enter_context(played(world))
            worlds.append(world)
            return Proxy(world)

        yield made
        for world in worlds:
            await world.close()
            assert not world.errors


@pytest.fixture
def date():
    """The HTTP-date so many seconds from the beginning."""
    return lambda seconds: imf_fixdate(START + seconds).decode()
