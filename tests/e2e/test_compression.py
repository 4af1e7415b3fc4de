"""What is stored is compressed once for each coding, by `univocal serve`."""

from __future__ import annotations

import gzip
import http.client
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
