"""What is stored is compressed once for each coding, by `univocal serve`."""

from __future__ import annotations

import gzip
import http.client
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import brotli
import pytest
import zstandard

Fixture = Callable[..., Any]

TEXT = b"<p>The same words again and again, so that they are easy to compress.</p>\n" * 100
FIELDS = 'Content-Type: text/html; charset=utf-8\r\nCache-Control: max-age=60\r\nETag: "1"'
DECODE = {
    "gzip": gzip.decompress,
    "br": brotli.decompress,
    "zstd": lambda content: zstandard.ZstdDecompressor().decompressobj().decompress(content),
}


@pytest.fixture
def serve(start: Fixture, origin: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fixture:
    """`univocal serve` with these settings of the cache, before an origin server that sends `content`."""

    def serve(
        content: bytes = TEXT,
        fields: str = FIELDS,
        cache: str = 'compress = ["zstd", "br", "gzip"]',
        more: str = "",
    ) -> Any:
        def answer(head: bytes) -> bytes:
            origin.seen.append(head)
            length = len(content)
            return b"HTTP/1.1 200 OK\r\n%b\r\nContent-Length: %d\r\n\r\n%b" % (
                fields.encode(),
                length,
                content,
            )

        origin.answer = answer
        file = tmp_path / "univocal.toml"
        file.write_text(
            '[server]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\n'
            '[cache]\ncompress = ["zstd", "br", "gzip"]\n'
            f'[[sites]]\nhosts = ["a.example"]\nupstream = "{origin.url}"\n{more}'
        )
        return start("serve", "--config", str(file))

    return serve


def accepting(codings: str, more: str = "") -> str:
    return f"Accept-Encoding: {codings}\r\n{more}"


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd"])
def test_a_hit_comes_in_the_coding_that_the_client_takes(
    serve: Fixture, origin: Any, ask: Fixture, coding: str
) -> None:
    proxy = serve().proxy
    miss, hit = (ask(proxy, "/", "a.example", fields=accepting(coding)) for _ in range(2))
    assert (miss.value("Content-Encoding"), miss.body, miss.value("ETag")) == (None, TEXT, '"1"')
    assert (hit.value("Content-Encoding"), hit.value("ETag")) == (coding, 'W/"1"')
    assert DECODE[coding](hit.body) == TEXT
    assert int(hit.value("Content-Length")) == len(hit.body) < len(TEXT) // 5
    assert [each.value("Vary") for each in (miss, hit)] == ["Accept-Encoding"] * 2
    assert len(origin.seen) == 1


def test_the_order_of_the_setting_decides(serve: Fixture, ask: Fixture) -> None:
    proxy = serve().proxy
    ask(proxy, "/", "a.example")
    for codings, coding in [("gzip, br", "br"), ("*", "zstd"), ("br;q=0, gzip", "gzip"), ("deflate", None)]:
        assert ask(proxy, "/", "a.example", fields=accepting(codings)).value("Content-Encoding") == coding
    identity = ask(proxy, "/", "a.example")
    assert (identity.body, identity.value("ETag"), identity.value("Vary")) == (TEXT, '"1"', "Accept-Encoding")


def test_hits_of_one_connection_are_compressed(serve: Fixture, origin: Any, ask: Fixture) -> None:
    """They are answered at a glance."""

    connection = http.client.HTTPConnection(*serve().proxy, timeout=10)
    codings = []
    for accepted in ("gzip", "gzip", "br", ""):
        connection.request("GET", "/", headers={"Host": "a.example", "Accept-Encoding": accepted})
        response = connection.getresponse()
        content, coding = response.read(), response.getheader("Content-Encoding")
        codings.append(coding)
        assert response.getheader("Vary") == "Accept-Encoding"
        assert (DECODE[coding](content) if coding else content) == TEXT
    connection.close()
    assert codings == [None, "gzip", "br", None]
    assert len(origin.seen) == 1


def test_head_and_conditions_are_those_of_the_form(serve: Fixture, ask: Fixture) -> None:
    proxy = serve().proxy
    ask(proxy, "/", "a.example")
    whole, head = (ask(proxy, "/", "a.example", method, accepting("br")) for method in ("GET", "HEAD"))
    assert head.body == b""
    for name in ("Content-Length", "Content-Encoding", "ETag", "Vary"):
        assert head.value(name) == whole.value(name)
    for known in ('"1"', 'W/"1"'):
        unchanged = ask(proxy, "/", "a.example", fields=accepting("br", f"If-None-Match: {known}\r\n"))
        assert (unchanged.status, unchanged.value("ETag"), unchanged.value("Vary")) == (
            304,
            'W/"1"',
            "Accept-Encoding",
        )
        assert unchanged.value("Content-Encoding") is None
    changed = ask(proxy, "/", "a.example", fields=accepting("br", 'If-None-Match: "2"\r\n'))
    assert changed.status == 200


def test_ranges_are_of_the_identity_form(serve: Fixture, ask: Fixture) -> None:
    dated = FIELDS + "\r\nLast-Modified: Sun, 01 Nov 2020 00:00:00 GMT"
    proxy = serve(fields=dated).proxy
    ask(proxy, "/", "a.example")
    part = ask(proxy, "/", "a.example", fields=accepting("gzip", "Range: bytes=0-9\r\n"))
    assert (part.status, part.body, part.value("ETag")) == (206, TEXT[:10], '"1"')
    assert part.value("Content-Encoding") is None
    same = accepting("gzip", 'Range: bytes=0-9\r\nIf-Range: "1"\r\n')
    assert ask(proxy, "/", "a.example", fields=same).status == 206
    for validator in ('W/"1"', "Sun, 01 Nov 2020 00:00:00 GMT"):
        other = accepting("gzip", f"Range: bytes=0-9\r\nIf-Range: {validator}\r\n")
        whole = ask(proxy, "/", "a.example", fields=other)
        assert whole.status == 200
        assert gzip.decompress(whole.body) == TEXT


@pytest.mark.parametrize(
    ("content", "fields"),
    [
        (TEXT[:1000], FIELDS),
        (TEXT, FIELDS.replace("text/html", "image/png")),
        (TEXT, FIELDS.replace("max-age=60", "max-age=60, no-transform")),
        (TEXT, FIELDS + "\r\nContent-Encoding: compress"),
        (TEXT, FIELDS.replace("text/html; charset=utf-8", "text/event-stream")),
    ],
)
def test_what_is_not_to_be_compressed_stays_as_it_is(
    serve: Fixture, ask: Fixture, content: bytes, fields: str
) -> None:
    proxy = serve(content, fields).proxy
    answers = [ask(proxy, "/", "a.example", fields=accepting("gzip")) for _ in range(2)]
    assert [each.body for each in answers] == [content] * 2
    assert [each.value("Vary") for each in answers] == [None] * 2


def test_a_client_may_refuse_a_transformation(serve: Fixture, ask: Fixture) -> None:
    proxy = serve().proxy
    ask(proxy, "/", "a.example")
    answer = ask(proxy, "/", "a.example", fields=accepting("gzip", "Cache-Control: no-transform\r\n"))
    assert (answer.value("Content-Encoding"), answer.body) == (None, TEXT)


def test_a_purge_removes_every_form(serve: Fixture, origin: Any, ask: Fixture) -> None:
    proxy = serve().proxy
    for codings in ("gzip", "gzip", "br"):
        ask(proxy, "/", "a.example", fields=accepting(codings))
    assert json.loads(ask(proxy, "/", "a.example", "PURGE").body)["purged"] == 1
    assert ask(proxy, "/", "a.example", fields=accepting("gzip")).value("Content-Encoding") is None
    assert len(origin.seen) == 2


def test_a_withheld_accept_encoding_still_counts(serve: Fixture, origin: Any, ask: Fixture) -> None:
    proxy = serve(more='[sites.request]\nremove = ["Accept-Encoding"]\n').proxy
    answers = [ask(proxy, "/", "a.example", fields=accepting("gzip")) for _ in range(2)]
    assert [each.value("Content-Encoding") for each in answers] == [None, "gzip"]
    assert b"accept-encoding" not in origin.seen[0].lower()


def test_large_content_is_compressed_meanwhile(serve: Fixture, origin: Any, ask: Fixture) -> None:
    large = TEXT * 1000
    proxy = serve(large).proxy
    for _ in range(200):
        answer = ask(proxy, "/", "a.example", fields=accepting("br"))
        if answer.value("Content-Encoding") == "br":
            break
        assert answer.body == large
        time.sleep(0.02)
    assert brotli.decompress(answer.body) == large
    assert len(origin.seen) == 1


def test_a_site_switches_it_off(serve: Fixture, ask: Fixture) -> None:
    proxy = serve(more="[sites.cache]\ncompress = []\n").proxy
    answers = [ask(proxy, "/", "a.example", fields=accepting("gzip")) for _ in range(2)]
    assert {(each.body, each.value("Vary")) for each in answers} == {(TEXT, None)}


@pytest.mark.parametrize("value", ['["deflate"]', '["br", "br"]', '"br"'])
def test_a_coding_that_there_is_not_is_refused(univocal: Fixture, tmp_path: Path, value: str) -> None:
    file = tmp_path / "univocal.toml"
    file.write_text(
        f'[cache]\ncompress = {value}\n[[sites]]\nhosts = ["a"]\nupstream = "http://127.0.0.1:1"\n'
    )
    ended = univocal("check", "--config", str(file))
    assert ended.returncode == 2
    assert "cache.compress" in ended.stderr
