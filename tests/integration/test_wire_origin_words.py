"""An origin server with large heads, and one whose clock is behind."""

import logging
import time

from examples import cases
from univocal.http.messages import imf_fixdate

SITE = """
response.remove = ["X-Magento-Tags"]
[[sites]]
hosts = ["en.example"]
upstream = "http://127.0.0.1:{port}"
"""
ROUTED = """
[[sites.routes]]
path = "/large/"
upstream = "http://127.0.0.1:{port}"
[sites.routes.origin]
max_head_bytes = "200 KiB"
"""


def page(*lines):
    return "\r\n".join(["HTTP/1.1 200 OK", "Content-Length: 4", *lines, "", "page"]).encode()


def tags(size):
    return "X-Magento-Tags: " + "cat_p_1," * (size // 8)


async def test_the_size_of_heads_is_set_by_route(origin, configured):
    front = await configured((SITE + ROUTED).format(port=origin.port))
    origin.answer = lambda _: page(tags(150_000))
    assert (await front.ask("/large/a")).status == 200
    assert (await front.ask("/a")).status == 502
    origin.answer = lambda _: page(tags(60_000))
    assert (await front.ask("/b")).status == 200


async def test_a_head_that_is_too_large_is_no_failure(origin, configured):
    heard = []
    front = await configured(SITE.format(port=origin.port))
    front.app.engine.audience.listeners.append(lambda outcome: heard.append(outcome.failure))
    origin.answer = lambda _: page(tags(150_000))
    for number in range(5):
        assert (await front.ask(f"/{number}")).status == 502
    assert {(each.reason, "max_head_bytes" in each.error) for each in heard} == {("head-too-large", True)}
    (proxy,) = front.app.app.proxies.values()
    (member,) = proxy.upstream.balance.members
    assert member.state.value == "up"
    assert origin.connections == 5  # none is asked twice


@cases(
    "lines, said",
    (["Cache-Control: max-age=60"], True),
    (["Cache-Control: max-age=3600"], False),
    (["Cache-Control: max-age=60", "Age: 600"], False),
    (["Cache-Control: no-cache", 'ETag: "1"'], False),
)
async def test_a_clock_that_is_behind_is_said_once(origin, configured, caplog, lines, said):
    front = await configured(SITE.format(port=origin.port))
    date = imf_fixdate(int(time.time()) - 600).decode()
    origin.answer = lambda _: page(f"Date: {date}", *lines)
    with caplog.at_level(logging.WARNING, "univocal"):
        for target in ("/a", "/a", "/b"):
            assert (await front.ask(target)).status == 200
    messages = [message for message in caplog.messages if "clock 10 min behind" in message]
    assert len(messages) == said
    assert all(f"http://127.0.0.1:{origin.port}" in message for message in messages)


async def test_a_hit_has_each_single_writer_field_once(front):
    proxy = await front()
    await proxy.ask("/a")
    names = [name for name, _ in (await proxy.ask("/a")).fields]
    for name in (b"date", b"content-length", b"age", b"via", b"cache-status", b"connection"):
        assert names.count(name) == 1, name
    assert b"server" not in names
