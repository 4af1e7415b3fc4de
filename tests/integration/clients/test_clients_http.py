"""Purges as curl, MediaWiki and WordPress's plugins send them to `univocal serve`."""

import json
import re
import shutil
import socket
import subprocess

import pytest

from support import head_of, origin_server, response_with

TITLES = ["/wiki/Steve_Fuller_(sociologist)", "/wiki/A/B", "/wiki/C%3F?action=raw"]


@pytest.fixture(scope="module")
def origin():
    """An origin server that counts; the port."""
    count = 0

    def answer(head, _):
        nonlocal count
        count += 1
        tags = b"all " + head.split(b" ")[1].split(b"/")[1]
        fields = b"Cache-Control: s-maxage=3600\r\nSurrogate-Key: %b\r\n" % tags
        return response_with(b"answer %d" % count, fields)

    with origin_server(answer) as url:
        yield int(url.rpartition(":")[2])


@pytest.fixture(scope="module")
def proxy(origin, serve):
    return serve(origin, "mediawiki", "strip_tags = true")


@pytest.fixture
def filled(proxy):
    """The proxy with all titles stored, under two hosts."""
    proxy.admin.ask("/-/purge", "POST", "localhost", '{"all": true}')
    for title in TITLES:
        for host in ("en.example", "ru.example"):
            assert "stored" in proxy.front.ask(title, host=host).cache
    return proxy


def stored(proxy, host="en.example"):
    """Which of the titles are still there."""
    asked = {"Cache_Control": "only-if-cached"}
    return [proxy.front.ask(title, host=host, **asked).status == 200 for title in TITLES]


# curl


@pytest.fixture
def curl():
    program = shutil.which("curl")
    if program is None:
        pytest.skip("needs curl")

    def curl(*arguments):
        ended = subprocess.run(
            [program, "-sS", *arguments], capture_output=True, text=True, timeout=30, check=True
        )
        return json.loads(ended.stdout)

    return curl


def test_curl(filled, curl):
    told = curl("-X", "PURGE", "-H", "Host: en.example", f"{filled.front}/wiki/A%2fB")
    assert told == {"purged": 1, "key": "http://en.example/wiki/A/B"}
    assert (stored(filled), stored(filled, "ru.example")) == ([True, False, True], [True] * 3)


def test_curl_with_dot_segments_kept(filled, curl):
    told = curl("--path-as-is", "-X", "PURGE", "-H", "Host: www.en.example", f"{filled.front}/x/../wiki/A/B")
    assert told == {"purged": 1, "key": "http://en.example/wiki/A/B"}


@pytest.mark.parametrize("listener", ["front", "admin"])
def test_curl_through_a_proxy(filled, curl, listener):
    """An absolute-form: `-x` names the proxy, as MediaWiki's curl is told."""
    url = "http://en.example/wiki/Steve_Fuller_%28sociologist%29"
    told = curl("-x", str(getattr(filled, listener)), "-X", "PURGE", url)
    assert told == {"purged": 1, "key": "http://en.example/wiki/Steve_Fuller_(sociologist)"}


def test_curl_softly_by_tag(filled, curl):
    fields = ["-H", "Surrogate-Key: wiki", "-H", "Soft-Purge: 1"]
    told = curl("-X", "PURGE", *fields, str(filled.front))
    assert told == {"softened": 6, "by": "tag", "value": "wiki"}
    assert "fwd=stale" in filled.front.ask(TITLES[0]).cache


@pytest.mark.parametrize("listener", ["front", "admin"])
def test_curl_bans(filled, curl, listener):
    pytest.importorskip("re2", reason="patterns need google-re2 (univocal[re2])")
    told = curl("-X", "BAN", "-H", "Host: en.example", f"{getattr(filled, listener)}/wiki/(A|C).*")
    assert told["banned"] is True
    assert (stored(filled), stored(filled, "ru.example")) == ([True, False, False], [True] * 3)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"url": "https://www.en.example/wiki/A%2FB"}, {"purged": 1, "key": "https://en.example/wiki/A/B"}),
        ({"prefix": "http://en.example/%77iki/"}, {"purged": 3, "by": "prefix"}),
        ({"tag": "wiki", "soft": True}, {"softened": 6, "by": "tag", "value": "wiki"}),
        ({"all": True}, {"purged": 6, "by": "all", "value": "*"}),
    ],
)
def test_curl_posts_to_the_admin_listener(filled, curl, asked, told):
    assert told.items() <= curl("-d", json.dumps(asked), f"{filled.admin}/-/purge").items()


def test_curl_posts_a_pattern(filled, curl):
    pytest.importorskip("re2", reason="patterns need google-re2 (univocal[re2])")
    told = curl("-d", json.dumps({"pattern": r"ru\.example/.*action=raw$"}), f"{filled.admin}/-/purge")
    assert told == {"banned": True, "by": "pattern", "value": r"ru\.example/.*action=raw$"}
    assert (stored(filled), stored(filled, "ru.example")) == ([True] * 3, [True, True, False])


def test_every_purge_is_in_the_log(filled, curl):
    seen = len(filled.purges)
    curl("-X", "PURGE", "-H", "Host: en.example", f"{filled.front}/wiki/A%2fB")
    curl("-d", '{"tag": "wiki"}', f"{filled.admin}/-/purge")
    stored(filled)
    by_url, by_tag = filled.purges[seen:]
    assert (by_url["client"], by_url["method"], by_url["status"]) == ("127.0.0.1", "PURGE", 200)
    assert (by_url["target"], by_url["url"]) == ("/wiki/A%2fB", "http://en.example/wiki/A/B")
    assert by_url["purge"] == {
        "by": "key",
        "names": ["http://en.example/wiki/A/B"],
        "soft": False,
        "count": 1,
    }
    assert by_tag["purge"] == {"by": "tag", "names": ["wiki"], "soft": False, "count": 5}


def test_tags_are_not_shown(filled):
    assert filled.front.ask(TITLES[0]).fields["surrogate-key"] is None


# MediaWiki: $wgCdnServers


def exchanges(address, request, count):
    """Send octets, and read so many answers."""
    with socket.create_connection((address.host, address.port), timeout=30) as connection:
        connection.sendall(request.encode())
        reader = connection.makefile("rb")
        answers = []
        for _ in range(count):
            status = int(reader.readline().split()[1])
            head = head_of(reader)
            length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
            answers.append((status, json.loads(reader.read(length))))
        return answers


def test_mediawiki_purges_many_on_one_connection(filled):
    """CdnCacheUpdate: MultiHttpClient takes the cache for a proxy, keeps its connections, and pipelines."""
    fields = "Host: en.example\r\nConnection: Keep-Alive\r\nProxy-Connection: Keep-Alive\r\n"
    urls = [f"http://en.example{title}" for title in TITLES]
    urls[0] = urls[0].replace("(", "%28").replace(")", "%29")
    agent = "User-Agent: MediaWiki/1.44.0 MediaWiki\\Deferred\\CdnCacheUpdate\r\n"
    sent = "".join(f"PURGE {url} HTTP/1.1\r\n{fields}{agent}\r\n" for url in urls)
    told = [{"purged": 1, "key": f"http://en.example{title}"} for title in TITLES]
    assert exchanges(filled.front, sent, 3) == [(200, each) for each in told]
    assert (stored(filled), stored(filled, "ru.example")) == ([False] * 3, [True] * 3)


def test_an_absolute_form_of_http_1_0_needs_no_host(filled):
    """As MediaWiki's SquidPurgeClient sent it."""
    sent = f"PURGE http://en.example{TITLES[1]} HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"
    assert exchanges(filled.front, sent, 1) == [(200, {"purged": 1, "key": "http://en.example/wiki/A/B"})]


# WordPress: Proxy Cache Purge and those like it


@pytest.mark.parametrize(
    ("target", "way", "left"),
    [
        ("/wiki/A/B", "exact", [True, False, True]),
        ("/wiki/A%2fB", "default", [True, False, True]),
        ("/wiki/A/.*", "regex", [True, False, True]),
        ("/.*", "regex", [False, False, False]),
    ],
)
def test_wordpress(filled, target, way, left):
    if way == "regex":
        pytest.importorskip("re2", reason="patterns need google-re2 (univocal[re2])")
    answer = filled.front.ask(target, "PURGE", X_Purge_Method=way)
    assert answer.status == 200
    assert (stored(filled), stored(filled, "ru.example")) == (left, [True] * 3)
