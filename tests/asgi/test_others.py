"""What one client's request does to the others that ask for the same: nothing."""

import asyncio

from univocal import MemoryStore


async def together(application, *asked):
    """Start requests in this order, hold the first one's answer until all wait, and give what they get."""
    application.gate = asyncio.Event()
    before = application.count
    tasks = [asyncio.ensure_future(asked[0])]
    await application.reached(before + 1)
    tasks += [asyncio.ensure_future(each) for each in asked[1:]]
    for _ in range(30):
        await asyncio.sleep(0)
    application.gate.set()
    return await asyncio.gather(*tasks)


async def test_fields_that_must_not_be_stored_are_not_shared(cached, application):
    application.fields = [
        (b"cache-control", b'max-age=60, private="x-user, set-cookie"'),
        (b"x-user", b"leader"),
        (b"set-cookie", b"session=LEADER"),
    ]
    ask = cached(rules=None)
    leader, follower = await together(application, ask("/a"), ask("/a"))
    assert leader["x-user"] == "leader"
    if "collapsed" in follower.handling:
        assert (follower["x-user"], follower["set-cookie"]) == ("", "")


async def test_what_slow_clients_still_read_counts(cached, client_of, application):
    store = MemoryStore(max_bytes=4 << 20, max_object_bytes=1 << 20)
    ask = cached(store=store)
    stuck = asyncio.Event()
    inner = ask.app

    async def unread(scope, receive, send):
        async def blocked(message):
            if message["type"] == "http.response.body":
                await stuck.wait()

        await inner(scope, receive, blocked)

    tasks = []
    for number in range(5):
        application.body = b"%d" % number * (900 << 10)
        tasks.append(asyncio.ensure_future(client_of(unread)(f"/{number}")))
        for _ in range(60):
            await asyncio.sleep(0)
    assert 0 < store.stats.lent <= 1 << 20
    assert store.stats.bytes + store.stats.lent <= 4 << 20
    assert store.stats.reserved == 0
    stuck.set()
    await asyncio.gather(*tasks)
    assert store.stats.lent == 0


async def test_a_304_that_nobody_asked_for_is_an_error(cached, application, clock):
    application.fields = [(b"cache-control", b"max-age=1, must-revalidate"), (b"etag", b'"a"')]
    ask = cached()
    await ask("/a")
    clock.now += 5
    application.script = lambda scope: (304, [(b"etag", b'"b"')], b"")
    refused = await ask("/a")
    assert (refused.status, refused.problem["reason"]) == (502, "origin-bad-response")
    assert application.count == 3
