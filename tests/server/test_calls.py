"""A request through `DirectProtocol` takes so many calls: guarded against slowness without a clock.

A test that fails says what it counted. Where that is less than the ceiling by more than a tenth, lower it.
"""

import sys

import pytest

from counting import only_assigns
from univocal.cache.rules import Rules
from univocal.judge.profiles import builtin_profiles
from univocal.judge.runtime import Runtime

pytestmark = pytest.mark.pure("Python's calls are counted")

HOST = b"Host: a.example\r\n"
BROWSER = (
    HOST
    + b"Connection: keep-alive\r\nsec-ch-ua: x\r\nsec-ch-ua-mobile: ?0\r\nUpgrade-Insecure-Requests: 1\r\n"
    b"User-Agent: Mozilla/5.0\r\nAccept: text/html,*/*;q=0.8\r\nSec-Fetch-Site: none\r\n"
    b"Sec-Fetch-Mode: navigate\r\nSec-Fetch-User: ?1\r\nSec-Fetch-Dest: document\r\n"
    b"Accept-Encoding: gzip, br\r\nAccept-Language: de, en;q=0.5\r\n"
)

# Calls at most, a few above what was counted: of a request with one field, and with a browser's 13.
CEILINGS = {
    ("hit", HOST): 16,
    ("hit", BROWSER): 16,
    ("no-store", HOST): 124,
    ("no-store", BROWSER): 125,
    ("stored", HOST): 175,
    ("stored", BROWSER): 176,
}


def get(target, fields):
    return b"GET " + target + b" HTTP/1.1\r\n" + fields + b"\r\n"


def calls_of(work, *arguments):
    """The number of Python's own functions that a call calls, but for those of the tests.

    Nor is an `__init__` counted that only assigns.
    """
    count = 0

    def seen(frame, event, _):
        nonlocal count
        code = frame.f_code
        count += event == "call" and "/tests/" not in code.co_filename and not only_assigns(code)

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        work(*arguments)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize(
    ("kind", "fields"), CEILINGS, ids=lambda each: each if isinstance(each, str) else str(each.count(b"\n"))
)
async def test_an_answer_takes_no_more_calls_than_it_did(door, kind, fields):
    made = door(Runtime.everywhere(builtin_profiles()["asgi"], Rules()), direct=True)
    client = made.client()
    # What is remembered once for all requests alike is no part of it.
    pages = {
        "hit": [b"/fresh"] * 5,
        "no-store": [b"/no-store"] * 5,
        "stored": [b"/empty?%d" % each for each in range(5)],
    }
    counted = [calls_of(client.protocol.data_received, get(target, fields)) for target in pages[kind]]
    await client.settle()
    assert len(client.answers()) == 5
    calls = min(counted)
    ceiling = CEILINGS[kind, fields]
    assert calls <= ceiling, (
        f"a {kind} with {fields.count(b':')} fields takes {calls} calls, {ceiling} at most"
    )


async def test_requests_behind_one_another_take_no_more_calls_than_others(door):
    client = door(Runtime.everywhere(builtin_profiles()["asgi"], Rules()), direct=True).client()
    one = get(b"/fresh", HOST)
    client.protocol.data_received(one)
    alone = calls_of(client.protocol.data_received, one)
    for depth in (2, 4, 16):
        together = calls_of(client.protocol.data_received, one * depth)
        assert together / depth <= alone + 8
    await client.settle()
    assert len(client.answers()) == 24
