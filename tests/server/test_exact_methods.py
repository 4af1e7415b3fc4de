"""Methods that llhttp does not know, and who hears of requests that no application gets."""

import pytest

HOST = b"Host: a.example\r\n"


def message(method, fields=HOST, content=b"", target=b"/a%2fb?c"):
    return method + b" " + target + b" HTTP/1.1\r\n" + fields + b"\r\n" + content


def whole(data):
    return [data]


def octets(data):
    return [data[i : i + 1] for i in range(len(data))]


def fours(data):
    return [data[i : i + 4] for i in range(0, len(data), 4)]


splits = pytest.mark.parametrize("split", [whole, octets, fours])

METHODS = [
    b"BAN",
    b"B",
    b"GETT",
    b"PURGEALL",
    b"FOO_BAR",
    b"VERSION-CONTROL",
    b"A" * 32,
    b"QUERY",
    b"PROPFIND",
]


@splits
@pytest.mark.parametrize("method", [method for method in METHODS if method != b"BAN"])  # that one is a purge
async def test_every_method_reaches_the_origin(wire, recorder, split, method):
    client = wire(recorder)
    await client.feed(*split(message(method, target=b"/a?c")))
    await client.feed(*split(message(method, target=b"/b")))
    assert {scope["method"].encode() for scope in recorder.scopes} == {method}
    assert recorder.targets == [b"/a?c", b"/b"]
    assert client.open


@splits
@pytest.mark.parametrize("method", [b"ban", b"B\xc4N", b"B@N", b"A" * 33, b"-", b"1"])
async def test_what_is_no_method_is_refused(wire, recorder, split, method):
    client = wire(recorder)
    await client.feed(*split(message(method)))
    (answer,) = client.answers()
    assert (answer.status, answer.problem["reason"]) == (400, "bad-framing")
    assert recorder.scopes == []
