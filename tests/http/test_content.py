"""Content is read by one interface, whatever its message and framing, and however it is cut."""

import pytest

from univocal.http.content import ALL_READ, READERS, Framing

CONTENT = b"some text\r\n0\r\n\r\n" * 20
CHUNKS = b"".join(b"%x\r\n%b\r\n" % (size, CONTENT[:size]) for size in (1, 2, 40, 63, 64, 300)) + b"0\r\n"
OF_CHUNKS = b"".join(CONTENT[:size] for size in (1, 2, 40, 63, 64, 300))
# For each framing the bytes, and the content in them.
WIRES = {
    Framing.LENGTH: (CONTENT, CONTENT),
    Framing.CHUNKS: (CHUNKS, OF_CHUNKS),
    Framing.CLOSE: (CONTENT, CONTENT),
}
EACH = [(message, framing) for message, readers in READERS.items() for framing in readers]


def read(reader, wire, step):
    """The content, and the bytes that were not read."""
    content, rest = b"", b""
    for start in range(0, len(wire), step):
        rest, at = rest + wire[start : start + step], 0
        while not reader.is_over:
            piece, after = reader.read(rest, at)
            content += piece
            if not piece and after == at:
                break
            at = after
        rest = rest[at:]
    return content, rest


@pytest.mark.parametrize("step", [1, 7, 100_000])
@pytest.mark.parametrize(("message", "framing"), EACH)
def test_a_reader_gives_one_content_after_the_other(message, framing, step):
    reader = READERS[message][framing]()
    wire, content = WIRES[framing]
    trailers = []
    if framing is Framing.CHUNKS and not reader.leaves_trailers:
        wire, trailers = wire + b"A: b\r\n\r\n", [(b"a", b"b")]
    for _ in range(1 if framing is Framing.CLOSE else 3):
        reader.begin(len(wire))
        assert read(reader, wire, step) == (content, b"")
        assert (reader.is_over, reader.fault) == (framing is not Framing.CLOSE, "")
        assert list(reader.trailers) == trailers


@pytest.mark.parametrize(
    ("message", "framing"), [each for each in EACH if each != ("response", Framing.CLOSE)]
)
def test_bytes_behind_content_are_left(message, framing):
    reader = READERS[message][framing]()
    wire, content = WIRES[framing]
    end = b"" if framing is Framing.LENGTH or reader.leaves_trailers else b"\r\n"
    reader.begin(len(wire))
    found, rest = read(reader, wire + end + b"GET", 100_000)
    assert (found, reader.is_over, rest.endswith(b"GET")) == (content, True, True)
    assert message == "response" or rest == b"GET"


@pytest.mark.parametrize("wire", [b"g\r\n", b"1\r\nab\r\n", b"1\nab\r\n"])
@pytest.mark.parametrize("message", READERS)
def test_bytes_that_are_no_chunks_are_a_fault(message, wire):
    reader = READERS[message][Framing.CHUNKS]()
    reader.begin(0)
    read(reader, wire, 100)
    assert reader.fault
    assert not reader.is_over


def test_content_that_is_all_there_needs_no_reader():
    assert ALL_READ.is_over
    assert ALL_READ.read(b"more", 0) == (b"", 0)
