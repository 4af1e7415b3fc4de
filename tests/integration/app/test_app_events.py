"""Events for those who follow: what is chosen, what waits, what is lost; and what other processes report."""

import asyncio
import json

from starlette.requests import Request

from support import an_outcome
from univocal.cache.decide import Handling
from univocal_app.observe.events import ROOM, Event, Events, Follower, Wanted, event_of
from univocal_app.observe.log_lines import as_json


def outcome(number=0, **others):
    return an_outcome(b"/%d" % number, **others)


async def taken(follower):
    """All that waits for a follower that ends now: each event's name and data."""
    follower.end()
    text = b"".join([chunk async for chunk in follower.chunks()]).decode()
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines:
            found.append((lines.get("event", "message"), json.loads(lines["data"])))
    return found


# ── one follower ────────────────────────────────────────────────────────────────────────────────────────────


def test_the_data_is_the_object_of_the_access_log():
    event = event_of(outcome(status=404, handling=Handling(fwd="uri-miss")))
    assert event[:3] == ("en.example", "404", "uri-miss")
    assert event.data + b"\n" == as_json(outcome(status=404, handling=Handling(fwd="uri-miss")))
    assert event_of(outcome(handling=Handling())).cache == "null"


async def test_a_slow_followers_queue_is_bounded_and_losses_counted():
    follower, events = Follower(Wanted()), [event_of(outcome(number)) for number in range(3000)]
    stream = follower.chunks()
    assert await anext(stream) == b": events\n\n"
    for event in events:
        follower.offer(event)
    first = await anext(stream)
    assert len(first) <= ROOM + 100
    kept = first.count(b'data: {"time"')
    assert 0 < kept < 3000
    assert first.endswith(b'event: lost\ndata: {"lost": %d}\n\n' % (3000 - kept))
    follower.offer(events[0])
    assert await taken(follower) == [("message", json.loads(events[0].data))]


async def test_lost_events_are_told_although_nothing_follows():
    follower, large = Follower(Wanted()), Event("", "200", "hit", b"0" * ROOM)
    follower.offer(large._replace(data=b"{}"))
    follower.offer(large)
    assert await taken(follower) == [("message", {}), ("lost", {"lost": 1})]
    other = Follower(Wanted.by([], ["404"], []))
    other.offer(large)  # which it does not want, so that it has lost nothing
    assert await taken(other) == []


class Reporting:
    """Other processes, which take note of whether they are to report."""

    def __init__(self):
        self.follows = list[bool]()

    async def follow(self):
        self.follows.append(True)

    def unfollow(self):
        self.follows.append(False)


SCOPE = {"type": "http", "method": "GET", "path": "/-/events", "query_string": b"", "headers": []}


async def leaves(response):
    """Send it to a client that has gone."""

    async def gone():
        return {"type": "http.disconnect"}

    async def send(_):
        await asyncio.sleep(0)

    await response(SCOPE, gone, send)


async def test_nothing_listens_and_none_report_while_nobody_follows():
    listeners, others = [], Reporting()
    events = Events(listeners)
    events.reporters = others
    one, two = [await events.answer(Request(SCOPE)) for _ in range(2)]
    assert (listeners, others.follows) == ([events], [True, True])  # each is told when all of them report
    await leaves(one)
    assert (listeners, others.follows) == ([events], [True, True])
    await leaves(two)
    assert (listeners, others.follows) == ([], [True, True, False])
    events.reporters = None
    await leaves(await events.answer(Request(SCOPE)))
    assert listeners == []


async def test_a_question_for_the_head_alone_ends_at_once():
    listeners = []
    response = await Events(listeners).answer(Request(SCOPE | {"method": "HEAD"}))
    assert (response.status_code, response.body, listeners) == (200, b"", [])
    assert response.headers["content-type"].startswith("text/event-stream")


# ── several processes ───────────────────────────────────────────────────────────────────────────────────────


async def test_events_of_other_workers_reach_the_followers():
    events = Events([])
    events._followers = {Follower(Wanted()), Follower(Wanted.by([], ["404"], []))}
    events.relay(2)
    events.relay(Event("en.example", "200", "hit", b"{}"))
    told = sorted([await taken(follower) for follower in events._followers], key=len)
    assert told == [[("lost", {"lost": 2})], [("lost", {"lost": 2}), ("message", {})]]
