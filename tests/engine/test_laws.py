"""Laws of an exchange, for every order of events at the client, the origin, the store and the clock.

No event loop: one step is one call, so that every order of calls is reached.
"""

from contextlib import contextmanager
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from examples import any_of, examples
from neighbours import HOST, PlayedClient, Proxy, SlowTier
from univocal.engine.broadcast import Broadcast
from univocal.engine.exchange import Following, Holding, Recalling, Relaying
from univocal.engine.flight import Failed, Flight
from univocal.http.errors import RefusedError
from univocal.http.messages import values
from univocal.store.memory import MemoryStore

TARGETS = [b"/a", b"/b"]
CHUNK = 40
CHUNKS = 4
CONTROLS = [
    b"max-age=60",
    b"max-age=0",
    b"no-cache",
    b"no-store",
    b"max-age=1, stale-if-error=600",
    b"max-age=1, stale-while-revalidate=600",
]
FIELDS = [
    [],
    [],
    [(b"accept-language", b"ru")],
    [(b"if-none-match", b'"/a:1:"')],
    [(b"range", b"bytes=0-9")],
    [(b"range", b"bytes=50-")],
    [(b"cache-control", b"no-cache")],
    [(b"authorization", b"x")],
]
# Stored responses of the first page when a life begins, two seconds ago.
BEGUN = [None, *CONTROLS, b"part", b"elsewhere"]
CLIENTS = st.tuples(any_of(None, None, 1, 2), any_of(None, None, None, 1, 2, 3, 4))
INDEX = st.integers(0, 6)
STEPS = st.one_of(
    st.just(("wait", 0)),  # what steps that do not matter shrink to
    st.tuples(
        st.just("ask"),
        any_of(*TARGETS[:1] * 4, *TARGETS),
        any_of(b"GET", b"GET", b"GET", b"GET", b"HEAD", b"POST"),
        st.sampled_from(FIELDS),
        CLIENTS,
    ),
    st.tuples(st.just("answer"), INDEX, st.integers(1, CHUNKS + 3)),
    st.tuples(st.just("answer"), INDEX, st.just(1)),
    st.tuples(st.just("store"), INDEX),
    st.tuples(st.just("store"), INDEX),
    st.tuples(st.just("fail"), INDEX, st.booleans()),
    st.tuples(st.just("resume"), INDEX),
    st.tuples(st.just("leave"), INDEX),
    st.tuples(
        st.just("control"), st.sampled_from(CONTROLS), st.booleans(), any_of(200, 200, 200, 500, 304, 416)
    ),
    st.tuples(st.just("change"), any_of("purge", "soft", "silently")),
    st.tuples(st.just("wait"), any_of(0.5, 2, 6, 60)),
    st.tuples(st.just("at_once"), st.integers(0, CHUNKS + 3)),
)


def content_of(target, version, language):
    piece = b"%b %d %b|" % (target, version, language)
    return (piece * 100)[: CHUNK * CHUNKS]


class Page:
    """The origin's side: pages with versions, whose answers come step by step."""

    def __init__(self, proxy):
        self.proxy = proxy
        self.version = 1
        self.control, self.varies, self.status = b"max-age=60", False, 200
        self.at_once = 0
        self.steps = {}
        proxy.origin.script = self.asked

    def asked(self, asked):
        self.steps[asked] = self.plan(asked)
        self.answer(asked, self.at_once)

    def plan(self, asked):
        request = asked.request
        target = request.target
        language = (asked.field(b"accept-language") or b"") if self.varies else b""
        tag = b'"%b:%d:%b"' % (target, self.version, language)
        content = content_of(target, self.version, language)
        head = [(b"cache-control", self.control), (b"etag", tag)]
        if self.varies:
            head.append((b"vary", b"accept-language"))
        status, body = 200, content
        if request.method == b"POST":
            self.version += 1
            status, head, body = 200, [(b"version", b"%d" % self.version)], b"done" * CHUNK
        elif self.status != 200:
            status, body = self.status, b"" if self.status == 304 else b"ill"
        elif asked.field(b"if-none-match") == tag:
            status, body = 304, b""
        elif (ranges := asked.field(b"range")) and asked.field(b"if-range") in {None, tag}:
            first, _, last = ranges.removeprefix(b"bytes=").partition(b"-")
            begin, end = int(first), min(int(last or len(content) - 1), len(content) - 1)
            status, body = 206, content[begin : end + 1]
            head.append((b"content-range", b"bytes %d-%d/%d" % (begin, end, len(content))))
        if request.method == b"HEAD":
            body = b""
        pieces = [body[i : i + CHUNK] for i in range(0, len(body), CHUNK)]
        chunks = [("write", piece) for piece in pieces]
        return [("interim", None), ("start", (status, head)), *chunks, ("finish", None)]

    def answer(self, asked, count):
        """Say so much of an answer, in one go; False if there is nothing to be said, or it is not taken."""
        steps = self.steps[asked]
        if not (asked.live and asked.takes and steps and count):
            return False
        for _ in range(count):
            if steps:
                kind, what = steps.pop(0)
                match kind:
                    case "interim":
                        asked.interim()
                    case "start":
                        asked.start(*what)
                    case "write":
                        asked.write(what)
                    case "finish":
                        asked.finish()
        return True

    @property
    def live(self):
        return [asked for asked in self.proxy.origin.asked if asked.live]


class Life:
    """Carries the steps out."""

    def __init__(self, begun, *, slow, room):
        store = MemoryStore(max_bytes=12_000, max_object_bytes=room)
        slowly = ("fill", "keeps", "recall", "end", "invalidate")
        self.proxy = Proxy(SlowTier(store, slowly) if slow else None, store=store)
        self.page = Page(self.proxy)
        self.least = dict.fromkeys(TARGETS, 1)  # what was purged, or replaced, is older than these versions
        self.asked = []
        self.followed = {}
        if begun is not None:
            self.begin(begun)

    def begin(self, begun):
        """Store a response, or the first octets of one, here or on another node."""
        self.control(b"max-age=60" if begun in {b"part", b"elsewhere"} else begun, False, 200)
        self.at_once(CHUNKS + 3)
        self.ask(TARGETS[0], b"GET", [(b"range", b"bytes=0-9")] if begun == b"part" else [], (None, None))
        self.end()
        if begun == b"elsewhere" and isinstance(self.proxy.tiers, SlowTier):
            self.proxy.tiers.elsewhere += self.proxy.store.lookup(self.proxy.key(TARGETS[0]))
            self.proxy.purge(TARGETS[0])
        self.at_once(0)
        self.wait(2)

    def step(self, kind, *how):
        getattr(self, kind)(*how)
        self.check()

    def ask(self, target, method, fields, client):
        asking = PlayedClient(*client)
        self.asked.append((asking, target, fields, self.least[target]))
        self.proxy.ask(target, method, *fields, client=asking)

    def answer(self, index, count):
        if live := self.page.live:
            self.page.answer(live[index % len(live)], count)

    def store(self, index):
        if isinstance(self.proxy.tiers, SlowTier) and self.proxy.tiers.waiting:
            self.proxy.tiers.go_on(index=index)

    def fail(self, index, refused):
        if live := self.page.live:
            error = RefusedError("origin-unreachable") if refused else ConnectionError()
            live[index % len(live)].fail(error)

    def resume(self, index):
        if clients := self.proxy.clients:
            clients[index % len(clients)].resume()

    def leave(self, index):
        if clients := self.proxy.clients:
            clients[index % len(clients)].leave()

    def control(self, control, varies, status):
        self.page.control, self.page.varies, self.page.status = control, varies, status

    def change(self, told):
        self.page.version += 1
        if told in {"purge", "soft"}:
            for target in TARGETS:
                self.proxy.purge(target, soft=told == "soft")
                if told == "purge":
                    self.least[target] = self.page.version

    def wait(self, seconds):
        self.proxy.clock.pass_time(seconds)

    def at_once(self, count):
        self.page.at_once = count

    def end(self):
        """Bring everything to its end: no request waits for a timer, or leaves."""
        progress = True
        while progress:
            progress = False
            if isinstance(self.proxy.tiers, SlowTier) and self.proxy.tiers.waiting:
                self.proxy.tiers.go_on()
                progress = True
            for asked in self.page.live:
                progress = self.page.answer(asked, 2) or progress
            for client in self.proxy.clients:
                if client.full and not client.state:
                    client.resume()
                    progress = True
            self.check()
        self.proxy.assert_nothing_is_left()

    def check(self):
        for asked in self.page.live:
            flight = asked.answer
            assert isinstance(flight, Flight)
            assert flight.unattended or flight.is_read, "the origin answers nobody"
        for flight in self.proxy.flights.named.values():
            assert not isinstance(flight.landing, Failed), "a failure is to be joined"
            reading = flight.reading
            assert not isinstance(reading, Broadcast) or reading.error is None, (
                "half a response is to be joined"
            )
        for client, target, fields, least in self.asked:
            if told := values(client.fields, b"version"):
                self.least[target] = max(self.least[target], int(told[0]))
            self.check_client(client, target, fields, least)
            self.check_wait(client, fields)
        for target in TARGETS:
            for stored in self.proxy.store.lookup(self.proxy.key(target)):
                self.check_stored(target, stored)

    def check_wait(self, client, fields):
        """A client waits for one answer to another's at most: a range for the first's, and for the whole."""
        exchange, followed = client.exchange, self.followed.setdefault(client, set())
        step = exchange.state.waiting if isinstance(exchange.state, Recalling) else exchange.state
        relays = isinstance(step, Relaying) and exchange.account.handling.collapsed
        if relays or isinstance(step, Following | Holding):
            followed.add(step.flight)
        assert len(followed) <= 1 + any(name == b"range" for name, _ in fields)

    def check_client(self, client, target, fields, least):
        tag = values(client.fields, b"etag")
        if client.status not in {200, 206} or not tag:
            return
        path, version, language = tag[0].strip(b'"').split(b":")
        assert path == target
        assert int(version) >= least
        whole = content_of(target, int(version), language)
        if values(client.fields, b"vary"):
            assert language == (dict(fields).get(b"accept-language", b""))
        if client.status == 206:
            told = values(client.fields, b"content-range")[0].removeprefix(b"bytes ").partition(b"/")[0]
            first, last = map(int, told.split(b"-"))
            whole = whole[first : last + 1]
        assert whole.startswith(client.body)
        if client.state == "finished" and client.exchange.admission.request.method == b"GET":
            assert client.body == whole

    def check_stored(self, target, stored):
        assert stored.key.endswith(b" http %b %b" % (HOST, target))
        tag = values(stored.fields, b"etag")
        if not tag or stored.status not in {200, 206}:
            return
        path, version, language = tag[0].strip(b'"').split(b":")
        assert path == target
        whole = content_of(target, int(version), language)
        if stored.part is None:
            assert stored.body == (b"" if stored.bodiless else whole)
        else:
            assert stored.body in whole


@contextmanager
def small_windows():
    """A piece of a stored response is smaller than all of it, and a reader soon is far behind."""
    with (
        patch("univocal.engine.flight.WINDOW", 60),
        patch("univocal.engine.broadcast.FAR_BEHIND", 100),
        patch("univocal.engine.exchange.WINDOW", 60),
    ):
        yield


@settings(max_examples=examples(300))
@given(
    steps=st.lists(STEPS, min_size=20, max_size=50),
    begun=st.sampled_from(BEGUN),
    slow=st.booleans(),
    room=any_of(6_000, 6_000, 1_200, 250),
)
def test_every_exchange_ends_once_and_nothing_is_left(steps, begun, slow, room):
    with small_windows():
        life = Life(begun, slow=slow, room=room)
        for step in steps:
            life.step(*step)
        life.end()
