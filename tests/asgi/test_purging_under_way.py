"""Purges that come while something is fetched, served or waited for: what was purged does not come back."""

import asyncio

import pytest

from store.model import ModelEntries, ModelPurges, ModelServer, tier_over
from support import RevalidatedPage
from univocal import CacheMiddleware, MemoryStore, Profile
from univocal.store.purge_selectors import Everything

STALE = [("soft-purge", "1")]
SAME = [(b"cache-control", b"max-age=60, stale-if-error=600"), (b"etag", b'"same"')]
NEVER = [(b"cache-control", b"no-store")]


class Origin(RevalidatedPage):
    """Each answer waits for its turn in `turns`, if that is set."""

    turns = None

    def __init__(self, fields=SAME):
        super().__init__(fields)

    async def turn(self, fields):
        if self.turns is not None:
            turn = asyncio.get_running_loop().create_future()
            self.turns.append(turn)
            await turn


@pytest.fixture
def origin():
    return Origin()


@pytest.fixture
async def client(cached, origin):
    """A client of a page that is stored, and stale."""
    client = cached(app=origin)
    await client("/a")
    await client("/a", "PURGE", STALE)
    return client


async def held_back(origin, client, idle, *, requests=1):
    """Requests for the page, of which one waits for the origin."""
    origin.turns = []
    asking = [asyncio.create_task(client("/a")) for _ in range(requests)]
    await idle()
    assert len(origin.turns) == 1
    return asking


@pytest.mark.parametrize(
    "how", [("/a", []), ("/%61", []), ("/", [("surrogate-key", "page")])], ids=["url", "spelling", "tag"]
)
async def test_a_304_freshens_nothing_that_was_purged_meanwhile(cached, origin, idle, how):
    origin.fields = [*SAME, (b"surrogate-key", b"page")]
    client = cached(app=origin)
    await client("/a")
    await client("/a", "PURGE", STALE)
    (asking,) = await held_back(origin, client, idle)
    origin.content = b"new"
    await client(how[0], "PURGE", how[1])
    turns, origin.turns = origin.turns, None
    turns[0].set_result(None)
    answer = await asking
    assert (answer.status, answer.body) == (200, b"new")
    assert origin.asked == [None, b'"same"', None]
    # It was asked for before the purge: so it is not stored, and not said to be.
    assert "stored" not in answer.handling
    assert (await client("/a")).handling >= {"fwd=uri-miss", "stored"}


async def test_a_304_still_freshens_what_was_purged_softly_meanwhile(client, origin, idle):
    (asking,) = await held_back(origin, client, idle)
    await client("/a", "PURGE", STALE)
    origin.turns[0].set_result(None)
    answer = await asking
    assert (answer.body, answer.handling) == (b"old", {"fwd=stale", "fwd-status=304"})


async def test_a_304_still_freshens_what_was_evicted_meanwhile(clock, origin, idle, client_of):
    client = client_of(CacheMiddleware(origin, store=MemoryStore(max_bytes=20_000), clock=clock))
    await client("/a")
    clock.now += 100
    (asking,) = await held_back(origin, client, idle)
    turns, origin.turns = origin.turns, None
    for number in range(50):
        await client(f"/{number}")
    turns[0].set_result(None)
    assert (await asking).handling == {"fwd=stale", "fwd-status=304"}


@pytest.mark.parametrize(("field", "status"), [(STALE, 200), ([], 503)])
async def test_a_response_purged_meanwhile_replaces_no_error(client, origin, idle, field, status):
    first, second = await held_back(origin, client, idle, requests=2)
    origin.status = 503
    await client("/a", "PURGE", field)
    turns, origin.turns = origin.turns, None
    turns[0].set_result(None)
    assert (await first).status == status
    assert (await second).status == status


@pytest.mark.parametrize("then", [200, 503])
async def test_a_vain_waiter_asks_for_nothing_purged_meanwhile(client, origin, idle, then):
    first, second = await held_back(origin, client, idle, requests=2)
    origin.fields, before = NEVER, origin.fields
    await client("/a", "PURGE")
    turns, origin.turns = origin.turns, []
    turns[0].set_result(None)
    await idle()
    # The first one's answer is not for others, so the second asks by itself: after the purge.
    origin.fields, origin.status, origin.content = before, then, b"new"
    while origin.turns:
        origin.turns.pop().set_result(None)
        await idle()
    await first
    answer = await second
    assert answer.status == then
    assert answer.body == b"new"
    assert origin.asked[-1] is None


async def test_a_response_purged_while_served_is_not_refetched(cached, origin, idle):
    """A slow client has its response still when the background's turn comes (RFC 5861 §3)."""
    origin.fields = [(b"cache-control", b"max-age=60, stale-while-revalidate=60"), (b"etag", b'"same"')]
    client = cached(app=origin)
    await client("/a")
    await client("/a", "PURGE", STALE)
    slow, took = asyncio.Event(), []

    async def paced(scope, receive, send):
        async def later(message):
            if message["type"] == "http.response.body" and scope["method"] == "GET" and not took:
                took.append(message)
                await slow.wait()
            await send(message)

        await served(scope, receive, later)

    served, client.app = client.app, paced
    asking = asyncio.create_task(client("/a"))
    await idle()
    origin.content = b"new"
    await client("/a", "PURGE")
    slow.set()
    assert (await asking).body == b"old"  # which it asked for before
    await idle()
    assert (await client("/a")).body == b"new"  # whatever the background was told of the old one


async def test_what_was_purged_meanwhile_is_not_completed(cached, origin, idle):
    whole = b"0123456789"

    async def in_parts(scope, receive, send):
        fields = dict(scope["headers"])
        origin.asked.append(fields.get(b"range"))
        if len(origin.asked) == 2:
            turn = asyncio.get_running_loop().create_future()
            origin.turns = [turn]
            await turn
        first, last = {b"bytes=0-4": (0, 4), b"bytes=5-": (5, 9)}.get(fields.get(b"range"), (0, 9))
        status = 206 if b"range" in fields else 200
        ranged = [(b"content-range", b"bytes %d-%d/10" % (first, last))] if status == 206 else []
        await send({"type": "http.response.start", "status": status, "headers": [*SAME, *ranged]})
        body = origin.content if status == 200 else whole[first : last + 1]
        await send({"type": "http.response.body", "body": body})

    client = cached(app=in_parts)
    await client("/a", fields=[("range", "bytes=0-4")])
    asking = asyncio.create_task(client("/a"))
    await idle()
    origin.content = b"new content"
    await client("/a", "PURGE")
    origin.turns[0].set_result(None)
    answer = await asking
    assert (origin.asked, answer.body) == ([b"bytes=0-4", b"bytes=5-", None], b"new content")


# An unsafe method invalidates its own URI (RFC 9111 §4.4)


@pytest.mark.parametrize("target", ["//a/b", "///x", "//en.example/zz", "/a//b", "//", "/?//a", "/a?//b"])
@pytest.mark.parametrize("profile", ["rfc3986", "mediawiki", "nginx"])
async def test_a_target_that_looks_like_a_reference_is_none(cached, target, profile):
    client = cached(Profile.load(f'extends = "{profile}"\npath.loose = []'))
    await client(target)
    assert "hit" in (await client(target)).handling
    await client(target, "DELETE")
    assert "fwd=uri-miss" in (await client(target)).handling


async def test_a_location_that_begins_with_two_slashes_names_a_host(cached, application):
    client = cached(Profile.load("path.loose = []"))
    await client("//en.example/b")
    await client("/b")
    application.fields = [(b"location", b"//en.example/b")]
    await client("/a", "POST")
    assert "fwd=uri-miss" in (await client("/b")).handling
    assert "hit" in (await client("//en.example/b")).handling


# With a shared store


class Elsewhere(ModelEntries):
    """A store whose other nodes' purges are not heard until a test lets them; `held` is what it has."""

    def __init__(self, server, purges):
        super().__init__(server, purges)
        self.tier = tier_over(self, purges, purges.clock)
        self.trusted_until = float("inf")
        purges.trusted_until = lambda: self.trusted_until

    @property
    def memory(self):
        return self.tier.memory


@pytest.fixture
async def elsewhere(clock):
    server = ModelServer()
    made = Elsewhere(server, ModelPurges(server, clock))
    await made.tier.start()
    return made


@pytest.fixture
def node(elsewhere, origin, clock, client_of):
    return client_of(CacheMiddleware(origin, store=elsewhere.tier, clock=clock))


@pytest.mark.parametrize(
    ("began", "trusted", "asked", "joined"),
    [
        (0, 100, 50, True),
        (0, 10, 50, False),  # what was purged elsewhere since 10 is unknown here
        (0, 10, 10, False),
        (9.9, 10, 10.1, False),
        (20, 10, 21, True),  # a purge of this last second would not be known with trust either
        (20, 10, 30, False),
    ],
)
async def test_an_untrusted_memory_joins_no_earlier_flight(
    node, elsewhere, origin, clock, idle, began, trusted, asked, joined
):
    start = clock.now
    elsewhere.trusted_until = start + trusted
    clock.now = start + began
    first = await held_back(origin, node, idle)
    clock.now = start + asked
    second = asyncio.create_task(node("/a"))
    await idle()
    assert len(origin.asked) == (1 if joined else 2)
    for turn in origin.turns:
        turn.set_result(None)
    await asyncio.gather(*first, second)


async def test_what_memory_has_forgotten_is_validated_by_the_shared_one(node, elsewhere, origin, clock, idle):
    await node("/a")
    await idle()  # until all nodes have it
    clock.now += 100
    elsewhere.memory.purge(Everything(), clock.now)
    assert (await node("/a")).handling >= {"fwd=stale", "fwd-status=304"}


async def test_what_memory_has_forgotten_meanwhile_is_freshened_all_the_same(
    node, elsewhere, origin, clock, idle
):
    await node("/a")
    clock.now += 100
    (asking,) = await held_back(origin, node, idle)
    elsewhere.memory.purge(Everything(), clock.now)  # as another variant of the key is stored elsewhere
    origin.turns[0].set_result(None)
    assert (await asking).handling >= {"fwd=stale", "fwd-status=304"}


async def test_a_response_forgotten_by_memory_is_still_a_fallback(node, elsewhere, origin, clock, idle):
    await node("/a")
    clock.now += 100
    (asking,) = await held_back(origin, node, idle)
    elsewhere.memory.purge(Everything(), clock.now)
    origin.status = 503
    origin.turns[0].set_result(None)
    assert (await asking).body == b"old"
