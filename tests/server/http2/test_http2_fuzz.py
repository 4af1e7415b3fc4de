"""A short run of fuzz/http2.py, and whether it would notice."""

import pytest

from fuzz import http2
from univocal.server.http2 import section
from univocal.server.http2.brief import BriefStreams
from univocal.server.http2.section import FieldDecoder
from univocal.server.http2.stream import Http2Stream

CONNECTIONS = 60


def first_fault():
    faults = (http2.broken(f"1.{number}") for number in range(CONNECTIONS))
    return next(filter(None, faults), "")


def test_no_law_of_http2_is_broken():
    assert first_fault() == ""


@pytest.mark.pure("parts of the session are replaced")
@pytest.mark.parametrize(
    ("owner", "name", "other"),
    [
        (BriefStreams, "raised", lambda _self, increment: increment),
        (BriefStreams, "sent", lambda _self, _octets: None),
        (FieldDecoder, "skip", lambda _self: None),
        (Http2Stream, "complete", lambda _self: None),
        (section, "_MALFORMED", {b"content-length": b"Content-Length"}),
    ],
    ids=lambda each: getattr(each, "__name__", None) or (each if isinstance(each, str) else ""),
)
def test_a_session_that_forgets_is_noticed(monkeypatch, owner, name, other):
    monkeypatch.setattr(owner, name, other)
    assert first_fault()
