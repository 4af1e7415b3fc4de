"""Every purge leaves a line, one that its server's parser refuses as well."""

import json
import socket

import pytest

HOST = "Host: en.example\r\n"


@pytest.fixture(scope="module")
def audited(serve):
    return serve(9, "rfc3986")


def sent(address, octets, *, read=True):
    """What is answered to these octets; without `read` the client leaves at once."""
    with socket.create_connection((address.host, address.port), timeout=20) as connection:
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


def test_who_leaves_before_saying_what_is_a_line(audited):
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
