"""Purges as curl, MediaWiki, WordPress's plugins and `univocal purge` send them, and what the log says."""

import json
import os
import pty
import re
import shutil
import socket
import subprocess
import sys
import threading

import pytest

import forking
from examples import cases
from support import head_of, origin_server, response_with
from tests.integration.clients.conftest import ENVIRONMENT

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
    proxy.admin.ask("/-/purge", "POST", '{"all": true}', host="localhost")
    for title in TITLES:
        for host in ("en.example", "ru.example"):
            assert "stored" in proxy.front.ask(title, host=host).cache
    return proxy


def stored(proxy, host="en.example"):
    """Tell for each of the titles whether it is still stored."""
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
    with socket.create_connection(("127.0.0.1", address.port), timeout=30) as connection:
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
    """MediaWiki's SquidPurgeClient sent it."""
    sent = f"PURGE http://en.example{TITLES[1]} HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"
    assert exchanges(filled.front, sent, 1) == [(200, {"purged": 1, "key": "http://en.example/wiki/A/B"})]


# WordPress: Proxy Cache Purge and those like it


@cases(
    "target, way, left",
    ("/wiki/A/B", "exact", [True, False, True]),
    ("/wiki/A%2fB", "default", [True, False, True]),
    ("/wiki/A/.*", "regex", [True, False, True]),
    ("/.*", "regex", [False, False, False]),
)
def test_wordpress(filled, target, way, left):
    if way == "regex":
        pytest.importorskip("re2", reason="patterns need google-re2 (univocal[re2])")
    answer = filled.front.ask(target, "PURGE", X_Purge_Method=way)
    assert answer.status == 200
    assert (stored(filled), stored(filled, "ru.example")) == (left, [True] * 3)


# `univocal purge` of many URLs, on a terminal and without one


MANY = 300
NUMBERS = range(MANY)


@pytest.fixture
def many(proxy):
    """The proxy with many stored responses."""
    for number in NUMBERS:
        proxy.front.ask(f"/wiki/Page_({number})")
    return proxy


@pytest.mark.parametrize("stdout", ["terminal", "pipe"])
def test_a_progress_bar_on_a_terminal(many, tmp_path, stdout):
    file = tmp_path / "urls"
    file.write_text("".join(f"http://en.example/wiki/Page_%28{number}%29\n" for number in NUMBERS))
    ours, theirs = pty.openpty()
    shown = bytearray()

    def watch():
        try:
            while octets := os.read(ours, 65536):
                shown.extend(octets)
        except OSError:  # what Linux says when the other end is closed
            pass

    via = ("--via", str(many.front), "--admin", str(many.admin))
    with forking.Program(
        [sys.executable, "-m", "univocal_app", "purge", *via, "--file", str(file)],
        env=ENVIRONMENT | {"TERM": "xterm", "COLUMNS": "100"},
        stdout=theirs if stdout == "terminal" else subprocess.PIPE,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        watcher = threading.Thread(target=watch)
        watcher.start()
        lines = process.stdout.read().splitlines() if process.stdout else []
        assert process.wait(60) == 0
    watcher.join()
    os.close(ours)
    text = shown.decode()
    assert re.search(rf"purging .*\b\d+/{MANY}", text)
    assert f"{MANY} confirmed, 0 failed" in text
    if stdout == "pipe":
        assert len(lines) == MANY
        assert lines[7] == b"http://en.example/wiki/Page_%287%29\tpurged 1\thttp://en.example/wiki/Page_(7)"
        assert "uri-miss" in many.front.ask("/wiki/Page_(7)").cache
        assert "purged 1" not in text
    else:
        assert text.count("purged 1") == MANY


# Every purge leaves a line, one that its server's parser refuses as well


HOST = "Host: en.example\r\n"


@pytest.fixture(scope="module")
def audited(serve):
    return serve(9, "rfc3986")


def sent(address, octets, *, read=True):
    """Send these bytes, and return the answer; without `read` the client leaves at once."""
    with socket.create_connection(("127.0.0.1", address.port), timeout=20) as connection:
        connection.sendall(octets)
        return b"".join(iter(lambda: connection.recv(65536), b"")) if read else b""


REFUSED = {
    "two lengths": (
        "PURGE /a HTTP/1.1\r\n" + HOST + "Content-Length: 1\r\nContent-Length: 2\r\n",
        "bad-framing",
    ),
    "two framings": (
        "PURGE /a HTTP/1.1\r\n" + HOST + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "bad-framing",
    ),
    "no host": ("PURGE /a HTTP/1.1\r\n", "bad-host"),
    "two hosts": ("PURGE /a HTTP/1.1\r\n" + HOST + HOST, "bad-host"),
    "control character": ("PURGE /a\x01 HTTP/1.1\r\n" + HOST, "control-character"),
    "relative": ("PURGE a HTTP/1.1\r\n" + HOST, "no-leading-slash"),
    "too long": (f"PURGE /{'a' * 8192} HTTP/1.1\r\n" + HOST, "target-too-long"),
    "many fields": ("PURGE /a HTTP/1.1\r\n" + HOST + "X: y\r\n" * 150, "fields-too-large"),
    "a ban": ("BAN /a HTTP/1.1\r\n" + HOST + HOST, "bad-host"),
    "encoded octets": ("PURGE /a%00 HTTP/1.1\r\n" + HOST, "control-character"),
}


@pytest.mark.parametrize("listener", ["front", "admin"])
@pytest.mark.parametrize("name", REFUSED)
def test_a_purge_that_is_refused_is_a_line(audited, name, listener):
    head, reason = REFUSED[name]
    before = len(audited.purges)
    answer = sent(getattr(audited, listener), (head + "Connection: close\r\n\r\n").encode("latin-1"))
    (line,) = audited.purges[before:]
    assert line["status"] == int(answer.split(b" ", 2)[1])
    assert line["reasons"][0] == reason
    assert line["client"] == "127.0.0.1"
    assert line["method"] == head.partition(" ")[0]


def test_ambiguous_framing_purges_nothing_at_the_admin_listener(audited):
    framing = "Content-Length: 13\r\nTransfer-Encoding: chunked\r\n"
    head = f"POST /-/purge HTTP/1.1\r\nHost: 127.0.0.1\r\n{framing}\r\n"
    answer = sent(audited.admin, head.encode() + b'd\r\n{"all": true}\r\n0\r\n\r\n')
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["reason"] == "bad-framing"


def test_an_unfinished_purge_request_is_a_log_line(audited):
    before = len(audited.log.read_text().splitlines())
    head = "POST /-/purge HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{"
    sent(audited.admin, head.encode(), read=False)
    sent(audited.admin, b"PURGE /a HTTP/1.1\r\nHost: en.example\r\nConnection: close\r\n\r\n")
    left, _ = map(json.loads, audited.log.read_text().splitlines()[before:])
    assert (left["method"], left["target"], left["status"]) == ("POST", "/-/purge", 0)


def test_a_rejected_request_is_a_line_as_well(audited):
    before = len(audited.log.read_text().splitlines())
    sent(audited.front, b"GET /a HTTP/1.1\r\n\r\n")
    (line,) = map(json.loads, audited.log.read_text().splitlines()[before:])
    assert (line["method"], line["target"], line["status"], line["reasons"]) == (
        "GET",
        "/a",
        400,
        ["bad-host"],
    )
