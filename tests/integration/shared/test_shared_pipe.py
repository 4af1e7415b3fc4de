"""A connection to Redis that many callers share, before a server that answers when it is told to."""

import asyncio
from contextlib import asynccontextmanager

import pytest
import uvloop
from redis.exceptions import ConnectionError as RedisConnectionError

from univocal.store.redis.commands import CommandPipe, servers_at


class Answers:
    """A server that lets each client name its library, and keeps a piece for each time that it read more."""

    def __init__(self):
        self.pieces = []
        self.connections = 0
        self.more = asyncio.Event()

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.accept, "127.0.0.1", 0)
        servers = servers_at(f"redis://127.0.0.1:{self.server.sockets[0].getsockname()[1]}/0", 1.0)
        self.connection = servers.connection(servers.places()[0])
        return self

    async def __aexit__(self, *error):
        self.server.close()

    async def accept(self, reader, writer):
        self.writer = writer
        self.connections += 1
        while piece := await reader.read(1 << 16):
            introductions = piece.count(b"SETINFO")
            writer.write(b"+OK\r\n" * introductions)
            if not introductions:
                self.pieces.append(piece)
                self.more.set()
        writer.close()

    async def came(self, count):
        async with asyncio.timeout(30):
            while b"".join(self.pieces).count(b"*") < count:
                self.more.clear()
                await self.more.wait()


def run(main):
    """Run with uvloop: its transports are other ones than those of asyncio, by which the other tests run."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


async def opened(connection, **options):
    pipe = CommandPipe(connection, **options)
    asking = asyncio.ensure_future(pipe.call("PING"))
    return pipe, asking


@asynccontextmanager
async def answered_once():
    """A server, and a pipe whose first command it has answered."""
    async with Answers() as server:
        pipe, first = await opened(server.connection)
        await server.came(1)
        server.writer.write(b"+1\r\n")
        await first
        yield server, pipe


def test_each_command_has_its_own_time():
    was_later = []

    async def main():
        async with Answers() as server:
            pipe, first = await opened(server.connection, timeout=0.2)
            await server.came(1)
            await asyncio.sleep(0.1)
            second = pipe.call("GET", "b")
            with pytest.raises(TimeoutError):
                await first
            was_later.append(not second.done())
            with pytest.raises(TimeoutError):
                await second
            await pipe.aclose()

    while not any(was_later):  # both are due at once where the machine stands still
        assert len(was_later) < 10
        run(main)


@pytest.mark.parametrize("octets", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"+1\r\n+2\r\n+3\r\n"])
def test_connection_that_breaks_fails_every_caller(octets):
    async def main():
        async with answered_once() as (server, pipe):
            calls = [pipe.call("GET", "b"), pipe.call("GET", "c")]
            if octets:
                server.writer.write(octets)
            else:
                server.writer.close()
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(each, RedisConnectionError) for each in results) or octets.startswith(b"+")
            assert pipe.broken
            with pytest.raises(RedisConnectionError):
                await pipe.call("GET", "d")
            await pipe.aclose()

    run(main)


@pytest.mark.parametrize("turns", range(5))
async def test_closing_that_is_cancelled_leaves_no_connection_open(turns):
    async with answered_once() as (server, pipe):
        closing = asyncio.ensure_future(pipe.aclose())
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        if turns:  # else it has not begun
            assert not server.connection.is_connected
        await pipe.aclose()
        assert not server.connection.is_connected


@pytest.mark.parametrize("turns", [*range(1, 12), 0.002, 0.01])
async def test_closing_that_is_cancelled_during_the_opening_leaves_none_open(turns):
    async with Answers() as server:
        pipe, first = await opened(server.connection)
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(pipe.aclose())
        if isinstance(turns, float):
            await asyncio.sleep(turns)
        else:
            for _ in range(turns):
                await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing, first, pipe._opening])
        assert not server.connection.is_connected
        assert isinstance(first.exception(), RedisConnectionError)


def test_a_connection_that_ends_before_a_write_stays_closed():
    async def main():
        async with answered_once() as (server, pipe):
            reply = pipe.call("GET", "b")
            await server.connection.disconnect(nowait=True)  # before the next turn, which writes
            async with asyncio.timeout(30):
                with pytest.raises(RedisConnectionError):
                    await reply
            await asyncio.sleep(0.05)
            assert server.connections == 1
            await pipe.aclose()

    run(main)
