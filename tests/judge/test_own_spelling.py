"""Redirects to another spelling of the URL that was asked for: which are followed, which only pass."""

from examples import cases
from neighbours import Proxy
from univocal.http.messages import Received, Response
from univocal.judge.own_spelling import named_spelling, respelled
from univocal.judge.profiles import builtin_profiles
from univocal.judge.runtime import Runtime
from univocal.uri.site import Route, Site
from univocal.uri.sites import Sites
from univocal.uri.target import origin_target

PROFILES = builtin_profiles()
COOKIE = (b"set-cookie", b"a=1")


def named(
    asked, location, *fields, profile="servlet", status=301, method=b"GET", request=(), forward="canonical"
):
    routes = (Route(b"/", PROFILES[profile], "", forward=forward),)
    site = Site("en", ("en.example",), routes, aliases=("www.example",))
    gate = Proxy().engine.gate
    gate.runtime = Runtime.of_sites(Sites([site]))
    admission = gate.admit(Received(method, asked), [(b"host", b"en.example"), *request], 0.0)
    return named_spelling(admission, Response(status, [(b"location", location), *fields]))


@cases(
    "asked, location, profile",
    (b"/%D0%BF", b"/%d0%bf", "rfc3986"),
    (b"/a(b)", b"/a%28b%29", "mediawiki"),
    (b"/%61?q=%28", b"/%61?q=%28", "rfc3986"),
    (b"/a", b"http://en.example/%61", "rfc3986"),
    (b"/a", b"HTTP://EN.example/%61", "rfc3986"),
    (b"/a", b"//en.example/%61", "rfc3986"),
    (b"/a/b", b"%62", "rfc3986"),
    (b"/a/b", b"/a//b", "nginx"),
)
def test_a_spelling_that_differs_in_nothing_else_is_named(asked, location, profile):
    spelling = location.lower().removeprefix(b"http:").removeprefix(b"//en.example")
    spelling = spelling if spelling.startswith(b"/") else b"/a/" + spelling
    assert named(asked, location, profile=profile) == spelling
    assert named(asked, location, profile=profile, method=b"HEAD", status=308) == spelling


@cases(
    "location, more",
    (b"/a", {}),  # nothing differs
    (b"/%61;jsessionid=1", {}),
    (b"http://www.example/%61", {}),
    (b"/%61#there", {}),
    (b"/%61", {"status": 303}),
    (b"/%61", {"request": [(b"content-length", b"1")]}),
    (b"/./%61", {"profile": "rfc3986"}),
)
def test_redirects_beyond_another_spelling_go_to_the_client(location, more):
    assert named(b"/a", location, **more) == b""


def test_a_redirect_with_a_cookie_goes_to_the_client():
    assert named(b"/a", b"/%61", COOKIE) == b""


@cases(
    "location",
    b"/b",
    b"/%61?q",
    b"https://en.example/%61",
    b"http://other.example/%61",
    b"",
    b"/%62",
    b"http://[",
)
def test_a_redirect_to_another_key_is_none_of_these(location):
    assert named(b"/a?", location) is None


def test_answers_to_posts_or_received_targets_are_none():
    assert named(b"/a", b"/%61", method=b"POST") is None
    assert named(b"/a", b"/%61", forward="received") is None
    assert named(b"/a", b"/%61", status=404) == b""  # whoever asks looks at redirects alone


def test_the_named_spelling_goes_below_the_path_of_an_upstream():
    routes = (Route(b"/", PROFILES["rfc3986"], ""), Route(b"/api/", PROFILES["rfc3986"], "o", b"/v1/"))
    gate = Proxy().engine.gate
    gate.runtime = Runtime.of_sites(Sites([Site("en", ("en.example",), routes)]))
    admission = gate.admit(Received(b"GET", b"/api/a"), [(b"host", b"en.example")], 0.0)
    again = respelled(admission, b"/api/%61")
    assert again.canonical is not None
    assert origin_target(again.canonical) == b"/v1/%61"
    assert (again.canonical.key, again.request) == (admission.canonical.key, admission.request)
