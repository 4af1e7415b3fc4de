"""An intermediary drops, keeps and adds fields (RFC 9110 §7.6)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import any_of, cases
from univocal.http.errors import RefusedError
from univocal.http.intermediary import (
    end_to_end,
    forwarded_names,
    forwards_left,
    framed_anew,
    one_length,
    request_fields,
    request_has_content,
    response_fields,
    times_here,
)
from univocal.http.messages import values

OWN = {b"host", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"forwarded", b"via"}


def forwarded(*fields):
    """The client's fields that are forwarded, without those that the proxy adds."""
    sent = request_fields(fields, host=b"en.example", client="192.0.2.1", scheme=b"http")
    return [field for field in sent if field[0] not in OWN]


def test_the_origin_server_gets_via_and_forwarding_fields():
    assert request_fields([(b"accept", b"*/*")], host=b"en.example", client="192.0.2.1", scheme=b"https") == [
        (b"host", b"en.example"),
        (b"accept", b"*/*"),
        (b"x-forwarded-for", b"192.0.2.1"),
        (b"x-forwarded-host", b"en.example"),
        (b"x-forwarded-proto", b"https"),
        (b"forwarded", b"for=192.0.2.1;host=en.example;proto=https"),
        (b"via", b"1.1 univocal"),
    ]


def test_order_and_repeats_are_kept():
    fields = [(b"b", b"1"), (b"a", b"2"), (b"b", b"3"), (b"a", b""), (b"b", b"1")]
    assert forwarded(*fields) == fields


def test_host_comes_first_and_once():
    fields = [(b"accept", b"*/*"), (b"host", b"evil.example"), (b"host", b"worse.example")]
    sent = request_fields(fields, host=b"en.example", client=None, scheme=b"http")
    assert sent[0] == (b"host", b"en.example")
    assert values(sent, b"host") == [b"en.example"]


@pytest.mark.parametrize(
    "name",
    b"connection keep-alive proxy-connection proxy-authorization proxy-authenticate te trailer "
    b"transfer-encoding upgrade http2-settings".split(),
)
def test_hop_by_hop_fields_go_no_further(name):
    assert values(forwarded((name, b"trailers"), (b"accept", b"*/*")), name) in ([], [b"chunked"])
    assert values(response_fields([(name, b"x")]), name) == []


def test_fields_that_connection_names_are_removed():
    fields = [
        (b"connection", b"close, X-Hop"),
        (b"x-hop", b"1"),
        (b"connection", b"\tx-other ,"),
        (b"x-other", b"2"),
    ]
    assert forwarded(*fields, (b"x-end", b"3")) == [(b"x-end", b"3")]
    assert response_fields(fields) == [(b"via", b"1.1 univocal")]


@pytest.mark.parametrize(
    "name",
    b"authorization cookie content-length content-type cache-control range if-none-match if-match "
    b"if-modified-since if-range origin max-forwards content-encoding expect".split(),
)
def test_connection_cannot_remove_protected_request_fields(name):
    assert forwarded((b"connection", name.title()), (name, b"1")) == [(name, b"1")]


@pytest.mark.parametrize(
    "name", b"set-cookie vary etag cache-control content-length expires date age".split()
)
def test_connection_cannot_remove_protected_response_fields(name):
    assert (name, b"1") in response_fields([(b"connection", name), (name, b"1")])


def test_connection_cannot_name_away_host_nor_what_the_proxy_tells():
    options = b"host, forwarded, x-forwarded-for, x-forwarded-host, x-forwarded-proto, via"
    fields = [(b"connection", options), (b"via", b"1.0 fred")]
    sent = request_fields(fields, host=b"en.example", client="192.0.2.1", scheme=b"http")
    assert {name for name, _ in sent} == OWN
    assert values(sent, b"via") == [b"1.0 fred", b"1.1 univocal"]


STRANGERS = (
    b"x-forwarded-for x-forwarded-host x-forwarded-proto x-forwarded-port x-forwarded-prefix "
    b"x-forwarded-server x-forwarded-scheme x-forwarded-ssl x-forwarded-uri x-forwarded-anything "
    b"forwarded x-host x-original-url x-original-uri x-original-host x-original-method x-rewrite-url "
    b"x-http-method-override x-http-method x-method-override x-http-host-override x-url-scheme "
    b"x-scheme front-end-https cloudfront-forwarded-proto cf-visitor x-envoy-original-path "
    b"x-waws-unencoded-url x-script-name x-real-ip client-ip proxy"
).split()


@pytest.mark.parametrize("name", STRANGERS)
def test_foreign_fields_are_removed_in_every_cgi_spelling(name):
    spellings = {name, name.replace(b"-", b"_"), name.replace(b"-", b"_", 1), name.replace(b"-", b".")}
    for spelling in spellings:
        assert end_to_end([(spelling, b"evil"), (b"accept", b"*/*")]) == [(b"accept", b"*/*")]
        sent = request_fields([(spelling, b"evil")], host=b"en.example", client="192.0.2.1", scheme=b"http")
        assert not [field for field in sent if b"evil" in field[1]]


def each_field_of(frameworks):
    pairs = [(framework, name) for framework, names in frameworks.items() for name in names.split()]
    return pytest.mark.parametrize(("framework", "name"), pairs)


# The fields of a GET that each reads without naming them in Vary. Express, Fastify, Koa, h3, NestJS, Flask,
# Starlette, Django, Phoenix and chi read X-Forwarded-* and the fields in STRANGERS.
READERS = {
    "Next.js": b"x-middleware-subrequest x-middleware-prefetch x-middleware-invoke x-middleware-rewrite "
    b"x-middleware-redirect x-middleware-set-cookie x-middleware-skip x-middleware-next "
    b"x-middleware-override-headers x-middleware-preflight x-nextjs-data x-nextjs-request-id "
    b"x-nextjs-html-request-id x-nextjs-postponed next-resume x-next-resume-state-length "
    b"x-invoke-path x-invoke-query x-invoke-output x-invoke-error",
    "Next.js and Nitro at Vercel": b"x-matched-path x-now-route-matches x-vercel-forwarded-for "
    b"x-vercel-proxied-for",
    "Nuxt and Nitro": b"x-nuxt-no-ssr x-nuxt-error x-nitro-prerender x-ms-original-url",
    "Nitro and Astro at Netlify": b"x-nf-client-connection-ip",
    "React Router": b"x-react-router-spa-mode x-react-router-prerender-data",
    "Astro": b"x-astro-path x-astro-locals",
    "SvelteKit": b"x-sveltekit-pathname x-sveltekit-search x-sveltekit-error",
    "Hono": b"x-http-method-override cf-connecting-ip x-real-ip",
    "Rack, Rails and Sinatra": b"x-sendfile-type x-accel-mapping client-ip x-forwarded-ssl",
    "Symfony, Drupal and Laravel": b"surrogate-capability x-php-ob-level php-auth-user php-auth-pw "
    b"php-auth-digest x-original-url x-rewrite-url",
    "WordPress": b"x-original-url x-rewrite-url x-http-method-override x-appengine-https",
    "Magento": b"ssl-offloaded",
    "Spring": b"x-forwarded-prefix x-forwarded-by",
    "WebSphere and WebLogic": b"$wssn $wssc $wsra $wsru $wspr $wsis wl-proxy-client-ip wl-proxy-ssl",
    "ASP.NET Core": b"x-original-for x-original-proto x-waws-unencoded-url x-arr-ssl",
    "Gin, Echo and Fiber": b"x-appengine-remote-addr x-url-scheme x-forwarded-protocol",
    "Applications of Home Assistant": b"x-ingress-path",
    "Tornado, Play and gateways": b"x-forward-host x-forward-proto x-http-status-code-override",
    "CGI, PHP and ISAPI": b"https path-info query-string remote-addr remote-host remote-user script-filename",
}


@each_field_of(READERS)
def test_fields_that_frameworks_read_unkeyed_are_removed(framework, name):
    for spelling in {name, name.replace(b"-", b"_")}:
        assert end_to_end([(spelling, b"1"), (b"accept", b"*/*")]) == [(b"accept", b"*/*")], framework


@pytest.mark.parametrize("name", [b"x-http-method-override", b"x-sveltekit-pathname", b"x-sveltekit-search"])
def test_pages_of_a_framework_send_some_with_a_post(name):
    assert end_to_end([(name, b"1")], b"POST") == [(name, b"1")]
    assert end_to_end([(name, b"1")], b"HEAD") == []


# Clients send these, so that removing one would break an application: Vary or the setting `key` is for them.
CLIENTS_OWN = {
    "Next.js": b"rsc next-router-state-tree next-router-prefetch next-url next-action",
    "React Router": b"rsc-action-id",
    "htmx": b"hx-request hx-boosted hx-target hx-current-url",
    "Rails": b"turbo-frame x-requested-with",
    "Laravel": b"x-pjax precognition x-inertia x-livewire",
    "Fastify and NestJS": b"accept-version x-api-version",
    "Magento": b"store content-currency x-magento-cache-id",
}


@each_field_of(CLIENTS_OWN)
def test_fields_that_a_frameworks_clients_send_stay(framework, name):
    assert end_to_end([(name, b"1")]) == [(name, b"1")], framework


def test_a_keyed_field_stays_in_one_spelling():
    spellings = [(name, b"1") for name in (b"x-nextjs-data", b"x_nextjs_data", b"x-tenant", b"x_tenant")]
    kept = end_to_end(spellings, keyed=frozenset((b"x-nextjs-data", b"x-tenant")))
    assert kept == [(b"x-nextjs-data", b"1"), (b"x-tenant", b"1")]


@pytest.mark.parametrize("length", [[], [(b"content-length", b"1")]])
def test_screened_fields_lose_what_the_proxy_writes_anew(length):
    fields = [(b"x-nextjs-data", b"1"), (b"x-forwarded-for", b"evil"), (b"keep-alive", b"1"), *length]
    names = forwarded_names(tuple(name for name, _ in fields))
    told = {"host": b"a", "client": "192.0.2.1", "scheme": b"http", "names": names, "screened": True}
    sent = request_fields(fields, **told)
    assert [field for field in sent if field[0] not in OWN] == [(b"x-nextjs-data", b"1"), *length]
    assert values(sent, b"x-forwarded-for") == [b"192.0.2.1"]


@cases("options", b"keep-alive", b"X-Hop, close", b"te", b"keep-alive, x-hop , x-forwarded-for, Accept, via")
def test_screened_fields_have_lost_the_options_of_connection(options):
    names = b"connection keep-alive te x-hop accept via x-forwarded-for x-other".split()
    fields = [(name, options if name == b"connection" else b"1") for name in names]
    told = {"host": b"a", "client": "192.0.2.1", "scheme": b"http"}
    sent = request_fields(end_to_end(fields), **told, screened=True)
    assert sent == request_fields(fields, **told)


@pytest.mark.parametrize(
    "name", b"content_length transfer_encoding accept_language if_none_match cache_control".split()
)
def test_no_second_spelling_of_a_field_that_caches_depend_on(name):
    assert end_to_end([(name, b"1")]) == []


@pytest.mark.parametrize(
    "name", b"api_key x_request_id x-requested-with upgrade-insecure-requests x-hostname".split()
)
def test_other_fields_are_nobody_elses_business(name):
    assert end_to_end([(name, b"1")]) == [(name, b"1")]


def test_end_to_end_leaves_the_connection_to_the_server():
    fields = [(b"host", b"a"), (b"connection", b"close, x-hop"), (b"x-hop", b"1"), (b"te", b"trailers")]
    assert end_to_end(fields) == [field for field in fields if field[0] != b"x-hop"]


@cases("client, before, addresses, hops",
        ("192.0.2.1", [], b"192.0.2.1", b"for=192.0.2.1;host=a;proto=http"),
        ("2001:db8::1", [], b"2001:db8::1", b'for="[2001:db8::1]";host=a;proto=http'),
        ("fe80::1%eth0", [], b"fe80::1", b'for="[fe80::1]";host=a;proto=http'),
        ("192.0.2.9", [b"198.51.100.1"], b"198.51.100.1, 192.0.2.9",
         b"for=198.51.100.1, for=192.0.2.9;host=a;proto=http"),
        ("::1", [b"2001:db8::2", b"_hidden"], b"2001:db8::2, _hidden, ::1",
         b'for="[2001:db8::2]", for=_hidden, for="[::1]";host=a;proto=http'),
        ("::1", [b"192.0.2.1:4711"], b"192.0.2.1:4711, ::1",
         b'for="192.0.2.1:4711", for="[::1]";host=a;proto=http'),
        ("::1", [b"[2001:db8::2]:80"], b"[2001:db8::2]:80, ::1",
         b'for="[2001:db8::2]:80", for="[::1]";host=a;proto=http'),
        ("::1", [b'x";host=b'], b'x";host=b, ::1', b'for="x\\";host=b", for="[::1]";host=a;proto=http'),
        (None, [], None, b"for=unknown;host=a;proto=http"),
        (None, [b"192.0.2.1"], b"192.0.2.1", b"for=192.0.2.1, for=unknown;host=a;proto=http"),
    )  # fmt: skip
def test_the_client_and_those_before_it_are_told(client, before, addresses, hops):
    sent = request_fields([], host=b"a", client=client, scheme=b"http", forwarded_for=before)
    assert values(sent, b"x-forwarded-for") == ([] if addresses is None else [addresses])
    assert values(sent, b"forwarded") == [hops]


def test_the_authority_asked_for_may_differ_from_the_host_sent():
    sent = request_fields(
        [], host=b"10.0.0.1:9001", authority=b"en.example:8080", client="::1", scheme=b"http"
    )
    assert sent[0] == (b"host", b"10.0.0.1:9001")
    assert values(sent, b"x-forwarded-host") == [b"en.example:8080"]
    assert values(sent, b"forwarded") == [b'for="[::1]";host="en.example:8080";proto=http']


@cases(
    "fields, framing",
    ([(b"content-length", b"5")], [(b"content-length", b"5")]),
    ([(b"transfer-encoding", b"chunked")], [(b"transfer-encoding", b"chunked")]),
    ([(b"transfer-encoding", b"gzip, chunked")], [(b"transfer-encoding", b"chunked")]),
    ([(b"content-length", b"5"), (b"transfer-encoding", b"chunked")], [(b"transfer-encoding", b"chunked")]),
    ([], []),
)
def test_framing_is_this_hops_own(fields, framing):
    assert forwarded(*fields) == framing


def test_te_goes_no_further():
    assert forwarded((b"te", b"deflate;q=0.5, Trailers"), (b"connection", b"te")) == []


def test_trailer_goes_no_further():
    assert values(response_fields([(b"trailer", b"digest")]), b"trailer") == []


def test_date_is_added_only_where_missing():
    now = b"Fri, 20 Nov 2026 23:00:00 GMT"
    assert values(response_fields([], date=now), b"date") == [now]
    assert values(response_fields([(b"date", b"nonsense")], date=now), b"date") == [b"nonsense"]
    assert values(response_fields([]), b"date") == []


def test_response_keeps_order_and_repeats_and_appends_via():
    fields = [(b"set-cookie", b"a=1"), (b"x", b""), (b"set-cookie", b"b=2"), (b"via", b"1.0 fred")]
    assert response_fields(fields) == [*fields, (b"via", b"1.1 univocal")]


@cases("status, kept", (200, True), (206, True), (304, True), (204, False), (103, False))
def test_no_content_length_where_it_must_not_be(status, kept):
    assert (
        values(response_fields([(b"content-length", b"0")], status=status), b"content-length") == [b"0"]
    ) is kept


@cases(
    "method, before, after",
    (b"OPTIONS", b"5", b"4"),
    (b"TRACE", b"1", b"0"),
    (b"TRACE", b" 007 ", b"6"),
    (b"TRACE", b"0", None),
    (b"OPTIONS", b"00", None),
    (b"OPTIONS", b"many", b"many"),
    (b"OPTIONS", b"-1", b"-1"),
    (b"TRACE", b"9" * 5000, b"999999998"),
    (b"GET", b"0", b"0"),
    (b"POST", b"3", b"3"),
)
def test_max_forwards_counts_the_hops_of_options_and_trace(method, before, after):
    left = forwards_left(method, [(b"a", b"1"), (b"max-forwards", before), (b"b", b"2")])
    assert left == (None if after is None else [(b"a", b"1"), (b"max-forwards", after), (b"b", b"2")])


def test_without_max_forwards_nothing_is_counted():
    assert forwards_left(b"TRACE", [(b"a", b"1")]) == [(b"a", b"1")]


@cases(
    "fields, content",
    ([], False),
    ([(b"content-length", b"0")], False),
    ([(b"content-length", b" 000 ")], False),
    ([(b"content-length", b"10")], True),
    ([(b"transfer-encoding", b"chunked")], True),
)
def test_request_has_content(fields, content):
    assert request_has_content(fields) is content


CONTINUE = (b"expect", b"100-continue")
LENGTH = (b"content-length", b"5")


@cases(
    "fields, framed",
    ([], []),
    ([LENGTH], [LENGTH]),
    ([(b"a", b"1"), (b"content-length", b"0005"), (b"b", b"2")], [(b"a", b"1"), LENGTH, (b"b", b"2")]),
    ([(b"content-length", b"00")], [(b"content-length", b"0")]),
    ([(b"content-length", b"0200")], [(b"content-length", b"200")]),
    ([CONTINUE], []),
    ([(b"expect", b"100-Continue"), (b"content-length", b"0")], [(b"content-length", b"0")]),
    ([(b"expect", b"a, 100-continue")], []),
    ([CONTINUE, LENGTH], [CONTINUE, LENGTH]),
    ([CONTINUE, (b"transfer-encoding", b"chunked")], [CONTINUE, (b"transfer-encoding", b"chunked")]),
    ([(b"expect", b"the-best")], [(b"expect", b"the-best")]),
)
def test_a_request_says_what_follows_it_in_one_way(fields, framed):
    assert framed_anew(fields) == framed
    assert forwarded(*fields) == framed


@cases(
    "lines, framed",
    ([], []),
    ([b"5"], [b"5"]),
    ([b"0"], [b"0"]),
    ([b"0200"], [b"200"]),
    ([b"00"], [b"0"]),
    ([b"5", b"5"], [b"5"]),
    ([b"5, 5", b"5"], [b"5"]),
    ([b"9" * 18], [b"9" * 18]),
    *((each, None) for each in ([b"1" + b"0" * 18], [b"0" * 18 + b"5"], [b"5", b"6"], [b"5", b"05"])),
    *((each, None) for each in ([b"5, 6"], [b"5,"], [b""], [b"-5"], [b"+5"], [b"5_0"], [b"a"])),
)
def test_a_response_has_one_length(lines, framed):
    fields = [(b"a", b"1"), *((b"content-length", line) for line in lines), (b"a", b"2")]
    if framed is None:
        assert one_length(fields) is None
        with pytest.raises(RefusedError, match="origin-bad-response"):
            response_fields(fields)
    else:
        expected = [(b"a", b"1"), *((b"content-length", line) for line in framed), (b"a", b"2")]
        assert one_length(fields) == expected
        assert response_fields(fields)[:-1] == expected


NAMES = any_of(
    *STRANGERS, b"connection", b"te", b"accept", b"cookie", b"x_forwarded_host", b"via", b"a", b"b"
)


@given(st.lists(st.tuples(NAMES, any_of(b"", b"a", b"evil", b"cookie, b", b"close"))))
def test_a_second_intermediary_finds_nothing_left_to_drop(fields):
    once = request_fields(fields, host=b"h", client="192.0.2.1", scheme=b"http")
    twice = request_fields(once, host=b"h", client="192.0.2.1", scheme=b"http")
    plain = [field for field in once if field[0] not in OWN]
    assert [field for field in twice if field[0] not in OWN] == plain
    assert plain == [field for field in fields if field in plain]
    assert b"evil" not in [value for name, value in once if name in STRANGERS]


WEIGHED = any_of(b"host", b"content-length", b"expect", b"transfer-encoding", b"x-method", b"upgrade")


@given(
    st.lists(st.tuples(NAMES | WEIGHED, any_of(b"", b"1", b"cookie, b", b"100-continue"))),
    any_of(b"GET", b"POST"),
)
def test_names_judged_beforehand_change_no_field(fields, method):
    names = forwarded_names(tuple(name for name, _ in fields))
    for _ in range(2):
        found, weighed = (
            request_fields(fields, host=b"h", client="192.0.2.1", scheme=b"http", method=method, names=each)
            for each in (names, None)
        )
        assert found == weighed
    assert not (names.is_plain and request_has_content(fields))
    assert names.host == next((place for place, (name, _) in enumerate(fields) if name == b"host"), -1)


@given(st.lists(st.tuples(NAMES, any_of(b"", b"1")), max_size=8))
def test_without_connection_each_field_is_judged_by_its_name_alone(fields):
    kept = [field for field in fields if field[0] not in {b"connection", b"te"}]
    assert forwarded(*kept) == [left for field in kept for left in forwarded(field)]
    assert end_to_end(kept) == [left for field in kept for left in end_to_end([field])]
    told = [field for field in kept if field[0] != b"via"]
    assert response_fields(told)[:-1] == [left for field in told for left in response_fields([field])[:-1]]


def test_fields_too_long_to_remember_are_judged_alike():
    assert end_to_end([(b"x-forwarded-" + b"a" * 80, b"1"), (b"x" * 80, b"2")]) == [(b"x" * 80, b"2")]
    options = b", ".join([b"x-hop"] * 20)
    assert forwarded((b"connection", options), (b"x-hop", b"1"), (b"x-end", b"2")) == [(b"x-end", b"2")]
    long = b"a" * 300
    (told, *_) = values(request_fields([], host=long, client="::1", scheme=b"http"), b"forwarded")
    assert told == b'for="[::1]";host=%b;proto=http' % long


def test_the_memory_behind_a_clients_bytes_cannot_change():
    one = request_fields([], host=b"en.example", client="192.0.2.1", scheme=b"http")
    one.clear()
    assert request_fields([], host=b"en.example", client="192.0.2.1", scheme=b"http")


@cases(
    "lines, count",
    ([], 0),
    ([b"1.1 univocal"], 1),
    ([b"1.1 univocal, 1.0 fred, HTTP/1.1  univocal (it)", b"1.1\tunivocal"], 3),
    ([b"1.1 univocal,1.1 univocal , 2 univocal"], 3),
    ([b"1.1 univocally, 1.1 xunivocal, univocal, 1.1 fred univocal"], 0),
)
def test_passes_through_univocal_are_counted_by_via(lines, count):
    assert times_here([(b"via", line) for line in lines]) == count
