"""URLs of an origin server's responses, as its clients are to read them."""

import pytest

from examples import cases
from univocal.http.references import ReferenceMap

HOSTS = {b"o:9001", b"app.example"}


def location(text, *, prefix=b"/api/", before=b"/v1/", **more):
    references = ReferenceMap(
        more.get("scheme", b"http"), b"shop.example", prefix, before, more.get("after", b"")
    )
    mapped = references.mapped([(b"location", text)], HOSTS, b"http", more.get("root", b""))
    return mapped[0][1]


@cases(
    "received, told",
    (b"/v1/there", b"/api/there"),
    (b"/v1/", b"/api/"),
    (b"/v1/there?a=/v1/b#/v1/c", b"/api/there?a=/v1/b#/v1/c"),
    (b"http://o:9001/v1/there", b"http://shop.example/api/there"),
    (b"HTTP://O:9001/v1/there", b"http://shop.example/api/there"),
    (b"//o:9001/v1/there", b"//shop.example/api/there"),
    (b"http://app.example:80/v1/there", b"http://shop.example/api/there"),
    (b"http://shop.example/v1/there", b"http://shop.example/api/there"),
    (b"https://shop.example/v1/there", b"https://shop.example/api/there"),
    # of another host, scheme or path
    (b"http://other.example/v1/there", b"http://other.example/v1/there"),
    (b"http://o:9002/v1/there", b"http://o:9002/v1/there"),
    (b"http://o:9001.other.example/v1/", b"http://o:9001.other.example/v1/"),
    (b"http://o:9001@other.example/v1/", b"http://o:9001@other.example/v1/"),
    (b"https://o:9001/v1/there", b"https://o:9001/v1/there"),
    (b"http://o:9001/login", b"http://o:9001/login"),
    (b"/login", b"/login"),
    (b"/v10/there", b"/v10/there"),
    (b"/v1", b"/v1"),
    (b"there", b"there"),
    (b"../there", b"../there"),
    (b"?page=2", b"?page=2"),
    (b"", b""),
    (b"mailto:o@o.example", b"mailto:o@o.example"),
    (b"http:/v1/there", b"http:/v1/there"),
    (b"/api/there", b"/api/there"),
    (b"http://shop.example", b"http://shop.example"),
)
def test_a_url_of_the_origin_servers_own_becomes_the_clients(received, told):
    assert location(received) == told


@cases(
    "prefix, before, after, received, told",
    (b"/", b"/", b"", b"http://o:9001/x", b"http://shop.example/x"),
    (b"/", b"/", b"", b"http://o:9001", b"http://shop.example/"),
    (b"/", b"/", b"", b"/x", b"/x"),
    (b"/", b"/v1/", b"", b"/v1/x", b"/x"),
    (b"/api/", b"/", b"", b"/x", b"/api/x"),
    (b"/api/", b"/", b"", b"/api/x", b"/api/x"),  # it knows of its prefix
    (b"/a/", b"/a/b/", b"", b"/a/b/x", b"/a/x"),
    (b"/a", b"/b", b"", b"/b", b"/a"),
    (b"/", b"/in/", b"/out", b"/in/x/out", b"/x"),
    (b"/", b"/in/", b"/out", b"/in/x", b"/in/x"),
)
def test_the_path_of_an_upstream_becomes_the_routes(prefix, before, after, received, told):
    assert location(received, prefix=prefix, before=before, after=after) == told


def test_the_path_of_a_proxys_url_stands_before_the_others():
    assert location(b"/root/v1/x", root=b"/root") == b"/api/x"
    assert location(b"/v1/x", root=b"/root") == b"/v1/x"


@pytest.mark.parametrize("rest", [b"/evil.example/", b"\\evil.example/"])
def test_a_mapped_path_never_names_a_host(rest):
    told = location(b"/v1/" + rest, prefix=b"/")
    assert told == b"http://shop.example/" + rest


def test_a_scheme_that_the_client_has_is_its_own():
    """The application has read X-Forwarded-Proto."""
    for scheme in (b"http", b"https"):
        told = location(scheme + b"://o:9001/v1/x", scheme=b"https")
        assert told == b"https://shop.example/api/x"


@cases(
    "received, told",
    (b"5; url=http://o:9001/v1/x", b"5; url=http://shop.example/api/x"),
    (b"0;URL='/v1/x'", b"0;URL='/api/x'"),
    (b"0", b"0"),
    (b"0; url=/x", b"0; url=/x"),
)
def test_the_url_of_a_refresh_is_mapped(received, told):
    references = ReferenceMap(b"http", b"shop.example", b"/api/", b"/v1/")
    assert references.mapped([(b"refresh", received)], HOSTS, b"http") == [(b"refresh", told)]


@cases(
    "received, told",
    (b"a=1; Path=/v1", b"a=1; Path=/api"),
    (b"a=1; path=/v1/x; HttpOnly", b"a=1; path=/api/x; HttpOnly"),
    (b"a=/v1/; Domain=.APP.example;Secure", b"a=/v1/; Domain=shop.example;Secure"),
    (b"a=1; Domain=o", b"a=1; Domain=shop.example"),
    (b"a=1; Domain=internal; Path=/v2", b"a=1; Domain=internal; Path=/v2"),
    (b"a=1", b"a=1"),
)
def test_path_and_domain_of_a_cookie_are_mapped_where_asked(received, told):
    fields = [(b"set-cookie", received)]
    for maps, expected in ((True, told), (False, received)):
        references = ReferenceMap(b"http", b"shop.example", b"/api/", b"/v1/", maps_cookies=maps)
        assert references.mapped(fields, HOSTS, b"http") == [(b"set-cookie", expected)]
