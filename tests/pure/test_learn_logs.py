"""Logs as they come: in every format, damaged, binary, and written by somebody who means no good."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from univocal_app.learn.corpus import read
from univocal_app.learn.logs import LogError, entries, entry_of_any, seconds
from univocal_app.learn.sample import read_sample

COMBINED = '10.0.0.1 - - [22/Nov/2026:02:03:04 +0000] "GET %s HTTP/1.1" 200 %s "-" "x"'
GOOD = b'{"request_uri": "/good", "status": 200}'


@pytest.mark.parametrize(
    ("line", "host", "target"),
    [
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
        ('{"request": {"uri": "/a", "host": "en.example"}, "status": 200}', b"en.example", b"/a"),
        ("https://en.example/a#top", b"en.example", b"/a"),
    ],
)
def test_a_line_names_a_host_and_a_target(line: str, host: bytes, target: bytes) -> None:
    found = entry_of_any(line.encode())
    assert found is not None
    assert (found.host, found.target, found.status) == (host, target, 200)


@pytest.mark.parametrize(
    ("line", "size"),
    [
        (COMBINED % ("/a", "17"), 17),
        (COMBINED % ("/a", "-"), -1),
        ('{"request_uri": "/a", "status": 200, "bytes": 17}', 17),
        ('{"request_uri": "/a", "status": 200, "bytes": Infinity}', -1),
        ('{"request_uri": "/a", "status": 200, "bytes": -5}', -1),
        ('{"request_uri": "/a", "status": 200, "bytes": 1e300}', -1),
        ('{"request_uri": "/a", "status": 200, "bytes": [1]}', -1),
    ],
)
def test_sizes_are_sizes(line: str, size: int) -> None:
    found = entry_of_any(line.encode())
    assert found is not None
    assert found.size == size


STRANGE = {
    "a size of many digits": (COMBINED % ("/a", "9" * 5000)).encode(),
    "a number of many digits": b'{"request_uri": "/a", "status": 200, "bytes": ' + b"9" * 5000 + b"}",
    "endless depth": b'{"a":' + b"[" * 100_000,
    "no object": b"{",
    "a target that is none": b'{"request_uri": {"a": 1}, "status": 200}',
    "zeros": bytes(100_000),
    "more than a MiB": b"/" + b"a" * 5_000_000,
    "noise": os.urandom(50_000).replace(b"\n", b"") + b"\xff",
}


@pytest.mark.parametrize("line", STRANGE.values(), ids=STRANGE)
def test_what_is_no_request_is_skipped_and_the_rest_is_read(line: bytes, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"%b\n%b\n" % (line, GOOD))
    corpus = read(entries([str(log)]))
    assert corpus.skipped >= 1
    assert corpus.urls.targets == [b"/good"]
    assert read_sample(str(log), b"en.example").targets == (b"/good",)


def test_what_is_no_text_is_read_all_the_same() -> None:
    line = {
        "request_uri": "/a\ud800\u0416",
        "host": "\ud800",
        "client": "\ud800",
        "time": "\ud800",
        "status": 200,
    }
    found = entry_of_any(json.dumps(line).encode())
    assert found is not None
    assert found.target == b"/a\\ud800\xd0\x96"
    assert found.host == b""


DAMAGED: dict[str, Callable[[bytes], bytes]] = {
    "gzip, cut": lambda whole: gzip.compress(whole)[:-20],
    "gzip, changed": lambda whole: gzip.compress(whole)[:50] + bytes(50) + gzip.compress(whole)[100:],
    "gzip, of no known kind": lambda whole: b"\x1f\x8b\x09" + whole,
    "zstd, cut": lambda whole: zstandard.compress(whole)[:-20],
    "zstd, cut behind a frame": lambda whole: zstandard.compress(whole) + zstandard.compress(whole)[:20],
    "zstd, changed": lambda whole: zstandard.compress(whole)[:6] + b"\xff" * 60,
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_log_is_no_crash(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(damage(b"".join(b"/%d\n" % number**5 for number in range(5000))))
    with pytest.raises(LogError, match="log: "):
        list(entries([str(log)]))
    with pytest.raises(LogError, match="log: "):
        read_sample(str(log), b"en.example")


def test_a_log_of_several_members_is_read_whole(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for pack in (gzip.compress, zstandard.compress):
        log.write_bytes(pack(b"/a\n/b\n") + pack(b"/c\n"))
        assert [found.target for found in entries([str(log)]) if found] == [b"/a", b"/b", b"/c"]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        (b"22/Nov/2026:02:03:04 +0000", 1795312984.0),
        (b"2026-11-22T02:03:04Z", 1795312984.0),
        (b"2026-11-22T03:03:04+01:00", 1795312984.0),
        (b"2026-11-22T02:03:04", 1795312984.0),
        (b"1795312984.5", 1795312984.5),
        (b"nan", None),
        (b"1e999", None),
        (b"yesterday", None),
    ],
)
def test_the_time_of_a_line_is_read_in_every_form(text: bytes, moment: float | None) -> None:
    assert seconds(text) == moment


def test_a_sitemap_is_read_in_time(tmp_path: Path) -> None:
    """However its elements are left open."""
    sitemap = tmp_path / "sitemap.xml"
    found = "<loc><![CDATA[ https://en.example/a?x=1&amp;y=2 ]]></loc><image:loc>\n/b\n</image:loc>"
    sitemap.write_text("<urlset>" + found + "<loc>" * 200_000 + " " * 1_000_000)
    assert read_sample(str(sitemap), b"en.example").targets == (b"/a?x=1&y=2", b"/b")
    sitemap.write_text("<sitemapindex><sitemap><loc>https://en.example/1.xml</loc></sitemap></sitemapindex>")
    with pytest.raises(LogError, match="an index of others"):
        read_sample(str(sitemap), b"en.example")


def test_a_host_with_its_scheme_s_port_is_the_host() -> None:
    lines = [
        b"http://a.example:80/b",
        b"https://A.example:443/b",
        b"http://a.example/b",
        b"http://a.example:81/b",
    ]
    corpus = read(map(entry_of_any, lines))
    assert corpus.urls.hosts == [b"a.example", b"a.example:81"]
