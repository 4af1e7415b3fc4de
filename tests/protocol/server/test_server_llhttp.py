"""What llhttp does not tell: the version's name, empty lines, and where a message ends."""

import pytest

from univocal.server.llhttp import MessageEnds, version_of, without_empty_lines


@pytest.mark.parametrize(
    ("line", "version"),
    [
        (b"GET / HTTP/1.1\r\n", "1.1"),
        (b" HTTP/1.0\r\n", "1.0"),
        (b" HTTP/1.2\r\n", "1.1"),
        (b" HTTP/1.9\r\n", "1.1"),
        (b" HTTP/2.0\r\n", ""),
        (b" HTTP/0.9\r\n", ""),
        (b" HTTP/1.12\r\n", ""),
        (b" RTSP/1.1\r\n", ""),
        (b"XHTTP/1.1\r\n", ""),
        (b" http/1.1\r\n", ""),
        (b" HTTP/1.1\n", ""),
        (b"", ""),
    ],
)
def test_the_version_by_which_a_message_is_read(line, version):
    assert version_of(line) == version


@pytest.mark.parametrize(
    ("octets", "left"),
    [
        (b"", b""),
        (b"\r\n\r\n\n", b""),
        (b"\r\nGET", b"GET"),
        (b"\r", b"\r"),
        (b"\r\n\rGET", b"\rGET"),
        (b" \r\n", b" \r\n"),
    ],
)
def test_empty_lines_before_a_request_line(octets, left):
    assert without_empty_lines(octets) == left


HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
LAST = b"0\r\n\r\n"


def cuts(octets, step, *, in_content, counted=0):
    """The places at which octets that come `step` at a time may end a message."""
    ends = MessageEnds()
    ends.counted = counted
    found = []
    for begin in range(0, len(octets), step):
        piece, start = octets[begin : begin + step], 0
        while start < len(piece):
            end = ends.behind(piece, start, in_content=in_content)
            assert end > start
            start = end
            found.append(begin + end)
    return found


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5, 7, 1000])
@pytest.mark.parametrize(
    ("before", "behind", "in_content"),
    [
        (HEAD, HEAD, False),
        (b"\r\n" + HEAD, b"x", False),
        (LAST, HEAD, True),
        (b"5\r\nab\r\nc\r\n00;a=b\r\nA: b\r\nC:\r\n\r\n", b"\r\n" + HEAD, True),
        (b"9\r\n\r\n\r\n\r\n\r\n\r\n" + LAST, HEAD, True),
    ],
)
def test_no_piece_goes_beyond_a_messages_end(before, behind, in_content, step):
    assert len(before) in cuts(before + behind, step, in_content=in_content)


def test_most_content_is_not_cut():
    text = b"A line.\r\n\r\nAnother one.\r\n" * 100
    assert cuts(b"x\r\n" + text, 10_000, in_content=True) == [len(text) + 3]
    assert cuts(b"x\r\n" + text + LAST + HEAD, 10_000, in_content=True)[0] == len(text) + 3 + len(LAST)


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_content_that_is_counted(step):
    content = b"\r\n\r\n0\r\n\r\na: b\r\n\r\n"
    found = cuts(content + HEAD, step, in_content=True, counted=len(content))
    assert len(content) in found
    if step == 1000:
        assert found[0] == len(content)
