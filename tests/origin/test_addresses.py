"""The URLs by which origin servers are named."""

from __future__ import annotations

import pytest

from univocal.origin.addresses import origin_url, unix_socket


@pytest.mark.parametrize(
    ("url", "root", "path", "socket"),
    [
        ("http://127.0.0.1:9000", "http://127.0.0.1:9000/", "", ""),
        ("https://en.example", "https://en.example/", "", ""),
        ("http://en.example/base/", "http://en.example/", "/base/", ""),
        ("http://[2001:db8::7]:81/a%2fB|c", "http://[2001:db8::7]:81/", "/a%2fB|c", ""),
        ("unix:///run/a.sock", "http://localhost/", "", "/run/a.sock"),
        (
            "unix:///run/a%20b.sock",
            "http://localhost/",
            "",
            "/run/a%20b.sock",
        ),  # a file's name, never decoded
    ],
)
def test_a_url_is_taken_apart_as_it_is_written(url: str, root: str, path: str, socket: str) -> None:
    found = origin_url(url)
    assert (str(found.root), found.path, found.socket) == (root, path, socket)


@pytest.mark.parametrize(
    "url",
    [
        *("", "en.example", "ftp://a", "HTTP://a", "http://", "http://a?b", "http://a#b", "http://u:p@a"),
        *("http://a:0", "http://a:65536", "http://a/\x7f", "http://a/é", "http://a b", "http://xn--zz"),
        *("http://[:::]", "http://999.1.1.1", "unix://run/a", "unix:///", "unix:///run/", "unix:///a?b"),
        *("unix:///run/a.sock:/path", "unix:///" + "a" * 107, "unix:///a\nb"),
    ],
)
def test_whatever_names_no_origin_server_is_told_what_does(url: str) -> None:
    with pytest.raises(ValueError, match=r"an http or https URL .* or unix:///PATH"):
        origin_url(url)


@pytest.mark.parametrize(("length", "fits"), [(106, True), (107, False)])
def test_a_sockets_path_has_107_octets_at_most(length: int, fits: bool) -> None:
    path = "/" + "é" * (length // 2) + "a" * (length % 2)
    assert (unix_socket("unix://" + path) == path) is fits
