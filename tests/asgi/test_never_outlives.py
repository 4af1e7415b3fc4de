"""Whatever happens in whatever order: what was fetched before a purge is not served to who asks after it."""

import asyncio

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support import Clock
from univocal import CacheMiddleware
from univocal.judge.profiles import builtin_profiles

PROFILE = builtin_profiles()["asgi"]

LIFETIMES = [b"max-age=60", b"max-age=0", b"no-cache", b"no-store", b"max-age=1, stale-if-error=600"]
FIELDS = [
    [],
    [("accept-language", "ru")],
    [("if-none-match", '"1"')],
    [("range", "bytes=0-0")],
    [("cache-control", "no-cache")],
    [("cache-control", "max-stale")],
    [("authorization", "x")],
]
STEPS = st.one_of(
    st.tuples(st.just("get"), st.sampled_from(["GET", "HEAD"]), st.sampled_from(FIELDS)),
    st.tuples(st.just("answer"), st.integers(0, 5)),
    st.tuples(st.just("fail"), st.integers(0, 5)),
    st.tuples(st.just("cut"), st.integers(0, 5)),
    st.tuples(st.just("leave"), st.integers(0, 5)),
    st.tuples(st.just("write"), st.sampled_from(["url", "tag", "post", "soft", "both"])),
    st.tuples(st.just("control"), st.sampled_from(LIFETIMES), st.booleans(), st.booleans()),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 2, 100])),
)
# Without range requests, and without what may be served stale: the content alone tells which version it is.
PLAIN = STEPS.filter(lambda step: step[-1] not in ("soft", [("cache-control", "max-stale")]))
PLAIN = PLAIN.filter(lambda step: step[-1] != [("range", "bytes=0-0")])


class Book:
    """An application with one page that has versions; each answer is held until it is let go."""

    def __init__(self, tag=None):
        self.version, self.tag = 1, tag
        self.control, self.varies, self.streams = b"max-age=60", False, False
        self.held = []
        self.free = False

    async def __call__(self, scope, receive, send):
        fields = dict(scope["headers"])
        if scope["method"] == "POST":
            self.version += 1
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        version = b"%d" % self.version
        head = [
            (b"cache-control", self.control),
            (b"surrogate-key", b"book"),
            (b"etag", self.tag or b'"%b"' % version),
            *([(b"vary", b"accept-language")] if self.varies else []),
        ]
        same = fields.get(b"if-none-match") == (self.tag or b'"%b"' % version)
        start = {"type": "http.response.start", "status": 304 if same else 200, "headers": head}
        early = self.streams
        if early:
            await send(start)
        if not self.free:
            gate = asyncio.get_running_loop().create_future()
            self.held.append(gate)
            match await gate:
                case "fail":
                    raise ConnectionError
                case "cut":
                    return
        if not early:
            await send(start)
        await send({"type": "http.response.body", "body": b"" if same else version})

    def let_go(self, index, answer):
        if self.held:
            gate = self.held.pop(index % len(self.held))
            if not gate.done():
                gate.set_result(answer)


class History:
    """Carries the steps out, and keeps of each request what it may be answered with at least."""

    def __init__(self, client_of, clock, idle, tag=None):
        self.book, self.clock, self.idle = Book(tag), clock, idle
        self.client = client_of(CacheMiddleware(self.book, PROFILE, clock=clock))
        self.least = 1
        self.asked = []

    async def step(self, kind, *how):
        match kind, *how:
            case "get", method, fields:
                leave = asyncio.Event()
                task = asyncio.create_task(self.client("/book", method, fields, leave=leave))
                self.asked.append((task, leave, self.least))
            case (("answer" | "fail" | "cut"), index):
                self.book.let_go(index, kind)
            case "leave", index if self.asked:
                self.asked[index % len(self.asked)][1].set()
            case "write", by:
                await self.write(by)
            case "control", control, varies, streams:
                self.book.control, self.book.varies, self.book.streams = control, varies, streams
            case "wait", seconds:
                self.clock.now += seconds
        await self.idle()

    async def write(self, by):
        if by == "post":
            await self.client("/book", "POST")
        else:
            self.book.version += 1
            target = "/b%6fok" if by != "tag" else "/elsewhere"
            fields = {"tag": [("surrogate-key", "book")], "soft": [("soft-purge", "1")]}.get(by, [])
            await self.client(target, "PURGE", fields)
            if by == "both":
                await self.client("/book", "PURGE", [("xkey", "book")])
        self.least = self.book.version

    async def end(self):
        self.book.free = True
        while self.book.held:
            self.book.let_go(0, "answer")
            await self.idle()
        tasks = [task for task, _, _ in self.asked]
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)


def is_cut(answer):
    """An answer that the application has cut short: before its head, that is a 502."""
    return isinstance(answer, ConnectionError) or not answer.complete or answer.status == 502


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=120)
@given(steps=st.lists(STEPS, max_size=25))
def test_nothing_outlives_a_purge(client_of, idle, impatient, steps):
    async def live():
        history = History(client_of, Clock(), idle)
        for step in steps:
            await history.step(*step)
        answers = await history.end()
        for (_, _, least), answer in zip(history.asked, answers, strict=True):
            if is_cut(answer):
                continue
            soft = any(step == ("write", "soft") for step in steps)
            said = int(answer["etag"].strip('"')) if answer["etag"] else int(answer.body)
            stale = "detail" in answer["cache-status"] or "max-stale" in str(steps)
            assert said >= least or (soft and stale), (answer, least)
        await history.idle()
        last = await history.client("/book")
        assert last.status == 200
        assert history.client.app.store.stats.reserved == 0

    asyncio.run(live())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=120)
@given(steps=st.lists(PLAIN, max_size=25))
def test_nothing_outlives_a_purge_though_its_entity_tag_still_holds(client_of, idle, impatient, steps):
    async def live():
        history = History(client_of, Clock(), idle, b'"always"')
        for step in steps:
            await history.step(*step)
        answers = await history.end()
        for (_, _, least), answer in zip(history.asked, answers, strict=True):
            if not is_cut(answer) and answer.body:
                assert int(answer.body) >= least, (answer, least)
        assert int((await history.client("/book")).body) == history.book.version

    asyncio.run(live())
