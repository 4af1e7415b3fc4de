"""`univocal serve` compresses a stored response once for each coding."""

import http.client
import threading
import time
import zlib

import brotli
import pytest

from support import origin_server, response_with

TEXT = b"<p>The same words again and again, so that they are easy to compress.</p>\n" * 100
FIELDS = 'Content-Type: text/html; charset=utf-8\r\nCache-Control: max-age=60\r\nETag: "1"'
SETTINGS = '[cache]\ncompress = ["zstd", "br", "gzip"]\n[[sites]]\nhosts = ["a.example"]\nupstream = "{}"\n'


@pytest.fixture
def serve(inside, origin):
    """`univocal serve` with these settings of the cache, before an origin server that sends `content`."""

    def serve(content=TEXT, more=""):
        def answer(head):
            origin.seen.append(head)
            return response_with(content, f"{FIELDS}\r\n".encode())

        origin.answer = answer
        return inside(SETTINGS.format(origin.url) + more)

    return serve


def accepting(coding):
    return f"Accept-Encoding: {coding}\r\n"


def test_a_withheld_accept_encoding_still_counts(serve, origin, ask):
    proxy = serve(more='[sites.request]\nremove = ["Accept-Encoding"]\n').proxy
    answers = [ask(proxy, "/", "a.example", fields=accepting("gzip")) for _ in range(2)]
    assert [each.value("Content-Encoding") for each in answers] == [None, "gzip"]
    assert b"accept-encoding" not in origin.seen[0].lower()


def test_large_content_is_compressed_meanwhile(serve, origin, ask):
    large = TEXT * 1000
    proxy = serve(large).proxy
    for _ in range(1500):
        answer = ask(proxy, "/", "a.example", fields=accepting("br"))
        if answer.value("Content-Encoding") == "br":
            break
        assert answer.body == large
        time.sleep(0.02)
    assert brotli.decompress(answer.body) == large
    assert len(origin.seen) == 1


def test_a_slow_stream_reaches_its_client_as_it_comes(inside):
    """An event is there at once, and so is a part of text; what breaks off ends so, too."""
    begun = threading.Event()

    def slow(head, _):
        kind = b"event-stream" if b"/events" in head else b"plain"
        yield b"HTTP/1.1 200 OK\r\nContent-Type: text/%b\r\nCache-Control: no-store\r\n" % kind
        yield b"Transfer-Encoding: chunked\r\n\r\n"
        for _ in range(3):
            yield b"8\r\ndata: 1\n\r\n"
            assert begun.wait(20)
            begun.clear()
        raise ConnectionError

    with origin_server(slow) as url:
        proxy = inside(SETTINGS.format(url)).proxy
        for path, coding in (("/events", None), ("/text", "gzip")):
            connection = http.client.HTTPConnection(*proxy, timeout=20)
            connection.request("GET", path, headers={"Host": "a.example", "Accept-Encoding": "gzip"})
            response = connection.getresponse()
            assert response.getheader("Content-Encoding") == coding
            decoder, content = zlib.decompressobj(31), b""
            for number in range(1, 4):
                while len(content) < 8 * number:
                    piece = response.read1()
                    assert piece
                    content += decoder.decompress(piece) if coding else piece
                assert content == b"data: 1\n" * number
                begun.set()
            with pytest.raises(http.client.HTTPException):
                response.read()
            connection.close()
