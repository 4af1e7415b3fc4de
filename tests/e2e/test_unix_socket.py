"""`upstream = "unix:///PATH"`: an application server that listens on a socket of this machine."""

import contextlib
import json
import re

import pytest

from support import origin_server, response_with

PORTS = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
TARGET = "/%7Ea%2Fb/../c;d=e?x=%20&y=[z]"


@pytest.fixture
def listen(tmp_path):
    """Listen on a socket of this name; what it gives is filled with the heads that come."""
    with contextlib.ExitStack() as stack:

        def begin(name):
            heads = []

            def answer(head, _):
                heads.append(head)
                return response_with(b"ok", b"Cache-Control: no-store\r\nConnection: close\r\n")

            stack.enter_context(origin_server(answer, tmp_path / name))
            return heads

        yield begin


def host_of(head):
    (host,) = re.findall(rb"(?i)\r\nhost: *([^\r]*)\r\n", head)
    return bytes(host)


def test_from_the_command_line(start, ask, listen, tmp_path):
    proxy = start("serve", "--upstream", f"unix://{tmp_path}/app.sock", *PORTS).proxy
    # The application may come later than its proxy.
    refused = ask(proxy, TARGET, "en.example")
    assert (refused.status, json.loads(refused.body)["reason"]) == (502, "origin-unreachable")
    heads = listen("app.sock")
    assert ask(proxy, TARGET, "en.example:8080").body == b"ok"
    (head,) = heads
    assert head.startswith(b"GET /c;d=e?x=%20&y=[z] HTTP/1.1\r\n")
    assert host_of(head) == b"en.example:8080"


@pytest.mark.parametrize("transport", ["own", "httpx"])
def test_from_a_file(inside, ask, listen, tmp_path, transport):
    text = f"""
        [origin]
        transport = "{transport}"
        [[sites]]
        hosts = ["en.example"]
        upstream = "unix://{tmp_path}/a.sock"
        [[sites.routes]]
        path = "/api/"
        upstream = "unix://{tmp_path}/b.sock"
        [[sites]]
        hosts = ["de.example"]
        upstream = "unix://{tmp_path}/a.sock"
        origin_host = "upstream"
    """
    first, second = listen("a.sock"), listen("b.sock")
    proxy = inside(text).proxy
    for target, host in (("/x%2Fy", "en.example"), ("/api/x", "en.example"), ("/", "de.example")):
        assert ask(proxy, target, host).body == b"ok"
    # No path of a URL stands before a target: what follows unix:// is the socket's, all of it.
    assert [head.partition(b"\r\n")[0] for head in first] == [b"GET /x%2Fy HTTP/1.1", b"GET / HTTP/1.1"]
    assert [head.partition(b"\r\n")[0] for head in second] == [b"GET /api/x HTTP/1.1"]
    assert [host_of(head) for head in first] == [b"en.example", b"localhost"]
