"""The access log: one line for each Outcome, whatever octets a client sends."""

from __future__ import annotations

import io
import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from univocal.cache.decide import Forward
from univocal.engine.orders import Order
from univocal.engine.outcome import Handling, Outcome, Times
from univocal.engine.purge import Purged
from univocal.http.errors import ConfigurationError
from univocal.http.messages import Received
from univocal.store.purge_selectors import Keys
from univocal_app.observe.accesslog import AccessLog, as_combined, as_json, open_log

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


URL = "http://en.example/a"


def purge(names: tuple[str, ...] = (URL,), *, soft: bool = False, count: int | None = 2) -> Outcome:
    order = Order(Keys(frozenset(), soft=soft), "key", names)
    return replace(outcome(), decision=None, purged=Purged(order, count))


def test_the_line_of_a_purge_tells_what_was_purged() -> None:
    assert json.loads(as_json(purge()))["purge"] == {"by": "key", "names": [URL], "soft": False, "count": 2}
    assert as_combined(purge()).endswith(f' "-" "purge by key: {URL}: 2"\n'.encode())
    unconfirmed = purge(soft=True, count=None)
    assert json.loads(as_json(unconfirmed))["purge"]["count"] is None
    assert as_combined(unconfirmed).endswith(f' "-" "soft purge by key: {URL}: ?"\n'.encode())


@pytest.mark.parametrize("form", [as_json, as_combined])
def test_no_octet_of_a_tag_ends_a_line(form: object) -> None:
    assert callable(form)
    line = form(purge((HOSTILE.decode("latin-1"), "\u2028я")))
    assert all(0x20 <= octet < 0x7F for octet in line[:-1])
    assert line.count(b'"') == 6 or json.loads(line)


def test_purges_alone(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    log = open_log("off", "json")
    kept = Forward("uri-miss", may_store=True, fallback=None)
    for each in (replace(outcome(), decision=kept), purge(), replace(purge(), purged=None, status=403)):
        log(each)
    out, err = capsysbinary.readouterr()
    assert out == b""
    assert [json.loads(line)["status"] for line in err.splitlines()] == [200, 403]


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
    for _ in range(2):  # a second start goes on in the same file
        log = open_log(str(tmp_path / "access.log"), "combined")
        assert log is not None
        log(outcome())
        log.close()
    assert (tmp_path / "access.log").read_bytes().count(b"\n") == 2
    with pytest.raises(ConfigurationError, match=r"server\.access_log"):
        open_log(str(tmp_path / "nowhere" / "access.log"), "json")
