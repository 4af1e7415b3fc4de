"""`univocal serve` between raw sockets: what origin servers and clients are sent, octet for octet."""

import re
import socket
import time

import pytest

from support import origin_server
from tests.ports import free_port

OK = b"HTTP/1.1 200 OK\r\n"
HOST = b"Host: en.example\r\n"
TIMEOUT = 20


class Raw:
    """An origin server that keeps each request, and answers its head with the octets of `answers`."""

    def __init__(self):
        self.heads = []
        self.answers = lambda head: [OK + b"Content-Length: 4\r\n\r\ngood"]
        self.pause = 0.0  # seconds between the octets of an answer

    def answer(self, head, _):
        self.heads.append(head)
        for place, octets in enumerate(self.answers(head)):
            time.sleep(self.pause if place else 0)
            yield octets


@pytest.fixture
def raw():
    raw = Raw()
    with origin_server(raw.answer) as raw.url:
        yield raw


@pytest.fixture(params=["own", "httpx"])
def proxy(request, inside, raw):
    """The address of a proxy before the origin server, by either transport."""
    return inside(
        f'[origin]\ntransport = "{request.param}"\n'
        f'[[sites]]\nhosts = ["en.example"]\naliases = ["127.0.0.1"]\nprofile = "rfc3986"\n'
        f'upstream = "{raw.url}"\n'
    ).proxy


def talk(address, *pieces):
    """All that comes back until the proxy closes the connection."""
    with socket.create_connection(address, timeout=TIMEOUT) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            connection.sendall(piece)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def asked(line, *fields, content=b"", close=True):
    lines = [line, b"Host: en.example", *([b"Connection: close"] if close else []), *fields]
    return b"\r\n".join(lines) + b"\r\n\r\n" + content


def status(answer):
    return int(answer.split(b" ", 2)[1])


def said(head, name):
    """The values of the field lines of this name."""
    return [value.strip() for value in re.findall(rb"(?im)^%b:([^\r\n]*)" % re.escape(name), head)]


# What an origin server sends


CLEAN = [
    b"HTTP/1.1 200 OK\nContent-Length: 4\nX: y\n\ngood",
    OK + b"Content-Length: 4\r\nX: y\r\nContent-Length: 4\r\n\r\ngood",
    OK + b"X: y\r\nContent-Length: 4, 4\r\n\r\ngood",
    OK + b"X: y\r\nContent-Length: 0004\r\n\r\ngood",
    OK + b"X: y\r\nTransfer-Encoding: chunked\r\n\r\n4 \r\ngood\r\n0\r\n\r\n",
    b"HTTP/1.1 103 E\r\nConnection: close\r\n\r\n" + OK + b"X: y\r\nContent-Length: 4\r\n\r\ngood",
    b"HTTP/1.2 200 OK\r\nX: y\r\nContent-Length: 4\r\n\r\ngood",
]


def test_what_old_origin_servers_write_is_passed_on_clean(proxy, raw):
    for response in CLEAN:
        raw.answers = lambda _, response=response: [response]
        answer = talk(proxy, asked(b"GET /a HTTP/1.0", close=False))
        head, _, content = answer[answer.index(OK) :].partition(b"\r\n\r\n")
        assert content == b"good", response
        assert head.count(b"\n") == head.count(b"\r\n")
        assert said(head, b"x") == [b"y"]
        assert said(head, b"content-length") in ([], [b"4"])


NO_RESPONSES = [
    b"RTSP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nevil",
    OK + b"Transfer-Encoding: foo\r\n\r\nevil",
    OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n",
    OK + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nevil!",
    OK + b"Content-Length: 1000000000000000000\r\n\r\nevil",
]


def test_what_is_no_response(proxy, raw):
    for response in NO_RESPONSES:
        raw.answers = lambda _, response=response: [response]
        answer = talk(proxy, asked(b"GET /a HTTP/1.1"))
        assert (status(answer), b"origin-bad-response" in answer) == (502, True), response
        assert b"evil" not in answer


GOOD = OK + b"Content-Length: 4\r\n\r\ngood"
EVIL = OK + b"Content-Length: 4\r\n\r\nevil"
FRESH = OK + b'Cache-Control: no-cache\r\nETag: "a"\r\nContent-Length: 5\r\n\r\nfresh'


BODILESS = [
    (b"HEAD /empty HTTP/1.1", OK + b"Content-Length: 42\r\n\r\n", 200),
    (b"GET /empty HTTP/1.1", b"HTTP/1.1 204 No Content\r\n\r\n", 204),
    (b"GET /stored HTTP/1.1", b"HTTP/1.1 304 Not Modified\r\n\r\n", 200),
]


@pytest.mark.parametrize("pause", [0.0, 0.1])
def test_content_where_there_is_none_is_nobodys(proxy, raw, pause):
    """The origin server goes on writing, while the next requests are sent and wait for their responses."""
    raw.pause = pause
    for line, head, answered in BODILESS:

        def answers(request, head=head):
            if b" /stored " in request and b"if-none-match" not in request.lower():
                return [FRESH]
            return [head, EVIL] if b" /empty " in request or b" /stored " in request else [b"", GOOD]

        raw.answers = answers
        for number in range(3):
            answer = talk(proxy, asked(line))
            assert (status(answer), b"evil" in answer) == (answered, False)
            for _ in range(2):
                assert talk(proxy, asked(b"GET /%d HTTP/1.1" % number)).endswith(b"good")


def test_an_old_client_without_host_means_its_address(proxy, raw):
    """As HAProxy's bare check does: `OPTIONS / HTTP/1.0`, and nothing more."""
    raw.answers = lambda _: [OK + b"Content-Length: 4\r\n\r\ngood"]
    assert status(talk(proxy, b"OPTIONS / HTTP/1.0\r\n\r\n")) == 200
    assert status(talk(proxy, b"GET /a HTTP/1.0\r\n\r\n")) == 200
    assert status(talk(proxy, b"GET /a HTTP/1.1\r\n\r\n")) == 400


# A proxy that is its own origin server


@pytest.mark.parametrize("transport", ["own", "httpx"])
@pytest.mark.parametrize(
    ("request_line", "via", "requests"),
    [
        (b"POST /x", b"", 18),
        (b"GET /x", b"Via: 1.1 univocal, 1.1 univocal, 1.1 univocal\r\n", 15),  # it waits for itself no more
    ],
)
def test_a_proxy_before_itself_ends_after_sixteen_passes(
    start, tmp_path, transport, request_line, via, requests
):
    port = free_port()
    file = tmp_path / "univocal.toml"
    file.write_text(
        f'[server]\nlisten = "127.0.0.1:{port}"\nadmin = "127.0.0.1:0"\naccess_log = "stdout"\n'
        f'[origin]\ntransport = "{transport}"\n'
        f'[[sites]]\nhosts = ["*"]\nprofile = "rfc3986"\nupstream = "http://127.0.0.1:{port}"\n'
    )
    running = start("serve", "--config", str(file))
    with socket.create_connection(running.proxy, timeout=TIMEOUT) as client:
        client.sendall(request_line + b" HTTP/1.1\r\n" + HOST + via + b"Connection: close\r\n\r\n")
        with client.makefile("rb") as stream:
            answer = stream.read()
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert b'"reason": "origin-unreachable"' in answer
    running.end()
    assert running.out.count('"status":502') == requests
