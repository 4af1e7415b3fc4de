"""Simultaneous misses of one key: one request to the application, and nobody worse off for having waited."""

import asyncio
import traceback

import pytest

from univocal import MemoryStore, Rules, Runtime
from univocal.http.errors import RefusedError
from univocal.judge.profiles import builtin_profiles
from univocal.judge.runtime import Limits

OPEN = [(b"cache-control", b"max-age=60")]
CLOSED = [(b"cache-control", b"no-store")]


def start(client, count, *arguments, **named):
    return [asyncio.create_task(client(*arguments, **named)) for _ in range(count)]


async def together(tasks):
    async with asyncio.timeout(10):
        return await asyncio.gather(*tasks, return_exceptions=True)


def streaming(chunks, fields=OPEN, status=200, complete=True):
    """An application whose content comes in `chunks`; an Event among them holds the rest back."""

    async def application(scope, receive, send):
        await send({"type": "http.response.start", "status": status, "headers": list(fields)})
        for chunk in chunks:
            if isinstance(chunk, asyncio.Event):
                await chunk.wait()
            else:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        if complete:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    return application


def counted(app):
    async def counting(scope, receive, send):
        counting.count += 1
        await app(scope, receive, send)

    counting.count = 0
    return counting


# One request for all


async def test_a_thousand_simultaneous_misses_make_one_request(cached, application, idle):
    client, application.gate = cached(), asyncio.Event()
    waiting = start(client, 1000, "/a")
    await idle()
    application.gate.set()
    answers = await together(waiting)
    assert application.count == 1
    assert {(answer.status, answer.body, answer.complete) for answer in answers} == {(200, b"answer 1", True)}


async def test_the_spellings_of_one_url_wait_for_one_another(cached, application, idle):
    client, application.gate = cached(), asyncio.Event()
    waiting = [asyncio.create_task(client(target)) for target in ("/a(b)", "/a%28b%29", "/%61(b%29")]
    await idle()
    application.gate.set()
    await together(waiting)
    assert application.count == 1


async def test_whoever_waited_is_told_that_it_was_collapsed(cached, application, idle):
    client, application.gate = cached(), asyncio.Event()
    waiting = start(client, 2, "/a")
    await idle()
    application.gate.set()
    leader, follower = await together(waiting)
    assert leader.handling == {"fwd=uri-miss", "stored"}
    assert follower.handling == {"fwd=uri-miss", "collapsed"}


async def test_a_late_reader_gets_the_content_from_its_first_byte(cached, idle):
    gate = asyncio.Event()
    app = counted(streaming([b"first ", gate, b"second"]))
    client = cached(app=app)
    waiting = start(client, 1, "/a")
    await idle()
    waiting += start(client, 1, "/a")
    await idle()
    gate.set()
    assert [answer.body for answer in await together(waiting)] == [b"first second"] * 2
    assert app.count == 1


async def test_different_urls_do_not_wait_for_one_another(cached, application):
    client, application.gate = cached(), asyncio.Event()
    waiting = [asyncio.create_task(client(target)) for target in ("/a", "/a?", "/b")]
    await application.reached(3)
    assert application.count == 3
    application.gate.set()
    await together(waiting)


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("GET", [("cache-control", "no-store")]),
        ("HEAD", []),
        ("POST", []),
    ],
)
async def test_what_another_answer_could_not_satisfy_does_not_wait(cached, application, method, fields):
    client, application.gate = cached(), asyncio.Event()
    waiting = start(client, 3, "/a", method, fields)
    await application.reached(3)
    assert application.count == 3
    application.gate.set()
    await together(waiting)


async def test_simultaneous_ranges_of_one_page_make_one_request(cached, application, idle):
    client, application.gate = cached(), asyncio.Event()
    application.fields = [*OPEN, (b"content-length", b"8")]  # it knows no ranges
    waiting = [
        asyncio.create_task(client("/a", fields=[("range", f"bytes={n}-{n + 1}")])) for n in range(0, 8, 2)
    ]
    await idle()
    application.gate.set()
    first, *others = await together(waiting)
    assert (first.status, first.body) == (200, b"answer 1")
    assert [(other.status, other.body) for other in others] == [(206, b"sw"), (206, b"er"), (206, b" 1")]
    assert application.count == 1


async def test_who_accepts_another_variant_forwards_by_itself(cached, application, idle):
    client, application.gate = cached(), asyncio.Event()
    application.fields = [*OPEN, (b"vary", b"accept-language")]
    waiting = [
        asyncio.create_task(client("/a", fields=[("accept-language", tongue)]))
        for tongue in ("en", "ru", "en")
    ]
    await idle()
    assert application.count == 1
    application.gate.set()
    answers = await together(waiting)
    assert application.count == 2
    assert answers[0].body == answers[2].body != answers[1].body


async def test_known_different_variants_do_not_wait_for_each_other(cached, application, clock):
    client = cached()
    application.fields = [*OPEN, (b"vary", b"accept-language")]
    await client("/a", fields=[("accept-language", "de")])
    application.gate = asyncio.Event()
    waiting = [asyncio.create_task(client("/a", fields=[("accept-language", each)])) for each in ("en", "ru")]
    await application.reached(3)
    assert application.count == 3
    application.gate.set()
    await together(waiting)


async def test_a_client_with_credentials_gets_no_others_response(cached, application, idle):
    client, application.gate = cached(), asyncio.Event()
    application.script = lambda scope: (
        200,
        CLOSED,
        dict(scope["headers"]).get(b"authorization", b"nobody"),
    )
    waiting = [
        asyncio.create_task(client("/a", fields=[("authorization", name)]))
        for name in ("one", "two", "three")
    ]
    await idle()
    application.gate.set()
    assert [answer.body for answer in await together(waiting)] == [b"one", b"two", b"three"]


BASIC = [("authorization", "Basic eDp5")]


async def test_requests_with_authorization_do_not_queue_behind_one_another(cached, application):
    client, application.gate = cached(), asyncio.Event()
    application.fields = CLOSED
    waiting = start(client, 4, "/a", fields=BASIC)
    await application.reached(4)  # all at the same time: none has had an answer yet
    application.gate.set()
    assert len({answer.body for answer in await together(waiting)}) == 4


@pytest.mark.parametrize(
    ("said", "requests"),
    [("public, max-age=1", 1), ("s-maxage=1", 1), ("must-revalidate, max-age=1", 1), ("max-age=1", 4)],
)
async def test_requests_with_authorization_wait_where_sharing_is_allowed(
    cached, application, clock, idle, said, requests
):
    client = cached()
    application.fields = [(b"cache-control", said.encode()), (b"etag", b'"1"')]
    await client("/a")
    clock.now += 10
    application.gate = asyncio.Event()
    waiting = start(client, 4, "/a", fields=BASIC)
    await idle()
    assert application.count == 1 + requests
    application.gate.set()
    assert {answer.status for answer in await together(waiting)} == {200}


# What one request with a cookie brings about


def for_members(scope):
    """Who has a session gets a page of its own; the rest get one that all may have."""
    if b"session" in dict(scope["headers"]).get(b"cookie", b""):
        return 200, [(b"cache-control", b"private")], b"a member's"
    return None


@pytest.mark.parametrize("own", [("cookie", "session=1"), ("cookie", "a=b; session=2")])
async def test_one_private_answer_does_not_end_collapsing_for_others(cached, application, idle, own):
    client, application.script = cached(), for_members
    assert (await client("/a", fields=[own])).body == b"a member's"
    application.gate = asyncio.Event()
    waiting = start(client, 50, "/a") + start(client, 50, "/a", fields=[("cookie", "_ga=1")])
    await idle()
    assert application.count == 2
    application.gate.set()
    assert {answer.body for answer in await together(waiting)} == {b"answer 2"}


async def test_clients_with_the_cookie_do_not_wait_for_each_other(cached, application):
    client, application.script = cached(), for_members
    await client("/a", fields=[("cookie", "session=1")])
    application.gate = asyncio.Event()
    waiting = [asyncio.create_task(client("/a", fields=[("cookie", f"session={n}")])) for n in range(20)]
    await application.reached(21)
    application.gate.set()
    assert {(answer.status, answer.body) for answer in await together(waiting)} == {(200, b"a member's")}
    assert application.count == 21


async def test_a_private_answer_releases_no_thousand_at_once(cached, application, idle):
    client, application.script, application.gate = cached(), for_members, asyncio.Event()
    waiting = start(client, 1, "/a", fields=[("cookie", "session=1")])
    await application.reached(1)
    waiting += start(client, 1000, "/a")
    await idle()
    first, application.gate = application.gate, asyncio.Event()
    first.set()
    await idle()
    assert 1 < application.count <= 20
    application.gate.set()
    answers = await together(waiting)
    assert answers[0].body == b"a member's"
    assert b"a member's" not in {answer.body for answer in answers[1:]}
    assert application.count <= 20


@pytest.mark.parametrize(("status", "left"), [(200, b"answer 1"), (304, b"ill")])
async def test_a_private_answer_ends_only_a_confirmed_response(cached, application, clock, status, left):
    client = cached()
    application.fields = [(b"cache-control", b"max-age=1, stale-if-error=600"), (b"etag", b'"1"')]
    await client("/a")
    clock.now += 10
    application.script = lambda scope: (status, [(b"cache-control", b"private"), (b"etag", b'"1"')], b"")
    await client("/a", fields=[("cookie", "session=1")])
    application.script = lambda scope: (503, [], b"ill")
    assert (await client("/a")).body == left


async def test_an_ordinary_answer_ends_responses_it_forbids_to_store(cached, application, clock):
    client = cached()
    application.fields = [(b"cache-control", b"max-age=1, stale-if-error=600"), (b"etag", b'"1"')]
    await client("/a")
    clock.now += 10
    application.script = lambda scope: (200, [(b"cache-control", b"private")], b"")
    await client("/a")
    application.script = lambda scope: (503, [], b"ill")
    assert (await client("/a")).status == 503


async def test_who_waited_has_its_own_conditions_answered(cached, application, idle):
    client, application.gate = cached(), asyncio.Event()
    application.fields = [*OPEN, (b"etag", b'"v1"')]
    waiting = start(client, 1, "/a")
    waiting += start(client, 1, "/a", fields=[("if-none-match", '"v1"')])
    await idle()
    application.gate.set()
    assert [answer.status for answer in await together(waiting)] == [200, 304]


# What turns out uncacheable


async def test_an_uncacheable_response_releases_all_at_once(cached, application, idle):
    client, application.gate = cached(), asyncio.Event()
    application.fields = CLOSED
    waiting = start(client, 20, "/a")
    await idle()
    assert application.count == 1
    first, application.gate = application.gate, asyncio.Event()
    first.set()
    await application.reached(20)  # all the rest at the same time: none has had an answer yet
    application.gate.set()
    answers = await together(waiting)
    assert len({answer.body for answer in answers}) == 20


async def test_that_a_key_was_uncacheable_is_remembered(cached, application):
    client = cached()
    application.fields = CLOSED
    await client("/a")
    application.gate = asyncio.Event()
    waiting = start(client, 5, "/a")
    await application.reached(6)
    assert application.count == 6
    application.gate.set()
    await together(waiting)


async def test_that_a_key_was_uncacheable_is_forgotten_after_a_while(cached, application, clock, idle):
    client = cached()
    application.fields = CLOSED
    await client("/a")
    application.fields = OPEN
    clock.now += 600
    application.gate = asyncio.Event()
    waiting = start(client, 5, "/a")
    await idle()
    application.gate.set()
    await together(waiting)
    assert application.count == 2


async def test_content_that_grows_too_large_releases_who_comes_later(cached, idle):
    gate = asyncio.Event()
    app = counted(streaming([b"x" * 900, b"y" * 900, gate, b"z"]))
    client = cached(app=app, store=MemoryStore(max_bytes=100_000, max_object_bytes=1000))
    waiting = start(client, 1, "/a")
    await idle()
    waiting += start(client, 1, "/a")
    await idle()
    assert app.count == 2
    gate.set()
    assert {len(answer.body) for answer in await together(waiting)} == {1801}


# Who leaves


class Listening:
    """Answers at the gate, unless it hears before that its client has left; then it returns or goes on."""

    def __init__(self, application, *, heeds=True):
        self.application, self.heeds = application, heeds
        self.gate, self.heard = asyncio.Event(), 0

    async def __call__(self, scope, receive, send):
        async def disconnected():
            while (await receive())["type"] != "http.disconnect":
                pass
            self.heard += 1

        async def complete():
            return {"type": "http.request", "body": b"", "more_body": False}

        leaving, opening = asyncio.ensure_future(disconnected()), asyncio.ensure_future(self.gate.wait())
        done, _ = await asyncio.wait((leaving, opening), return_when=asyncio.FIRST_COMPLETED)
        if leaving in done and self.heeds:
            opening.cancel()
            return
        await opening
        leaving.cancel()
        await self.application(scope, complete, send)


async def test_a_leader_s_application_that_goes_on_answers_others(cached, application, idle):
    client, application.gate = cached(), asyncio.Event()
    leave = asyncio.Event()
    leader = asyncio.create_task(client("/a", leave=leave))
    await application.reached(1)
    followers = start(client, 3, "/a")
    await idle()
    leave.set()
    await idle()
    application.gate.set()
    assert {answer.body for answer in await together([leader, *followers])} == {b"answer 1"}
    assert (application.count, application.cancelled) == (1, 0)


@pytest.mark.parametrize("heeds", [True, False])
async def test_followers_are_answered_whether_the_leader_goes_on_or_not(cached, application, idle, heeds):
    listening = Listening(application, heeds=heeds)
    client, leave = cached(app=listening), asyncio.Event()
    leader = asyncio.create_task(client("/a", leave=leave))
    await idle()
    followers = start(client, 3, "/a")
    await idle()
    leave.set()
    await idle()
    assert listening.heard == 1
    listening.gate.set()
    answers = await together([leader, *followers])
    assert {answer.status for answer in answers[1:]} == {200}
    assert len({answer.body for answer in answers[1:]}) == (3 if heeds else 1)


async def test_a_part_that_others_have_is_completed_for_them(cached, idle):
    """Nobody can ask for the rest of it."""
    gates = [asyncio.Event(), asyncio.Event()]
    left = asyncio.Event()

    async def application(scope, receive, send):
        async def disconnected():
            while (await receive())["type"] != "http.disconnect":
                pass
            left.set()

        leaving = asyncio.create_task(disconnected())
        await streaming([b"1", gates[0], b"2", gates[1], b"3"])(scope, receive, send)
        leaving.cancel()

    client, leave = cached(app=application), asyncio.Event()
    leader = asyncio.create_task(client("/a", leave=leave))
    await idle()
    follower = asyncio.create_task(client("/a"))
    await idle()
    gates[0].set()
    await idle()
    leave.set()
    await idle()
    assert not left.is_set()
    gates[1].set()
    assert (await together([leader, follower]))[1].body == b"123"


@pytest.mark.usefixtures("impatient")
async def test_once_all_have_left_a_listening_application_hears_of_it(cached, application, idle):
    listening = Listening(application)
    client, leave = cached(app=listening), asyncio.Event()
    waiting = start(client, 3, "/a", leave=leave)
    await idle()
    leave.set()
    await together(waiting)
    assert listening.heard == 1
    listening.gate.set()
    assert (await client("/a")).body == b"answer 1"


@pytest.mark.parametrize("error", [None, OSError])
async def test_a_server_decides_about_messages_to_who_has_left(cached, application, idle, error):
    listening, sent, caught = Listening(application, heeds=False), [], []
    client, leave = cached(app=listening), asyncio.Event()
    inner = client.app

    async def server(scope, receive, send):
        async def gone(message):
            sent.append(message["type"])
            if error is not None:
                raise error

        try:
            await inner(scope, receive, gone)
        except OSError as raised:
            caught.append(raised)

    client.app = server
    waiting = start(client, 1, "/a", leave=leave)
    await idle()
    leave.set()
    await idle()
    listening.gate.set()
    await together(waiting)
    assert sent == (["http.response.start"] if error else ["http.response.start", "http.response.body"])
    assert len(caught) == (error is not None)


async def test_a_server_that_cancels_a_request_cancels_the_application(cached, application, idle):
    client, application.gate = cached(), asyncio.Event()
    (waiting,) = start(client, 1, "/a")
    await application.reached(1)
    others = start(client, 2, "/a")
    await idle()
    waiting.cancel()
    await idle()
    assert (waiting.cancelled(), application.cancelled) == (True, 1)
    application.gate.set()
    assert {answer.status for answer in await together(others)} == {200}


async def test_a_waiter_has_a_limit_then_asks_for_itself(clock, application, client_of, idle):
    from univocal import CacheMiddleware

    runtime = Runtime.everywhere(builtin_profiles()["asgi"], Rules(), limits=Limits(collapse_timeout=0.001))
    client = client_of(CacheMiddleware(application, runtime=runtime, clock=clock))
    application.gate = asyncio.Event()
    waiting = start(client, 3, "/a")
    await application.reached(3)
    application.gate.set()
    assert {answer.status for answer in await together(waiting)} == {200}


# A purge in the meantime


async def test_what_was_asked_for_before_a_purge_is_not_stored(cached, application):
    client, application.gate = cached(), asyncio.Event()
    waiting = start(client, 1, "/a")
    await application.reached(1)
    await client("/%61", "PURGE")
    application.gate.set()
    await together(waiting)
    assert (await client("/a")).body == b"answer 2"


async def test_requests_after_a_purge_do_not_wait_for_older_ones(cached, application):
    client, application.gate = cached(), asyncio.Event()
    waiting = start(client, 1, "/a")
    await application.reached(1)
    await client("/a", "PURGE")
    waiting += start(client, 1, "/a")
    await application.reached(2)
    application.gate.set()
    assert [answer.body for answer in await together(waiting)] == [b"answer 1", b"answer 2"]
    assert (await client("/a")).body == b"answer 2"


async def test_a_purge_by_tag_while_the_tagged_content_comes_wins(cached, idle):
    gate = asyncio.Event()
    app = counted(streaming([b"some", gate, b"more"], [*OPEN, (b"surrogate-key", b"news")]))
    client = cached(app=app)
    waiting = start(client, 1, "/a")
    await idle()
    await client("/", "PURGE", [("surrogate-key", "news")])
    gate.set()
    await together(waiting)
    await client("/a")
    assert app.count == 2


@pytest.mark.parametrize(
    ("told", "target", "purged"),
    [
        ((b"surrogate-key", b"news"), "/", [("surrogate-key", "news")]),
        ((b"no-vary-search", b'params=("utm")'), "/a?utm=2", []),
    ],
)
async def test_requests_after_a_purge_do_not_wait_for_doubtful_ones(
    cached, application, told, target, purged
):
    client, application.gate = cached(), asyncio.Event()
    application.fields = [*OPEN, told]
    waiting = start(client, 1, "/a?utm=1")
    await application.reached(1)
    await client(target, "PURGE", purged)
    waiting += start(client, 1, "/a?utm=1")
    await application.reached(2)
    application.gate.set()
    assert [answer.body for answer in await together(waiting)] == [b"answer 1", b"answer 2"]


@pytest.mark.parametrize(
    ("target", "host"), [("/b", "en.example"), ("/a", "ru.example"), ("/", "en.example")]
)
async def test_a_purge_of_something_else_parts_nobody(cached, application, idle, target, host):
    client, application.gate = cached(), asyncio.Event()
    waiting = start(client, 1, "/a")
    await application.reached(1)
    await client(target, "PURGE", host=host)
    waiting += start(client, 1, "/a")
    await idle()
    application.gate.set()
    assert [answer.body for answer in await together(waiting)] == [b"answer 1"] * 2
    assert "hit" in (await client("/a")).handling


async def test_a_post_during_a_get_prevents_its_storage(cached, application):
    client, application.gate = cached(), asyncio.Event()
    waiting = start(client, 1, "/a")
    await application.reached(1)
    old, application.gate = application.gate, None
    await client("/a", "POST")
    old.set()
    await together(waiting)
    assert "hit" not in (await client("/a")).handling


# What goes wrong


@pytest.mark.parametrize("kind", [LookupError, TimeoutError])
async def test_an_application_that_raises_raises_for_everyone(cached, idle, kind):
    gate = asyncio.Event()

    @counted
    async def application(scope, receive, send):
        await gate.wait()
        raise kind("the page")

    client = cached(app=application)
    waiting = start(client, 5, "/a")
    await idle()
    gate.set()
    assert [type(error) for error in await together(waiting)] == [kind] * 5
    assert application.count == 5  # what one request provoked says nothing of the others


async def test_an_error_for_many_grows_no_longer(cached, idle):
    gate = asyncio.Event()

    async def application(scope, receive, send):
        await gate.wait()
        raise LookupError("the page")

    client = cached(app=application)
    depths = []

    async def ask():
        try:
            await client("/a")
        except LookupError as error:
            depths.append(len(traceback.extract_tb(error.__traceback__)))

    waiting = [asyncio.create_task(ask()) for _ in range(10)]
    await idle()
    gate.set()
    await together(waiting)
    assert len(depths) == 10
    assert max(depths) <= min(depths) + 2


async def test_a_refusal_by_the_origin_is_everyones_answer(cached, idle):
    gate = asyncio.Event()

    async def application(scope, receive, send):
        await gate.wait()
        raise RefusedError("origin-unreachable")

    client = cached(app=application)
    waiting = start(client, 5, "/a")
    await idle()
    gate.set()
    assert {(answer.status, answer.problem["reason"]) for answer in await together(waiting)} == {
        (502, "origin-unreachable")
    }


async def test_content_that_is_cut_short_ends_nobodys_response(cached, idle):
    gates = [asyncio.Event(), asyncio.Event()]
    app = counted(streaming([gates[0], b"half", gates[1]], complete=False))
    client = cached(app=app)
    waiting = start(client, 3, "/a")
    for gate in gates:
        await idle()
        gate.set()
    answers = await together(waiting)
    assert {(answer.body, answer.complete) for answer in answers} == {(b"half", False)}
    await client("/a")
    assert app.count == 2


async def test_an_error_in_the_middle_of_the_content_reaches_everyone(cached, idle):
    gate = asyncio.Event()

    async def application(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": OPEN})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        await gate.wait()
        raise LookupError("the rest")

    client = cached(app=counted(application))
    waiting = start(client, 3, "/a")
    await idle()
    gate.set()
    assert [type(error) for error in await together(waiting)] == [LookupError] * 3
    assert client.app.store.stats.responses == 0


async def test_an_application_that_answers_nothing_hangs_nobody(cached):
    async def application(scope, receive, send):
        pass

    answers = await together(start(cached(app=application), 3, "/a"))
    assert {(answer.status, answer.complete) for answer in answers} == {(502, True)}
    assert {answer.problem["reason"] for answer in answers} == {"origin-bad-response"}


async def test_nothing_is_left_of_what_went_wrong(cached, application, idle):
    client = cached(app=streaming([b"half"], complete=False))
    await client("/a")
    await idle()
    assert client.app.store.stats.reserved == 0


# What goes on after the response


async def test_work_after_the_response_holds_up_nobody_who_comes_later(cached, clock, idle):
    gate = asyncio.Event()

    async def application(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": OPEN})
        await send({"type": "http.response.body", "body": b"done"})
        await gate.wait()

    client = cached(app=counted(application))
    first = start(client, 1, "/a")
    await idle()
    clock.now += 3600
    waiting = start(client, 3, "/a")
    await idle()
    assert client.app.app.count == 2  # the second is again one for all three
    assert client.app.store.stats.reserved == 0
    assert [each.done() for each in waiting] == [False, True, True]  # the leader's task goes on with the work
    gate.set()
    assert {answer.status for answer in await together(first + waiting)} == {200}


async def test_an_error_after_the_response_is_the_server_s(cached):
    async def application(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": OPEN})
        await send({"type": "http.response.body", "body": b"done"})
        raise LookupError("the afterwards")

    client = cached(app=application)
    with pytest.raises(LookupError):
        await client("/a")
    assert "hit" in (await client("/a")).handling


@pytest.mark.parametrize(("length", "kept"), [([], False), ([(b"content-length", b"4")], True)])
async def test_a_stream_behind_which_the_application_fails_is_not_kept(cached, length, kept):
    async def application(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [*OPEN, *length]})
        await send({"type": "http.response.body", "body": b"done", "more_body": True})
        await send({"type": "http.response.body"})  # as Starlette's BaseHTTPMiddleware ends what has failed
        raise LookupError("in the middle")

    client = cached(app=application)
    with pytest.raises(LookupError):
        await client("/a?b=%28")
    assert bool(client.app.store.stats.responses) is kept
