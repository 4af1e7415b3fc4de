"""Clauses of RFC 9110 about whoever passes messages on, by octets, for docs/conformance.md."""

import json

import pytest

from support import named

# Fields


@pytest.mark.parametrize(
    ("line", "reused"),
    named(
        ("in capitals", "CACHE-CONTROL: no-cache", False), ("another name", "CACHE-CONTROLS: no-cache", True)
    ),
)
async def test_names_of_fields_have_no_case(proxy, line, reused):
    here = proxy()
    await here.store("cAcHe-CoNtRoL: max-age=60")
    assert ((await here.ask(line)).forwarded is None) is reused


@pytest.mark.parametrize(
    ("line", "value"), named(("around", "X: \t a \t", b"a"), ("within", "X: a  b", b"a  b"))
)
async def test_whitespace_around_a_value_is_no_part_of_it(proxy, line, value):
    here = proxy()
    asking = await here.store(line, asked=[line])
    assert asking.forwarded.field(b"x") == asking.answer.field(b"x") == value


@pytest.mark.parametrize(
    ("octet", "passes"), named(("NUL", "\0", False), ("CR", "\r", False), ("obs-text", "\xfc", True))
)
async def test_a_value_that_could_end_a_line_goes_nowhere(proxy, octet, passes):
    here = proxy()
    asking = await here.ask(f"X: a{octet}b")
    assert (asking.forwarded is not None) is passes
    if passes:
        assert asking.forwarded.field(b"x") == f"a{octet}b".encode("latin-1")
    else:
        assert asking.answer.status == 400


@pytest.mark.parametrize(
    "lines",
    named(("a proxy before", ["Via: 1.0 front", "X-Forwarded-For: 198.51.100.1"]), ("nobody before", [])),
)
async def test_no_list_of_ours_has_an_empty_element(proxy, lines):
    here = proxy()
    asking = await here.ask(*lines)
    for name in (b"via", b"x-forwarded-for", b"forwarded"):
        members = asking.forwarded.field(name).split(b",")
        assert all(member.strip() for member in members)


@pytest.mark.parametrize("name", ["referer", "user-agent", "authorization", "content-range"])
async def test_client_fields_reach_the_origin_server_unchanged(proxy, name):
    here = proxy()
    asking = await here.ask(f"{name}: http://en.example/x (y), z")
    assert asking.forwarded.field(name.encode()) == b"http://en.example/x (y), z"


@pytest.mark.parametrize(
    ("name", "passes"),
    named(
        ("www-authenticate", "www-authenticate", True),
        ("authentication-info", "authentication-info", True),
        ("vary", "vary", True),
        ("accept-ranges", "accept-ranges", True),
        ("proxy-authentication-info", "proxy-authentication-info", False),
        ("connection", "connection", False),
    ),
)
async def test_origin_fields_reach_the_client_unchanged(proxy, name, passes):
    here = proxy()
    asking = await here.store(f"{name}: x-a, x-b")
    assert asking.answer.field(name.encode()) == (b"x-a, x-b" if passes else None)


# Messages


@pytest.mark.parametrize("version", named(("HTTP/1.0 client", "1.0"), ("HTTP/1.1 client", "1.1")))
async def test_messages_go_on_with_our_own_version(proxy, version):
    here = proxy()
    asking = await here.ask(version=version)
    await here.reply(asking, b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx")
    assert asking.forwarded.start == b"GET /a HTTP/1.1"
    assert asking.answer.start.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("target", named(("refused", "/a/../b"), ("forwarded", "/a")))
async def test_an_answer_of_our_own_has_a_date(proxy, target):
    here = proxy()
    asking = await here.ask(target=target)
    if asking.served:
        await here.answer(asking)
    assert asking.answer.field(b"date") == b"Mon, 21 Sep 2026 14:13:20 GMT"


@pytest.mark.parametrize(
    ("lines", "goes_on"),
    named(
        ("not yet", [], True),
        ("been here", ["Via: 1.1 univocal"], True),
        ("sixteen times", ["Via: " + "1.1 univocal, " * 8, "Via: " + "1.0 univocal (a), " * 8], True),
        ("seventeen times", ["Via: " + "1.1 univocal, " * 8, "Via: " + "1.0 univocal (a), " * 9], False),
        ("others seventeen times", ["Via: " + "1.1 univocal.example, " * 17], True),
    ),
)
async def test_a_request_that_goes_in_circles_is_forwarded_no_more(proxy, lines, goes_on):
    here = proxy()
    asking = await here.ask(*lines)
    if goes_on:
        assert asking.forwarded.field(b"via").endswith(b"1.1 univocal")
    else:
        assert not here.world.served
        assert asking.answer.status == 502
        assert b'"reason": "origin-unreachable"' in asking.answer.content


@pytest.mark.parametrize("version", named(("HTTP/1.0", "1.0"), ("HTTP/1.1", "1.1")))
async def test_via_says_by_which_version_a_request_was_received(proxy, version):
    here = proxy()
    asking = await here.ask(version=version)
    assert asking.forwarded.field(b"via") == f"{version} univocal".encode()


@pytest.mark.parametrize(
    ("lines", "expected"), named(("closed", ["Connection: close"], b"close"), ("kept", [], None))
)
async def test_connection_of_ours_names_what_is_for_one_hop(proxy, lines, expected):
    here = proxy()
    asking = await here.store(asked=lines)
    assert asking.answer.field(b"connection") == expected
    assert asking.forwarded.field(b"connection") is None


@pytest.mark.parametrize(
    ("version", "passed_on"), named(("HTTP/1.0", "1.0", None), ("HTTP/1.1", "1.1", b"websocket"))
)
async def test_an_upgrade_by_http_1_0_is_ignored(proxy, version, passed_on):
    here = proxy()
    handshake = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
    asking = await here.ask(*handshake, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", version=version)
    assert asking.forwarded.field(b"upgrade") == passed_on
    await here.answer(asking)
    assert asking.answer.status == 200


async def _answered(here, octets):
    asking = await here.ask()
    await here.reply(asking, octets)
    return asking.answer.status


@pytest.mark.parametrize(
    ("status", "expected"),
    named(("not asked for", b"101 Switching Protocols", 502), ("an ordinary one", b"200 OK", 200)),
)
async def test_a_101_is_an_answer_to_upgrade_alone(proxy, status, expected):
    octets = b"HTTP/1.1 " + status + b"\r\nUpgrade: h2c\r\nContent-Length: 0\r\n\r\n"
    assert await _answered(proxy(), octets) == expected


@pytest.mark.parametrize("method", named(("GET", "GET"), ("HEAD", "HEAD")))
async def test_an_error_says_what_is_wrong(proxy, method):
    here = proxy()
    asking = await here.ask(method=method, target="/a/../b")
    assert asking.answer.status == 400
    content = asking.got.partition(b"\r\n\r\n")[2]
    if method == "GET":
        assert json.loads(content)["reason"] == "dot-segment"
    else:
        assert content == b""


# Expectations


@pytest.mark.parametrize(
    ("expect", "asked_to_go_on"),
    named(
        ("100-Continue", ["Expect: 100-Continue"], True),
        ("nothing", [], False),
        ("something else", ["Expect: odd"], False),
    ),
)
async def test_who_expects_100_is_asked_to_go_on(proxy, expect, asked_to_go_on):
    here = proxy()
    asking = await here.ask(*expect, "Content-Length: 3", method="POST")
    await here.pass_time(2)
    assert asking.got.startswith(b"HTTP/1.1 100 ") is asked_to_go_on
    asking.client.outbox.append(b"abc")
    await here.world.settle()
    assert asking.forwarded.content == b"abc"
    if expect == ["Expect: odd"]:
        assert asking.forwarded.field(b"expect") == b"odd"


@pytest.mark.parametrize(
    ("lines", "content", "expects"),
    named(("without content", [], b"", False), ("with content", ["Content-Length: 3"], b"abc", True)),
)
async def test_an_expectation_without_content_goes_no_further(proxy, lines, content, expects):
    here = proxy()
    asking = await here.ask("Expect: 100-continue", *lines, method="POST", content=content)
    await here.pass_time(2)
    assert (asking.forwarded.field(b"expect") is not None) is expects


@pytest.mark.parametrize(("seconds", "late"), named(("slow", 20, True), ("in time", 10, False)))
async def test_a_head_that_does_not_end_is_a_408(proxy, seconds, late):
    here = proxy()
    asking = await here.octets(b"GET /a HTTP/1.1\r\nHost: en.example\r\n")
    await here.pass_time(seconds)
    asking.client.outbox.append(b"\r\n")
    await here.world.settle()
    assert (asking.served is None) is late
    if late:
        assert (asking.answer.status, asking.answer.field(b"connection")) == (408, b"close")
