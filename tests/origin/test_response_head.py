"""Where a response's head ends, and how it is spelled anew: whole, in pieces, and what is none."""

import pytest

from univocal.origin.response_reader import FINAL, whole_head

OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "octets",
    [
        b"SSH-2.0-OpenSSH_9.6",
        b"\x16\x03\x01",
        b"<html>",
        b"HTTP/2",
        b"HTTP/0.9 200 OK\r\n\r\n",
        b"RTSP/1.0 200 OK\r\n\r\n",
        b"ICE/1.0 200 OK\r\n\r\n",
        b"http/1.1 200 OK\r\n\r\n",
        b" HTTP/1.1 200 OK\r\n\r\n",
        b"\rHTTP/1.1 200 OK\r\n\r\n",
        # a line's end for one, a part of a value for another
        OK + b"A: b\nC",
        OK + b"A: b\n\n",
        OK + b"\nContent",
        b"HTTP/1.1 200 OK\nA: b\r",
        b"HTTP/1.1 200 OK\nA: b\r\n\r\n",
        b"HTTP/1.1 200 OK\nA: b\rc\n\n",
        b"HTTP/1.1 200 O\rK\nA: b\n\n",
    ],
)
def test_what_is_no_head_is_known_early(octets):
    with pytest.raises(ValueError, match=r"no head|two kinds"):
        whole_head(octets)


@pytest.mark.parametrize(
    ("octets", "ordinary"),
    [
        (OK, True),
        (b"HTTP/1.0 503 No\r\n", True),
        (b"HTTP/1.1 103 Early\r\n", False),
        (b"HTTP/1.2 200 OK\r\n", False),
        (b"RTSP/1.0 200 OK\r\n", False),
    ],
)
def test_what_needs_no_second_look(octets, ordinary):
    assert octets.startswith(FINAL) is ordinary
