"""Content pushed to several readers, each at its own pace."""

import sys

import pytest

from univocal.engine.broadcast import FAR_BEHIND, WINDOW, Broadcast, CutShortError, Reader


class Sink:
    """Takes `takes` chunks at a time."""

    reader: Reader

    def __init__(self, takes=1_000_000):
        self.takes = takes
        self.chunks = []
        self.ends = []
        self.leaves_at = 0  # the chunk within which it leaves
        self.whom = self  # who leaves then

    def write(self, chunk):
        assert not self.ends
        self.chunks.append(chunk)
        if len(self.chunks) == self.leaves_at:
            self.whom.reader.leave()
        return len(self.chunks) % self.takes != 0

    def ended(self, error):
        self.ends.append(error)

    def fail(self, error):
        self.ends.append(error)
        self.reader.leave()


class Failing(Sink):
    """Raises an error once it has taken a chunk, or at the end."""

    def __init__(self, *, at_end):
        super().__init__()
        self.at_end = at_end

    def write(self, chunk):
        if not self.at_end:
            raise MemoryError
        return super().write(chunk)

    def ended(self, error):
        raise MemoryError


class Told:
    """The owner of a broadcast: it counts the calls that it gets."""

    def __init__(self, window=10):
        self.deserted = self.rooms = 0
        self.broadcast = Broadcast(self._deserted, self._room, window)

    def _deserted(self):
        self.deserted += 1

    def _room(self):
        self.rooms += 1

    def join(self, sink, *, reads=True):
        sink.reader = self.broadcast.join(sink)
        if reads:
            sink.reader.resume()
        return sink


@pytest.fixture
def told():
    return Told()


@pytest.mark.parametrize("at_end", [False, True])
def test_a_sink_that_fails_ends_alone(told, at_end):
    failing, other = told.join(Failing(at_end=at_end)), told.join(Sink())
    told.broadcast.write(b"a")
    told.broadcast.end()
    assert (other.chunks, other.ends) == ([b"a"], [None])
    assert [type(error) for error in failing.ends] == [MemoryError]
    assert told.broadcast.readers == []


def test_each_reader_gets_everything_in_order_and_the_end_once(told):
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


# Back-pressure


def test_a_kept_broadcast_is_bounded_by_its_owner_alone(told):
    told.broadcast.kept = True
    told.join(Sink(takes=1))
    for _ in range(10):
        assert told.broadcast.write(bytes(10))
    late = told.join(Sink())
    assert len(late.chunks) == told.broadcast.held == 10
    told.broadcast.close()
    assert told.broadcast.held == 9


@pytest.mark.pure("Python's steps are counted")
@pytest.mark.parametrize("order", [1, -1], ids=["as they came", "backwards"])
def test_readers_that_resume_look_through_few_others(told, order):
    sinks, steps, rounds = [told.join(Sink(takes=1)) for _ in range(300)], 0, 4

    def count(*_):
        nonlocal steps
        steps += 1
        return count

    before = sys.gettrace()
    for number in range(rounds):
        told.broadcast.write(bytes(20))
        if number == 0:
            continue  # which none of them has waited for
        sys.settrace(count)
        try:
            for sink in sinks[::order]:
                sink.reader.resume()
        finally:
            sys.settrace(before)
        assert told.broadcast.held == 0
        assert told.rooms == number
    assert steps < 100 * rounds * len(sinks)


def test_a_reader_far_behind_another_is_left_behind():
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
