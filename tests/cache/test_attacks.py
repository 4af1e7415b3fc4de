"""Known attacks on caches, each ending well: nobody's answer becomes everybody's, memory stays bounded."""

from typing import Any

import pytest

from support import NOW
from univocal.cache.decide import Forward, Reuse, decide, forwarded_fields
from univocal.cache.ranges import MAX_RANGES
from univocal.cache.represent import represent
from univocal.cache.rules import Rules
from univocal.cache.stored import Stored
from univocal.cache.storing import Unstorable, complete, may_store
from univocal.http.fields import imf_fixdate
from univocal.http.messages import Fields, Request, Response
from univocal.store.memory import MemoryStore

OLD = (b"last-modified", imf_fixdate(NOW - 86_400))
FRESH = (b"cache-control", b"max-age=60")
HTML = (b"content-type", b"text/html")


def key(target: bytes) -> bytes:
    return b"0123456789abcdef http en.example " + target


class Cache:
    """A store, its policy and an origin that says the same whatever it is asked."""

    def __init__(self, **rules: Any) -> None:
        self.store = MemoryStore()
        self.rules = Rules(**rules)

    def ask(self, request: Request, response: Response, body: bytes = b"0123456789") -> str:
        """How a request is answered: "hit", "stored" or "passed"."""
        name = key(request.target)
        decision = decide(request, self.store.lookup(name), self.rules, NOW)
        if isinstance(decision, Reuse):
            return "hit"
        if not isinstance(decision, Forward) or not decision.may_store:
            return "passed"
        lease = self.store.leases.begin(name, NOW)
        begun = may_store(name, request, response, self.rules, NOW, NOW)
        found = None if isinstance(begun, Unstorable) else complete(begun, body)
        kept = found is not None and self.store.commit(lease, found)
        self.store.leases.release(lease)
        return "stored" if kept else "passed"


def get(target: bytes, *fields: tuple[bytes, bytes]) -> Request:
    return Request(b"GET", target, list(fields))


@pytest.mark.parametrize(
    "target",
    [
        *(b"/account/x.css", b"/account;x.css", b"/account%3Bx.css", b"/account%0A.css"),
        *(b"/account/x.css;y", b"/account/x.css/", b"/account/x.css%20", b"/account/x.css%3By"),
    ],
)
@pytest.mark.parametrize("client", [[], [(b"cache-control", b"max-stale")]])
@pytest.mark.parametrize("fields", [[], [(b"cache-control", b"private")], [OLD], [(b"etag", b'"1"')]])
def test_deception_a_page_named_like_a_style_sheet_is_dropped(
    target: bytes, client: Fields, fields: Fields
) -> None:
    cache = Cache(ttl=600, grace=600)
    victim, attacker = get(target, (b"cookie", b"session=1")), get(target, *client)
    page = Response(200, [HTML, *fields])
    assert cache.ask(victim, page) == "passed"
    for _ in range(3):
        # without a cookie it may be kept to be validated, but is never reused as it is
        assert cache.ask(attacker, page) != "hit"


@pytest.mark.parametrize("field", [(b"content-length", b"12"), (b"transfer-encoding", b"chunked")])
def test_a_get_with_unkeyed_content_bypasses_the_cache(field: tuple[bytes, bytes]) -> None:
    cache = Cache()
    assert cache.ask(get(b"/x", field), Response(200, [FRESH])) == "passed"
    assert cache.ask(get(b"/x"), Response(200, [FRESH])) == "stored"
    assert cache.ask(get(b"/x", field), Response(200, [FRESH])) == "passed"


@pytest.mark.parametrize(
    "status", [400, 403, 404, 405, 406, 408, 411, 413, 414, 417, 431, 500, 501, 502, 503]
)
def test_cpdos_an_error_that_a_field_provoked_is_not_kept(status: int) -> None:
    cache = Cache(ttl=600)
    assert cache.ask(get(b"/", (b"x-oversized", b"x" * 9000)), Response(status, [HTML])) == "passed"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_need_explicit_freshness(status: int) -> None:
    evil = Response(status, [(b"location", b"https://evil.example/"), OLD])
    assert Cache(ttl=600).ask(get(b"/"), evil) == "passed"


@pytest.mark.parametrize("status", [304, 412, 416, 417, 428, 429, 431, 511])
def test_provoked_responses_are_not_kept_despite_explicit_freshness(status: int) -> None:
    assert Cache().ask(get(b"/", (b"range", b"bytes=99-")), Response(status, [FRESH])) == "passed"


def test_preconditions_reach_the_origin_and_store_nothing() -> None:
    cache = Cache()
    for name in (b"if-match", b"if-unmodified-since"):
        assert cache.ask(get(b"/", (name, b"x")), Response(200, [FRESH])) == "passed"


def test_a_clients_conditions_do_not_hollow_out_what_is_stored() -> None:
    request = get(b"/", (b"if-none-match", b'"guess"'), (b"if-modified-since", imf_fixdate(NOW)))
    decision = decide(request, [], Rules(), NOW)
    assert forwarded_fields(request, decision) == []


def test_no_crafted_path_or_value_is_another_variant() -> None:
    cache = Cache()
    vary = Response(200, [FRESH, (b"vary", b"foo, bar")])
    assert cache.ask(get(b"/v", (b"foo", b"1"), (b"bar", b"2")), vary) == "stored"
    for fields in (
        [(b"foo", b"1,bar=2")],
        [(b"foo", b"1"), (b"foo", b"2")],
        [(b"foo", b"1\x002"), (b"bar", b"")],
        [(b"foo", b""), (b"bar", b"12")],
        [(b"bar", b"1"), (b"foo", b"2")],
    ):
        assert cache.ask(get(b"/v", *fields), vary) == "stored"
    for target in (b"/v::1", b"/v foo=1", b"/v?foo=1&bar=2"):
        assert cache.ask(get(target, (b"foo", b"1"), (b"bar", b"2")), vary) == "stored"


def test_ranges_are_answered_in_proportion_to_the_request() -> None:
    begun = may_store(key(b"/"), get(b"/"), Response(200, [FRESH]), Rules(), NOW, NOW)
    assert isinstance(begun, Stored)
    found = complete(begun, bytes(100_000))
    assert found is not None
    for count, limit in ((MAX_RANGES, 101_000), (MAX_RANGES + 1, 101_000), (10_000, 101_000)):
        for spec in (b"0-", b"-1", b"0-99999"):
            request = get(b"/", (b"range", b"bytes=" + b",".join([spec] * count)))
            assert len(represent(request, found, 0, NOW).body) <= limit
    hostile = get(b"/", (b"range", b"bytes=" + b"0-," * 20_000))
    assert represent(hostile, found, 0, NOW).status == 200
    assert forwarded_fields(hostile, Forward("uri-miss", True, None)) == []


def test_variants_have_an_end() -> None:
    cache = Cache()
    for number in range(1_000):
        cache.ask(
            get(b"/", (b"user-agent", b"%d" % number)), Response(200, [FRESH, (b"vary", b"user-agent")])
        )
    assert cache.store.stats.responses == cache.store.max_variants


@pytest.mark.parametrize("name", [b"*", b"x-forwarded-for", b"Forwarded"])
def test_what_varies_by_client_is_not_shared(name: bytes) -> None:
    assert Cache().ask(get(b"/"), Response(200, [FRESH, (b"vary", name)])) == "passed"


def test_what_varies_by_credentials_is_each_ones_own() -> None:
    cache = Cache()
    answer = Response(200, [(b"cache-control", b"public, max-age=60"), (b"vary", b"cookie, authorization")])
    assert cache.ask(get(b"/", (b"cookie", b"me")), answer) == "stored"
    assert cache.ask(get(b"/", (b"cookie", b"you")), answer) == "stored"
    assert cache.ask(get(b"/"), answer) == "stored"
    assert cache.ask(get(b"/", (b"cookie", b"me")), answer) == "hit"


@pytest.mark.parametrize("body", [b"", b"01234", b"0123456789+"])
def test_a_body_of_another_length_is_not_kept(body: bytes) -> None:
    assert Cache().ask(get(b"/"), Response(200, [FRESH, (b"content-length", b"10")]), body) == "passed"


@pytest.mark.parametrize("method", [b"get", b"Get", b"PURGE ", b"TRACE", b"CONNECT", b"FOO", b"PUT"])
def test_methods_are_what_they_are_to_the_letter(method: bytes) -> None:
    cache = Cache()
    assert cache.ask(get(b"/"), Response(200, [FRESH])) == "stored"
    assert cache.ask(Request(method, b"/", []), Response(200, [FRESH])) == "passed"


def test_a_field_cannot_end_a_stored_head() -> None:
    for name, value in ((b"x", b"1\r\n\r\n<script>"), (b"x\r\ny", b"1"), (b"x: y", b"1")):
        assert Cache().ask(get(b"/"), Response(200, [FRESH, (name, value)])) == "passed"


def test_nobodys_cookie_is_handed_out() -> None:
    cookie = (b"set-cookie", b"session=1")
    assert Cache().ask(get(b"/"), Response(200, [FRESH, cookie])) == "passed"
    assert Cache(ttl=600).ask(get(b"/"), Response(200, [cookie])) == "passed"
    assert (
        Cache(set_cookie="never").ask(get(b"/"), Response(200, [(b"cache-control", b"s-maxage=9"), cookie]))
        == "passed"
    )
