"""A short run of fuzz/http2.py, and whether it would notice."""

import pytest

from fuzz import http2
from univocal.server.http2 import fields, session
from univocal.server.http2.connection import Http2Stream
from univocal.server.http2.session import STREAM_MOVES, Cause, Session, StreamState, Window

CONNECTIONS = 150


def first_fault():
    faults = (http2.broken(f"1.{number}") for number in range(CONNECTIONS))
    return next(filter(None, faults), "")


def test_no_law_of_http2_is_broken():
    assert first_fault() == ""


@pytest.mark.pure("parts of the session are replaced")
@pytest.mark.parametrize(
    ("owner", "name", "other"),
    [
        (Window, "use", lambda _self, _octets: None),
        (Window, "take", lambda _self, octets: octets),
        (Session, "_read_settings", lambda _self, _payload: None),
        (Session, "window", lambda self, number: self._streams[number].window),
        (Session, "is_answered", lambda _self, _number: True),
        (Http2Stream, "complete", lambda _self: None),
        (fields, "_has_one_length", lambda _fields: True),
        (session, "_PRIORITY", 4),
        (session, "STREAM_MOVES", STREAM_MOVES | {(StreamState.OPEN, Cause.END_SENT): StreamState.ENDED}),
    ],
    ids=lambda each: getattr(each, "__name__", None) or (each if isinstance(each, str) else ""),
)
def test_a_session_that_forgets_is_noticed(monkeypatch, owner, name, other):
    monkeypatch.setattr(owner, name, other)
    assert first_fault()
