"""Messages between processes, whole and in pieces."""

from __future__ import annotations

import pytest

from univocal.http.errors import ConfigurationError
from univocal_app.config.tables import validate
from univocal_app.run.channel import Frames, Look, Message, Prepare, Told, Word, frame

CONFIGURATION = validate({"sites": [{"hosts": ["en.example"], "upstream": "http://127.0.0.1:9"}]}, "test")
MESSAGES: list[Message] = [*Word, Prepare(CONFIGURATION), Look(7), Told()]


@pytest.mark.parametrize("size", [1, 3, 1000, 100_000])
def test_messages_come_out_as_they_went_in(size: int) -> None:
    octets, frames = b"".join(map(frame, MESSAGES)), Frames()
    pieces = [octets[start : start + size] for start in range(0, len(octets), size)]
    assert [message for piece in pieces for message in frames.feed(piece)] == MESSAGES
    assert list(frames.feed(b"")) == []


def test_an_objection_keeps_what_it_is_about() -> None:
    error = ConfigurationError("univocal.toml", "server.listen", ["found"], "nothing")
    error.line, error.beside = 3, (ConfigurationError("other.toml", "a", 1, "2"),)
    (told,) = Frames().feed(frame(Told(error)))
    assert isinstance(told, Told)
    assert told.error is not None
    assert [str(each) for each in (told.error, *told.error.beside)] == [str(error), str(error.beside[0])]
