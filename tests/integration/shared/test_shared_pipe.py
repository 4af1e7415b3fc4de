"""A connection to Redis that many callers share, before a server that answers when it is told to."""

from __future__ import annotations

import asyncio
import gc
import ssl

import pytest
import uvloop

from univocal.store.redis.pipe import Pipe, ReplyError
from univocal.store.redis.servers import Connector, introduction, tls_context

PING = b"*1\r\n$4\r\nPING\r\n"


class Answers:
    """A server that answers the first PING, and keeps a piece for each time that it read."""

    def __init__(self):
        self.pieces = []
        self.more = asyncio.Event()

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.accept, "127.0.0.1", 0)
        self.connector = Connector(self.server.sockets[0].getsockname(), None, introduction({}), 1.0)
        return self

    async def __aexit__(self, *error):
        self.server.close()

    async def accept(self, reader, writer):
        self.writer = writer
        assert await reader.readexactly(len(PING)) == PING
        writer.write(b"+PONG\r\n")
        while piece := await reader.read(1 << 16):
            self.pieces.append(piece)
            self.more.set()
        writer.close()

    async def came(self, count):
        async with asyncio.timeout(5):
            while b"".join(self.pieces).count(b"*") < count:
                self.more.clear()
                await self.more.wait()


def run(main):
    """Run with uvloop: its transports are other ones than those of asyncio, by which the other tests run."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


async def opened(connector, **options):
    pipe = Pipe(connector, **options)
    asking = asyncio.ensure_future(pipe.call("PING"))
    return pipe, asking


def test_commands_of_one_turn_leave_in_one_write():
    async def main():
        async with Answers() as server:
            pipe, first = await opened(server.connector)
            await server.came(1)
            server.writer.write(b"+1\r\n")
            assert await first == b"1"
            server.pieces.clear()
            calls = [pipe.call("GET", number) for number in range(5)]
            await server.came(5)
            assert len(server.pieces) == 1
            server.writer.write(b"".join(b":%d\r\n" % number for number in range(5)))
            assert [await each for each in calls] == [0, 1, 2, 3, 4]
            await pipe.aclose()

    run(main)


def test_late_reply_keeps_its_place():
    async def main():
        late = []
        async with Answers() as server:
            pipe, first = await opened(server.connector, timeout=0.05, late_reply=lambda: late.append(True))
            await server.came(1)
            with pytest.raises(TimeoutError):
                await first
            second = pipe.call("GET", "b")
            assert (pipe.load, late) == (2, [])
            server.writer.write(b"+first\r\n+second\r\n")
            assert await second == b"second"
            assert (pipe.load, late) == (0, [True])
            third = pipe.call("GET", "c")
            with pytest.raises(TimeoutError):
                await third
            await pipe.aclose()

    run(main)


def test_each_command_has_its_own_time():
    async def main():
        async with Answers() as server:
            pipe, first = await opened(server.connector, timeout=0.2)
            await server.came(1)
            await asyncio.sleep(0.1)
            second = pipe.call("GET", "b")
            with pytest.raises(TimeoutError):
                await first
            assert not second.done()
            with pytest.raises(TimeoutError):
                await second
            await pipe.aclose()

    run(main)


def test_error_reply_fails_its_caller_alone():
    async def main():
        async with Answers() as server:
            pipe, first = await opened(server.connector)
            await server.came(1)
            second = pipe.call("GET", "b")
            server.writer.write(b"-MOVED 1 127.0.0.1:7000\r\n+fine\r\n")
            with pytest.raises(ReplyError, match=r"^MOVED 1 127\.0\.0\.1:7000$") as error:
                await first
            assert error.value.code == "MOVED"
            assert await second == b"fine"
            await pipe.aclose()

    run(main)


@pytest.mark.parametrize("octets", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"+1\r\n+2\r\n+3\r\n"])
def test_connection_that_breaks_fails_every_caller(octets):
    async def main():
        async with Answers() as server:
            pipe, first = await opened(server.connector)
            await server.came(1)
            server.writer.write(b"+1\r\n")
            await first
            calls = [pipe.call("GET", "b"), pipe.call("GET", "c")]
            if octets:
                server.writer.write(octets)
            else:
                server.writer.close()
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(each, ConnectionError) for each in results) or octets.startswith(b"+")
            assert pipe.broken
            with pytest.raises(ConnectionError):
                await pipe.call("GET", "d")
            await pipe.aclose()

    run(main)


@pytest.mark.parametrize(
    ("login", "commands"),
    [
        ({}, (("PING",),)),
        ({"db": 0}, (("PING",),)),
        ({"db": 3}, (("SELECT", 3), ("PING",))),
        ({"password": "p"}, (("AUTH", "p"), ("PING",))),
        ({"username": "u", "password": "p", "db": 1}, (("AUTH", "u", "p"), ("SELECT", 1), ("PING",))),
        ({"username": "u"}, (("AUTH", "u", ""), ("PING",))),
    ],
)
def test_connection_begins_with_login_and_database(login, commands):
    assert introduction(login) == commands


@pytest.mark.parametrize(
    ("options", "mode", "checks"),
    [
        ({}, ssl.CERT_REQUIRED, True),
        ({"ssl_check_hostname": False}, ssl.CERT_REQUIRED, False),
        ({"ssl_cert_reqs": "optional"}, ssl.CERT_OPTIONAL, True),
        ({"ssl_cert_reqs": "none"}, ssl.CERT_NONE, False),
        ({"ssl_cert_reqs": "none", "ssl_check_hostname": True}, ssl.CERT_NONE, False),
    ],
)
def test_options_of_tls_decide_what_is_verified(options, mode, checks):
    context = tls_context(options)
    assert (context.verify_mode, context.check_hostname) == (mode, checks)


async def test_an_opening_that_fails_when_nobody_waits_is_no_fault():
    """Callers give up before the server, which says nothing, is given up."""

    async def say_nothing(reader, writer):
        await reader.read()
        writer.close()

    loop, faults = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: faults.append(context["message"]))
    silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    pipe = Pipe(Connector(silent.sockets[0].getsockname(), None, introduction({}), 0.1), 0.05)
    with pytest.raises(TimeoutError):
        await pipe.call("PING")
    await asyncio.wait([pipe._opening])
    await pipe._ended
    del pipe
    gc.collect()
    await asyncio.sleep(0.05)
    silent.close()
    assert faults == []
