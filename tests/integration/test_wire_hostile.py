"""One client's bytes keep no other waiting: over sockets, with operations counted instead of time."""

import asyncio
import json
import sys
from dataclasses import replace

import pytest

from examples import cases
from tests.integration.conftest import direct
from univocal import CacheMiddleware, ReverseProxy
from univocal.cache.rules import Rules
from univocal.judge.profiles import builtin_profiles
from univocal.judge.runtime import Runtime
from univocal.origin.client_library import OriginTransport

VARIANTS = 64
CEILING = 20_000  # calls, of Python's and of C's, both ends of the wire included: a few milliseconds


class Iterations:
    """Counts the operations of each iteration of the loop: others wait for the longest."""

    def __init__(self):
        self.longest = self._count = 0

    def __call__(self, frame, event, _):
        self._count += event in {"call", "c_call"}
        self.longest = max(self.longest, self._count)
        if event == "call" and frame.f_code.co_name == "_run_once":
            self._count = 0

    def __enter__(self):
        sys.setprofile(self)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)


@pytest.fixture(params=["direct", "asgi"])
async def proxy(request, serve, origin, reply):
    def answer(asked):
        name = "Accept-Language" if b"lang" in asked.target else "Accept-Encoding"
        told = [f"Content-Language: {asked[name.lower()]}"] if "lang" in asked.target.decode() else []
        value = asked[name.lower()].encode()
        return bytes(reply(value[:20], "Cache-Control: max-age=600", f"Vary: {name}", *told))

    origin.answer = answer
    forwarding = ReverseProxy(f"http://127.0.0.1:{origin.port}", OriginTransport())
    runtime = Runtime.everywhere(builtin_profiles()["asgi"], Rules(accept_encoding="keep"))
    app = CacheMiddleware(forwarding, runtime=runtime)
    yield await serve(app, **({"http": direct(app, forwarding)} if request.param == "direct" else {}))
    await forwarding.aclose()


@cases(
    "path, name, member",
    ("/lang", "Accept-Language", "a,"),
    ("/lang", "Accept-Language", "a;q=0.5,"),
    ("/code", "Accept-Encoding", "a,"),
    ("/code", "Cache-Control", "a,"),
    ("/code", "If-None-Match", '"",'),
    ("/code", "Cookie", "a=b;"),
    ("/code", "Connection", "a,"),
    ("/code", "Connection", "a#,"),
    ("/code", "X-Forwarded-For", "1,"),
    ("/code", "Range", "0-1,"),
)
async def test_a_hit_never_waits_for_what_another_sends(proxy, path, name, member):
    selecting = "Accept-Language" if path == "/lang" else "Accept-Encoding"
    heads = (f"GET {path} HTTP/1.1\r\nHost: en.example\r\n{selecting}: x{n}\r\n\r\n" for n in range(VARIANTS))
    await proxy.talk("".join(heads).encode(), *["GET"] * VARIANTS)
    long = "".join([member.replace("#", str(number)) for number in range(20_000)])[:60_000]
    with Iterations() as iterations:
        hostile = await proxy.ask(path, f"{name}: {long}")
    assert hostile.status == 200
    assert iterations.longest < CEILING
    with Iterations() as iterations:
        ordinary = await proxy.ask(path, f"{selecting}: x{VARIANTS - 1}")
    assert ordinary.content == b"x%d" % (VARIANTS - 1)
    assert "hit" in ordinary["cache-status"]
    assert iterations.longest < CEILING


MANY = 4_000


def store_many(store, like):
    """Store so many more of such responses."""
    for number in range(MANY):
        lease = store.leases.begin(like.key + b"%d" % number, like.response_time)
        store.commit(lease, replace(like, key=lease.key))
        store.leases.release(lease)


@pytest.mark.parametrize("proxy", ["direct"], indirect=True)  # the engine's work, whoever asks for it
@pytest.mark.parametrize(
    ("line", "gone"), [("xkey-purge: t", MANY), ("xkey-purge: none", 0)], ids=["tag", "nothing"]
)
async def test_a_hit_never_waits_for_a_purge(proxy, line, gone):
    store, first = proxy.app.store, (await proxy.ask("/code")).content
    (one,) = store.lookup(next(iter(store._entries)))
    store_many(store, replace(one, tags=frozenset((b"t",))))
    with Iterations() as iterations:
        answer = await proxy.ask("/", line, method="PURGE")
    assert json.loads(answer.content)["purged"] == gone
    assert iterations.longest < CEILING
    assert store.stats.responses == MANY + 1 - gone
    kept = await proxy.ask("/code")
    assert (kept.content, "hit" in kept["cache-status"]) == (first, True)


@pytest.mark.parametrize("proxy", ["direct"], indirect=True)
@pytest.mark.parametrize(("group", "left"), [('"g"', 1), ('"other"', MANY + 2)], ids=["all", "none"])
async def test_a_hit_never_waits_for_what_a_post_makes_obsolete(proxy, origin, reply, group, left):
    def answer(asked):
        if asked.start.startswith(b"POST"):
            return bytes(reply(b"done", f"Cache-Group-Invalidation: {group}"))
        groups = ['Cache-Groups: "g"'] if asked.target == b"/grouped" else []
        return bytes(reply(b"page", "Cache-Control: max-age=600", *groups))

    origin.answer = answer
    for path in ("/grouped", "/code"):
        await proxy.ask(path)
    store = proxy.app.store
    (one,) = (each for key in list(store._entries) for each in store.lookup(key) if each.tags)
    store_many(store, one)
    with Iterations() as iterations:
        assert (await proxy.ask("/form", method="POST")).content == b"done"
    assert iterations.longest < CEILING
    assert store.stats.responses == left
    assert "hit" in (await proxy.ask("/code"))["cache-status"]


@pytest.mark.parametrize(
    ("length", "status"),
    [(b"1" + b" " * 60_000 + b"1", 502), (b" " * 60_000 + b"4" + b"\t" * 200, 200)],
    ids=["within", "around"],
)
async def test_blanks_in_a_length_keep_nobody_waiting(proxy, origin, length, status):
    """Nor are they counted twice: a minute would pass before the answer, and the test's time with it."""
    await proxy.ask("/code")
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %b\r\nContent-Length: %b\r\n\r\nfour" % (
        length,
        length[-400:],
    )
    origin.answer = lambda _: head
    asked = asyncio.create_task(proxy.ask("/large"))
    ordinary = await proxy.ask("/code")
    assert (await asked).status == status
    assert "hit" in ordinary["cache-status"]


async def test_a_hit_never_waits_for_what_another_pipelines(proxy):
    await proxy.ask("/code")
    one = b"GET /code HTTP/1.1\r\nHost: en.example\r\n\r\n"
    last = one.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with Iterations() as iterations:
        answers = await proxy.talk(one * 300 + last, *["GET"] * 301)
    assert [answer.status for answer in answers] == [200] * 301
    assert all("hit" in answer["cache-status"] for answer in answers)
    assert iterations.longest < CEILING


async def test_chunks_of_one_byte_never_hold_the_event_loop(proxy, origin, reply):
    origin.answer = lambda asked: reply(b"%d" % len(asked.content))
    head = (
        b"POST /form HTTP/1.1\r\nHost: en.example\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    # The first small chunks compile their patterns, once in a process: four milliseconds.
    await proxy.talk(head + b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", "POST")
    with Iterations() as iterations:
        (answer,) = await proxy.talk(head + b"1\r\na\r\n" * 10_000 + b"0\r\n\r\n", "POST")
    assert answer.content == b"10000"
    assert iterations.longest < CEILING


@pytest.mark.parametrize("control", ["no-store", "max-age=60"])
async def test_a_hit_never_waits_for_one_byte_chunks(proxy, origin, control):
    head = f"HTTP/1.1 200 OK\r\nCache-Control: {control}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    chunks = b"".join(b"1\r\n%b\r\n" % b"abcdefghij"[number % 10 :][:1] for number in range(5_000))
    origin.answer = lambda _: head + chunks + b"258\r\n" + b"z" * 600 + b"\r\n1\r\n!\r\n0\r\n\r\n"
    with Iterations() as iterations:
        answer = await proxy.ask("/crumbs")
    assert answer.content == b"abcdefghij" * 500 + b"z" * 600 + b"!"
    assert iterations.longest < CEILING
