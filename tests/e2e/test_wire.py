"""`univocal serve` between raw sockets: origin servers of old and others, a client without a host, itself."""

import re
import socket

import pytest

from support import origin_server


def talk(address, request):
    """The status of the answer to a request, and all of it, until the proxy closes the connection."""
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(request)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    return int(answer.split(b" ", 2)[1]), answer


def test_an_old_client_without_host_means_its_address(inside, origin):
    """HAProxy's bare check sends this: `OPTIONS / HTTP/1.0`, and nothing more."""
    site = '[[sites]]\nhosts = ["en.example"]\naliases = ["127.0.0.1"]\n'
    proxy = inside(f'{site}upstream = "{origin.url}"\n').proxy
    for line, status in ((b"OPTIONS / HTTP/1.0", 200), (b"GET /a HTTP/1.0", 200), (b"GET /a HTTP/1.1", 400)):
        assert talk(proxy, line + b"\r\n\r\n")[0] == status


OK = b"HTTP/1.1 200 OK\r\n"
CLEAN = [
    b"HTTP/1.1 200 OK\nContent-Length: 4\nX: y\n\ngood",
    OK + b"Content-Length: 4\r\nX: y\r\nContent-Length: 4\r\n\r\ngood",
    OK + b"X: y\r\nContent-Length: 4, 4\r\n\r\ngood",
    OK + b"X: y\r\nContent-Length: 0004\r\n\r\ngood",
    OK + b"X: y\r\nTransfer-Encoding: chunked\r\n\r\n4 \r\ngood\r\n0\r\n\r\n",
    b"HTTP/1.1 103 E\r\nConnection: close\r\n\r\n" + OK + b"X: y\r\nContent-Length: 4\r\n\r\ngood",
    b"HTTP/1.2 200 OK\r\nX: y\r\nContent-Length: 4\r\n\r\ngood",
]
NO_RESPONSES = [
    b"RTSP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nevil",
    OK + b"Transfer-Encoding: foo\r\n\r\nevil",
    OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n",
    OK + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nevil!",
    OK + b"Content-Length: 1000000000000000000\r\n\r\nevil",
]


@pytest.mark.parametrize("transport", ["own", "httpx"])
def test_a_response_is_passed_on_clean_or_refused(inside, transport):
    sent = [b""]
    with origin_server(lambda *_: sent[0]) as url:
        site = f'[[sites]]\nhosts = ["en.example"]\nupstream = "{url}"\n'
        proxy = inside(f'[origin]\ntransport = "{transport}"\n{site}').proxy
        for sent[0] in (*CLEAN, *NO_RESPONSES):
            status, answer = talk(proxy, b"GET /a HTTP/1.0\r\nHost: en.example\r\n\r\n")
            if sent[0] in NO_RESPONSES:
                assert (status, b"origin-bad-response" in answer, b"evil" in answer) == (502, True, False)
                continue
            head, _, content = answer[answer.index(OK) :].partition(b"\r\n\r\n")
            assert (content, head.count(b"\n")) == (b"good", head.count(b"\r\n"))
            assert re.findall(rb"(?im)^x: *([^\r]*)", head) == [b"y"]
            assert re.findall(rb"(?im)^content-length: *([^\r]*)", head) in ([], [b"4"])


SELF = '[origin]\ntransport = "{}"\n[[sites]]\nhosts = ["*"]\nupstream = "http://127.0.0.1:{}"\n'


@pytest.mark.parametrize("transport", ["own", "httpx"])
@pytest.mark.parametrize(
    ("request_line", "via", "requests"),
    [
        (b"POST /x", b"", 18),
        (b"GET /x", b"Via: 1.1 univocal, 1.1 univocal, 1.1 univocal\r\n", 15),  # it waits for itself no more
    ],
)
def test_a_proxy_before_itself_ends_after_sixteen_passes(inside, transport, request_line, via, requests):
    running = inside(SELF.format(transport, 9))
    assert running.reload(SELF.format(transport, running.proxy[1]))[0] == 200
    head = b" HTTP/1.1\r\nHost: en.example\r\nConnection: close\r\n%b\r\n" % via
    status, answer = talk(running.proxy, request_line + head)
    assert (status, b'"reason": "origin-unreachable"' in answer) == (502, True)
    running.end()
    assert running.out.count('"status":502') == requests
