"""Requests that may ask for another protocol, and answers that change it (RFC 9110 §7.8)."""

import pytest

from examples import cases
from univocal.http.errors import RefusedError
from univocal.http.intermediary import carries_http, is_protocol, requested_upgrade, switching_fields

KEY = (b"sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ==")  # RFC 6455 §1.3
ACCEPT = (b"sec-websocket-accept", b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
CONNECTION = (b"connection", b"Upgrade")
UPGRADE = (b"upgrade", b"websocket")
HANDSHAKE = [(b"host", b"a.example"), CONNECTION, UPGRADE, KEY]

ASKED = {
    "a WebSocket": (HANDSHAKE, b"websocket"),
    "in capitals": ([(b"connection", b"UPGRADE"), (b"upgrade", b"WebSocket")], b"WebSocket"),
    "as Firefox has it": ([(b"connection", b"keep-alive, Upgrade"), UPGRADE], b"websocket"),
    "in two lines": ([(b"connection", b"keep-alive"), CONNECTION, UPGRADE], b"websocket"),
    "of no content": ([*HANDSHAKE, (b"content-length", b"0")], b"websocket"),
    "another protocol": ([CONNECTION, (b"upgrade", b"tcp")], b"tcp"),
    # Everything else is an ordinary request.
    "no Upgrade": ([CONNECTION], b""),
    "an empty one": ([CONNECTION, (b"upgrade", b"")], b""),
    "no Connection": ([UPGRADE], b""),
    "Connection without upgrade": ([(b"connection", b"keep-alive"), UPGRADE], b""),
    "a part of a name": ([(b"connection", b"upgrades"), UPGRADE], b""),
    "two fields": ([CONNECTION, UPGRADE, UPGRADE], b""),
    "two protocols": ([CONNECTION, (b"upgrade", b"websocket, tcp")], b""),
    "what is not allowed": ([CONNECTION, (b"upgrade", b"h2c")], b""),
    "another version": ([CONNECTION, (b"upgrade", b"websocket/13")], b""),
    "content": ([*HANDSHAKE, (b"content-length", b"5")], b""),
    "chunked content": ([*HANDSHAKE, (b"transfer-encoding", b"chunked")], b""),
}


@pytest.mark.parametrize(("fields", "expected"), ASKED.values(), ids=ASKED)
def test_upgrades_to_allowed_protocols_are_recognized(fields, expected):
    assert requested_upgrade(b"GET", "1.1", fields, {b"websocket", b"tcp"}) == expected
    assert requested_upgrade(b"GET", "1.1", fields, ()) == b""


@cases(
    "method, version, protocol, expected",
    (b"GET", "1.0", b"websocket", b""),
    (b"POST", "1.1", b"websocket", b""),  # RFC 6455 §4.1
    (b"POST", "1.1", b"tcp", b"tcp"),
    (b"HEAD", "1.1", b"tcp", b""),
)
def test_method_and_version_count(method, version, protocol, expected):
    fields = [CONNECTION, (b"upgrade", protocol)]
    assert requested_upgrade(method, version, fields, {b"websocket", b"tcp"}) == expected


def test_a_101_is_passed_on_with_its_own_fields():
    told = [(b"connection", b"upgrade, keep-alive"), (b"keep-alive", b"1"), UPGRADE, ACCEPT, (b"x", b"y")]
    fields = switching_fields(b"WebSocket", HANDSHAKE, told)
    assert fields == [ACCEPT, (b"x", b"y"), (b"via", b"1.1 univocal"), CONNECTION, UPGRADE]


NO_ANSWERS = {
    "not asked for": (b"", [CONNECTION, UPGRADE, ACCEPT]),
    "another protocol": (b"websocket", [CONNECTION, (b"upgrade", b"h2c"), ACCEPT]),
    "two protocols": (b"websocket", [CONNECTION, UPGRADE, (b"upgrade", b"h2c"), ACCEPT]),
    "no protocol": (b"websocket", [CONNECTION, ACCEPT]),
    "no Connection": (b"websocket", [UPGRADE, ACCEPT]),
    "no key was read": (b"websocket", [CONNECTION, UPGRADE]),
    "another's key": (b"websocket", [CONNECTION, UPGRADE, (ACCEPT[0], b"AAAAAAAAAAAAAAAAAAAAAAAAAAA=")]),
    "two keys": (b"websocket", [CONNECTION, UPGRADE, ACCEPT, ACCEPT]),
}


@pytest.mark.parametrize(("asked", "fields"), NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_any_other_101_is_no_answer(asked, fields):
    with pytest.raises(RefusedError, match="origin-bad-response"):
        switching_fields(asked, HANDSHAKE, fields)


def test_a_websocket_without_a_key_cannot_be_answered():
    with pytest.raises(RefusedError):
        switching_fields(b"websocket", [CONNECTION, UPGRADE], [CONNECTION, UPGRADE, ACCEPT])


def test_another_protocol_needs_no_key():
    told = [CONNECTION, (b"upgrade", b"tcp")]
    assert (b"upgrade", b"tcp") in switching_fields(b"tcp", [], told)


@cases(
    "name, carries",
    (b"h2c", True),
    (b"H2C", True),
    (b"HTTP/2.0", True),
    (b"TLS/1.2", True),
    (b"websocket", False),
)
def test_protocols_by_which_requests_could_be_sent(name, carries):
    assert carries_http(name) is carries


@cases(
    "name, expected",
    (b"tcp", True),
    (b"foo/2", True),
    (b"", False),
    (b"a b", False),
    (b"foo/", False),
    (b"a,b", False),
)
def test_names_of_protocols(name, expected):
    assert is_protocol(name) is expected
