"""Law 3 with nginx as the judge: what has one key is one to it, and goes nowhere else than it seems to."""

import itertools
import os
import re
from urllib.parse import unquote_to_bytes

import pytest

from examples import cases, examples
from univocal.uri.percent_encoding import RINGS
from univocal.uri.site import Route, Site
from univocal.uri.sites import Sites, resolve
from univocal.uri.target import Canonical, Rejected, canonical_target, origin_target

PLAIN = ""
NOT_MERGING = "[path]\nmerge_slashes = false\n"
RING = '[path]\ndecode = ""\nencode = ""\nring = "{}"\n'
UNLISTED = '[reject]\nsequences = ["control-character"]\n'

# Bytes that may stand bare in a path that nginx hands on; it escapes only what it had to respell.
BARE = re.compile(rb'[\x7f-\xff"<>\\^`{|}]')


def seen(answer):
    """The location that nginx chose, $uri, and $args as a reader of parameters has them."""
    assert answer.status == 200, answer
    location, arguments, uri = answer.body.split(b"\n", 2)
    return location, uri, unquote_to_bytes(arguments)


@cases(
    "server, settings",
    ("merging", PLAIN),
    ("merging", UNLISTED),
    ("merging", RING.format("nginx-uri")),
    ("merging", RING.format("nginx-args")),
    ("merging", RING.format("nginx-1.13-uri")),
    ("not_merging", NOT_MERGING),
    ("not_merging", NOT_MERGING + UNLISTED),
)
def test_urls_with_one_key_are_one_to_nginx(nginx, generated, judge, derived, server, settings):
    """Conversely, URLs that are one to nginx have one key, except that it does not tell "?" from no query."""
    client = getattr(nginx, server)
    judged = judge(generated(1, 10_000), derived("nginx", settings))
    answers = client.ask(judged.both)
    keys = {}
    for received, canonical in judged.accepted.items():
        if not answers[received].refused:
            assert seen(answers[received]) == seen(answers[canonical]), (received, canonical)
            path, _, query = canonical.partition(b"?")
            one = (path, unquote_to_bytes(query))
            assert keys.setdefault(seen(answers[received]), one) == one, (received, canonical)
    assert len(keys) > examples(4000)
    assert len(judged.accepted) > 1.5 * len(set(judged.accepted.values()))


@pytest.mark.parametrize("merges", [True, False])
def test_every_ring_that_decodes_slashes_fits(nginx, generated, judge, derived, drawn, merges):
    client = nginx.merging if merges else nginx.not_merging
    targets = generated(2, 2000)[-2000:]
    for ring in drawn(1, examples(15, 3), "/"):
        judged = judge(targets, derived("nginx", f"{ring}merge_slashes = {str(merges).lower()}\n"))
        answers = client.ask(judged.both)
        for received, canonical in judged.accepted.items():
            assert seen(answers[received]) == seen(answers[canonical]), (ring, received, canonical)


@cases(
    "server, settings, received", ("merging", NOT_MERGING, b"/foo//.."), ("not_merging", PLAIN, b"/foo//..")
)
def test_slashes_are_to_be_merged_where_nginx_does(nginx, derived, server, settings, received):
    """The equality fails for a profile that does not fit its server."""
    canonical = canonical_target(received, derived("nginx", settings))
    client = getattr(nginx, server)
    assert seen(client.one(received)) != seen(client.one(canonical))


@pytest.mark.parametrize(("server", "settings"), [("merging", PLAIN), ("not_merging", NOT_MERGING)])
def test_neither_is_stricter_but_for_controls_and_fragments(
    nginx, generated, judge, derived, server, settings
):
    judged = judge(generated(1, 10_000), derived("nginx", settings))
    answers = getattr(nginx, server).ask([*judged.accepted, *judged.refused])
    assert not [target for target in judged.accepted if answers[target].refused]
    only_ours = {result.reasons for target, result in judged.refused.items() if not answers[target].refused}
    assert set(itertools.chain(*only_ours)) == {"control-character", "fragment"}


@cases(
    "target, reason, location, uri",
    (b"/a%0Ab", "control-character", b"/", b"/a\nb"),
    (b"/admin/%7f", "control-character", b"/admin", b"/admin/\x7f"),
    (b"/x/..%2fadmin#y", "fragment", b"/admin", b"/admin"),
)
def test_nginx_accepts_some_targets_that_the_profile_refuses(nginx, built_in, target, reason, location, uri):
    result = canonical_target(target, built_in["nginx"])
    assert isinstance(result, Rejected)
    assert result.reasons == (reason,)
    assert seen(nginx.merging.one(target)) == (location, uri, b"")


@cases("target", b"/a%00b", b"/a%zz", b"/a%2", b"/..", b"/a/../..", b"/%2e%2e%2f", b"/a%2f..//..")
def test_nginx_refuses_targets_that_the_profile_refuses(nginx, built_in, target):
    assert isinstance(canonical_target(target, built_in["nginx"]), Rejected)
    assert nginx.merging.one(target).status == 400
    assert nginx.not_merging.one(target).status == (200 if target == b"/a%2f..//.." else 400)


# Routes: a location of nginx is a route of ours.


@pytest.fixture
def sites(derived):
    def sites(settings, **upstream_paths):
        profile = derived("nginx", settings)
        routes = [Route(path.encode(), profile, path, to) for path, to in upstream_paths["routes"].items()]
        return Sites([Site("s", ("origin.example",), tuple(routes))])

    return sites


@pytest.mark.parametrize(("server", "settings"), [("merging", PLAIN), ("not_merging", NOT_MERGING)])
def test_no_target_reaches_a_location_but_by_its_own_route(nginx, generated, sites, server, settings):
    some = sites(settings, routes={"/": b"", "/admin": b"", "/foo": b""})
    targets = [*generated(1, 10_000), b"/x/..%2fadmin", b"//admin", b"/%2e/admin", b"/foo%2f../admin/x"]
    resolved = {target: resolve(target, [b"origin.example"], b"http", some) for target in targets}
    accepted = {target: found for target, found in resolved.items() if isinstance(found, Canonical)}
    answers = getattr(nginx, server).ask([*accepted, *(found.target for found in accepted.values())])
    for received, found in accepted.items():
        path = seen(answers[found.target])[1]
        by_pattern = found.route.prefix == b"/" and path.endswith(b".php")
        location = b"php" if by_pattern else found.route.prefix
        assert seen(answers[found.target])[0] == location, (received, found.target)
        assert answers[received].refused or seen(answers[received])[0] == location, (received, found.target)
    crossing = {
        target
        for target, found in resolved.items()
        if isinstance(found, Rejected) and "crosses-route" in found.reasons
    }
    assert b"/x/..%2fadmin" in crossing
    assert b"/foo%2f../admin/x" in crossing
    assert len({found.route.prefix for found in accepted.values()}) == 3


def line(target):
    """The request line as nginx writes it: without the "?" of an empty query."""
    return b"GET %b HTTP/1.1" % re.sub(rb"^([^?]*)\?$", rb"\1", target)


def escaped(path):
    """A path with what nginx leaves bare where it had nothing to respell."""
    return BARE.sub(lambda octet: b"%%%02X" % ord(octet[0]), path)


def test_the_upstream_gets_what_nginx_would_send_it(nginx, generated, sites):
    """proxy_pass with a path: the prefix replaced, the rest decoded and escaped again."""
    some = sites(PLAIN, routes={"/": b"", "/foo": b"/bar", "/shop/": b"/"})
    compared = set()
    resolved = {}
    for target in generated(1, 10_000):
        found = resolve(target, [b"origin.example"], b"http", some)
        if isinstance(found, Canonical):
            resolved[target] = found
    answers = nginx.proxying.ask([*resolved, *(found.target for found in resolved.values())])
    for received, found in resolved.items():
        answer = answers[found.target]
        if found.route.prefix == b"/":
            # nginx compares octets, not segments, and sends who forgets the last slash to where it is.
            beside = re.match(rb"/foo[^/?]", found.target) or answer.status == 301
            assert beside or answer.body == b"/", (received, found.target)
            continue
        assert answer.body == line(origin_target(found)), (received, found.target)
        path, _, query = answers[received].body.partition(b"?")
        sent_path, _, sent_query = answer.body.partition(b"?")
        assert escaped(path) == sent_path, (received, found.target)
        assert unquote_to_bytes(query) == unquote_to_bytes(sent_query), (received, found.target)
        compared.add(found.target)
    assert len(compared) > examples(1000)


def test_a_location_with_a_final_slash_redirects_requests_without_it(nginx):
    """To us /shop is the route "/": what it answers is the origin's affair."""
    answer = nginx.proxying.one(b"/x/../shop?q=%2f")
    assert (answer.status, answer.location) == (301, b"http://origin.example/shop/?q=%2f")


def test_brackets_arrive_bare(nginx, sites):
    some = sites(PLAIN, routes={"/": b"", "/foo": b"/bar"})
    found = resolve(b"/foo/%5B-%5D", [b"origin.example"], b"http", some)
    assert isinstance(found, Canonical)
    assert origin_target(found) == b"/bar/[-]"
    assert (
        nginx.proxying.one(b"/foo/%5B-%5D").body == nginx.proxying.one(found.target).body == line(b"/bar/[-]")
    )


def test_without_a_path_the_target_goes_on_as_it_came(nginx, generated, derived):
    """proxy_pass without a path, and forward = "received"; the location is chosen by the canonical path."""
    profile = derived("nginx", PLAIN)
    routes = (Route(b"/", profile, "o"), Route(b"/as-received/", profile, "o", forward="received"))
    some = Sites([Site("s", ("origin.example",), routes)])
    sent = {}
    for target in generated(1, 4000):
        found = resolve(b"/as-received" + target, [b"origin.example"], b"http", some)
        if isinstance(found, Canonical) and found.route is routes[1]:
            sent[b"/as-received" + target] = origin_target(found)
    answers = nginx.proxying.ask(sent)
    assert len(sent) > 1500
    for received, target in sent.items():
        assert answers[received].body == b"GET %b HTTP/1.1" % target, received


def test_a_template_holds_what_a_variable_does_in_escapes(nginx, generated, derived):
    """proxy_pass with $uri puts what is decoded on the wire as it is, and can split the request line."""
    profile = derived("nginx", PLAIN)
    routes = (Route(b"/", profile, "o"), Route(b"/by-variable", profile, "o", b"/x{path}"))
    some = Sites([Site("s", ("origin.example",), routes)])
    sent = {}
    for target in generated(1, 4000):
        found = resolve(b"/by-variable" + target, [b"origin.example"], b"http", some)
        if isinstance(found, Canonical) and found.target.startswith(b"/by-variable/"):
            sent[b"/by-variable" + target] = origin_target(found)
    answers = nginx.proxying.ask(sent)
    assert len(sent) > 1500
    for received, target in sent.items():
        assert re.fullmatch(rb"/[!-~]*", target), received
        assert answers[received].body == b"GET %b HTTP/1.1" % unquote_to_bytes(target.partition(b"?")[0])


def test_a_variable_lets_a_client_split_a_request_line(nginx, built_in):
    target = b"/by-variable/a%20HTTP/1.1%0d%0aX-Injected:%20y"
    assert nginx.proxying.one(target).body == b"GET /x/by-variable/a HTTP/1.1"
    result = canonical_target(target, built_in["nginx"])
    assert isinstance(result, Rejected)
    assert result.reasons == ("control-character",)


# nginx's tables against the named rings, octet by octet.


def test_the_ring_of_paths(nginx):
    escapes = [b"x%%%02Xy" % octet for octet in range(1, 256)]
    answers = nginx.proxying.ask(b"/foo/" + escape for escape in escapes)
    sent = {escape: answers[b"/foo/" + escape].body for escape in escapes}
    assert sent == {escape: line(b"/bar/" + RINGS["nginx-uri"].canonical(escape)) for escape in escapes}


def test_the_ring_of_arguments(nginx):
    """A captured part of a path that a rewrite puts into $args."""
    escapes = [b"x%%%02Xy" % octet for octet in range(1, 256)]
    answers = nginx.proxying.ask(b"/captured/" + escape for escape in escapes)
    sent = {escape: answers[b"/captured/" + escape].body for escape in escapes}
    assert sent == {escape: RINGS["nginx-args"].canonical(escape) for escape in escapes}


def test_the_ring_of_components(nginx):
    """The names of files in a listing: all octets but "/", which none holds, and NUL."""
    octets = [octet for octet in range(1, 256) if octet != 0x2F]
    for octet in octets:
        (nginx.directory / os.fsdecode(b"x%cy" % octet)).touch()
    listed = nginx.proxying.one(b"/listed/")
    hrefs = set(re.findall(rb'<a href="(x[^"]*y)">', listed.body))
    assert hrefs == {RINGS["nginx-uri-component"].canonical(b"x%%%02Xy" % octet) for octet in octets}
