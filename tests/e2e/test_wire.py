"""`univocal serve` before raw clients: one of old without a host, and itself."""

import socket

import pytest


def talk(address, request):
    """The status of the answer to a request, and all of it, until the proxy closes the connection."""
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(request)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    return int(answer.split(b" ", 2)[1]), answer


def test_an_old_client_without_host_means_its_address(inside, origin):
    """As HAProxy's bare check does: `OPTIONS / HTTP/1.0`, and nothing more."""
    site = '[[sites]]\nhosts = ["en.example"]\naliases = ["127.0.0.1"]\n'
    proxy = inside(f'{site}upstream = "{origin.url}"\n').proxy
    for line, status in ((b"OPTIONS / HTTP/1.0", 200), (b"GET /a HTTP/1.0", 200), (b"GET /a HTTP/1.1", 400)):
        assert talk(proxy, line + b"\r\n\r\n")[0] == status


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
