"""Request targets, hosts, sites and routes (RFC 9110 §4.2, §7.2; RFC 9112 §3)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import cases
from univocal.http.errors import ConfigurationError
from univocal.http.grammar import parse_authority
from univocal.uri.site import Route, Site
from univocal.uri.sites import Sites, resolve, resolve_url
from univocal.uri.target import Canonical, Rejected, origin_target
from uri.profiles import BUILT_IN, own

OBSERVE = own('reject.mode = "observe"', "servlet")
RFC3986 = BUILT_IN["rfc3986"]


def site(*hosts, profile="rfc3986", routes=(), **more):
    return Site("s", hosts, (Route(b"/", BUILT_IN[profile], "origin"), *routes), **more)


ANY = Sites([], site())


def reason(result):
    return result.reason if isinstance(result, Rejected) else None


def accepted(result):
    assert isinstance(result, Canonical), result
    return result


@cases(
    "host, authority",
    (b"en.example", b"en.example"),
    (b" EN.Example\t", b"en.example"),
    (b"GOOD.example.:80", b"good.example"),
    (b"a:", b"a"),
    (b"a:0080", b"a"),
    (b"a:443", b"a:443"),
    (b"a:65535", b"a:65535"),
    (b"xn--mnchen-3ya.example", b"xn--mnchen-3ya.example"),
    (b"a_b.example", b"a_b.example"),
    (b"127.0.0.1:8080", b"127.0.0.1:8080"),
    (b"[::1]:80", b"[::1]"),
    (b"[0:0::0:1]", b"[::1]"),
    (b"[2001:DB8:0:0:1:0:0:1]:8080", b"[2001:db8::1:0:0:1]:8080"),
    (b"[1:0:0:2:0:0:0:3]", b"[1:0:0:2::3]"),
    (b"[1:2:3:4:5:6:7::]", b"[1:2:3:4:5:6:7:0]"),
    (b"[::ffff:192.0.2.1]", b"[::ffff:c000:201]"),
    (b"[::]", b"[::]"),
)
def test_a_host_has_one_spelling(host, authority):
    assert accepted(resolve(b"/", [host], b"http", ANY)).authority == authority


@cases(
    "host",
    *(b"", b" ", b".", b"a..b", b".a", b"a/admin?x=", b"a@b", b"a:b@c", b"a%2eb", b"a b", b"a,b"),
    *(b"a\\b", b"a#b", b"a:x", b"a:-1", b"a:+1", b"a:65536", b"a:99999999999", b"a:0", b"a:80:80"),
    *(b":80", b"a\x00", b"a\n", b"\xe9", b"[1.2.3.4::]"),  # IPv4 stands at the end alone
    *b"[ [] [:1] [1:2:3] [1::2::3] [:::] [1:2:3:4:5:6:7:8:9] [1:2:3:4:5:6:7:8::]".split(),
    *b"[12345::] [::1.2.3] [::1.2.3.256] [::1.2.3.4:1] [fe80::1%25eth0] [v1.a] [::1 ::1".split(),
    b"a" * 301,
    b"a." * 200,
)
def test_an_invalid_host_is_refused(host):
    assert parse_authority(host) is None
    assert reason(resolve(b"/", [host], b"http", ANY)) == "bad-host"


@pytest.mark.parametrize("hosts", [[], [b"a", b"a"], [b"a", b"b"]])
def test_there_is_one_host(hosts):
    assert reason(resolve(b"/", hosts, b"http", ANY)) == "bad-host"
    assert reason(resolve(b"http://a/", hosts, b"http", ANY)) == "bad-host"


@cases(
    "target, url",
    (b"/a", b"http://good/a"),
    (b"//evil.example/x", b"http://good//evil.example/x"),
    (b"http://evil.example/x?y", b"http://evil.example/x?y"),
    (b"HTTP://EVIL.example:80/%7e", b"http://evil.example/~"),
    (b"http://other", b"http://other/"),
    (b"http://other?q", b"http://other/?q"),
    (b"http://other//x", b"http://other//x"),
)
def test_a_request_target_has_one_spelling(target, url):
    assert accepted(resolve(target, [b"good"], b"http", ANY)).url == url


@cases(
    "target, why",
    *((each, "no-leading-slash") for each in (b"", b"@google.com", b"good:443", b"http:/x")),
    *((each, "no-leading-slash") for each in (b"1http://good/x", b"://good/x", b" http://good/x")),
    *((each, "bad-target") for each in (b"a+1.-://good/x", b"*", b"ftp://good/x", b"http://u@good/x")),
    *((each, "bad-target") for each in (b"http://u:p@good/x", b"http://%3A%40victim%2F@attacker/")),
    (b"http:///x", "bad-host"),
    (b"http://a b/x", "bad-host"),
    (b"http://a\\b/x", "bad-host"),
    (b"http://other#f", "fragment"),
    (b"https://good/x", "unknown-host"),
)
def test_targets_that_are_none(target, why):
    assert reason(resolve(target, [b"good"], b"http", ANY)) == why


def test_an_absolute_form_does_not_excuse_a_bad_host():
    assert reason(resolve(b"http://good/", [b"a@b"], b"http", ANY)) == "bad-host"


def test_the_asterisk_is_for_options():
    canonical = accepted(resolve(b"*", [b"good"], b"http", ANY, b"OPTIONS"))
    assert (canonical.target, canonical.url, origin_target(canonical)) == (b"*", b"http://good", b"*")
    assert reason(resolve(b"*", [b"a/b"], b"http", ANY, b"OPTIONS")) == "bad-host"


def test_an_absolute_url_has_one_spelling_or_is_refused():
    assert accepted(resolve_url(b"https://A.example:443/%41?q", ANY)).url == b"https://a.example/A?q"
    assert reason(resolve_url(b"ftp://a/", ANY)) == "bad-target"
    assert reason(resolve_url(b"http://u@a/", ANY)) == "bad-target"
    assert reason(resolve_url(b"/a", ANY)) == "bad-target"


def test_the_key_names_profile_scheme_authority_and_target():
    canonical = accepted(resolve(b"/%41", [b"a:8080"], b"https", ANY))
    assert canonical.key == RFC3986.digest + b" https a:8080 /A"


SITES = Sites(
    [
        Site("exact", ("en.example",), (Route(b"/", RFC3986, "o"),)),
        Site("ported", ("en.example:8080",), (Route(b"/", RFC3986, "o"),)),
        Site("wild", ("*.wiki.example",), (Route(b"/", RFC3986, "o"),)),
        Site("wilder", ("*.example",), (Route(b"/", RFC3986, "o"),)),
        Site("inner", ("x.wiki.example", "*.x.wiki.example:81"), (Route(b"/", RFC3986, "o"),)),
        Site("idn", ("münchen.test", "[::1]", "192.0.2.1"), (Route(b"/", RFC3986, "o"),)),
    ]
)


@cases(
    "host, name",
    (b"en.example", "exact"),
    (b"EN.example.:81", "exact"),
    (b"en.example:8080", "ported"),
    (b"a.wiki.example", "wild"),
    (b"a.b.wiki.example:1", "wild"),
    (b"wiki.example", "wilder"),
    (b"x.wiki.example", "inner"),
    (b"y.x.wiki.example:81", "inner"),
    (b"y.x.wiki.example:82", "wild"),
    (b"xn--mnchen-3ya.test", "idn"),
    (b"[0::1]:8", "idn"),
    (b"192.0.2.1", "idn"),
    (b"example", None),
    (b"notexample", None),
    (b"evil-en.example.test", None),
)
def test_sites_by_host(host, name):
    result = resolve(b"/", [host], b"http", SITES)
    if name is None:
        assert result == Rejected("unknown-host", ("unknown-host",))
    else:
        assert accepted(result).site.name == name


def test_a_port_in_hosts_may_be_the_default_one():
    sites = Sites([site("a:80"), site("b:443")])
    assert accepted(resolve(b"/", [b"a"], b"http", sites)).authority == b"a"
    assert reason(resolve(b"/", [b"a"], b"https", sites)) == "unknown-host"
    assert accepted(resolve(b"/", [b"b"], b"https", sites)).authority == b"b"


@cases(
    "host, url, redirect",
    (b"www.en.example", b"http://en.example/A", 308),
    (b"192.0.2.7:8080", b"http://en.example:8080/A", 308),
    (b"en.example", b"http://en.example/A", 0),
    (b"de.example", b"http://de.example/A", 0),
)
def test_an_alias_is_its_host_or_redirects_there(host, url, redirect):
    hosts, aliases = ("en.example", "de.example"), ("www.en.example", "192.0.2.7")
    for answer in (0, 308):
        sites = Sites([site(*hosts, aliases=aliases, alias_answer=answer)])
        canonical = accepted(resolve(b"/%41", [host], b"http", sites))
        assert (canonical.url, canonical.redirect) == (url, redirect and answer)


def test_an_alias_takes_the_port_that_the_host_has():
    sites = Sites([site("en.example:8080", aliases=("www.example", "old.example:81"))])
    for host in (b"www.example", b"www.example:99", b"old.example:81"):
        assert accepted(resolve(b"/", [host], b"http", sites)).authority == b"en.example:8080"
    assert reason(resolve(b"/", [b"old.example"], b"http", sites)) == "unknown-host"


@cases(
    "unified, scheme, host, url",
    (b"https", b"http", b"a", b"https://a/"),
    (b"https", b"http", b"a:80", b"https://a/"),
    (b"https", b"http", b"a:443", b"https://a/"),
    (b"https", b"https", b"a:80", b"https://a:80/"),
    (b"https", b"http", b"a:8080", b"https://a:8080/"),
    (b"http", b"https", b"a:443", b"http://a/"),
    (b"keep", b"https", b"a", b"https://a/"),
)
def test_the_scheme_can_be_unified(unified, scheme, host, url):
    sites = Sites([site("a", scheme=unified)])
    canonical = accepted(resolve(b"/", [host], scheme, sites))
    assert canonical.url == url
    assert accepted(resolve_url(url, sites)).url == url


ROUTED = Sites(
    [
        site(
            "wiki.example",
            profile="mediawiki",
            routes=(
                Route(b"/api/rest_v1/", BUILT_IN["restbase"], "rest", b"/v1/"),
                Route(b"/foo", BUILT_IN["nginx"], "files", b"/bar"),
                Route(b"/app/", BUILT_IN["servlet"], "java"),
                Route(b"/app/static", BUILT_IN["upload"], "static", b"/"),
            ),
        )
    ]
)


@cases(
    "received",
    b"/api%2Frest_v1/x",  # MediaWiki's slash is not the router's
    b"/x%2F..%2Fapi/rest_v1/x",
    b"/wiki/..%2Ffoo",
    b"/foo/..%2fwiki",  # nor is nginx's
    b"/app/static;x/y",  # read without parameters it would be another's
    b"/app//static/x",
    b"/app/x/..",  # Servlet: /app, which is not under /app/,
)
def test_a_target_that_crosses_routes_is_refused(received):
    assert reason(resolve(received, [b"wiki.example"], b"http", ROUTED)) == "crosses-route"


OF_BYTES = Sites(
    [
        site(
            "wiki.example",
            profile="nginx",
            routes=(
                Route(b"/a/admin*", BUILT_IN["nginx"], "guarded"),
                Route(b"/a/admin", BUILT_IN["nginx"], "whole", b"/w/"),
                Route(b"/a/administer/", BUILT_IN["nginx"], "open"),
                Route(b"/b/c*", BUILT_IN["nginx"], "replaced", b"/v1/"),
                Route(b"/d*", BUILT_IN["servlet"], "java"),
            ),
        )
    ]
)


@cases(
    "sites, received, upstream, sent",
    (ROUTED, b"/wiki/A%2fB", "origin", b"/wiki/A/B"),
    (ROUTED, b"/api/rest_v1/page/AC%2fDC?x=%2f", "rest", b"/v1/page/AC%2FDC?x=%2f"),
    (ROUTED, b"/api/rest_v1/", "rest", b"/v1/"),
    (ROUTED, b"/%61pi/rest%5fv1/x", "rest", b"/v1/x"),
    (ROUTED, b"/x/../api/./rest_v1/x", "rest", b"/v1/x"),
    (ROUTED, b"/api/rest_v1", "origin", b"/api/rest_v1"),
    (ROUTED, b"/api/rest_v1x", "origin", b"/api/rest_v1x"),
    (ROUTED, b"/api/rest_v1/../../wiki", "origin", b"/wiki"),
    (ROUTED, b"/foo/%5B-%5D", "files", b"/bar/[-]"),
    (ROUTED, b"/foo", "files", b"/bar"),
    (ROUTED, b"/foo/", "files", b"/bar/"),
    (ROUTED, b"/foobar", "origin", b"/foobar"),
    (ROUTED, b"/app/static/a(b)", "static", b"/a%28b%29"),
    (ROUTED, b"/app/static", "static", b"/"),
    (ROUTED, b"/app/x;y", "java", b"/app/x"),
    # a prefix with a star is of bytes
    (OF_BYTES, b"/a/adminx", "guarded", b"/a/adminx"),
    (OF_BYTES, b"/a/admin.php?x", "guarded", b"/a/admin.php?x"),
    (OF_BYTES, b"/a/%61dmin-x/y", "guarded", b"/a/admin-x/y"),
    (OF_BYTES, b"/b/../a/./adminx", "guarded", b"/a/adminx"),
    (OF_BYTES, b"/a/admin", "whole", b"/w/"),
    (OF_BYTES, b"/a/admin/x", "whole", b"/w/x"),
    (OF_BYTES, b"/a/administer/x", "open", b"/a/administer/x"),
    (OF_BYTES, b"/a/administer", "guarded", b"/a/administer"),
    (OF_BYTES, b"/a/admi", "origin", b"/a/admi"),
    (OF_BYTES, b"/a/admin*", "guarded", b"/a/admin*"),
    (OF_BYTES, b"/b/c", "replaced", b"/v1/c"),
    (OF_BYTES, b"/b/cd/e", "replaced", b"/v1/cd/e"),
    (OF_BYTES, b"/b/x", "origin", b"/b/x"),
    (OF_BYTES, b"/d;x/y", "java", b"/d/y"),
)
def test_the_longest_prefix_chooses_the_upstream_and_its_target(sites, received, upstream, sent):
    canonical = accepted(resolve(received, [b"wiki.example"], b"http", sites))
    assert (canonical.route.upstream, origin_target(canonical)) == (upstream, sent)
    again = accepted(resolve(canonical.target, [b"wiki.example"], b"http", sites))
    assert (again.route, again.target) == (canonical.route, canonical.target)


@pytest.mark.parametrize("received", [b"/a%2Fadminx", b"/x%2F..%2Fa/adminx", b"/a//adminx"])
def test_no_spelling_leads_past_a_prefix_of_bytes(received):
    assert reason(resolve(received, [b"wiki.example"], b"http", OF_BYTES)) == "crosses-route"


PARTS = st.sampled_from(
    b"/ admin a %61 dmin x .. . %2F %5c \\ ;x // %2e * %2A ? ADMIN - .php % %25 61 ister/ %C3%A9 #".split()
)


@given(st.sampled_from(sorted(BUILT_IN)), st.lists(PARTS, min_size=1, max_size=6))
def test_a_target_under_a_guarded_prefix_takes_its_route(name, parts):
    profile = BUILT_IN[name]
    routes = [(b"/", "origin"), (b"/admin*", "guarded"), (b"/admin", "guarded"), (b"/administer/", "open")]
    made = tuple(Route(prefix, profile, upstream) for prefix, upstream in routes)
    sites = Sites([Site("s", ("a",), made)])
    canonical = resolve(b"/" + b"".join(parts), [b"a"], b"http", sites)
    if isinstance(canonical, Canonical):
        path = canonical.target.partition(b"?")[0]
        is_guarded = path.startswith(b"/admin") and not path.startswith(b"/administer/")
        assert (canonical.route.upstream == "guarded") is is_guarded
        assert accepted(resolve(canonical.target, [b"a"], b"http", sites)).route is canonical.route


@pytest.mark.parametrize("path", [b"/*", b"/a/*", b"*", b"/a?*", b"/../a*"])
def test_a_star_stands_within_a_segment(path):
    with pytest.raises(ConfigurationError):
        Route(path, BUILT_IN["nginx"], "origin")


def test_a_route_keeps_its_upstreams_path():
    """Kept dot segments would leave it at the origin."""
    keep = own('path.dot_segments = "keep"')
    sites = Sites([Site("s", ("a",), (Route(b"/", keep, "o", b"/v1/"),))])
    assert reason(resolve(b"/x/../../admin", [b"a"], b"http", sites)) == "above-root"
    assert origin_target(accepted(resolve(b"/x/../admin", [b"a"], b"http", sites))) == b"/v1/x/../admin"


def test_routes_where_dot_segments_are_kept():
    keep = own('path.dot_segments = "keep"')
    sites = Sites([Site("s", ("a",), (Route(b"/", keep, "o"), Route(b"/app/", keep, "p", b"/")))])
    assert reason(resolve(b"/x/../app/y", [b"a"], b"http", sites)) == "crosses-route"  # no prefix to replace
    assert accepted(resolve(b"/app/../y", [b"a"], b"http", sites)).route.upstream == "o"


OBSERVED = Sites([Site("s", ("a",), (Route(b"/", OBSERVE, "o"), Route(b"/v/", OBSERVE, "v", b"/v1/")))])


@cases(
    "received, target, observed",
    (b"/a;x/%62", b"/a/b", ()),
    (b"/a/..;/%62", b"/a/..;/%62", ("dot-segment-parameter",)),
    (b"/a%00%2f", b"/a%00%2f", ("control-character", "encoded-slash")),
    (b"/a#b", b"/a#b", ("fragment",)),
    (b"http://a/\\", b"/\\", ("backslash",)),
    (b"/v/\\", b"/v/\\", ("backslash",)),
)
def test_observed_targets_are_forwarded_as_they_came(received, target, observed):
    canonical = accepted(resolve(received, [b"a"], b"http", OBSERVED))
    assert (canonical.target, canonical.observed) == (target, observed)


@cases(
    "received, why",
    (b"a", "no-leading-slash"),
    (b"/a\n", "control-character"),
    (b"/\\?\r\nX:", "backslash"),
    (b"/\\ HTTP/1.1", "backslash"),
    (b"/%76/\\", "backslash"),  # no prefix to replace
    (b"/v;/a", "crosses-route"),  # a profile is observed, but no route is
    (b"ftp://a/", "bad-target"),
)
def test_targets_impossible_in_a_request_line_are_refused(received, why):
    assert reason(resolve(received, [b"a"], b"http", OBSERVED)) == why


@cases(
    "broken",
    lambda: Route(b"x", RFC3986, "o"),
    lambda: Route(b"/a/../b", RFC3986, "o"),
    lambda: Route(b"/%61", RFC3986, "o"),
    lambda: Route(b"/a b", RFC3986, "o"),
    lambda: Route(b"/a?b", RFC3986, "o"),
    lambda: Route(b"/(a)/", BUILT_IN["upload"], "o"),
    lambda: Route(b"/", RFC3986, "o", b"v1"),
    lambda: Route(b"/", RFC3986, "o", b"/v1/#"),
    lambda: Site("s", ("a",), (Route(b"/a", RFC3986, "o"),)),
    lambda: Site("s", ("a",), (Route(b"/", RFC3986, "o"), Route(b"/", RFC3986, "p"))),
    lambda: Sites([site("a/b")]),
    lambda: Sites([site("*.*.a")]),
    lambda: Sites([site("")]),
    lambda: Sites([site("ü" * 100)]),
    lambda: Sites([site("a"), site("A.")]),
    lambda: Sites([site("*.a"), site("*.a")]),
    lambda: Sites([site("a", aliases=("a",))]),
    lambda: Sites([site("a", aliases=("*.b",))]),
    lambda: Sites([site("*.a", aliases=("b",))]),
    lambda: Sites([site(aliases=("b",))]),
    lambda: Sites([site("a:80", scheme=b"https")]),
)
def test_sites_that_cannot_be(broken):
    with pytest.raises(ConfigurationError) as refused:
        broken()
    assert refused.value.key
    assert refused.value.allowed


def test_remembered_resolutions_are_bounded():
    from univocal.uri import sites

    for number in range(5000):
        resolve(b"/%d" % number, [b"a"], b"http", ANY)
    assert sites._remembered.cache_info().currsize <= 4096
    before = sites._remembered.cache_info().currsize
    accepted(resolve(b"/" + b"a" * 2000, [b"a"], b"http", ANY))
    assert sites._remembered.cache_info().currsize == before
    first = resolve(b"/%41", [b"a"], b"http", ANY)
    assert resolve(b"/%41", [b"a"], b"http", ANY) is first


def templated(upstream_path, *hosts, others=()):
    """Sites of which one serves `hosts` by a path with the request's host in it."""
    routes = (
        Route(b"/", BUILT_IN["restbase"], "o"),
        Route(b"/api/", BUILT_IN["restbase"], "o", upstream_path),
    )
    default = Site("d", (), routes) if not hosts else None
    return Sites([Site("s", hosts, routes), *others] if hosts else others, default)


@cases(
    "upstream_path, patterns, host, sent",
    (b"/{host}/v1/", ["*.wiki.example"], b"en.wiki.example", b"/en.wiki.example/v1/a%2Fb?c"),
    (b"/{host}/v1/", ["wiki.example"], b"WIKI.example.:80", b"/wiki.example/v1/a%2Fb?c"),
    (b"/{host}/v1/", ["wiki.example"], b"wiki.example:8080", b"/wiki.example/v1/a%2Fb?c"),
    (b"/{1}.wiki.org/v1/", ["*.wiki.example"], b"en.wiki.example", b"/en.wiki.org/v1/a%2Fb?c"),
    (b"/{1}/v1/", ["*.wiki.example"], b"en.m.wiki.example", b"/en.m/v1/a%2Fb?c"),
    (b"/{1}/v1/", ["*.example", "*.wiki.example"], b"en.wiki.example", b"/en/v1/a%2Fb?c"),
    (b"/{1}/v1/", ["*.example", "*.wiki.example:81"], b"en.wiki.example", b"/en.wiki/v1/a%2Fb?c"),
    (b"/{1}/v1/", ["*.example", "*.wiki.example:81"], b"en.wiki.example:81", b"/en/v1/a%2Fb?c"),
    (b"/{host}/{1}/{host}", ["*.b"], b"a.b", b"/a.b/a/a.b/a%2Fb?c"),
    (b"/{host}{path}", ["*.b"], b"a.b", b"/a.b/api/a%2Fb?c"),
    (b"/{1}/", [], b"en.wiki.example", b"/en.wiki.example/a%2Fb?c"),  # every host
    (b"/{1}/", ["*:81", "*.wiki.example"], b"en.wiki.example:81", b"/en.wiki.example/a%2Fb?c"),
    (b"/{1}/", ["*:81", "*.wiki.example:81"], b"en.wiki.example:81", b"/en/a%2Fb?c"),
    (b"/{host}/", [], b"[::1]:81", b"/%5B::1%5D/a%2Fb?c"),
)
def test_the_upstreams_path_holds_the_requests_host(upstream_path, patterns, host, sent):
    sites = templated(upstream_path, *patterns)
    canonical = accepted(resolve(b"/api/a%2fb?c", [host], b"http", sites))
    assert origin_target(canonical) == sent
    assert origin_target(accepted(resolve_url(canonical.url, sites))) == sent
    assert origin_target(accepted(resolve(b"/a", [host], b"http", sites))) == b"/a"


@cases("host", b"..wiki.example", b".wiki.example", b"%2e%2e.wiki.example", b"a/b.wiki.example", b"*")
def test_no_host_is_a_dot_segment_or_holds_a_slash(host):
    sites = templated(b"/{1}/", "*.wiki.example")
    assert reason(resolve(b"/api/a", [host], b"http", sites)) in {"bad-host", "unknown-host"}


@pytest.mark.parametrize("target", [b"/api/../x", b"/api/..%2fx", b"/api/a/../../x"])
def test_no_target_leaves_the_path_of_its_host(target):
    found = resolve(target, [b"en.wiki.example"], b"http", templated(b"/{1}/v1/", "*.wiki.example"))
    assert isinstance(found, Rejected) or origin_target(found) in {b"/x", b"/en/v1/..%2Fx"}


@cases(
    "upstream_path, hosts",
    (b"/{1}/", ["wiki.example"]),
    (b"/{1}/", ["*.wiki.example", "wiki.example"]),
    *((each, ["*.wiki.example"]) for each in (b"/{2}/", b"/{Host}/", b"/{host", b"/../{host}/")),
)
def test_a_template_that_cannot_be_filled_is_refused(upstream_path, hosts):
    with pytest.raises(ConfigurationError) as refused:
        templated(upstream_path, *hosts)
    assert refused.value.key == "upstream"
