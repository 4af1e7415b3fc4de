"""The beginning of canonical URLs: whole segments like any path, the unfinished one by its octets alone."""

import re

import pytest

from examples import cases
from univocal.uri.purge_names import beginnings
from univocal.uri.site import Route, Site
from univocal.uri.sites import Sites, resolve_url
from univocal.uri.target import Rejected
from uri.profiles import BUILT_IN, own


def sites_of(text="", base="rfc3986", **site):
    """Sites with one, a.example, whose profile is a built-in one with settings of its own."""
    profile = own(text, base)
    routes = tuple(Route(prefix, profile, "origin") for prefix in (b"/api/", b"/"))
    return Sites([Site("a", ("a.example",), routes, ("b.example",), **site)])


def begun(prefix, sites):
    found = beginnings(prefix.encode(), sites)
    return found.reasons if isinstance(found, Rejected) else found[0].url.decode()


REMOVE = '[path]\ntrailing_slash = "remove"\nindex_names = ["index.html"]'
ADD = '[path]\ntrailing_slash = "add"'


@cases(
    "text, prefix, expected",
    ("", "/a", "/a"),
    ("", "/%61/%62", "/a/b"),
    ("", "/x/./y/../z", "/x/z"),
    ("", "/x/../", "/"),
    ("", "/.git", "/.git"),
    ("", "/x/..hidden", "/x/..hidden"),
    ("", "/x/..%2", "/x/..%252"),
    ("", "/%D0", "/%D0"),
    ("", "/a?", "/a?"),
    ("", "/a?b=%7", "/a?b=%257"),
    ("", "//a//b", "//a//b"),
    (REMOVE, "/wiki/", "/wiki/"),
    (REMOVE, "/wiki", "/wiki"),
    (REMOVE, "/d/index.html", "/d/index.html"),
    (REMOVE, "/d/index.html?x", "/d?x"),
    (REMOVE, "/d/index.html/x", "/d/index.html/x"),
    (REMOVE, "/wiki/?x", "/wiki?x"),
    (ADD, "/wiki/Foo", "/wiki/Foo"),
    (ADD, "/wiki/Foo?x", "/wiki/Foo/?x"),
    ("[query]\nsort = true", "/a?b=1&a", "/a?b=1&a"),
    ('[query]\ndrop = ["u*"]', "/a?u", "/a?u"),
    ("[query]\nallow = []", "/a?x", "/a?x"),
    ("[query]\ndefaults = {p = '1'}", "/a?p=1", "/a?p=1"),
    ("[query]\ndrop_empty = true\ndrop_empty_mark = true", "/a?x=", "/a?x="),
    ("[query]\ndrop_empty_mark = true", "/a?", "/a?"),
    ('[path]\nparameters = "strip"', "/a;x/b", "/a/b"),
    ('[path]\ndecode = "/"', "/a%2f", "/a/"),
    ('[path]\ndecode = "/"', "/a%2f%2e%2e%2fb", "/b"),
    ('[[rewrite]]\nfrom = "/story_"\nto = "/story?id="', "/story_7", "/story?id=7"),
    ('[[rewrite]]\nfrom = "/all"\nto = "/list"\nat = "end"', "/all", "/all"),
    ('[charset]\npath = "windows-1251"', "/%EF/%D0", "/%D0%BF/%D0"),
    ('[charset]\nquery = "windows-1251"', "/?q=%D0", "/?q=%D0"),
    ('[reject]\nsequences = ["bad-utf-8"]', "/a/%D0", "/a/%D0"),
)
def test_a_beginning_is_spelled_as_the_urls_that_begin_so(text, prefix, expected):
    assert begun("http://a.example" + prefix, sites_of(text)) == "http://a.example" + expected


@cases(
    "text, prefix, reasons",
    ("", "http://a.example/x/.", ("dot-segment",)),
    ("", "http://a.example/x/..", ("dot-segment",)),
    ("", "http://a.example/x/%2e%2E", ("dot-segment",)),
    ("", "http://a.example/.", ("dot-segment",)),
    ('[path]\ndecode = "/"', "http://a.example/x%2f..", ("dot-segment",)),
    ('[path]\ndot_segments = "servlet"', "http://a.example/x/..;y", ("dot-segment",)),
    ('[reject]\nsequences = ["dot-segment"]', "http://a.example/x/../y", ("dot-segment",)),
    ('[reject]\nsequences = ["encoded-slash"]', "http://a.example/x/y%2f", ("encoded-slash",)),
    ('[reject]\nsequences = ["bad-utf-8"]', "http://a.example/%D0/a", ("bad-utf-8",)),
    ('[reject]\nsequences = ["bad-escape"]', "http://a.example/a%4", ("bad-escape",)),
    ("", "http://a.example/a%00", ("control-character",)),
    ('reject.sequences = ["fragment"]', "http://a.example/a#b", ("fragment",)),
    ("", "/a", ("bad-target",)),
    ("", "ftp://a.example/a", ("bad-target",)),
    ("", "http://me@a.example/a", ("bad-target",)),
    ("", "http://a.exa mple/a", ("bad-host",)),
    ("", "http://c.example/a", ("unknown-host",)),
)
def test_a_prefix_that_begins_no_url_is_refused(text, prefix, reasons):
    assert begun(prefix, sites_of(text)) == reasons


def test_a_cut_within_a_stripped_parameter_begins_no_url():
    with pytest.raises(ValueError, match="path parameter"):
        begun("http://a.example/a/b;x", sites_of('[path]\nparameters = "strip"'))


@cases(
    "prefix, origins",
    ("http://a.example/x", ["http://a.example", "https://a.example"]),
    ("https://a.example/x", ["https://a.example", "http://a.example"]),
    ("HTTPS://B.example:443/x", ["https://a.example", "http://a.example"]),
    ("http://a.example:8080/x", ["http://a.example:8080", "https://a.example:8080"]),
)
def test_it_is_under_both_schemes(prefix, origins):
    found = beginnings(prefix.encode(), sites_of())
    assert [each.url.decode() for each in found] == [origin + "/x" for origin in origins]


@cases(
    "prefix, expected",
    ("/wiki'x", "/wiki%27x"),
    ("/wi%6Bi'x", "/wiki%27x"),
    ("/wiki'x/y", "/wiki%27x/y"),
    ("/wiki'x?y", "/wiki%27x?y"),
    ("/wik'", "/wik'"),
    ("/wiki/'", "/wiki/'"),
    ("/wikis/'", "/wikis/'"),
)
def test_a_prefix_of_bytes_has_its_routes_spelling(prefix, expected):
    own, other = BUILT_IN["rfc3986"], BUILT_IN["mediawiki"]
    routes = [(b"/", own), (b"/wiki*", other), (b"/wiki/", own), (b"/wikis/", own)]
    site = Site("a", ("a.example",), tuple(Route(path, profile, "origin") for path, profile in routes))
    assert begun("http://a.example" + prefix, Sites([site])) == "http://a.example" + expected


MEDIAWIKI, RFC3986, NGINX = (BUILT_IN[name] for name in ("mediawiki", "rfc3986", "nginx"))
STRIPPING = own('path.parameters = "strip"')


def routes_of(*paths):
    """The route "/" and others; a final prefix begins as in nginx, and an expression is Python's."""
    routes = [Route(b"/", RFC3986, "origin")]
    for path, profile in paths:
        prefix = path.removeprefix("^~ ").encode()
        test = re.compile(prefix[1:]).search
        tests = (lambda view, test=test: bool(test(view)),) * 2 if path.startswith("~") else None
        final = path.startswith("^~ ")
        routes.append(Route(prefix, profile, "origin", final=final, expression=tests))
    return Sites([Site("a", ("a.example",), tuple(routes))])


@cases(
    "routes, prefix, expected",
    ([("=/a/", MEDIAWIKI)], "/a/X%28", {"/a/X%28"}),
    ([("^~ /a/", RFC3986), ("~^/a/", MEDIAWIKI)], "/a/X%28", {"/a/X%28"}),
    ([("^~ /a/", RFC3986), ("/a/b/", RFC3986), ("~^/a/", MEDIAWIKI)], "/a/", {"/a/"}),
    ([("~[.]php$", MEDIAWIKI)], "/a/X%28", {"/a/X%28", "/a/X("}),
    ([("~[.]php$", MEDIAWIKI)], "/a/X%28?x", {"/a/X%28?x"}),
    ([("~[.]php$", MEDIAWIKI)], "/a/X%28.php?x", {"/a/X(.php?x"}),
    ([("*.png", MEDIAWIKI)], "/a/X%28", {"/a/X%28", "/a/X("}),
    ([("/a/b/", BUILT_IN["express"])], "/a//b", {"/a//b"}),
    ([("~[.]php$", BUILT_IN["tomcat"])], "/a;x", {"/a;x"}),
    ([("~[.]php$", STRIPPING)], "/a;x", {"/a;x"}),
)
def test_a_beginning_is_spelled_by_each_route_that_may_follow(routes, prefix, expected):
    found = beginnings(b"http://a.example" + prefix.encode(), routes_of(*routes))
    assert {each.target.decode() for each in found} == expected


KINDS = [
    [("=/a/", MEDIAWIKI), ("/a/b/", MEDIAWIKI)],
    [("^~ /a/", MEDIAWIKI), ("~^/a/", NGINX), ("/a/b*", RFC3986)],
    [("~[.]php$", MEDIAWIKI), ("*.png", NGINX)],
]


@pytest.mark.parametrize("routes", KINDS)
@cases("target", "/a/X%28y.php", "/a/b/c(d.png", "/a/bc%28?x(", "//a/b/(", "/a/", "/x(.png?y")
def test_a_url_begins_with_the_beginning_of_some_route(routes, target):
    """At every place where no character and no escape is cut."""
    sites = routes_of(*routes)
    whole = resolve_url(b"http://a.example" + target.encode(), sites)
    if isinstance(whole, Rejected):
        return
    for end in range(1, len(target) + 1):
        if "%" not in target[:end][-2:]:
            found = beginnings(b"http://a.example" + target[:end].encode(), sites)
            assert whole.target.startswith(tuple(each.target for each in found))


def test_without_a_path_it_is_the_whole_host():
    assert begun("http://a.example", sites_of()) == "http://a.example/"
    assert begun("http://a.example?x", sites_of()) == "http://a.example/?x"


@pytest.mark.parametrize("name", sorted(BUILT_IN))
@pytest.mark.parametrize("target", ["/wiki/A%2fB(c)", "/a//b/", "/a/%7e?x=1&a=%2F", "/a;x=1/b", "/w/%D0%BF"])
def test_prefixes_of_a_url_begin_its_canonical_form(name, target):
    """At every place where no character, escape, parameter or dot segment is cut."""
    sites = Sites((), default=Site("*", (), (Route(b"/", BUILT_IN[name], ""),)))
    whole = resolve_url(b"http://a.example" + target.encode(), sites)
    if isinstance(whole, Rejected):
        return
    for end in range(1, len(target) + 1):
        cut = target[:end]
        if "%" in cut[-2:] or (";" in cut.rpartition("/")[2]) or cut.endswith("%D0"):
            continue
        found = begun("http://a.example" + cut, sites)
        if not isinstance(found, tuple):
            assert whole.url.decode().startswith(found)
