"""The URLs by which origin servers are named."""

import pytest

from examples import cases
from univocal.origin.addresses import origin_url


@cases(
    "url, parts, authority",
    ("http://127.0.0.1:9000", ("http", b"127.0.0.1", 9000, "", ""), b"127.0.0.1:9000"),
    ("https://en.example", ("https", b"en.example", None, "", ""), b"en.example"),
    ("https://EN.example:443", ("https", b"en.example", None, "", ""), b"en.example"),
    ("https://en.example:80", ("https", b"en.example", 80, "", ""), b"en.example:80"),
    ("http://en.example/base/", ("http", b"en.example", None, "/base/", ""), b"en.example"),
    ("http://en.example.:81", ("http", b"en.example.", 81, "", ""), b"en.example.:81"),
    ("http://bücher.example", ("http", b"xn--bcher-kva.example", None, "", ""), b"xn--bcher-kva.example"),
    ("http://my_app:81", ("http", b"my_app", 81, "", ""), b"my_app:81"),
    ("http://[2001:DB8::7]:81/a%2fB|c", ("http", b"2001:db8::7", 81, "/a%2fB|c", ""), b"[2001:db8::7]:81"),
    ("unix:///run/a.sock", ("http", b"localhost", None, "", "/run/a.sock"), b"localhost"),
    # a file's name, never decoded
    ("unix:///run/a%20b.sock", ("http", b"localhost", None, "", "/run/a%20b.sock"), b"localhost"),
)
def test_a_url_is_taken_apart(url, parts, authority):
    assert (origin_url(url), origin_url(url).authority) == (parts, authority)


@cases(
    "url",
    *("", "en.example", "ftp://a", "HTTP://a", "http://", "http://a?b", "http://a#b", "http://u:p@a"),
    *("http://a:0", "http://a:65536", "http://a/\x7f", "http://a/é", "http://a b", "http://xn--zz"),
    *("http://[:::]", "http://999.1.1.1", "unix://run/a", "unix:///", "unix:///run/", "unix:///a?b"),
    *("http://a!b", "http://a%41b", "http://a~b", "http://a..b", "http://[fe80::1%25eth0]"),
    *("unix:///run/a.sock:/path", "unix:///" + "a" * 107, "unix:///a\nb"),
)
def test_an_invalid_origin_url_names_the_allowed_forms(url):
    with pytest.raises(ValueError, match=r"an http or https URL .* or unix:///PATH"):
        origin_url(url)
