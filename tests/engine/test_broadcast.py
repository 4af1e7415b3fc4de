"""Content pushed to several readers, each at its own pace."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from univocal.engine.broadcast import FAR_BEHIND, WINDOW, Broadcast, CutShortError, Reader


class Sink:
    """Takes `takes` chunks at a time."""

    reader: Reader

    def __init__(self, takes: int = 1_000_000) -> None:
        self.takes = takes
        self.chunks: list[bytes] = []
        self.ends: list[BaseException | None] = []
        self.leaves_at = 0  # the chunk within which it leaves
        self.whom: Sink = self  # who leaves then

    def write(self, chunk: bytes) -> bool:
        assert not self.ends
        self.chunks.append(chunk)
        if len(self.chunks) == self.leaves_at:
            self.whom.reader.leave()
        return len(self.chunks) % self.takes != 0

    def ended(self, error: BaseException | None) -> None:
        self.ends.append(error)


class Told:
    """What its owner is told by a broadcast."""

    def __init__(self, window: int = 10) -> None:
        self.deserted = self.rooms = 0
        self.broadcast = Broadcast(self._deserted, self._room, window)

    def _deserted(self) -> None:
        self.deserted += 1

    def _room(self) -> None:
        self.rooms += 1

    def join(self, sink: Sink, *, reads: bool = True) -> Sink:
        sink.reader = self.broadcast.join(sink)
        if reads:
            sink.reader.resume()
        return sink


@pytest.fixture
def told() -> Told:
    return Told()


def test_each_reader_gets_everything_in_order_and_the_end_once(told: Told) -> None:
    sinks = [told.join(Sink()), told.join(Sink(takes=1))]
    for chunk in (b"a", b"", b"b"):
        assert told.broadcast.write(chunk)
    told.broadcast.end()
    assert sinks[0].chunks == [b"a", b"b"]
    assert sinks[0].ends == [None]
    assert (sinks[1].chunks, sinks[1].ends) == ([b"a"], [])
    for _ in range(4):
        sinks[1].reader.resume()
    assert (sinks[1].chunks, sinks[1].ends) == ([b"a", b"b"], [None])
    assert (told.deserted, len(told.broadcast.readers), told.broadcast.held) == (1, 0, 0)


def test_nobody_reads_before_it_resumes(told: Told) -> None:
    sink = told.join(Sink(), reads=False)
    told.broadcast.write(b"a")
    told.broadcast.end()
    assert (sink.chunks, sink.ends) == ([], [])
    sink.reader.resume()
    assert (sink.chunks, sink.ends) == ([b"a"], [None])


def test_an_early_end_comes_after_what_there_is(told: Told) -> None:
    sink, error = told.join(Sink(takes=1)), CutShortError()
    told.broadcast.write(b"a")
    told.broadcast.write(b"b")
    told.broadcast.end(error)
    assert (sink.chunks, sink.ends) == ([b"a"], [])
    sink.reader.resume()
    sink.reader.resume()
    assert (sink.chunks, sink.ends) == ([b"a", b"b"], [error])


# Back-pressure


def test_a_writer_is_at_most_a_window_ahead(told: Told) -> None:
    fast, slow = told.join(Sink(takes=1)), told.join(Sink(takes=1))
    assert told.broadcast.write(bytes(6))  # both have taken it, and take no more
    assert told.broadcast.write(bytes(10))
    assert not told.broadcast.write(b"1")
    slow.reader.resume()
    assert told.rooms == 1  # the fastest is within the window again, whichever it is
    fast.reader.resume()
    assert told.rooms == 1
    assert told.broadcast.write(bytes(9))


def test_a_writer_continues_when_its_slow_reader_leaves(told: Told) -> None:
    sink = told.join(Sink(takes=1))
    told.broadcast.write(b"0")
    assert not told.broadcast.write(bytes(11))
    sink.reader.leave()
    assert (told.rooms, told.deserted, told.broadcast.held) == (1, 1, 0)
    assert told.broadcast.write(bytes(100))
    assert told.broadcast.held == 0


def test_what_is_kept_is_bounded_by_its_owner_alone(told: Told) -> None:
    told.broadcast.kept = True
    told.join(Sink(takes=1))
    for _ in range(10):
        assert told.broadcast.write(bytes(10))
    late = told.join(Sink())
    assert len(late.chunks) == told.broadcast.held == 10
    told.broadcast.close()
    assert told.broadcast.held == 9


def test_a_reader_far_behind_another_is_left_behind() -> None:
    told = Told(WINDOW)
    fast, slow = told.join(Sink()), told.join(Sink(takes=1))
    written = 0
    while not slow.ends:
        assert told.broadcast.write(bytes(WINDOW))
        written += WINDOW
    assert written == FAR_BEHIND + 2 * WINDOW
    assert isinstance(slow.ends[0], CutShortError)
    assert told.broadcast.held == 0
    told.broadcast.end()
    assert fast.ends == [None]
    assert len(slow.ends) == 1


def test_a_reader_alone_is_never_left_behind() -> None:
    told = Told(WINDOW)
    alone = told.join(Sink(takes=1))
    for _ in range(20):
        told.broadcast.write(bytes(WINDOW))
    assert alone.ends == []


# Those who leave


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_reader_leaving_within_its_write_gets_no_more(told: Told, at: int) -> None:
    told.broadcast.kept = True
    for _ in range(3):
        told.broadcast.write(b"a")
    told.broadcast.end()
    sink = Sink()
    sink.leaves_at = at
    told.join(sink)
    assert (len(sink.chunks), sink.ends) == (at, [])
    sink.reader.resume()
    assert (len(sink.chunks), sink.ends, told.deserted) == (at, [], 1)


def test_a_reader_that_another_makes_leave_gets_no_more(told: Told) -> None:
    first, second = told.join(Sink()), told.join(Sink())
    first.leaves_at, first.whom = 1, second
    told.broadcast.write(b"a")
    told.broadcast.end()
    assert (first.chunks, second.chunks) == ([b"a"], [])
    assert (first.ends, second.ends) == ([None], [])


def test_one_leaves_once(told: Told) -> None:
    sink = told.join(Sink())
    told.broadcast.write(b"a")
    told.broadcast.end()
    sink.reader.leave()
    sink.reader.leave()
    sink.reader.drop_slow_reader()
    assert (sink.ends, told.deserted) == ([None], 1)


def test_an_error_raised_by_many_has_one_traceback(told: Told) -> None:
    try:
        raise ValueError("once")
    except ValueError as error:
        told.broadcast.end(error)
    depths = []
    for _ in range(3):
        found = told.broadcast.error
        assert found is not None
        try:
            raise found
        except ValueError as error:
            traceback, depth = error.__traceback__, 0
            while traceback is not None:
                traceback, depth = traceback.tb_next, depth + 1
            depths.append(depth)
    assert len({*depths}) == 1


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 8)),
        st.tuples(st.just("join"), st.integers(1, 3)),
        st.tuples(st.just("resume"), st.integers(0, 4)),
        st.tuples(st.just("leave"), st.integers(0, 4)),
        st.tuples(st.just("close"), st.just(0)),
    ),
    max_size=40,
)


@given(steps=STEPS, kept=st.booleans())
def test_readers_get_prefixes_and_those_who_stay_everything(steps: list[tuple[str, int]], kept: bool) -> None:
    told, sinks, written = Told(), list[Sink](), b""
    told.broadcast.kept = kept
    for kind, number in steps:
        match kind:
            case "write":
                chunk = bytes(range(len(written) % 200, len(written) % 200 + number))
                told.broadcast.write(chunk)
                written += chunk
            case "join" if not written or told.broadcast.kept:
                sinks.append(told.join(Sink(number)))
            case "resume" if sinks:
                sinks[number % len(sinks)].reader.resume()
            case "leave" if sinks:
                sinks[number % len(sinks)].reader.leave()
            case "close":
                told.broadcast.close()
        for sink in sinks:
            assert written.startswith(b"".join(sink.chunks))
    stayed = [sink for sink in sinks if not sink.reader.done]
    told.broadcast.end()
    told.broadcast.close()
    for sink in stayed:
        while not sink.ends:
            sink.reader.resume()
        assert b"".join(sink.chunks) == written
    assert (len(told.broadcast.readers), told.broadcast.held) == (0, 0)
