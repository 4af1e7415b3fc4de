"""Pushed and pulled: what is pushed arrives where it is pulled, at the pace of who pulls."""

import asyncio

import httpx
import pytest

from tests.origin.conftest import turns
from univocal.http.messages import Response
from univocal.origin.client_library import HIGH_WATER, AwaitedAnswer, IteratedContent, StreamedContent


class Asked:
    def __init__(self):
        self.calls = []

    def resume(self):
        self.calls.append("resume")

    def cancel(self):
        self.calls.append("cancel")


def awaited(**how):
    answer = AwaitedAnswer(**how)
    answer.under_way = Asked()
    return answer


async def test_an_answer_is_awaited():
    answer = awaited()
    answer.start(Response(200, []))
    assert answer.write(b"a")
    assert answer.write(b"b")
    answer.finish()
    assert (await answer.head).status == 200
    assert [chunk async for chunk in answer] == [b"ab"]
    await answer.aclose()
    assert answer.under_way.calls == []


async def test_a_waiting_reader_gets_the_next_bytes_at_once():
    answer = awaited()
    task = asyncio.ensure_future(anext(answer))
    await turns()
    answer.write(b"a")
    assert await task == b"a"


async def test_much_that_nobody_reads_is_enough():
    answer = awaited()
    assert answer.write(b"x" * HIGH_WATER)
    assert not answer.write(b"x")
    assert answer.under_way.calls == []
    await anext(answer)
    assert answer.under_way.calls == ["resume"]


async def test_content_before_a_failure_is_read_first():
    answer = awaited()
    answer.start(Response(200, []))
    answer.write(b"a")
    answer.fail(LookupError("b"))
    assert await anext(answer) == b"a"
    for _ in range(2):
        with pytest.raises(LookupError):
            await anext(answer)


async def test_the_time_runs_only_while_somebody_reads():
    answer = awaited(read=0.01)
    answer.start(Response(200, []))
    await asyncio.sleep(0.02)
    answer.write(b"a")
    assert await anext(answer) == b"a"
    with pytest.raises(httpx.ReadTimeout):
        await anext(answer)
    assert answer.under_way.calls == ["cancel"]


@pytest.mark.parametrize("how", ["closed", "cancelled"])
async def test_a_reader_that_stops_cancels_the_request(how):
    answer = awaited()
    if how == "closed":
        await answer.aclose()
        await answer.aclose()
    else:
        task = asyncio.ensure_future(anext(answer))
        await turns()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert answer.under_way.calls == ["cancel"]
    with pytest.raises(httpx.ReadError):
        await anext(answer)


async def test_a_listeners_error_ends_the_exchange():
    def informational(status, fields):
        raise LookupError(status)

    answer = awaited(informational=informational)
    answer.interim(103, [])
    assert answer.under_way.calls == ["cancel"]
    with pytest.raises(LookupError):
        await answer.head


class Sink:
    def __init__(self, *takes):
        self.takes, self.chunks, self.finished = list(takes), [], False

    def write(self, chunk):
        self.chunks.append(chunk)
        return self.takes.pop(0)

    def finish(self):
        self.finished = True


async def chunks(*items):
    for item in items:
        if isinstance(item, Exception):
            raise item
        yield item


async def test_an_iterable_is_pushed_at_the_sinks_pace():
    content, sink = IteratedContent(chunks(b"a", b"b", b"c"), None).content, Sink(True, False, True)
    content.attach(sink)
    await turns()
    assert (sink.chunks, sink.finished) == ([b"a", b"b"], False)
    content.resume()
    await turns()
    assert (sink.chunks, sink.finished) == ([b"a", b"b", b"c"], True)
    content.resume()


async def test_an_iterables_error_is_told():
    errors = []
    content, sink = IteratedContent(chunks(b"a", LookupError("b")), errors.append).content, Sink(True)
    content.attach(sink)
    await turns()
    assert [type(error) for error in errors] == [LookupError]
    assert not sink.finished


async def test_detached_content_iterates_no_more():
    content, sink = IteratedContent(chunks(b"a", b"b"), None).content, Sink(False)
    content.attach(sink)
    await turns()
    content.detach()
    content.resume()
    await turns()
    assert (sink.chunks, sink.finished) == ([b"a"], False)


@pytest.mark.parametrize("read", [True, False])
async def test_a_stream_that_is_closed_early_takes_no_more(content, read):
    stream = StreamedContent(content.pipe)
    pieces = aiter(stream)
    if read:
        task = asyncio.ensure_future(anext(pieces))
        await turns()
        content.write(b"a")
        await task
    stream.close()
    stream.close()
    assert content.calls == (["begin", "detach"] if read else [])
