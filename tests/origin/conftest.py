"""A clock with timers, an answer that keeps what it is told, and a socket that does nothing."""

import asyncio
import socket

import pytest

from support import Clock, Transport
from univocal.http.messages import Received
from univocal.http.pipe import Pipe
from univocal.http.roles import OriginRequest
from univocal.origin.connection import Connection, PendingRequest
from univocal.origin.failures import Timeouts
from univocal.origin.http1 import spell


class AtOnce(Clock):
    """A loop that makes at once what is to be called soon."""

    def call_soon(self, callback, *arguments):
        callback(*arguments)


@pytest.fixture
def clock():
    return AtOnce(0.0)


class Told:
    """An answer that keeps what it is told, in order; `takes` is what it says to content."""

    def __init__(self):
        self.calls, self.takes = [], True

    def interim(self, status, fields):
        self.calls.append(("interim", status, fields))

    def start(self, response):
        self.calls.append(("start", response.status, response.fields))

    def write(self, chunk):
        self.calls.append(("write", chunk))
        return self.takes

    def finish(self):
        self.calls.append(("finish",))

    def fail(self, error):
        self.calls.append(("fail", type(error)))

    @property
    def names(self):
        return [call[0] for call in self.calls]

    @property
    def content(self):
        return b"".join(call[1] for call in self.calls if call[0] == "write")


@pytest.fixture
def answer():
    return Told()


class Given:
    """A request's content, and what its source was told."""

    def __init__(self):
        self.pipe, self.calls = Pipe(self.go_on, lambda: self.calls.append("begin")), []
        self.write, self.finish = self.pipe.write, self.pipe.finish

    def go_on(self):
        self.calls.append("detach" if self.pipe.is_unwanted else "resume")

    @property
    def is_awaited(self):
        """True if somebody is to hear that content has come."""
        return self.pipe._begun is not None


@pytest.fixture
def content():
    return Given()


class Wire(Transport):
    """A transport with a socket, over which nothing comes; reading stops and goes on by turns."""

    def __init__(self):
        self.near, self.far = socket.socketpair()
        super().__init__(socket=self.near)

    def pause_reading(self):
        assert not self.paused
        super().pause_reading()

    def resume_reading(self):
        assert self.paused
        super().resume_reading()


async def turns(number=5):
    """Wait for so many turns of the event loop."""
    for _ in range(number):
        await asyncio.sleep(0)


@pytest.fixture
def wire():
    wire = Wire()
    yield wire
    wire.near.close()
    wire.far.close()


class Kept:
    """A keeper that keeps what connections report."""

    def __init__(self):
        self.calls, self.repeated = [], []

    def put_back(self, connection):
        self.calls.append("put back")
        connection.stand_by(4)

    def withdraw(self, connection):
        self.calls.append("withdraw")

    def answered(self, connection):
        self.calls.append("answered")

    def lost(self, connection):
        self.calls.append("lost")

    def repeat(self, request):
        self.repeated.append(request)


@pytest.fixture
def keeper():
    return Kept()


@pytest.fixture
def connection(clock, keeper, wire):
    connection = Connection(clock, keeper, 1000)
    connection.connection_made(wire)
    return connection


@pytest.fixture
def pending():
    """Make a request: `pending(answer, method, fields, content)`."""

    def make(answer, method=b"GET", fields=(), content=None, **seconds):
        timeouts = Timeouts(**{"connect": 1, "read": 10, "write": 20, "pool": 1} | seconds)
        content = content and content.pipe
        asked = OriginRequest(method, b"/", [(b"host", b"a"), *fields], Received(method, b"/"), content)
        spell(asked)
        return PendingRequest(asked, answer, timeouts)

    return make


@pytest.fixture
def send(connection, pending, answer):
    """Send a request over the connection, and give it."""

    def begin(to=answer, **how):
        request = pending(to, **how)
        connection.send(request)
        return request

    return begin
