"""Two doors before one engine and an origin server that is played: see `Door`."""

import re
from types import MappingProxyType

import pytest

from univocal.asgi.middleware import CacheMiddleware
from univocal.asgi.reverse_proxy import ReverseProxy
from univocal.cache.rules import Rules
from univocal.engine.engine import Engine
from univocal.http.forward import request_has_content
from univocal.http.messages import Response
from univocal.judge.admission import Gate
from univocal.judge.profiles import builtin_profiles
from univocal.judge.runtime import Runtime
from univocal.judge.trust import networks
from univocal.server.service import EngineService
from univocal.store.memory import MemoryStore
from univocal.store.tiers import tiers_of
from univocal.uri.site import Route, Site
from univocal.uri.sites import Sites

NOW = 1_790_000_000.0  # September 2026
WARM = NOW - 30  # when what is stored came
DATE = (b"date", b"Mon, 21 Sep 2026 14:12:50 GMT")  # thirty seconds before NOW
HOUR = (b"cache-control", b"max-age=3600")
TEN = b"max-age=10"

# What the origin server answers, by path: status, fields, content in pieces.
PAGES = {
    b"/fresh": (200, [HOUR, (b"content-type", b"text/plain"), (b"etag", b'"f"')], [b"0123456789"]),
    b"/a/b": (200, [HOUR], [b"a/b"]),
    b"/stale": (200, [(b"cache-control", TEN), (b"etag", b'"s"')], [b"stale"]),
    b"/swr": (200, [(b"cache-control", TEN + b", stale-while-revalidate=600")], [b"swr"]),
    b"/no-cache": (200, [(b"cache-control", b"no-cache"), (b"etag", b'"n"')], [b"no-cache"]),
    b"/vary": (200, [HOUR, (b"vary", b"Accept-Encoding, Accept-Language, Cookie")], [b"vary"]),
    b"/lang": (200, [HOUR, (b"vary", b"Accept-Language"), (b"content-language", b"de")], [b"lang"]),
    b"/search": (200, [HOUR, (b"no-vary-search", b'params=("utm")')], [b"search"]),
    b"/tags": (200, [HOUR, (b"cache-tag", b"a, b"), (b"xkey", b"c")], [b"tags"]),
    b"/no-tags": (200, [HOUR, (b"cache-tag", b""), (b"cache-groups", b"(")], [b"no tags"]),
    b"/404": (404, [HOUR], [b"none"]),
    b"/301": (301, [HOUR, (b"location", b"/fresh")], []),
    b"/204": (204, [HOUR], []),
    b"/empty": (200, [HOUR], []),
    b"/big": (200, [HOUR], [b"x" * 65536] * 4 + [b"y" * 45056]),
    b"/large": (200, [HOUR], [b"z" * 9000]),
    b"/streamed": (200, [HOUR, None], [b"in ", b"two"]),
    b"/aged": (200, [HOUR, (b"age", b"100"), (b"set-cookie", b"a=b")], [b"aged"]),
    b"/no-store": (200, [(b"cache-control", b"no-store")], [b"never"]),
    b"/no-store-streamed": (200, [(b"cache-control", b"no-store"), None], [b"in ", b"two"]),
    b"/error": (500, [], [b"broken"]),
    b"/held": (200, [(b"cache-control", b"no-store")], [b"held"]),
}
# What has an interim response before it.
EARLY = frozenset((b"/a/b", b"/held", b"/stale", b"/no-store-streamed"))


class Played:
    """An origin server (an `Origin`) that answers with `PAGES`: at once, /held when let."""

    def __init__(self):
        self.asked, self.held = [], []

    def ask(self, request, content, answer):
        sent = content if request_has_content(request.fields) else None
        return Asked(self, request, sent, answer)

    def let(self):
        held, self.held = self.held, []
        for each in held:
            each.answer()


class Asked:
    def __init__(self, origin, request, content, answer):
        self._request, self._answer = request, answer
        self._origin, self._cancelled = origin, False
        self._content = b""
        if content is None:
            self.finish()
        else:
            content.attach(self)

    def pause(self):
        pass

    resume = pause

    def cancel(self):
        self._cancelled = True

    def write(self, chunk):
        self._content += chunk
        return True

    def finish(self):
        request = self._request
        target = request.canonical.target
        self._origin.asked.append((request.method, target, list(request.fields), self._content))
        if target == b"/held":
            self._origin.held.append(self)
        else:
            self.answer()

    def answer(self):
        request, answer = self._request, self._answer
        if self._cancelled:
            return
        path = request.canonical.target.partition(b"?")[0]
        status, fields, chunks = PAGES.get(path, (404, [], [b"unknown"]))
        etag = dict(filter(None, fields)).get(b"etag")
        if etag is not None and (b"if-none-match", etag) in request.fields:
            status, chunks = 304, []
        lines = [DATE, *filter(None, fields)]
        if None not in fields and status not in {204, 304}:
            lines.append((b"content-length", b"%d" % sum(map(len, chunks))))
        if request.method == b"HEAD":
            chunks = []
        if path in EARLY:
            answer.interim(103, [(b"link", b"</a.css>")])
        answer.start(Response(status, lines))
        for chunk in chunks:
            answer.write(chunk)
        answer.finish()


class Proxy(ReverseProxy):
    """A `ReverseProxy` whose origin server is played, which the middleware asks without a detour by ASGI."""

    def __init__(self, origin):
        self.forwarding = origin


class Door:
    """An engine behind one of the two doors, with a store of its own."""

    def __init__(self, connect, runtime, *, direct):
        self.now = NOW
        self.origin, self.outcomes = Played(), []
        store, listeners = MemoryStore(), (self.outcomes.append,)
        if direct:
            gate = Gate(runtime, tiers_of(store))
            self.engine = Engine(gate, listeners, lambda: self.now)
        else:
            self._app = CacheMiddleware(
                Proxy(self.origin), runtime=runtime, store=store, listeners=listeners, clock=lambda: self.now
            )
            self.engine = self._app.engine
        self._connect, self._direct = connect, direct

    def client(self, **settings):
        if self._direct:
            works = EngineService(self.engine, self.origin)
            return self._connect(None, direct=True, works=lambda *_: works, **settings)
        return self._connect(self._app, **settings)

    async def warm(self, requests):
        """Have what these requests bring stored, thirty seconds ago."""
        self.now = WARM
        for data in requests:
            client = self.client()
            await client.feed(data)
            client.hang_up()
        self.now = NOW
        self.outcomes.clear()
        self.origin.asked.clear()


@pytest.fixture
def door(connect):
    """Makes a door: door(runtime, direct=…)."""

    def made(runtime, *, direct):
        return Door(connect, runtime, direct=direct)

    return made


PROFILES = builtin_profiles()


def _everywhere(profile="asgi", rules=None, **settings):
    return Runtime.everywhere(PROFILES[profile], rules or Rules(), **settings)


def _sites():
    own = Site("a", ("a.example",), (Route(b"/", PROFILES["asgi"], ""),), aliases=("b.example",))
    routes = (Route(b"/", PROFILES["asgi"], ""),)
    other = Site("c", ("c.example",), routes, ("d.example",), alias_answer=301)
    rules = {"a": Rules(bypass=("/a/*",)), "c": Rules()}
    return Runtime(sites=Sites((own, other)), rules=MappingProxyType(rules))


RUNTIMES = {
    "plain": _everywhere(),
    "key": _everywhere(cache_status="key"),
    "off": _everywhere(cache_status="off"),
    "trusted": _everywhere(trusted=networks(["192.0.2.0/24"])),
    "bypass": _everywhere(rules=Rules(bypass=("/fresh", "/a/*"), bypass_cookies=("session",))),
    "strips": _everywhere(rules=Rules(strip_cookies=("_*",), strip_tags=True)),
    "ignores": _everywhere(rules=Rules(client_directives="ignore", grace=100)),
    "sites": _sites(),
    **{name: _everywhere(name) for name in ("mediawiki", "nginx", "rfc3986", "servlet")},
}

PASSING = _everywhere(rules=Rules(bypass=("*",)))


@pytest.fixture(params=RUNTIMES)
def runtime(request):
    return RUNTIMES[request.param]


@pytest.fixture
def passing():
    """Passes everything on to the origin server."""
    return PASSING


_DATES = re.compile(rb"\r\ndate: [^\r]*")
_PHRASES = re.compile(rb"HTTP/1.1 416 [A-Za-z ]*")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.fixture
def comparable():
    """The octets sent, without that in which the doors may differ.

    That is where a Date of their own stands, the phrase of 416, which Python's library and RFC 9110 have
    differently, and a 100 to who has sent content already, which may be left out (§10.1.1).
    """
    return lambda sent: _PHRASES.sub(b"HTTP/1.1 416", _DATES.sub(b"", sent)).replace(_CONTINUE, b"")
