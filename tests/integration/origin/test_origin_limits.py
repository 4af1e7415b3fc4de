"""Connections, time and memory are bounded; cancelling and closing leave nothing behind."""

import asyncio
import time
import tracemalloc

import httpx
import pytest

from support import echo, open_files

MIB = 1024 * 1024


def gated(gate):
    async def script(peer):
        while True:
            await peer.head()
            await gate.wait()
            await peer.answer(b"ok")

    return script


async def test_cancelling_who_waits_gives_the_turn_to_the_next(serve, answered, make_transport):
    gate = asyncio.Event()
    origin = await serve(gated(gate))
    transport = make_transport(max_connections=1)
    tasks = [asyncio.ensure_future(answered(origin, by=transport)) for _ in range(5)]
    await asyncio.sleep(0.01)
    tasks[1].cancel()
    gate.set()
    await tasks[0]
    tasks[2].cancel()  # it may have been given the connection by now, and have begun to use it
    assert await asyncio.gather(*tasks[3:]) == [(200, b"ok")] * 2
    assert origin.accepted <= 2


@pytest.mark.parametrize("stage", ["head", "content", "interim"])
async def test_read_timeout_comes_in_time(serve, answered, stage):
    said = {
        "head": b"",
        "content": b"HTTP/1.1 200 OK\r\n\r\nabc",
        "interim": b"HTTP/1.1 102 Processing\r\n\r\n",
    }

    async def script(peer):
        await peer.head()
        await peer.send(said[stage])
        await peer.forever()

    origin = await serve(script)
    began = time.monotonic()
    with pytest.raises(httpx.ReadTimeout):
        await answered(origin, timeout={"read": 0.05})
    assert 0.045 < time.monotonic() - began < 15  # the others are 20 seconds


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
async def test_a_download_needs_no_more_memory_than_a_little(serve, transport, ask, framing):
    size, chunk = 16 * MIB, b"x" * 65536
    head = {
        "length": b"Content-Length: %d\r\n" % size,
        "chunked": b"Transfer-Encoding: chunked\r\n",
        "close": b"",
    }

    async def script(peer):
        await peer.head()
        await peer.send(b"HTTP/1.1 200 OK\r\n" + head[framing] + b"\r\n")
        for _ in range(size // len(chunk)):
            await peer.send(b"%x\r\n%b\r\n" % (len(chunk), chunk) if framing == "chunked" else chunk)
        if framing == "chunked":
            await peer.send(b"0\r\n\r\n")

    origin = await serve(script)
    tracemalloc.start()
    response = await transport.handle_async_request(ask(origin))
    await asyncio.sleep(0.1)  # nobody reads yet, and the origin must stop
    received = 0
    async for content in response.stream:
        received += len(content)
        if received < 4 * MIB:
            await asyncio.sleep(0.001)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert received == size
    assert peak < 4 * MIB


@pytest.mark.parametrize("framing", [(b"content-length", b"16777216"), (b"transfer-encoding", b"chunked")])
async def test_an_upload_needs_no_more_memory_than_a_little(serve, answered, framing):
    size, chunk = 16 * MIB, b"x" * 65536

    async def script(peer):
        await peer.head()
        received, last = 0, b""
        await asyncio.sleep(0.05)
        while not last.endswith(b"0\r\n\r\n") if framing[1] == b"chunked" else received < size:
            last = await peer.reader.read(65536)
            if not last:  # the client has left
                return
            received += len(last)
        await peer.answer(b"%d" % received)

    async def content():
        for _ in range(size // len(chunk)):
            yield chunk

    origin = await serve(script)
    tracemalloc.start()
    status, received = await answered(origin, method="PUT", fields=[framing], content=content())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert status == 200
    assert int(received) >= size
    assert peak < 4 * MIB


@pytest.mark.parametrize("stage", ["head", "content", "upload", "expect"])
async def test_a_cancelled_request_closes_its_connection(serve, answered, transport, eventually, stage):
    async def script(peer):
        await peer.head()
        if stage == "content":
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
        await peer.forever()

    async def content():
        yield b"hel"
        await asyncio.Event().wait()

    fields = [(b"content-length", b"5")] if stage in ("upload", "expect") else []
    if stage == "expect":
        fields.append((b"expect", b"100-continue"))
    origin = await serve(script)
    before = len(asyncio.all_tasks())
    for _ in range(3):
        task = asyncio.ensure_future(answered(origin, method="PUT", fields=fields, content=content()))
        await eventually(lambda: origin.open == 1)
        await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: origin.open == transport.connections == 0)
    assert len(asyncio.all_tasks()) == before


async def test_cancelling_while_connecting_leaves_nothing(serve, answered, transport, eventually):
    origin = await serve(echo)
    before = open_files()
    await answered(origin)
    for turns in range(30):
        tasks = [asyncio.ensure_future(answered(origin)) for _ in range(3)]
        for _ in range(turns % 10):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await transport.aclose()
    await eventually(lambda: origin.open == 0 and open_files() <= before)


async def test_aclose_ends_requests_and_who_waits(serve, answered, make_transport, eventually):
    async def script(peer):
        await peer.head()
        await peer.forever()

    origin = await serve(script)
    transport = make_transport(max_connections=2)
    tasks = [asyncio.ensure_future(answered(origin, by=transport)) for _ in range(5)]
    await eventually(lambda: origin.open == 2)
    await transport.aclose()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(outcome, httpx.TransportError) for outcome in outcomes)
    await eventually(lambda: origin.open == transport.connections == 0)
