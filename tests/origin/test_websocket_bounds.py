"""An origin server's WebSocket holds a bounded number of bytes, whatever frames come."""

from univocal.origin.websocket import OriginSocket

BEGINS, EMPTY, PING = b"\x02\x01a", b"\x00\x00", b"\x89\x7d" + b"x" * 125


class Transport:
    def __init__(self):
        self.written, self.is_paused = 0, False

    def switch(self, _):
        return self, b"", False

    def write(self, octets):
        self.written += len(octets)

    def is_closing(self):
        return False

    def pause_reading(self):
        self.is_paused = True

    def resume_reading(self):
        self.is_paused = False


async def test_empty_frames_of_a_message_take_no_room():
    socket = OriginSocket(Transport())
    socket.data_received(BEGINS + 10_000 * EMPTY)
    socket.data_received(b"\x80\x01b")
    assert await socket.receive() == b"ab"
    assert not socket._begun


async def test_a_server_that_only_pings_is_not_read():
    transport = Transport()
    socket = OriginSocket(transport)
    socket.data_received(PING)
    assert (transport.written > 0, transport.is_paused) == (True, False)
    socket.pause_writing()
    assert transport.is_paused
    socket.resume_writing()
    assert not transport.is_paused
