"""Events for those who follow: what is chosen, what waits, what is lost; and between processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from univocal import Outcome
from univocal.engine.audience import Listener
from univocal.engine.outcome import Times
from univocal.http.messages import Received
from univocal.judge.handling import Handling
from univocal_app.observe import event_relay
from univocal_app.observe.accesslog import as_json
from univocal_app.observe.admin_events import Events
from univocal_app.observe.event_relay import Gathering, report
from univocal_app.observe.events import ROOM, Event, Follower, Wanted, event_of


def outcome(number: int = 0, status: int = 200, handling: Handling = Handling(hit=True)) -> Outcome:  # noqa: B008
    return Outcome(
        site="en.example",
        received=Received(b"GET", b"/%d" % number),
        canonical=None,
        decision=None,
        status=status,
        bytes=1,
        times=Times(1_700_000_000.0, 0.0, 0.1),
        client=None,
        handling=handling,
    )


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  (another task does it)
            await asyncio.sleep(0.01)


async def taken(follower: Follower) -> list[tuple[str, Any]]:
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


def test_the_data_is_the_object_of_the_access_log() -> None:
    event = event_of(outcome(status=404, handling=Handling(fwd="uri-miss")))
    assert event[:3] == ("en.example", "404", "uri-miss")
    assert event.data + b"\n" == as_json(outcome(status=404, handling=Handling(fwd="uri-miss")))
    assert event_of(outcome(handling=Handling())).cache == "null"


@pytest.mark.parametrize(
    ("sites", "statuses", "caches", "has"),
    [
        ([], [], [], True),
        (["en.example"], [], [], True),
        (["de.example"], [], [], False),
        (["de.example", "en.example"], [], [], True),
        ([], ["404"], [], True),
        ([], ["4xx"], [], True),
        ([], ["5xx"], [], False),
        ([], ["40"], [], ValueError),
        ([], ["abc"], [], ValueError),
        ([], ["x04"], [], ValueError),
        ([], ["0"], [], False),
        ([], ["200"], [], False),
        ([], [], ["uri-miss"], True),
        ([], [], ["hit"], False),
        (["en.example"], ["404"], ["uri-miss"], True),
        (["en.example"], ["404"], ["hit"], False),
    ],
)
def test_events_are_filtered_by_site_status_and_cache(
    sites: list[str], statuses: list[str], caches: list[str], has: Any
) -> None:
    event = Event("en.example", "404", "uri-miss", b"{}")
    if has is ValueError:
        with pytest.raises(ValueError, match="status is a number"):
            Wanted.by(sites, statuses, caches)
    else:
        assert Wanted.by(sites, statuses, caches).has(event) is has


async def test_what_waits_for_a_slow_follower_is_bounded_and_what_is_lost_is_counted_in_its_place() -> None:
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


async def test_what_was_lost_is_told_although_nothing_follows() -> None:
    follower, large = Follower(Wanted()), Event("", "200", "hit", b"0" * ROOM)
    follower.offer(large._replace(data=b"{}"))
    follower.offer(large)
    assert await taken(follower) == [("message", {}), ("lost", {"lost": 1})]
    other = Follower(Wanted.by([], ["404"], []))
    other.offer(large)  # which it does not want, so that it has lost nothing
    assert await taken(other) == []


async def test_nothing_listens_while_nobody_follows() -> None:
    listeners: list[Listener] = []
    events = Events(listeners)
    scope = {"type": "http", "method": "GET", "path": "/-/events", "query_string": b"", "headers": []}
    one, two = [await events.answer(Request(scope)) for _ in range(2)]
    assert listeners == [events]

    async def gone() -> Any:
        return {"type": "http.disconnect"}

    async def send(_: Any) -> None:
        await asyncio.sleep(0)

    await one(scope, gone, send)
    assert listeners == [events]
    await two(scope, gone, send)
    assert listeners == []


async def test_a_question_for_the_head_alone_ends_at_once() -> None:
    listeners: list[Listener] = []
    scope = {"type": "http", "method": "HEAD", "path": "/-/events", "query_string": b"", "headers": []}
    response = await Events(listeners).answer(Request(scope))
    assert (response.status_code, response.body, listeners) == (200, b"", [])
    assert response.headers["content-type"].startswith("text/event-stream")


# ── several processes ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def gathering(tmp_path: Path) -> AsyncIterator[tuple[Gathering, list[Follower], Path]]:
    followers: list[Follower] = []
    gathering = Gathering(lambda: followers)
    await gathering.start(tmp_path)
    yield gathering, followers, tmp_path
    gathering.close()


async def test_a_process_reports_while_somebody_follows(gathering: Any) -> None:
    gathers, followers, directory = gathering
    one: list[Listener] = []
    two: list[Listener] = []
    await report(directory, one)
    await report(directory, two)
    await until(lambda: len(gathers._reporters) == 2)
    assert one == two == []
    followers.append(Follower(Wanted()))
    await gathers.on()
    assert (len(one), len(two)) == (1, 1)
    one[0](outcome(1))
    two[0](outcome(2, status=404))
    await until(lambda: followers[0]._waiting.count(b"data") == 2)
    told = await taken(followers.pop())
    assert sorted(event["target"] for _, event in told) == ["/1", "/2"]
    gathers.off()
    await until(lambda: not one and not two)


async def test_a_process_that_comes_while_somebody_follows_reports_too(gathering: Any) -> None:
    _, followers, directory = gathering
    followers.append(Follower(Wanted()))
    listeners: list[Listener] = []
    await report(directory, listeners)
    await until(lambda: listeners)
    listeners[0](outcome(7))
    await until(lambda: b"data" in followers[0]._waiting)
    ((_, event),) = await taken(followers.pop())
    assert event["target"] == "/7"


async def test_a_process_whose_events_are_not_taken_loses_some_and_says_so(
    gathering: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathers, followers, directory = gathering
    monkeypatch.setattr(event_relay, "MOST", 2000)
    listeners: list[Listener] = []
    await report(directory, listeners)
    await until(lambda: gathers._reporters)
    followers.append(Follower(Wanted()))
    await gathers.on()
    for number in range(100):  # within one turn of the event loop
        listeners[0](outcome(number))
    await asyncio.sleep(0)
    listeners[0](outcome(100))
    await until(lambda: b'"/100"' in followers[0]._waiting)
    told = await taken(followers[0])
    kept = sum(name == "message" for name, _ in told)
    assert [event["lost"] for name, event in told if name == "lost"] == [101 - kept]


async def test_who_cannot_be_connected_goes_on_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    await Gathering(list).start(deep)
    await report(deep, [])
    assert "/-/events tells nothing of what workers do" in caplog.text
