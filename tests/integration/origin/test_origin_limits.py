"""What is bounded: connections, time, memory; and what cancelling and closing leave behind."""

import asyncio
import time
import tracemalloc

import httpx
import pytest

from univocal.origin.failures import ClosedError

MIB = 1024 * 1024


async def echo(peer):
    while True:
        head = await peer.head()
        await peer.answer(head + await peer.content())


def gated(gate):
    async def script(peer):
        while True:
            await peer.head()
            await gate.wait()
            await peer.answer(b"ok")

    return script


async def test_no_more_connections_than_allowed(serve, answered, make_transport):
    async def script(peer):
        while True:
            await peer.head()
            seen.append(peer.origin.open)
            await asyncio.sleep(0.001)
            await peer.answer(b"ok")

    seen = []
    origin = await serve(script)
    transport = make_transport(max_connections=3)
    answers = await asyncio.gather(*(answered(origin, by=transport) for _ in range(50)))
    assert answers == [(200, b"ok")] * 50
    assert max(seen) == 3 == origin.accepted == transport.connections


async def test_who_waited_longest_is_served_first(serve, answered, make_transport):
    gate = asyncio.Event()
    origin = await serve(gated(gate))
    transport = make_transport(max_connections=1)
    targets = [b"/%d" % number for number in range(10)]
    async with asyncio.TaskGroup() as clients:
        for target in targets:
            clients.create_task(answered(origin, target, by=transport))
        await asyncio.sleep(0.01)
        gate.set()
    assert [head.split()[1] for head in origin.heads] == targets


async def test_pool_timeout(serve, answered, make_transport):
    gate = asyncio.Event()
    origin = await serve(gated(gate))
    transport = make_transport(max_connections=1)
    first = asyncio.ensure_future(answered(origin, by=transport))
    await asyncio.sleep(0.01)
    for _ in range(3):
        with pytest.raises(httpx.PoolTimeout):
            await answered(origin, by=transport, timeout={"pool": 0.01})
    assert not next(iter(transport.origin_connections._pools.values()))._waiting
    gate.set()
    assert await first == await answered(origin, by=transport) == (200, b"ok")
    assert origin.accepted == 1


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


async def test_a_failed_connection_makes_room(serve, answered, make_transport):
    async def refuse(peer):
        await peer.head()

    origin = await serve(refuse)
    transport = make_transport(max_connections=1)
    outcomes = await asyncio.gather(
        *(answered(origin, by=transport, method="POST") for _ in range(5)), return_exceptions=True
    )
    assert [type(outcome.__cause__) for outcome in outcomes] == [ClosedError] * 5
    assert origin.accepted == 5


async def test_a_dead_idle_connection_makes_room_for_the_retry(serve, answered, make_transport):
    async def script(peer):
        await peer.head()
        await asyncio.sleep(0.01)
        await peer.answer(b"ok")
        if peer.origin.accepted <= 3:
            await peer.head()
        else:
            await peer.forever()

    origin = await serve(script)
    transport = make_transport(max_connections=3)
    await asyncio.gather(*(answered(origin, by=transport) for _ in range(3)))
    assert await answered(origin, by=transport, timeout=1.0) == (200, b"ok")
    assert transport.connections <= 3


async def test_idle_connections_grow_old(serve, answered, make_transport, eventually):
    origin = await serve(echo)
    transport = make_transport(idle_timeout=0.2)
    await asyncio.gather(*(answered(origin, by=transport) for _ in range(3)))
    assert transport.connections == 3
    began = time.monotonic()
    while transport.connections > 1:  # one is kept young
        await answered(origin, by=transport)
        await asyncio.sleep(0.005)
    assert 0.15 < time.monotonic() - began < 10
    assert origin.accepted == 3
    await eventually(lambda: origin.open == transport.connections == 0)


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
    assert 0.045 < time.monotonic() - began < 5


async def test_read_timeout_is_between_reads(serve, answered):
    async def script(peer):
        await peer.head()
        await peer.send(b"HTTP/1.1 102 Processing\r\n\r\n")
        await asyncio.sleep(0.06)
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
        for _ in range(5):
            await asyncio.sleep(0.06)
            await peer.send(b"x")

    assert await answered(await serve(script), timeout={"read": 0.3}) == (200, b"xxxxx")


async def test_a_slow_reader_is_no_slow_origin(serve, transport, ask):
    origin = await serve(echo)
    response = await transport.handle_async_request(ask(origin, timeout={"read": 0.2}))
    await asyncio.sleep(0.25)
    assert (await response.aread()).startswith(b"GET / ")

    async def script(peer):
        await peer.head()
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\nab")
        await asyncio.sleep(0.25)
        await peer.send(b"cd")

    response = await transport.handle_async_request(ask(await serve(script), timeout={"read": 0.2}))
    stream = aiter(response.stream)
    assert await anext(stream) == b"ab"
    await asyncio.sleep(0.3)
    assert await anext(stream) == b"cd"


async def test_a_slow_sender_is_no_slow_origin(serve, answered):
    async def content():
        for _ in range(3):
            await asyncio.sleep(0.08)
            yield b"ab"

    origin = await serve(echo)
    fields = [(b"content-length", b"6")]
    _, echoed = await answered(
        origin, method="PUT", fields=fields, content=content(), timeout={"read": 0.2, "write": 0.2}
    )
    assert echoed.endswith(b"ababab")


async def test_after_the_content_the_response_is_due(serve, answered):
    async def script(peer):
        await peer.head()
        await peer.content()
        await peer.forever()

    origin = await serve(script)
    fields = [(b"content-length", b"2")]
    with pytest.raises(httpx.ReadTimeout):
        await answered(origin, method="PUT", fields=fields, content=[b"ab"], timeout={"read": 0.03})


async def test_large_content_is_under_way_until_taken(serve, answered):
    size = 32 * MIB  # more than the kernel's buffers hold

    async def script(peer):
        await peer.head()
        await asyncio.sleep(1.5)
        await peer.reader.readexactly(size)
        await peer.answer(b"ok")

    answer = await answered(
        await serve(script), method="PUT", fields=[(b"content-length", b"%d" % size)], content=[b"x" * size],
        timeout={"read": 1.0},
    )  # fmt: skip
    assert answer == (200, b"ok")


async def test_write_timeout(serve, answered, eventually):
    over = asyncio.Event()

    async def script(peer):
        await peer.head()
        await over.wait()

    async def endless():
        while True:
            yield b"x" * 65536

    origin = await serve(script)
    fields = [(b"transfer-encoding", b"chunked")]
    with pytest.raises(httpx.WriteTimeout):
        await answered(origin, method="PUT", fields=fields, content=endless(), timeout={"write": 0.05})
    over.set()
    await eventually(lambda: origin.open == 0)


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
async def test_a_download_needs_no_more_memory_than_a_little(serve, transport, ask, framing):
    size, chunk = 64 * MIB, b"x" * 65536
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


async def test_a_slow_reader_slows_the_origin(serve, transport, ask):
    sent = 0

    async def script(peer):
        nonlocal sent
        await peer.head()
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await peer.send(b"x" * 65536)
            sent += 65536

    response = await transport.handle_async_request(ask(await serve(script)))
    before = -1
    while sent != before:  # until the kernel's buffers are full
        before = sent
        await asyncio.sleep(0.1)
    assert sent < 40 * MIB
    stream = aiter(response.stream)
    for _ in range(2000):
        await anext(stream)
    assert sent > before
    await response.aclose()


@pytest.mark.parametrize("framing", [(b"content-length", b"67108864"), (b"transfer-encoding", b"chunked")])
async def test_an_upload_needs_no_more_memory_than_a_little(serve, answered, framing):
    size, chunk = 64 * MIB, b"x" * 65536

    async def script(peer):
        await peer.head()
        received, last = 0, b""
        await asyncio.sleep(0.05)
        while not last.endswith(b"0\r\n\r\n") if framing[1] == b"chunked" else received < size:
            last = await peer.reader.read(65536)
            received += len(last)
        await peer.answer(b"%d" % received)

    async def content():
        for _ in range(size // len(chunk)):
            yield chunk

    origin = await serve(script)
    tracemalloc.start()
    status, received = await answered(origin, method="PUT", fields=[framing], content=content(), timeout=5.0)
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


async def test_cancelling_while_connecting_leaves_nothing(serve, answered, transport, open_files, eventually):
    origin = await serve(echo)
    await answered(origin)
    before = open_files()
    for turns in range(30):
        tasks = [asyncio.ensure_future(answered(origin)) for _ in range(3)]
        for _ in range(turns % 10):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await transport.aclose()
    await eventually(lambda: origin.open == 0 and open_files() <= before - 2)


async def test_closing_a_response_early_closes_its_connection(serve, answered, transport, ask, eventually):
    async def script(peer):
        await peer.head()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
        await peer.forever()

    origin = await serve(script)
    for _ in range(3):
        response = await transport.handle_async_request(ask(origin))
        await response.aclose()
        await eventually(lambda: origin.open == transport.connections == 0)
        with pytest.raises(httpx.ReadError):
            await anext(aiter(response.stream))


async def test_closing_a_complete_response_does_not(serve, transport, ask):
    origin = await serve(echo)
    for _ in range(3):
        response = await transport.handle_async_request(ask(origin))
        await response.aclose()
    assert origin.accepted == transport.connections == 1


async def test_a_late_response_does_not_meet_the_next(serve, transport, ask):
    origin = await serve(echo)
    first = await transport.handle_async_request(ask(origin, b"/first"))
    second = await transport.handle_async_request(ask(origin, b"/second"))
    assert origin.accepted == 1
    assert (await second.aread()).startswith(b"GET /second ")
    assert (await first.aread()).startswith(b"GET /first ")
    await first.aclose()
    assert transport.connections == 1


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


async def test_after_aclose_a_transport_begins_anew(serve, answered, transport):
    origin = await serve(echo)
    await answered(origin)
    await transport.aclose()
    await answered(origin)
    assert origin.accepted == 2


async def test_timers_do_not_pile_up(serve, answered):
    loop = asyncio.get_running_loop()
    if not hasattr(loop, "_scheduled"):
        pytest.skip("only asyncio's own loop shows its timers")
    origin = await serve(echo)
    for _ in range(200):
        await answered(origin)
    assert len(loop._scheduled) < 10


async def test_a_head_of_the_size_that_is_allowed(serve, answered, make_transport):
    async def script(peer):
        await peer.head()
        await peer.answer(b"ok", b"X: " + b"y" * 500)

    origin = await serve(script)
    assert await answered(origin, by=make_transport(max_head=600)) == (200, b"ok")
    with pytest.raises(httpx.RemoteProtocolError, match="too large"):
        await answered(origin, by=make_transport(max_head=400))
