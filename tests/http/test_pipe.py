"""Content arrives whole and in order, at the pace of the slower side, whoever takes it and how."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from univocal.http.pipe import HIGH_WATER, NO_CONTENT, Pipe, whole


class Sink:
    """Takes what it gets; it asks for a pause where `takes` says so."""

    def __init__(self, takes=()):
        self.takes, self.taken, self.ends = list(takes), b"", 0

    def write(self, chunk):
        self.taken += chunk
        return self.takes.pop(0) if self.takes else True

    def finish(self):
        self.ends += 1


@given(st.lists(st.binary(max_size=3), max_size=6), st.lists(st.booleans(), max_size=6), st.integers(0, 6))
def test_a_sink_gets_everything_once(chunks, takes, attached):
    pipe, sink = Pipe(lambda: None), Sink(takes)
    for at, chunk in enumerate(chunks):
        if at == attached:
            pipe.attach(sink)
        pipe.write(chunk)
    pipe.finish()
    if attached >= len(chunks):
        pipe.attach(sink)
    while not sink.ends:
        pipe.resume()
    assert (sink.taken, sink.ends) == (b"".join(chunks), 1)


@given(st.lists(st.binary(max_size=3), max_size=6), st.sets(st.integers(0, 6)))
def test_a_taker_gets_everything_once(chunks, pauses):
    pipe, taken = Pipe(lambda: None), b""
    for at, chunk in enumerate(chunks):
        pipe.write(chunk)
        if at in pauses:
            taken += pipe.take()
    pipe.finish()
    assert taken + pipe.take() == b"".join(chunks)


@pytest.mark.parametrize("how", ["take", "attach", "detach"])
def test_a_full_pipe_goes_on_once_it_is_emptied(how):
    called = []
    pipe = Pipe(lambda: called.append("on"))
    assert pipe.write(b"a" * HIGH_WATER)
    assert not pipe.write(b"a")
    assert called == []
    {"take": pipe.take, "attach": lambda: pipe.attach(Sink()), "detach": pipe.detach}[how]()
    assert called == ["on"]
    assert pipe.write(b"a")


def test_a_sink_that_takes_no_more_pauses_its_source():
    called = []
    pipe, sink = Pipe(lambda: called.append("on"), lambda: called.append("start")), Sink([False, True])
    pipe.attach(sink)
    assert called == ["start", "on"]
    assert not pipe.write(b"a")
    assert not pipe.write(b"b")
    assert sink.taken == b"a"
    pipe.resume()
    assert (sink.taken, called) == (b"ab", ["start", "on", "on"])


@pytest.mark.parametrize("came", ["before", "after", "the end"])
def test_a_listener_hears_of_the_first_bytes(came):
    called = []
    pipe = Pipe(lambda: None)
    if came == "before":
        pipe.write(b"a")
    pipe.when_begun(lambda: called.append(True))
    if came == "after":
        pipe.write(b"a")
    pipe.write(b"")
    pipe.finish()
    assert called == [True]


def test_content_that_is_there_comes_whole():
    sink = Sink()
    whole(b"ab").attach(sink)
    NO_CONTENT.attach(sink)
    assert (sink.taken, sink.ends) == (b"ab", 2)


def test_unwanted_content_is_dropped():
    pipe, sink = Pipe(lambda: None), Sink()
    pipe.attach(sink)
    pipe.detach()
    assert pipe.write(b"a")
    assert (pipe.take(), sink.taken) == (b"", b"")
