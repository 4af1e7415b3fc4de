"""Logs as they come: in every format, damaged, binary, and written by somebody who means no good."""

import gzip
import json
import os

import pytest
import zstandard

from examples import cases
from univocal_app.observe.log_reader import LogEntry, LogError, entries, entry_of_any, entry_of_count, seconds
from univocal_learn.corpus import read
from univocal_learn.sample import read_sample

COMBINED = '10.0.0.1 - - [22/Nov/2026:02:03:04 +0000] "GET %s HTTP/1.1" 200 %s "-" "x"'
GOOD = b'{"request_uri": "/good", "status": 200}'


APACHE = (
    b'1.2.3.4 - - [22/Nov/2026:02:03:04 +0100] "GET /a?b=c HTTP/1.1" 200 512 "http://x/" "Mozilla \\"x\\""'
)


READ = LogEntry(b"", b"/a?b=c", b"GET", 200, 512, b"22/Nov/2026:02:03:04 +0100", b"1.2.3.4")
PLAIN = LogEntry(b"", b"/a", b"GET", 200, -1, b"", b"")
NESTED = b'{"request": {"uri": "/a", "method": "GET", "host": "h"}, "status": 200, "size": 5, "ts": 1.5}'
NGINX = b'{"request": "GET /a HTTP/1.1", "status": "404", "bytes_sent": "7", "http_host": "h"}'
OWN = b'{"target": "/\\u00e9", "method": "HEAD", "status": 200, "bytes": 0, "url": "http://h:81/%C3%A9"}'


@cases(
    "line, entry",
    (APACHE, READ),
    (b"shop.example:80 " + APACHE, READ._replace(host=b"shop.example")),
    (APACHE.replace(b"- -", b"- a b"), READ),
    (APACHE.replace(b"512", b"-"), READ._replace(size=-1)),
    (APACHE.replace(b"/a?b=c", b'/\\x22\\"'), READ._replace(target=b'/""')),
    (APACHE.replace(b"/a?b", b"http://h/a?b"), READ._replace(host=b"h")),
    (b"https://shop.example/a?b#c", PLAIN._replace(host=b"shop.example", target=b"/a?b")),
    (b"http://shop.example", PLAIN._replace(host=b"shop.example", target=b"/")),
    (b"/a", PLAIN),
    (NGINX, PLAIN._replace(host=b"h", status=404, size=7)),
    (OWN, LogEntry(b"h:81", b"/\xe9", b"HEAD", 200, 0, b"", b"")),
    (NESTED, PLAIN._replace(host=b"h", size=5, time=b"1.5")),
    (b"7 http://shop.example/a", None),
    (b'{"uri": "/a"}', PLAIN),
    (b'{"uri": "/a", "status": null}', PLAIN._replace(status=0)),
    (b"nonsense", None),
    (b"{nonsense", None),
    (b'{"a": 1}', None),
    (b"[1]", None),
    (b'1.2.3.4 - - [x] "-" 400 0', None),
)
def test_a_line_is_read_or_is_none(line, entry):
    assert entry_of_any(line) == entry


@cases(
    "line, entry",
    (b"7 http://shop.example/a?b", PLAIN._replace(host=b"shop.example", target=b"/a?b", times=7)),
    (b"12 /a", PLAIN._replace(times=12)),
    (b"-1 /a", None),
    (b"1e3 /a", None),
    (b"7", None),
    (b"/a", None),
    (b"7 nothing", None),
    (b"9" * 30 + b" /a", None),
)
def test_a_counted_url_is_read_or_is_none(line, entry):
    assert entry_of_count(line) == entry


def test_log_lines_of_univocal_are_read():
    told = {"target": "/%61", "url": "https://shop.example/a", "status": 200, "bytes": 3, "method": "GET"}
    told |= {"time": "2026-11-22T02:03:04.500Z", "client": "::1", "site": "shop.example"}
    entry = entry_of_any(json.dumps(told).encode())
    assert entry == LogEntry(b"shop.example", b"/%61", b"GET", 200, 3, b"2026-11-22T02:03:04.500Z", b"::1")
    assert seconds(entry.time) == 1795312984.5


@cases(
    "line, host, target",
    (COMBINED % ("/a", 5), b"", b"/a"),
    (COMBINED % (r"/a\"b\\c\x22", 5), b"", b'/a"b\\c"'),
    (COMBINED % (r"/a\tb\nc", 5), b"", b"/a\tb\nc"),  # as Apache httpd writes them
    (COMBINED % ("http://EN.example:80/a", 5), b"en.example", b"/a"),
    ("en.example:443 " + COMBINED % ("/a", 5), b"en.example", b"/a"),
    ("en.example:8080 " + COMBINED % ("/a", 5), b"en.example:8080", b"/a"),
    ("\x1b[31m " + COMBINED % ("/a", 5), b"", b"/a"),
    ('{"host": "EN.example.", "request_uri": "/a", "status": "200"}', b"en.example", b"/a"),
    ('{"host": "a b/c", "request_uri": "/a", "status": 200}', b"", b"/a"),
    ('{"host": ["x"], "uri": {}, "target": "/a", "status": 200}', b"", b"/a"),
)
def test_a_line_names_a_host_and_a_target(line, host, target):
    found = entry_of_any(line.encode())
    assert (found.host, found.target, found.status) == (host, target, 200)


@cases(
    "line, size",
    (COMBINED % ("/a", "17"), 17),
    ('{"request_uri": "/a", "status": 200, "bytes": 17}', 17),
    ('{"request_uri": "/a", "status": 200, "bytes": Infinity}', -1),
    ('{"request_uri": "/a", "status": 200, "bytes": -5}', -1),
    ('{"request_uri": "/a", "status": 200, "bytes": 1e300}', -1),
    ('{"request_uri": "/a", "status": 200, "bytes": [1]}', -1),
)
def test_sizes_are_sizes(line, size):
    found = entry_of_any(line.encode())
    assert found.size == size


STRANGE = {
    "a size of many digits": (COMBINED % ("/a", "9" * 5000)).encode(),
    "a number of many digits": b'{"request_uri": "/a", "status": 200, "bytes": ' + b"9" * 5000 + b"}",
    "endless depth": b'{"a":' + b"[" * 100_000,
    "no object": b"{",
    "a target that is none": b'{"request_uri": {"a": 1}, "status": 200}',
    "zeros": bytes(100_000),
    "more than a MiB": b"/" + b"a" * 5_000_000,
    "noise": b"\xfe" + os.urandom(50_000).replace(b"\n", b"") + b"\xff",  # "#" would begin a comment
}


@pytest.mark.parametrize("line", STRANGE.values(), ids=STRANGE)
def test_lines_without_a_request_are_skipped(line, tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"%b\n%b\n" % (line, GOOD))
    corpus = read(entries([str(log)]))
    assert corpus.skipped >= 1
    assert corpus.urls.targets == [b"/good"]
    assert read_sample(str(log), b"en.example").targets == (b"/good",)


def test_lone_surrogates_are_read_all_the_same():
    line = {
        "request_uri": "/a\ud800\u0416",
        "host": "\ud800",
        "client": "\ud800",
        "time": "\ud800",
        "status": 200,
    }
    found = entry_of_any(json.dumps(line).encode())
    assert found.target == b"/a\\ud800\xd0\x96"
    assert found.host == b""


DAMAGED = {
    "gzip, cut": lambda whole: gzip.compress(whole)[:-20],
    "gzip, changed": lambda whole: gzip.compress(whole)[:50] + bytes(50) + gzip.compress(whole)[100:],
    "gzip, of no known kind": lambda whole: b"\x1f\x8b\x09" + whole,
    "zstd, cut": lambda whole: zstandard.compress(whole)[:-20],
    "zstd, cut behind a frame": lambda whole: zstandard.compress(whole) + zstandard.compress(whole)[:20],
    "zstd, changed": lambda whole: zstandard.compress(whole)[:6] + b"\xff" * 60,
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_log_is_no_crash(damage, tmp_path):
    log = tmp_path / "log"
    log.write_bytes(damage(b"".join(b"/%d\n" % number**5 for number in range(5000))))
    with pytest.raises(LogError, match="log: "):
        list(entries([str(log)]))
    with pytest.raises(LogError, match="log: "):
        read_sample(str(log), b"en.example")


def test_a_log_of_several_members_is_read_whole(tmp_path):
    log = tmp_path / "log"
    for pack in (gzip.compress, zstandard.compress):
        log.write_bytes(pack(b"/a\n/b\n") + pack(b"/c\n"))
        assert [found.target for found in entries([str(log)]) if found] == [b"/a", b"/b", b"/c"]


@cases(
    "text, moment",
    (b"22/Nov/2026:02:03:04 +0000", 1795312984.0),
    (b"22/Nov/2026:03:03:04 +0100", 1795312984.0),
    (b"2026-11-22T02:03:04Z", 1795312984.0),
    (b"2026-11-22T02:03:04+00:00", 1795312984.0),
    (b"2026-11-22T03:03:04+01:00", 1795312984.0),
    (b"2026-11-22T02:03:04", 1795312984.0),
    (b"1795312984.5", 1795312984.5),
    (b"nan", None),
    (b"1e999", None),
    (b"yesterday", None),
)
def test_the_time_of_a_line_is_read_in_every_form(text, moment):
    assert seconds(text) == moment


def test_a_sitemap_is_read_in_time(tmp_path):
    """However its elements are left open."""
    sitemap = tmp_path / "sitemap.xml"
    found = "<loc><![CDATA[ https://en.example/a?x=1&amp;y=2 ]]></loc><image:loc>\n/b\n</image:loc>"
    sitemap.write_text("<urlset>" + found + "<loc>" * 50_000 + " " * 200_000)
    assert read_sample(str(sitemap), b"en.example").targets == (b"/a?x=1&y=2", b"/b")
    sitemap.write_text("<sitemapindex><sitemap><loc>https://en.example/1.xml</loc></sitemap></sitemapindex>")
    with pytest.raises(LogError, match="an index of others"):
        read_sample(str(sitemap), b"en.example")


def test_a_host_with_its_scheme_s_port_is_the_host():
    lines = [
        b"http://a.example:80/b",
        b"https://A.example:443/b",
        b"http://a.example/b",
        b"http://a.example:81/b",
    ]
    corpus = read(map(entry_of_any, lines))
    assert corpus.urls.hosts == [b"a.example", b"a.example:81"]


ASKED = LogEntry(b"shop.example", b"/a?b=c", b"GET", 200, 512, b"", b"192.0.2.1")
TRAEFIK = (
    b'{"ClientAddr":"192.0.2.1:5000","ClientHost":"192.0.2.1","DownstreamContentSize":512,'
    b'"DownstreamStatus":200,"RequestAddr":"shop.example","RequestHost":"shop.example","RequestMethod":"GET","RequestPath":"/a?b=c",'
    b'"StartUTC":"2026-11-22T02:03:04Z","level":"info","msg":"","time":"2026-11-22T02:03:04Z"}'
)
CADDY = (
    b'{"level":"info","ts":1795312984,"logger":"http.log.access","msg":"handled request","request":'
    b'{"remote_ip":"192.0.2.1","remote_port":"5000","client_ip":"192.0.2.1","proto":"HTTP/2.0",'
    b'"method":"GET","host":"shop.example","uri":"/a?b=c","headers":{"User-Agent":["x"]}},"bytes_read":0,"size":512,"status":200}'
)
HAPROXY = (
    b"Nov 22 02:03:04 localhost haproxy[14389]: 192.0.2.1:33317 [22/Nov/2026:02:03:04.655] http-in "
    b'static/srv1 10/0/30/69/109 200 512 - - ---- 1/1/1/1/0 0/0 {shop.example} {} "GET /a?b=c HTTP/1.1"'
)
BALANCER = (
    b"https 2026-11-22T02:03:04.000000Z app/my-lb/50dc6c495c0c9188 192.0.2.1:2817 10.0.0.1:80 0.086 0.048 "
    b'0.037 200 200 34 512 "GET https://shop.example:443/a?b=c HTTP/1.1" "curl/7.46.0" ECDHE TLSv1.2'
)
MANAGER = (
    b'[22/Nov/2026:02:03:04 +0000] - 200 200 - GET https shop.example "/a?b=c" [Client 192.0.2.1] '
    b'[Length 512] [Gzip -] [Sent-to 10.0.0.5] "curl" "-"'
)
HOST_FIRST = (
    b'shop.example 192.0.2.1 - - [22/Nov/2026:02:03:04 +0000] "GET /a?b=c HTTP/1.1" 200 512 "-" "curl"'
)


@pytest.mark.parametrize("prefix", [b"", b"web-1  | ", b"my_app_web_1         | "])
@pytest.mark.parametrize("line", [TRAEFIK, CADDY, HAPROXY, BALANCER, MANAGER, HOST_FIRST])
def test_logs_of_other_servers_are_read(line, prefix):
    entry = entry_of_any(prefix + line)
    assert entry._replace(time=b"") == ASKED
    assert seconds(entry.time) == 1795312984.0


@cases("unit", b"1:1 ", b"[a] 200 - GET ", b"https x ", b"1.2.3.4:1 [a] b c/d 1/1 ", b"a | ")
def test_no_line_takes_long(unit):
    assert entry_of_any(unit * (2**16 // len(unit))) is None
