"""Simultaneous misses of one key: one request to the application, and none is worse off for having waited."""

import asyncio

import pytest

from tests.asgi.conftest import respond

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


# Clients that leave


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


@pytest.mark.parametrize("told", ["before the head", "behind the head", "within the content"])
async def test_a_stream_that_ends_with_its_client_serves_nobody_else(cached, idle, told):
    """BaseHTTPMiddleware, and generators that ask whether their client is there, end it as usual."""

    async def disconnected(receive):
        while (await receive())["type"] != "http.disconnect":
            pass

    async def page(scope, receive, send):
        first = application.count == 1
        if first and told == "before the head":
            await disconnected(receive)
        await send({"type": "http.response.start", "status": 200, "headers": OPEN})
        if first and told == "behind the head":
            await disconnected(receive)
        elif not first or told == "within the content":
            await send({"type": "http.response.body", "body": b"half ", "more_body": True})
        if first and told == "within the content":
            await disconnected(receive)
        await send({"type": "http.response.body", "body": b"" if first else b"whole"})

    application = counted(page)
    client, leave = cached(app=application), asyncio.Event()
    (leader,) = start(client, 1, "/a", leave=leave)
    await idle()
    others = start(client, 3, "/a")
    await idle()
    leave.set()
    assert {answer.body for answer in (await together([leader, *others]))[1:]} == {b"half whole"}
    assert (await client("/a")).body == b"half whole"


async def test_a_passed_by_stream_that_ends_with_its_client_goes(cached, idle):
    async def page(scope, receive, send):
        if application.count == 2:
            while (await receive())["type"] != "http.disconnect":
                pass
        fields = CLOSED if application.count == 1 else OPEN
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        await send({"type": "http.response.body"})

    application = counted(page)
    client, leave = cached(app=application), asyncio.Event()
    await client("/a")
    leaving = start(client, 1, "/a", leave=leave)
    await idle()
    leave.set()
    await together(leaving)
    assert "hit" not in (await client("/a")).handling


async def test_a_part_that_others_have_is_completed_for_them(cached, idle):
    """The rest of it cannot be asked for."""
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


# Failures


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


@pytest.mark.parametrize(("begins", "missing"), [(False, "starting"), (True, "completing")])
async def test_an_application_that_returns_too_early_hangs_nobody(cached, caplog, begins, missing):
    async def application(scope, receive, send):
        if begins:
            await send({"type": "http.response.start", "status": 200, "headers": OPEN})

    answers = await together(start(cached(app=application), 3, "/a"))
    status = 200 if begins else 502
    assert {(answer.status, answer.complete) for answer in answers} == {(status, not begins)}
    assert begins or {answer.problem["reason"] for answer in answers} == {"origin-bad-response"}
    assert f"ASGI callable returned without {missing} response." in caplog.messages


async def test_an_application_that_hears_of_the_leaving_may_answer_nothing(cached):
    left = asyncio.Event()
    left.set()

    async def application(scope, receive, send):
        while (await receive())["type"] != "http.disconnect":
            pass

    assert (await cached(app=application)("/a", leave=left)).status == 0


# Work after the response


async def test_work_after_the_response_holds_up_nobody_who_comes_later(cached, clock, idle):
    gate = asyncio.Event()

    async def application(scope, receive, send):
        await respond(send, b"done", OPEN)
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


@pytest.mark.parametrize(("length", "kept"), [([], False), ([(b"content-length", b"4")], True)])
async def test_a_stream_whose_application_then_fails_is_not_kept(cached, length, kept):
    async def application(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [*OPEN, *length]})
        await send({"type": "http.response.body", "body": b"done", "more_body": True})
        await send({"type": "http.response.body"})  # as Starlette's BaseHTTPMiddleware ends what has failed
        raise LookupError("in the middle")

    client = cached(app=application)
    with pytest.raises(LookupError):
        await client("/a?b=%28")
    assert bool(client.app.store.stats.responses) is kept
