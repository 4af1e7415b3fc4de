"""What llhttp does not tell: the version by which a message is read."""

import pytest

from univocal.server.http1.llhttp import version_of


@pytest.mark.parametrize(
    ("line", "version"),
    [
        (b"GET / HTTP/1.1\r\n", "1.1"),
        (b" HTTP/1.0\r\n", "1.0"),
        (b" HTTP/1.2\r\n", "1.1"),
        (b" HTTP/1.9\r\n", "1.1"),
        *((each, "") for each in (b" HTTP/2.0\r\n", b" HTTP/0.9\r\n", b" HTTP/1.12\r\n", b" RTSP/1.1\r\n")),
        *((each, "") for each in (b"XHTTP/1.1\r\n", b" http/1.1\r\n", b" HTTP/1.1\n", b"")),
    ],
)
def test_the_version_by_which_a_message_is_read(line, version):
    assert version_of(line) == version
