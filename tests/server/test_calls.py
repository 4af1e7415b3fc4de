"""Requests that come together take no more calls than one by one."""

import sys

import pytest

from benchmarks.calls import only_assigns
from neighbours import everywhere

pytestmark = [pytest.mark.pure("Python's calls are counted"), pytest.mark.usefixtures("no_collector")]

HOST = b"Host: a.example\r\n"


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


async def test_requests_behind_one_another_take_no_more_calls_than_others(door):
    client = door(everywhere(), direct=True).client()
    one = get(b"/fresh", HOST)
    client.protocol.data_received(one)
    alone = calls_of(client.protocol.data_received, one)
    for depth in (2, 4, 16):
        together = calls_of(client.protocol.data_received, one * depth)
        assert together / depth <= alone + 8
    await client.settle()
    assert len(client.answers()) == 24
