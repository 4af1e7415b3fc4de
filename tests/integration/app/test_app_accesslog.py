"""The access log: one line for each Outcome, whatever octets a client sends."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path

import pytest

from univocal.errors import ConfigurationError
from univocal.messages import Received
from univocal.outcome import Handling, Outcome, Times
from univocal_app.accesslog import AccessLog, as_combined, as_json, open_log

HOSTILE = b'/a"\\\x1b[2J\r\n\x00\xff{"b":1}'


def outcome(target: bytes = b"/a", handling: Handling | None = None, status: int = 200) -> Outcome:
    return Outcome(
        site="en.example",
        received=Received(b"GET", target),
        canonical=None,
        decision=None,
        status=status,
        bytes=12,
        times=Times(1_700_000_000.25, 0.001, 0.0021234567),
        client="192.0.2.1",
        handling=handling or Handling(fwd="uri-miss", stored=True),
        reasons=("control-character",),
    )


def test_json() -> None:
    line = as_json(outcome())
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250Z",
        "client": "192.0.2.1",
        "method": "GET",
        "target": "/a",
        "url": None,
        "site": "en.example",
        "status": 200,
        "bytes": 12,
        "seconds": 0.002123,
        "cache": "uri-miss",
        "stored": True,
        "collapsed": False,
        "detail": None,
        "reasons": ["control-character"],
    }
    assert json.loads(as_json(outcome(handling=Handling(hit=True))))["cache"] == "hit"


def test_combined() -> None:
    assert (
        as_combined(outcome())
        == b'192.0.2.1 - - [14/Nov/2023:22:13:20 +0000] "GET /a HTTP/1.1" 200 12 "-" "-"\n'
    )
    assert b'" 499 12 ' in as_combined(outcome(status=0))


@pytest.mark.parametrize("form", [as_json, as_combined])
def test_no_octet_of_a_client_ends_a_line_or_steers_a_terminal(form: object) -> None:
    assert callable(form)
    line = form(outcome(HOSTILE))
    assert line.endswith(b"\n")
    assert all(0x20 <= octet < 0x7F for octet in line[:-1])


def test_what_is_escaped_can_be_read_again() -> None:
    assert json.loads(as_json(outcome(HOSTILE)))["target"].encode("latin-1") == HOSTILE
    assert rb'"GET /a\x22\x5C\x1B[2J\x0D\x0A\x00\xFF{\x22b\x22:1} HTTP/1.1"' in as_combined(outcome(HOSTILE))


def test_a_stream_that_fails_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    class Full(io.BytesIO):
        def write(self, _: object) -> int:
            raise OSError(28, "No space left on device")

    log = AccessLog(Full(), as_json)
    with caplog.at_level(logging.ERROR):
        log(outcome())
        log(outcome())
    assert [record.getMessage() for record in caplog.records] == [
        "the access log cannot be written: [Errno 28] No space left on device"
    ]


def test_open_log(tmp_path: Path) -> None:
    assert open_log("off", "json") is None
    for _ in range(2):  # a second start goes on in the same file
        log = open_log(str(tmp_path / "access.log"), "combined")
        assert log is not None
        log(outcome())
        log.close()
    assert (tmp_path / "access.log").read_bytes().count(b"\n") == 2
    with pytest.raises(ConfigurationError, match=r"server\.access_log"):
        open_log(str(tmp_path / "nowhere" / "access.log"), "json")
