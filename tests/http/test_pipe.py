"""Content arrives whole and in order, at the pace of the slower side, whoever takes it and how."""

from hypothesis import given
from hypothesis import strategies as st

from univocal.http.pipe import NO_CONTENT, Pipe, whole


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


def test_content_that_is_there_comes_whole():
    sink = Sink()
    whole(b"ab").attach(sink)
    NO_CONTENT.attach(sink)
    assert (sink.taken, sink.ends) == (b"ab", 2)


def test_a_sink_may_go_on_within_a_refused_call():
    class Hasty(Sink):
        def write(self, chunk):
            super().write(chunk)
            pipe.resume()
            return False

    for ahead in (0, 2):
        pipe, sink = Pipe(lambda: None), Hasty()
        for at, chunk in enumerate((b"a", b"b", b"c")):
            if at == ahead:
                pipe.attach(sink)
            pipe.write(chunk)
        pipe.finish()
        assert (sink.taken, sink.ends) == (b"abc", 1)
